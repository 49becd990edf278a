//! Another server's word on entries: what it holds now, for which past ledgers that can be believed,
//! and remembering it. Leaves to others how such a server is asked.

use std::time::Duration;

use stellar_xdr::{LedgerEntry, LedgerKey, Limits, ReadXdr, WriteXdr};

use super::StateError;
use crate::domain::LedgerSeq;
use crate::store::{KnownEntry, Store};

/// A server that knows the present state of the ledger, such as `getLedgerEntries` of stellar-rpc.
pub trait Upstream {
    /// What it holds now under these keys. Blocks, for as long as `within` and what it takes to find out
    /// whether it is the question that is not answered.
    ///
    /// # Errors
    /// When there is no answer, and whether that is for this question alone.
    fn look_up(
        &self,
        keys: &[LedgerKey],
        within: Duration,
    ) -> Result<UpstreamAnswer, UpstreamError>;
}

/// What a server holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamAnswer {
    /// The ledger after which it was so.
    pub as_of: LedgerSeq,
    /// For each key in the order of the question; none when there is no such entry.
    pub entries: Vec<Option<UpstreamEntry>>,
}

/// One entry that a server holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamEntry {
    /// The entry, with the ledger in which it was last modified.
    pub entry: LedgerEntry,
    /// The last ledger in which it is live; 0 when it is archived, none when it lives for ever or that
    /// is not known.
    pub live_until: Option<u32>,
}

/// Why a server did not answer. The sentences are for the operator: they name the server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// It does not answer this question, and does answer others.
    #[error("{0}")]
    Refused(String),
    /// It answers no question.
    #[error("{0}")]
    OutOfReach(String),
    /// It has not got as far as the ledger that is run.
    #[error("the server has got as far as ledger {0}, and {1} is run")]
    Behind(LedgerSeq, LedgerSeq),
    /// It contradicts itself.
    #[error("{0}")]
    Odd(String),
    /// It is not asked on this thread, because others would wait for the answer.
    #[error("the server is not asked in this turn")]
    NotNow,
    /// Too many questions are being asked.
    #[error("too many questions are being asked of the server at a time")]
    Busy,
}

/// What of an answer holds for one past ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    /// It was so before, during and after that ledger, up to `to`.
    There { entry: Vec<u8>, from: LedgerSeq, to: LedgerSeq, live_until: Option<u32> },
    /// It is absent as of a ledger that is not before that one.
    AbsentAt(LedgerSeq),
    /// It is known that it was changed since.
    ChangedSince,
}

/// What is remembered of an entry, as far as it says something of a ledger.
pub(super) fn remembered(
    store: &Store,
    ledger_key: &[u8],
    ledger: LedgerSeq,
) -> Result<Option<Said>, StateError> {
    let said = store.known_entries(ledger_key)?.into_iter().map(|known| said(known, ledger));
    // Of what it was in that ledger and what it became later, the first.
    Ok(said.flatten().next())
}

fn said(known: KnownEntry, ledger: LedgerSeq) -> Option<Said> {
    let KnownEntry { from, to, entry, live_until } = known;
    match entry {
        _ if to < ledger => None,
        Some(entry) if from < ledger => Some(Said::There { entry, from, to, live_until }),
        Some(_) => Some(Said::ChangedSince),
        None => Some(Said::AbsentAt(to)),
    }
}

/// Asks for entries, and remembers the answers; gives what that to the first key says of a ledger.
/// A server that has not got as far as that ledger has to be asked again.
pub(super) fn ask(
    upstream: &dyn Upstream,
    store: &Store,
    keys: &[LedgerKey],
    ledger: LedgerSeq,
    within: Duration,
) -> Result<Option<Said>, StateError> {
    let answer = match upstream.look_up(keys, within) {
        // Another key of the question may be the one that is refused.
        Err(UpstreamError::Refused(_)) if keys.len() > 1 => {
            return ask(upstream, store, &keys[..1], ledger, within);
        }
        // Nobody can say what is under a key that the server does not look up.
        Err(UpstreamError::Refused(_)) => return Ok(None),
        answer => answer?,
    };
    if answer.entries.len() != keys.len() {
        let (asked, got) = (keys.len(), answer.entries.len());
        let what = format!("the server that was asked for {asked} ledger entries answers {got}");
        return Err(UpstreamError::Odd(what).into());
    }
    if answer.as_of < ledger {
        return Err(UpstreamError::Behind(answer.as_of, ledger).into());
    }
    let mut answers = Vec::with_capacity(keys.len());
    for (key, found) in keys.iter().zip(answer.entries) {
        let to = answer.as_of;
        let known = match found {
            Some(UpstreamEntry { entry, live_until }) => KnownEntry {
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
            return Err(UpstreamError::Odd(what).into());
        }
        answers.push((xdr(key)?, known));
    }
    store.remember_entries(&answers)?;
    Ok(answers.into_iter().next().and_then(|(_, known)| said(known, ledger)))
}

pub(super) fn xdr(value: &impl WriteXdr) -> Result<Vec<u8>, StateError> {
    value.to_xdr(Limits::none()).map_err(|_| StateError::Key)
}

/// An entry from its XDR, which is stored.
pub(super) fn entry(xdr: &[u8], ledger: LedgerSeq) -> Result<LedgerEntry, StateError> {
    let limits = Limits { depth: 500, len: xdr.len() };
    LedgerEntry::from_xdr(xdr, limits).map_err(|_| StateError::Damaged(ledger))
}
