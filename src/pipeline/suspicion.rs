//! Stored ledgers that a trusted validator contradicts: a source has made up ledgers at the tip, with
//! every hash right, and the next honest ledger follows another one.
//!
//! From then on nothing is stored that is not attested. If the stored ledgers are the network's, the
//! next ones are attested soon; a source with old ledgers of a network that was reset cannot stop
//! ingestion so.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::contradiction::Contradiction;
use super::error::PipelineError;
use super::trust::Trust;
use crate::domain::{LedgerSeq, NodeId, Origin};
use crate::store::{Store, StoreError};
use crate::verify::VerifyError;

/// Number of stored ledgers whose source is remembered: more than wait for an attestation.
const REMEMBERED: usize = 1000;

/// What is known of the sources of stored ledgers.
#[derive(Debug, Default)]
pub(super) struct Suspicion(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Sources of the ledgers stored last.
    delivered: VecDeque<(LedgerSeq, Origin)>,
    contradiction: Option<Contradiction>,
}

impl Suspicion {
    /// Records where a stored ledger was read.
    pub(super) fn delivered(&self, ledger: LedgerSeq, origin: Origin) {
        let mut state = self.0.lock();
        state.delivered.push_back((ledger, origin));
        if state.delivered.len() > REMEMBERED {
            state.delivered.pop_front();
        }
    }

    /// Whether a trusted validator contradicts what is stored.
    pub(super) fn is_raised(&self) -> bool {
        self.0.lock().contradiction.is_some()
    }

    /// Returns the contradiction, if there is one.
    pub(super) fn contradiction(&self) -> Option<Contradiction> {
        self.0.lock().contradiction.clone()
    }

    /// Forgets the contradiction once the contradicted ledger is attested, so that it is the network's.
    pub(super) fn clear_if_attested(&self, trust: &Trust, store: &Store) {
        let mut state = self.0.lock();
        let (Some(known), Some(validators)) = (&state.contradiction, &trust.validators) else {
            return;
        };
        let contradicted = LedgerSeq(known.ledger.0.saturating_sub(1));
        let mut ranges = store.attested(validators).into_iter();
        let range = ranges.find(|range| range.ledgers.contains(contradicted));
        if range.is_some_and(|range| range.attested.is_ok_and(|attested| attested >= contradicted))
        {
            state.contradiction = None;
        }
    }

    /// Returns the contradiction, if there is one, instead of another error.
    pub(super) fn instead_of(&self, error: PipelineError) -> PipelineError {
        match &self.0.lock().contradiction {
            Some(known) => PipelineError::Contradicted(Box::new(known.clone())),
            None => error,
        }
    }

    /// Returns the error of a ledger that could not be stored, which `signer` has signed: the
    /// contradiction, if it does not follow the stored ledger, and that one is not attested.
    pub(super) fn explain(
        &self,
        origin: Origin,
        error: StoreError,
        signer: Option<NodeId>,
        trust: &Trust,
        store: &Store,
    ) -> PipelineError {
        let found = match (&error, signer) {
            (StoreError::Chain(broken), Some(validator)) => {
                self.find(&origin, broken, validator, trust, store)
            }
            _ => None,
        };
        match found {
            Some(found) => {
                self.0.lock().contradiction = Some(found.clone());
                PipelineError::Contradicted(Box::new(found))
            }
            None => PipelineError::Store { origin, source: error },
        }
    }

    fn find(
        &self,
        origin: &Origin,
        error: &VerifyError,
        validator: NodeId,
        trust: &Trust,
        store: &Store,
    ) -> Option<Contradiction> {
        let VerifyError::BrokenLink { ledger, links_to, previous, previous_hash } = error else {
            return None;
        };
        let validators = trust.validators.as_ref()?;
        let range = store.attested(validators).into_iter();
        let range = range.into_iter().find(|range| range.ledgers.contains(*previous))?;
        let attested = range.attested.ok();
        if attested >= Some(*previous) {
            return None;
        }
        let delivered =
            self.0.lock().delivered.iter().rev().find(|(at, _)| at == previous).cloned();
        Some(Contradiction {
            origin: origin.clone(),
            ledger: *ledger,
            validator,
            organisation: validators.organisation_of(&validator)?.to_owned(),
            signed: *links_to,
            stored: *previous_hash,
            delivered: delivered.map(|(_, origin)| origin),
            attested,
        })
    }
}
