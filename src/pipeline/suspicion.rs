//! Stored ledgers that trusted validators contradict: a source has made up ledgers at the tip, with
//! every hash right, and the next honest ledger follows another one.
//!
//! A signature binds a transaction set, and with it the ledger before, but not the number of its own
//! ledger: a genuine one can be put on a ledger with another number. So a ledger counts only if it can be
//! the one that its number says, and it alone shows nothing: those that follow it name its hash, and with
//! that its number, so the signatures of two organisations in one chain of ledgers are needed. Until
//! these have come, the ledgers wait, as those do that have to be attested.
//!
//! From then on nothing is stored that is not attested. If the stored ledgers are the network's, the
//! next ones are attested soon; a source with old ledgers of a network that was reset cannot stop
//! ingestion so.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::contradiction::{Contradiction, Signer, Trust, is_attested};
use super::queue::Prepared;
use orrery_ledger::domain::{CloseTime, LedgerHash, LedgerSeq, NodeId, Origin};
use orrery_ledger::validators::Validators;
use orrery_ledger::verify::VerifyError;
use orrery_store::{Store, StoreError};

/// Number of stored ledgers whose source is remembered: more than wait for an attestation.
const REMEMBERED: usize = 1000;
/// Number of organisations whose signatures show a contradiction, if that many are trusted.
const ORGANISATIONS: usize = 2;
/// Number of signed ledgers that show one: only what follows a ledger says which number it has.
const LEDGERS: usize = 2;

/// What is known of the sources of stored ledgers.
#[derive(Debug, Default)]
pub(super) struct Suspicion(Mutex<VecDeque<(LedgerSeq, Origin)>>);

impl Suspicion {
    /// Records where a stored ledger was read.
    pub(super) fn delivered(&self, ledger: LedgerSeq, origin: Origin) {
        let mut delivered = self.0.lock();
        delivered.push_back((ledger, origin));
        if delivered.len() > REMEMBERED {
            delivered.pop_front();
        }
    }

    /// Returns where a stored ledger was read, if that is remembered.
    fn source_of(&self, ledger: LedgerSeq) -> Option<String> {
        let delivered = self.0.lock();
        let found = delivered.iter().rev().find(|(at, _)| *at == ledger);
        found.map(|(_, origin)| origin.name.to_string())
    }
}

/// Forgets the recorded contradiction once the contradicted ledger is attested, so that it is the
/// network's.
pub(super) fn clear_if_settled(trust: &Trust, store: &Store) -> Result<(), StoreError> {
    let is_settled = store.contradiction().is_some()
        && Contradiction::of(store, trust.validators.as_deref()).is_none();
    if is_settled { store.set_contradiction(None) } else { Ok(()) }
}

/// A ledger that is stored, or about to be.
#[derive(Debug, Clone)]
pub(super) struct Before {
    pub sequence: LedgerSeq,
    pub hash: LedgerHash,
    /// Where it was read; `None` if it is stored.
    pub origin: Option<Origin>,
}

impl Before {
    /// The ledger before another one, if that is stored.
    pub(super) fn stored(store: &Store, sequence: LedgerSeq) -> Result<Option<Self>, StoreError> {
        let row = store.ledger(sequence)?;
        Ok(row.map(|row| Self { sequence, hash: row.hash, origin: None }))
    }
}

/// A chain of ledgers that wait because the first does not follow the stored ledger before it. No trusted
/// validator need have signed that one: signatures of those after it bind it.
pub(super) struct Contrary {
    origin: Origin,
    first: LedgerSeq,
    before: Before,
    signed: LedgerHash,
    signers: Vec<Signer>,
    /// Number of its ledgers that trusted validators have signed.
    count: usize,
}

