//! `getLedgers` and `getLatestLedger`.

use std::ops::ControlFlow;

use serde::Serialize;
use serde_json::value::RawValue;
use stellar_xdr::{LedgerCloseMeta, LedgerHeaderHistoryEntry};

use super::params::{FromLedger, XdrFormat};
use super::range::{Needed, Range};
use super::{Allowed, MOST_ANSWERED, Outcome, Params, Rpc, RpcError, not_readable, result, xdr};
use crate::decode::{HeaderView, LedgerView, decode, header};
use crate::domain::LedgerSeq;

/// Ledgers of a page unless it says otherwise.
const USUAL_LIMIT: u64 = 50;
/// Ledgers, or transactions, of the largest page.
const MOST: u64 = 200;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    ledgers: Vec<Ledger>,
    latest_ledger: u32,
    latest_ledger_close_time: u64,
    oldest_ledger: u32,
    oldest_ledger_close_time: u64,
    cursor: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Ledger {
    hash: String,
    sequence: u32,
    ledger_close_time: String,
    /// `LedgerHeaderHistoryEntry`; empty where it is shown as JSON.
    header_xdr: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    header_json: Option<Box<RawValue>>,
    /// `LedgerCloseMeta`; empty where it is shown as JSON.
    metadata_xdr: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata_json: Option<Box<RawValue>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Latest {
    id: String,
    protocol_version: u32,
    sequence: u32,
    close_time: String,
    /// `LedgerHeader`.
    header_xdr: String,
    /// `LedgerCloseMeta`.
    metadata_xdr: String,
}

/// Which page of ledgers, or of transactions.
#[derive(Debug)]
pub(super) struct Which<'a> {
    pub start: u32,
    pub cursor: Option<&'a str>,
    pub limit: usize,
    pub format: XdrFormat,
}

impl<'a> Which<'a> {
    /// What a request asks for. What is wrong is said as the reference says it.
    pub(super) fn read(request: &'a FromLedger, range: &Range) -> Result<Self, RpcError> {
        let (start, cursor) = (request.start_ledger.unwrap_or(0), request.cursor());
        let Range { oldest, latest, .. } = *range;
        let limit = request.limit().filter(|limit| *limit > 0).unwrap_or(USUAL_LIMIT);
        let problem = match cursor {
            Some(cursor) if start != 0 => Some(format!(
                "startLedger ({start}) and cursor ({}) cannot both be set",
                crate::domain::excerpt(cursor)
            )),
            None if !range.contains(start.into()) => Some(format!(
                "start ledger ({start}) must be between the oldest ledger: {oldest} and the latest ledger: \
                 {latest} for this rpc instance"
            )),
            _ if limit > MOST => Some(format!("limit must not exceed {MOST}")),
            _ => None,
        };
        match (problem, XdrFormat::parse(request.xdr_format.as_deref())) {
            // At most 200, checked above.
            (None, Ok(format)) => Ok(Self { start, cursor, limit: limit as usize, format }),
            (of_page, of_format) => {
                let problems: Vec<_> = of_page.into_iter().chain(of_format.err()).collect();
                Err(RpcError::invalid_request(problems.join("\n")))
            }
        }
    }
}

impl Rpc {
    pub(super) fn get_ledgers(&self, params: Params<'_>, allowed: Allowed<'_>) -> Outcome {
        let request: FromLedger = params.read()?;
        let range = self.range(Needed::RawLedger)?;
        let Which { start, cursor, limit, format } = Which::read(&request, &range)?;
        let first = match cursor {
            None => LedgerSeq(start),
            Some(cursor) => behind(cursor, &range)?,
        };
        let mut ledgers: Vec<Ledger> = Vec::new();
        let mut bytes = 0;
        for sequence in (first.0..=range.latest.0).take(limit) {
            let ledger = self.shown(LedgerSeq(sequence), format)?;
            bytes += ledger.size();
            let is_over = bytes > MOST_ANSWERED
                || (allowed.goes_on)(bytes) == ControlFlow::Break(())
                || (allowed.bounds.interrupted)();
            // One at least, or clients that follow the cursor would never get on.
            if is_over && !ledgers.is_empty() {
                break;
            }
            ledgers.push(ledger);
        }
        let last = ledgers.last().map_or(first.0.saturating_sub(1), |ledger| ledger.sequence);
        result(&Page {
            ledgers,
            latest_ledger: range.latest.0,
            latest_ledger_close_time: range.latest_closed_at,
            oldest_ledger: range.oldest.0,
            oldest_ledger_close_time: range.oldest_closed_at,
            cursor: last.to_string(),
        })
    }

