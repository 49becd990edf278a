//! Whose signatures count, and how these validators contradict what is stored, in words for the operator,
//! and as the store keeps it: what one process has found, every later one knows.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use orrery_ledger::domain::{LedgerSeq, NodeId};
use orrery_ledger::validators::Validators;
use orrery_ledger::verify::Policy;
use orrery_store::{Store, StoreError};

/// What is checked of ledgers, and whose signatures count.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// What is done about ledgers that are not as their headers say.
    pub policy: Policy,
    /// The validators whose signatures the store records; `None` to record none.
    pub validators: Option<Arc<Validators>>,
    /// Whether ledgers are stored only once they are attested.
    pub require_attested: bool,
}

/// Trusted validators have signed ledgers that follow another one than the stored one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct Contradiction {
    /// The first ledger that contradicts.
    pub first: u32,
    /// The last of those that showed it, each of which follows the one before.
    pub last: u32,
    /// The validators that have signed these.
    pub signers: Vec<Signer>,
    /// The source that delivered them, and was asked after the other one.
    pub origin: String,
    /// Hash of the ledger before the first, according to that ledger.
    pub signed: String,
    /// Hash of the stored ledger before it.
    pub stored: String,
    /// The source that delivered the stored ledger; `None` if that is not known any more.
    pub delivered: Option<String>,
    /// The newest stored ledger that was attested then.
    pub attested: Option<u32>,
}

/// A validator that has signed a ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signer {
    /// Its key.
    pub validator: String,
    /// Its organisation.
    pub organisation: String,
}

impl Signer {
    /// A validator of an organisation.
    pub(super) fn new(validator: NodeId, organisation: &str) -> Self {
        Self { validator: validator.to_string(), organisation: organisation.to_owned() }
    }
}

impl Contradiction {
    /// Returns the contradiction that is recorded with the ledgers of a store; `None` when there is none,
    /// or when these validators have attested the contradicted ledger since, or it is not stored any
    /// more.
    pub fn of(store: &Store, validators: Option<&Validators>) -> Option<Self> {
        let recorded = store.contradiction()?;
        // Only `record` writes the row.
        let found: Self = serde_json::from_slice(&recorded).ok()?;
        found.holds(store, validators).then_some(found)
    }

    /// Records the contradiction with the ledgers of a store. It is on disk when this returns.
    pub(super) fn record(&self, store: &Store) -> Result<(), StoreError> {
        let encoded = serde_json::to_vec(self);
        let encoded = encoded.map_err(|error| StoreError::Database(error.to_string()))?;
        store.set_contradiction(Some(&encoded))
    }

    /// The stored ledger that is contradicted.
    fn contradicted(&self) -> LedgerSeq {
        LedgerSeq(self.first.saturating_sub(1))
    }

    fn holds(&self, store: &Store, validators: Option<&Validators>) -> bool {
        let ledger = self.contradicted();
        // An error of the database is no reason to forget it.
        let is_there = match store.ledger(ledger) {
            Ok(row) => row.is_some_and(|row| row.hash.to_string() == self.stored),
            Err(_) => true,
        };
        is_there && validators.is_none_or(|known| !is_attested(store, known, ledger))
    }
}

/// Returns whether a stored ledger is attested.
pub(super) fn is_attested(store: &Store, validators: &Validators, ledger: LedgerSeq) -> bool {
    let mut ranges = store.signed().into_iter();
    let range = ranges.find(|(range, _)| range.contains(ledger));
    let attested = range.and_then(|(range, signed)| validators.attested(range, &signed).ok());
    attested >= Some(ledger)
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last, signers, origin, signed, stored, .. } = self;
        let before = self.contradicted();
        f.write_str("validators of ")?;
        for (at, signer) in signers.iter().enumerate() {
            let comma = if at == 0 { "" } else { " and " };
            write!(f, "{comma}{} ({})", signer.organisation, signer.validator)?;
        }
        write!(f, " have signed ")?;
        match first == last {
            true => write!(f, "ledger {first}")?,
            false => write!(f, "ledgers {first} to {last}")?,
        }
        write!(f, ", which {origin} delivered, on top of a ledger {before} with hash {signed}, ")?;
        write!(f, "but the stored ledger {before}, which ")?;
        match &self.delivered {
            Some(delivered) => write!(f, "{delivered} delivered before, ")?,
            None => write!(f, "was delivered before by a source that is not recorded, ")?,
        }
        write!(
            f,
            "has hash {stored}: one of the two sources is wrong, or the network was reset. "
        )?;
        write!(f, "Until that is settled only ledgers that validators attest are stored. If the ")?;
        write!(f, "stored ledgers are the network's, the next ones settle it by themselves; if ")?;
        write!(f, "not, remove the source that delivered them and import again ")?;
        match self.attested {
            Some(attested) => write!(f, "what follows ledger {attested}, the last attested one, "),
            None => write!(f, "all ledgers, of which none is attested, "),
        }?;
        write!(f, "into a new data directory or a restored backup")
    }
}