impl Contrary {
    /// Begins such a chain; `None` when the ledger follows `before`, or cannot be the one that its number
    /// says, or `before` is attested.
    pub(super) fn begin(
        ledger: &Prepared,
        before: Before,
        validators: &Validators,
        store: &Store,
    ) -> Result<Option<Self>, StoreError> {
        let (origin, ledger) = ledger;
        let (link, closed) = (ledger.link(), ledger.close_time());
        if link.previous_hash == before.hash
            || is_attested(store, validators, before.sequence)
            || !may_be_next(closed, before.sequence, validators, store)?
            || store.holds_before(link.previous_hash, closed)?
        {
            return Ok(None);
        }
        let mut chain = Self {
            origin: origin.clone(),
            first: link.sequence,
            before,
            signed: link.previous_hash,
            signers: Vec::new(),
            count: 0,
        };
        chain.add(ledger.signer(), validators);
        Ok(Some(chain))
    }

    /// Adds the next ledger of the chain, which `signer` has signed.
    pub(super) fn add(&mut self, signer: Option<NodeId>, validators: &Validators) {
        let Some(signer) = signer else { return };
        let Some(organisation) = validators.organisation_of(&signer) else { return };
        self.count += 1;
        if self.signers.iter().all(|known| known.organisation != organisation) {
            self.signers.push(Signer::new(signer, organisation));
        }
    }

    /// Returns the contradiction, once the chain up to the ledger `last` shows it.
    pub(super) fn shown(
        &self,
        last: LedgerSeq,
        validators: &Validators,
        suspicion: &Suspicion,
        store: &Store,
    ) -> Option<Contradiction> {
        let needed = ORGANISATIONS.min(validators.organisations().len());
        if self.count < LEDGERS || self.signers.len() < needed {
            return None;
        }
        let before = &self.before;
        let of_stored = || suspicion.source_of(before.sequence);
        let name = before.origin.as_ref().map(|origin| origin.name.to_string());
        let mut ranges = store.signed().into_iter();
        let range = ranges.find(|(range, _)| range.contains(before.sequence));
        let attested = range.and_then(|(range, signed)| validators.attested(range, &signed).ok());
        Some(Contradiction {
            first: self.first.0,
            last: last.0,
            signers: self.signers.clone(),
            origin: self.origin.name.to_string(),
            signed: self.signed.to_string(),
            stored: before.hash.to_string(),
            delivered: name.or_else(of_stored),
            attested: attested.map(|ledger| ledger.0),
        })
    }

    /// Returns where the first ledger was read, and why it cannot be stored.
    pub(super) fn refused(&self) -> (Origin, StoreError) {
        let broken = VerifyError::BrokenLink {
            ledger: self.first,
            links_to: self.signed,
            previous: self.before.sequence,
            previous_hash: self.before.hash,
        };
        (self.origin.clone(), StoreError::Chain(broken))
    }
}

/// Returns whether a ledger that closed at `closed` can be the one after `before`: it closed later than
/// the newest attested ledger up to there. The time of `before` itself does not count, because who has
/// made it up has chosen that, too.
fn may_be_next(
    closed: CloseTime,
    before: LedgerSeq,
    validators: &Validators,
    store: &Store,
) -> Result<bool, StoreError> {
    let ranges = store.signed().into_iter().rev();
    let mut attested =
        ranges.filter_map(|(range, signed)| validators.attested(range, &signed).ok());
    let Some(attested) = attested.find(|ledger| *ledger <= before) else { return Ok(true) };
    let row = store.ledger(attested)?;
    Ok(row.is_none_or(|row| is_later(closed, row.close_time)))
}

/// Returns whether a ledger with this close time can follow one with the other.
fn is_later(closed: CloseTime, before: CloseTime) -> bool {
    match (closed.milliseconds(), before.milliseconds()) {
        (Some(closed), Some(before)) => closed > before,
        // The first ledger with milliseconds may be of the same second.
        (Some(_), None) => closed.seconds() >= before.seconds(),
        _ => closed.seconds() > before.seconds(),
    }
}