    fn shown(&self, sequence: LedgerSeq, format: XdrFormat) -> Result<Ledger, RpcError> {
        let raw = self.raw(sequence)?;
        let header = header(&raw).map_err(|error| not_readable(sequence, &error))?;
        let entry = header_entry(&header);
        let mut shown = Ledger {
            hash: header.hash.to_string(),
            sequence: sequence.0,
            ledger_close_time: header.close_time.to_string(),
            header_xdr: String::new(),
            header_json: None,
            metadata_xdr: String::new(),
            metadata_json: None,
        };
        match format {
            XdrFormat::Base64 => {
                shown.header_xdr = xdr::base64(&entry);
                shown.metadata_xdr = xdr::base64(&raw);
            }
            XdrFormat::Json => {
                shown.header_json = Some(xdr::json::<LedgerHeaderHistoryEntry>(&entry)?);
                shown.metadata_json = Some(xdr::json::<LedgerCloseMeta>(&raw)?);
            }
        }
        Ok(shown)
    }

    pub(super) fn get_latest_ledger(&self, _: Params<'_>, _: Allowed<'_>) -> Outcome {
        let latest = self.range(Needed::RawLedger)?.latest;
        let raw = self.raw(latest)?;
        let header = header(&raw).map_err(|error| not_readable(latest, &error))?;
        result(&Latest {
            id: header.hash.to_string(),
            protocol_version: header.protocol,
            sequence: latest.0,
            close_time: header.close_time.to_string(),
            header_xdr: xdr::base64(header.xdr),
            metadata_xdr: xdr::base64(&raw),
        })
    }

    /// The `LedgerCloseMeta` of a ledger.
    fn raw(&self, sequence: LedgerSeq) -> Result<Vec<u8>, RpcError> {
        self.store.raw_ledger(sequence)?.ok_or_else(|| no_metadata(sequence))
    }

    /// Reads a ledger whose raw form is stored.
    pub(super) fn with_ledger<T>(
        &self,
        sequence: LedgerSeq,
        read: impl FnOnce(&LedgerView<'_>) -> Result<T, RpcError>,
    ) -> Result<T, RpcError> {
        self.with_ledger_if_kept(sequence, read)?.ok_or_else(|| no_metadata(sequence))
    }

    /// Reads a ledger, if its raw form is stored.
    pub(super) fn with_ledger_if_kept<T>(
        &self,
        sequence: LedgerSeq,
        read: impl FnOnce(&LedgerView<'_>) -> Result<T, RpcError>,
    ) -> Result<Option<T>, RpcError> {
        let Some(raw) = self.store.raw_ledger(sequence)? else { return Ok(None) };
        let ledger = decode(&raw, self.store.network().id())
            .map_err(|error| not_readable(sequence, &error))?;
        read(&ledger).map(Some)
    }
}

/// As the reference says that a ledger is not there.
pub(super) fn no_metadata(sequence: LedgerSeq) -> RpcError {
    RpcError::invalid_params(format!("database does not contain metadata for ledger: {sequence}"))
}

/// The ledger with which a page behind a cursor begins.
fn behind(cursor: &str, range: &Range) -> Result<LedgerSeq, RpcError> {
    let passed: u32 = cursor.parse().map_err(|_| {
        let cursor = crate::domain::excerpt(cursor);
        RpcError::invalid_params(format!("cursor ('{cursor}') is not the number of a ledger"))
    })?;
    let first = u64::from(passed) + 1;
    if !range.contains(first) {
        return Err(RpcError::invalid_params(format!(
            "cursor ('{passed}') must be between the oldest ledger: {} and the latest ledger: {} for this rpc \
             instance",
            range.oldest, range.latest
        )));
    }
    // It is in the range.
    Ok(LedgerSeq(first as u32))
}

/// XDR `LedgerHeaderHistoryEntry`: hash, header, and an extension that is empty in all there are.
fn header_entry(header: &HeaderView<'_>) -> Vec<u8> {
    [header.hash.as_bytes().as_slice(), header.xdr, &[0; 4]].concat()
}

impl Ledger {
    /// About as many bytes as it takes in an answer.
    fn size(&self) -> usize {
        let json =
            |value: &Option<Box<RawValue>>| value.as_ref().map_or(0, |json| json.get().len());
        let of_json = json(&self.header_json) + json(&self.metadata_json);
        300 + self.header_xdr.len() + self.metadata_xdr.len() + of_json
    }
}
