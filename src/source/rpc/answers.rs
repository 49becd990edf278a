//! Results of the stellar-rpc methods that following needs, and the verification of a page of
//! ledgers: sequences, hashes and links. Performs no I/O.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use orrery_ledger::decode;
use orrery_ledger::domain::{LedgerHash, LedgerSeq, Origin, RawLedger};
use orrery_ledger::verify::{Link, verify_header, verify_link};
use serde::{Deserialize, Serialize};

use super::call::{Answer, CallError};

/// Result of `getNetwork`.
#[derive(Debug, Deserialize)]
pub struct NetworkAnswer {
    pub passphrase: String,
}

/// Result of `getHealth`; old servers leave the ledgers out.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthAnswer {
    pub status: Option<String>,
    pub latest_ledger: Option<u32>,
    pub oldest_ledger: Option<u32>,
}

/// Result of `getLatestLedger`.
#[derive(Debug, Deserialize)]
pub struct LatestAnswer {
    pub sequence: u32,
}

/// Parameters of `getLedgers`. The XDR format is left out: it defaults to base64, and some servers
/// do not support the parameter.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgersParams<'a> {
    /// Absent when there is a cursor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_ledger: Option<u32>,
    pub pagination: Pagination<'a>,
}

/// Part of the parameters of `getLedgers`.
#[derive(Debug, Serialize)]
pub struct Pagination<'a> {
    /// Sequence of the last ledger received, in decimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<&'a str>,
    pub limit: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LedgersAnswer<'a> {
    #[serde(borrow)]
    ledgers: Vec<LedgerItem<'a>>,
    latest_ledger: Option<u32>,
    oldest_ledger: Option<u32>,
    cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LedgerItem<'a> {
    sequence: u32,
    hash: Option<String>,
    #[serde(borrow)]
    metadata_xdr: Cow<'a, str>,
}

/// Verified ledgers of a response, in ascending order.
#[derive(Debug)]
pub struct Page {
    pub ledgers: Vec<RawLedger>,
    /// Chain link of the last ledger of the page; `None` when the page has no ledgers.
    pub last: Option<Link>,
    /// Why ledgers of the response were left out; `None` when all are valid.
    pub fault: Option<String>,
    /// Number of ledgers in the response, including those left out.
    pub returned: u32,
    /// Length of the response in bytes after decompression.
    pub bytes: u64,
    pub oldest: Option<LedgerSeq>,
    pub latest: Option<LedgerSeq>,
    pub cursor: Option<String>,
}

/// Reads and verifies a response to `getLedgers`. `before` is the ledger that precedes the page,
/// when it is known; `address` identifies the server in origins.
pub fn read_page(answer: &Answer, address: &str, before: Option<Link>) -> Result<Page, CallError> {
    let read: LedgersAnswer<'_> = answer.read()?;
    let mut fault = None;
    let mut taken = Vec::with_capacity(read.ledgers.len());
    for item in &read.ledgers {
        match decode_item(item, address) {
            Ok(ledger) => taken.push(ledger),
            Err(reason) => {
                fault = Some(reason);
                break;
            }
        }
    }
    taken.sort_by_key(|(_, link)| link.sequence);
    if let Err((linked, reason)) = check_links(before, &taken) {
        // Without a ledger before the page, either side of the broken link may be the wrong one.
        taken.truncate(if before.is_some() { linked } else { 0 });
        fault = Some(reason);
    }
    Ok(Page {
        last: taken.last().map(|(_, link)| *link),
        ledgers: taken.into_iter().map(|(ledger, _)| ledger).collect(),
        fault,
        returned: u32::try_from(read.ledgers.len()).unwrap_or(u32::MAX),
        bytes: answer.bytes(),
        oldest: read.oldest_ledger.filter(|oldest| *oldest > 0).map(LedgerSeq),
        latest: read.latest_ledger.map(LedgerSeq),
        cursor: read.cursor,
    })
}

/// Decodes one ledger of a response and verifies the sequence and the hashes that came with it.
fn decode_item(item: &LedgerItem<'_>, address: &str) -> Result<(RawLedger, Link), String> {
    let stated = LedgerSeq(item.sequence);
    let xdr = STANDARD
        .decode(item.metadata_xdr.as_bytes())
        .map_err(|error| format!("the metadata of ledger {stated} is not base64 ({error})"))?;
    let header = decode::header(&xdr).map_err(|error| error.to_string())?;
    if header.sequence != stated {
        return Err(format!("ledger {} under the number {stated}", header.sequence));
    }
    verify_header(&header).map_err(|error| error.to_string())?;
    let named = item.hash.as_deref().map(str::parse::<LedgerHash>);
    if named.is_some_and(|named| named.as_ref() != Ok(&header.hash)) {
        return Err(format!("ledger {stated} under a hash that is not {}", header.hash));
    }
    let link = Link::from(&header);
    let origin = Origin { name: format!("{address}, ledger {stated}").into(), position: None };
    Ok((RawLedger { sequence: stated, xdr, compressed: None, origin }, link))
}

/// Checks the links between neighbours of ascending ledgers. Leaves gaps and repeats to the
/// follower. An error contains the number of ledgers before the first fault.
fn check_links(before: Option<Link>, ledgers: &[(RawLedger, Link)]) -> Result<(), (usize, String)> {
    let mut previous = before;
    for (position, (_, link)) in ledgers.iter().enumerate() {
        if let Some(previous) = previous {
            let fault = if previous.sequence.next() == Some(link.sequence) {
                verify_link(&previous, link).err().map(|error| error.to_string())
            } else {
                let differs = previous.sequence == link.sequence && previous.hash != link.hash;
                differs.then(|| format!("two ledgers under the number {}", link.sequence))
            };
            if let Some(fault) = fault {
                return Err((position, fault));
            }
        }
        if previous.is_none_or(|previous| previous.sequence <= link.sequence) {
            previous = Some(*link);
        }
    }
    Ok(())
}

/// Parses the window from an error message of stellar-rpc: `… must be between the oldest ledger: A
/// and the latest ledger: B for this rpc instance`.
pub fn window_of(message: &str) -> Option<(LedgerSeq, LedgerSeq)> {
    let oldest = number_after(message, "oldest ledger: ")?;
    let latest = number_after(message, "latest ledger: ")?;
    Some((LedgerSeq(oldest), LedgerSeq(latest)))
}

/// Parses the maximum page size from an error message of stellar-rpc: `limit must not exceed N`.
pub fn limit_of(message: &str) -> Option<u32> {
    number_after(message, "limit must not exceed ")
}

fn number_after(message: &str, words: &str) -> Option<u32> {
    let (_, rest) = message.split_once(words)?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}
