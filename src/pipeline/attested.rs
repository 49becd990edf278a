//! Which ledgers may be stored: all of them, or with `trust.require_attested`, and after a
//! contradiction, only those that validators attest.

use std::sync::Arc;

use super::error::PipelineError;
use super::held::{Held, HeldError, Holdable};
use super::queue::Prepared;
use super::suspicion::Suspicion;
use super::trust::Trust;
use crate::domain::{LedgerSeq, NodeId, Origin};
use crate::store::{Store, StoreError};
use crate::validators::Validators;
use crate::verify::Link;

/// What the gate lets pass, and why it lets nothing more pass.
pub(super) type Admitted = (Vec<Prepared>, Result<(), PipelineError>);

/// Holds ledgers back until they may be stored.
pub(super) struct Gate<'p> {
    store: &'p Store,
    trust: &'p Trust,
    suspicion: &'p Suspicion,
    held: Option<Held<Prepared>>,
    /// Where the last ledger was read.
    last: Option<Origin>,
}

impl Holdable for Prepared {
    fn link(&self) -> Link {
        self.1.link()
    }

    fn signer(&self) -> Option<NodeId> {
        self.1.signer()
    }

    fn bytes(&self) -> usize {
        self.1.memory()
    }
}

impl<'p> Gate<'p> {
    /// Creates a gate at which no ledger waits.
    pub(super) fn new(store: &'p Store, trust: &'p Trust, suspicion: &'p Suspicion) -> Self {
        Self { store, trust, suspicion, held: None, last: None }
    }

    /// Adds ledgers, and returns those that may be stored now, in order.
    pub(super) fn admit(&mut self, ledgers: Vec<Prepared>) -> Admitted {
        let Some(validators) = self.required() else {
            let mut ready = self.held.take().map(Held::release).unwrap_or_default();
            ready.extend(ledgers);
            return (ready, Ok(()));
        };
        let mut ready = Vec::new();
        for ledger in ledgers {
            self.last = Some(ledger.0.clone());
            if let Err(error) = self.add(ledger, &validators, &mut ready) {
                self.held = None;
                return (ready, Err(error));
            }
        }
        (ready, Ok(()))
    }

    /// Returns the ledgers that wait, if stored ledgers after them attest them.
    pub(super) fn finish(&mut self) -> Admitted {
        let Some(validators) = self.required() else { return self.admit(Vec::new()) };
        let mut ready = Vec::new();
        let finished = self.end(&validators, &mut ready);
        (ready, finished)
    }

    /// Returns the validators that must attest ledgers before they are stored, if any must.
    fn required(&self) -> Option<Arc<Validators>> {
        let required = self.trust.require_attested || self.suspicion.is_raised();
        self.trust.validators.clone().filter(|_| required)
    }

    fn add(
        &mut self,
        ledger: Prepared,
        validators: &Arc<Validators>,
        ready: &mut Vec<Prepared>,
    ) -> Result<(), PipelineError> {
        let sequence = ledger.1.sequence();
        let is_stored = self.store.range_of(sequence).is_some();
        let continues = self.held.as_ref().is_none_or(|held| held.continues_with(sequence));
        if is_stored && !continues {
            // It is only compared with the stored one, in its turn.
            match &mut self.held {
                Some(held) => ready.extend(held.push_beside(ledger)),
                None => ready.push(ledger),
            }
            return Ok(());
        }
        if is_stored || !continues {
            self.end(validators, ready)?;
        }
        if is_stored {
            ready.push(ledger);
            return Ok(());
        }
        let held = self.held.get_or_insert_with(|| Held::new(Arc::clone(validators)));
        ready.extend(held.push(ledger).map_err(|error| self.error(error))?);
        Ok(())
    }

    /// Ends the chain of ledgers that wait.
    fn end(
        &mut self,
        validators: &Validators,
        ready: &mut Vec<Prepared>,
    ) -> Result<(), PipelineError> {
        let Some(mut held) = self.held.take() else { return Ok(()) };
        let above = held.next().map(|next| self.attested_link(next, validators)).transpose();
        let above = above.map_err(|source| match self.last.clone() {
            Some(origin) => PipelineError::Store { origin, source },
            None => PipelineError::Flush(source),
        })?;
        ready.extend(held.finish(above.flatten()).map_err(|error| self.error(error))?);
        Ok(())
    }

    /// Returns the link of a stored ledger that is attested.
    fn attested_link(
        &self,
        ledger: LedgerSeq,
        validators: &Validators,
    ) -> Result<Option<Link>, StoreError> {
        let ranges = self.store.attested(validators);
        let of_ledger = ranges.into_iter().find(|range| range.ledgers.contains(ledger));
        if !of_ledger.is_some_and(|range| range.attested.is_ok_and(|attested| attested >= ledger)) {
            return Ok(None);
        }
        let row = self.store.ledger(ledger)?;
        Ok(row.map(|row| Link {
            sequence: ledger,
            hash: row.hash,
            previous_hash: row.previous_hash,
        }))
    }

    fn error(&self, source: HeldError) -> PipelineError {
        let origin = self.last.clone();
        let origin = origin.unwrap_or_else(|| Origin { name: "the source".into(), position: None });
        let is_end = matches!(source, HeldError::End { .. });
        let error = PipelineError::Unattested { origin, source };
        if is_end { error } else { self.suspicion.instead_of(error) }
    }
}
