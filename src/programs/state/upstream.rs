//! Evaluates another server's answers about ledger entries: decides for which past ledgers the
//! present value holds, and stores the answers. Does not depend on how the server is queried.

use std::time::Duration;

use stellar_xdr::{LedgerEntry, LedgerKey, Limits, ReadXdr, WriteXdr};

use super::{StateError, UpstreamError};
use orrery_ledger::domain::{DEEPEST_VALUE, LedgerSeq, LiveEntries, LiveEntry};
use orrery_store::{KnownEntry, Store};

/// A server that holds the present state of the ledger, such as `getLedgerEntries` of stellar-rpc.
pub trait Upstream {
    /// Returns the entries that the server holds now under these keys. Blocks for up to `timeout`,
    /// plus the time it takes to find out whether the server fails only for this request.
    ///
    /// # Errors
    /// Fails when the server does not answer; the error tells whether only this request is
    /// affected.
    fn look_up(&self, keys: &[LedgerKey], timeout: Duration) -> Result<LiveEntries, UpstreamError>;
}

/// What an answer implies for one past ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Evidence {
    /// The entry had this value before, during and after that ledger, up to `to`.
    Present { entry: Vec<u8>, from: LedgerSeq, to: LedgerSeq, live_until: Option<u32> },
    /// The entry is absent as of this ledger, which is that ledger or a later one.
    AbsentAt(LedgerSeq),
    /// The entry was modified in that ledger or later, so its earlier value is not known.
    ChangedSince,
}

/// Returns what the stored answers imply for the entry in a ledger, or `None` when they imply
/// nothing.
pub(super) fn stored_evidence(
    store: &Store,
    ledger_key: &[u8],
    ledger: LedgerSeq,
) -> Result<Option<Evidence>, StateError> {
    let evidence = store
        .known_entries(ledger_key)
        .map_err(StateError::store)?
        .into_iter()
        .map(|known| evidence(known, ledger));
    // Stored answers are ordered by age: the oldest one that reaches the ledger applies.
    Ok(evidence.flatten().next())
}

fn evidence(known: KnownEntry, ledger: LedgerSeq) -> Option<Evidence> {
    let KnownEntry { from, to, entry, live_until } = known;
    match entry {
        _ if to < ledger => None,
        Some(entry) if from < ledger => Some(Evidence::Present { entry, from, to, live_until }),
        Some(_) => Some(Evidence::ChangedSince),
        None => Some(Evidence::AbsentAt(to)),
    }
}

/// Requests entries from the server, stores the answers, and returns what the answer for the first
/// key implies for a ledger. Fails with [`UpstreamError::Behind`] when the server has not reached
/// that ledger.
pub(super) fn request_evidence(
    upstream: &dyn Upstream,
    store: &Store,
    keys: &[LedgerKey],
    ledger: LedgerSeq,
    timeout: Duration,
) -> Result<Option<Evidence>, StateError> {
    let answer = match upstream.look_up(keys, timeout) {
        // The server may refuse the request because of one of the other keys.
        Err(UpstreamError::Refused(_)) if keys.len() > 1 => {
            return request_evidence(upstream, store, &keys[..1], ledger, timeout);
        }
        // The entry stays unknown when the server does not look its key up.
        Err(UpstreamError::Refused(_)) => return Ok(None),
        answer => answer?,
    };
    if answer.as_of < ledger {
        return Err(UpstreamError::Behind(answer.as_of, ledger).into());
    }
    let answers = store_answers(store, keys, answer)?;
    Ok(answers.into_iter().next().and_then(|(_, known)| evidence(known, ledger)))
}

/// Requests entries from the server, and stores the answers. Blocks for up to about `timeout`.
///
/// # Errors
/// When the server does not answer, or its answers are inconsistent; when the store fails.
pub fn look_up_and_store(
    upstream: &dyn Upstream,
    store: &Store,
    keys: &[LedgerKey],
    timeout: Duration,
) -> Result<(), StateError> {
    store_answers(store, keys, upstream.look_up(keys, timeout)?).map(drop)
}

fn store_answers(
    store: &Store,
    keys: &[LedgerKey],
    answer: LiveEntries,
) -> Result<Vec<(Vec<u8>, KnownEntry)>, StateError> {
    if answer.entries.len() != keys.len() {
        let (asked, got) = (keys.len(), answer.entries.len());
        let what = format!("the server was asked for {asked} ledger entries and returned {got}");
        return Err(UpstreamError::Inconsistent(what).into());
    }
    let mut answers = Vec::with_capacity(keys.len());
    for (key, found) in keys.iter().zip(answer.entries) {
        let to = answer.as_of;
        let known = match found {
            Some(LiveEntry { entry, live_until }) => KnownEntry {
                from: LedgerSeq(entry.last_modified_ledger_seq),
                to,
                entry: Some(xdr(&entry)?),
                live_until,
            },
            None => KnownEntry { from: to, to, entry: None, live_until: None },
        };
        if known.from > known.to {
            let what = format!(
                "the server says that a ledger entry was modified in ledger {}, after its latest ledger {to}",
                known.from
            );
            return Err(UpstreamError::Inconsistent(what).into());
        }
        answers.push((xdr(key)?, known));
    }
    store.put_known_entries(&answers).map_err(StateError::store)?;
    Ok(answers)
}

pub(super) fn xdr(value: &impl WriteXdr) -> Result<Vec<u8>, StateError> {
    value.to_xdr(Limits::none()).map_err(|_| StateError::Key)
}

/// Decodes the XDR of a stored entry of `ledger`.
pub(super) fn entry(xdr: &[u8], ledger: LedgerSeq) -> Result<LedgerEntry, StateError> {
    let limits = Limits { depth: DEEPEST_VALUE, len: xdr.len() };
    LedgerEntry::from_xdr(xdr, limits).map_err(|_| StateError::Damaged(ledger))
}
