//! Which ledgers may be stored: all of them, or with `trust.require_attested`, and after a
//! contradiction, only those that validators attest. Ledgers that may show a contradiction wait, too.

use std::sync::Arc;

use super::contradiction::{Contradiction, Trust, is_attested};
use super::error::PipelineError;
use super::held::{Held, HeldError};
use super::queue::Prepared;
use super::suspicion::{Before, Contrary, Suspicion};
use super::waiting::{Place, WaitingLedgers};
use orrery_ledger::domain::{LedgerSeq, Origin};
use orrery_ledger::validators::Validators;
use orrery_ledger::verify::Link;
use orrery_store::{Store, StoreError};

/// What the gate lets pass, and why it lets nothing more pass.
pub(super) type Admitted = (Vec<Prepared>, Result<(), PipelineError>);

/// Holds ledgers back until they may be stored. It may outlive one run of the pipeline, so that what waits
/// at the end of the ledgers of one run goes on with those of the next.
pub struct Gate {
    store: Arc<Store>,
    trust: Trust,
    suspicion: Arc<Suspicion>,
    waiting: Place,
    held: Option<Held<Prepared>>,
    /// What the chain that waits shows, if it contradicts what is stored.
    contrary: Option<Contrary>,
    /// Where the last ledger was read.
    last: Option<Origin>,
    /// The last ledger that was let pass, which may not be stored yet.
    passed: Option<Before>,
}

impl Gate {
    /// Creates a gate at which no ledger waits.
    pub(super) fn new(
        store: &Arc<Store>,
        trust: &Trust,
        suspicion: &Arc<Suspicion>,
        waiting: &Arc<WaitingLedgers>,
    ) -> Self {
        Self {
            store: Arc::clone(store),
            trust: trust.clone(),
            suspicion: Arc::clone(suspicion),
            waiting: waiting.place(),
            held: None,
            contrary: None,
            last: None,
            passed: None,
        }
    }

    /// Returns the number of ledgers that wait.
    pub fn waiting(&self) -> u64 {
        self.held.as_ref().map_or(0, |held| held.count() as u64)
    }

    /// Adds ledgers, and returns those that may be stored now, in order.
    pub(super) fn admit(&mut self, ledgers: Vec<Prepared>) -> Admitted {
        let Some(validators) = self.trust.validators.clone() else { return (ledgers, Ok(())) };
        let mut ready = Vec::new();
        if !self.is_attestation_required() && self.contrary.is_none() {
            ready.extend(self.held.take().map(Held::release).unwrap_or_default());
        }
        for ledger in ledgers {
            self.last = Some(ledger.0.clone());
            if let Err(error) = self.add(ledger, &validators, &mut ready) {
                self.forget();
                return (ready, Err(error));
            }
        }
        self.show_waiting();
        (ready, Ok(()))
    }

    /// Returns the ledgers that wait, if stored ledgers after them attest them.
    pub(super) fn finish(&mut self) -> Admitted {
        let (mut ready, admitted) = self.admit(Vec::new());
        let Some(validators) = self.trust.validators.clone() else { return (ready, admitted) };
        let finished = admitted.and_then(|()| self.end(&validators, &mut ready));
        self.show_waiting();
        (ready, finished)
    }

    /// Gives up the ledgers that wait.
    pub(super) fn forget(&mut self) {
        (self.held, self.contrary) = (None, None);
        self.show_waiting();
    }

    /// Returns whether only attested ledgers may be stored.
    fn is_attestation_required(&self) -> bool {
        // One that is recorded may be settled, where the process was killed before it forgot it.
        let is_contradicted =
            || Contradiction::of(&self.store, self.trust.validators.as_deref()).is_some();
        self.trust.require_attested || is_contradicted()
    }

    fn show_waiting(&self) {
        self.waiting.set(self.held.as_ref().and_then(Held::range));
    }

    fn add(
        &mut self,
        ledger: Prepared,
        validators: &Arc<Validators>,
        ready: &mut Vec<Prepared>,
    ) -> Result<(), PipelineError> {
        let (link, signer) = (ledger.1.link(), ledger.1.signer());
        let sequence = link.sequence;
        let is_stored = self.store.range_of(sequence).is_some();
        let continues = self.held.as_ref().is_none_or(|held| held.continues_with(sequence));
        if is_stored && !continues {
            // It is only compared with the stored one, in its turn.
            match &mut self.held {
                Some(held) => {
                    let bytes = ledger.1.memory();
                    ready.extend(held.push_beside(ledger, bytes));
                }
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
        if self.held.is_none() {
            self.contrary = self.contrary_chain(&ledger, validators)?;
            if self.contrary.is_none() && !self.is_attestation_required() {
                self.pass(ledger, ready);
                return Ok(());
            }
        } else if let Some(contrary) = &mut self.contrary
            && self.held.as_ref().is_some_and(|held| held.fits(&link))
        {
            contrary.add(signer, validators);
        }
        let held = self.held.get_or_insert_with(|| Held::new(Arc::clone(validators)));
        let bytes = ledger.1.memory();
        let pushed = held.push(ledger, link, signer, bytes);
        self.raise_if_shown(sequence, validators)?;
        let attested = pushed.map_err(|error| self.error(error))?;
        attested.into_iter().for_each(|ledger| self.pass(ledger, ready));
        if self.held.as_ref().is_none_or(|held| held.range().is_none()) {
            self.contrary = None;
        }
        Ok(())
    }

    fn pass(&mut self, ledger: Prepared, ready: &mut Vec<Prepared>) {
        let link = ledger.1.link();
        self.passed = Some(Before {
            sequence: link.sequence,
            hash: link.hash,
            origin: Some(ledger.0.clone()),
        });
        ready.push(ledger);
    }

    /// Returns a chain that begins with a ledger, if that contradicts the one before.
    fn contrary_chain(
        &self,
        ledger: &Prepared,
        validators: &Validators,
    ) -> Result<Option<Contrary>, PipelineError> {
        let Some(previous) = ledger.1.sequence().previous() else { return Ok(None) };
        let passed = self.passed.clone().filter(|passed| passed.sequence == previous);
        let begin = || {
            let before = match passed {
                Some(passed) => Some(passed),
                None => Before::stored(&self.store, previous)?,
            };
            match before {
                Some(before) => Contrary::begin(ledger, before, validators, &self.store),
                None => Ok(None),
            }
        };
        begin().map_err(|source| PipelineError::Store { origin: ledger.0.clone(), source })
    }

    /// Records the contradiction that the chain shows, if it does.
    fn raise_if_shown(
        &self,
        last: LedgerSeq,
        validators: &Validators,
    ) -> Result<(), PipelineError> {
        let Some(contrary) = &self.contrary else { return Ok(()) };
        match contrary.shown(last, validators, &self.suspicion, &self.store) {
            None => Ok(()),
            Some(found) => {
                found.record(&self.store).map_err(PipelineError::Flush)?;
                Err(PipelineError::Contradicted(Box::new(found)))
            }
        }
    }

    /// Ends the chain of ledgers that wait.
    fn end(
        &mut self,
        validators: &Validators,
        ready: &mut Vec<Prepared>,
    ) -> Result<(), PipelineError> {
        let Some(mut held) = self.held.take() else { return Ok(()) };
        if let Some(contrary) = self.contrary.take() {
            let (origin, source) = contrary.refused();
            return Err(PipelineError::Store { origin, source });
        }
        let above = held.next().map(|next| self.attested_link(next, validators)).transpose();
        let above = above.map_err(|source| match self.last.clone() {
            Some(origin) => PipelineError::Store { origin, source },
            None => PipelineError::Flush(source),
        })?;
        let attested = held.finish(above.flatten()).map_err(|error| self.error(error))?;
        attested.into_iter().for_each(|ledger| self.pass(ledger, ready));
        Ok(())
    }

    /// Returns the link of a stored ledger that is attested.
    fn attested_link(
        &self,
        ledger: LedgerSeq,
        validators: &Validators,
    ) -> Result<Option<Link>, StoreError> {
        if !is_attested(&self.store, validators, ledger) {
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
        let contrary = self.contrary.as_ref().map(Contrary::refused);
        match (source, contrary) {
            // It was held only because it does not follow what is stored.
            (HeldError::NeverAttested { .. } | HeldError::End { .. }, Some((origin, source))) => {
                PipelineError::Store { origin, source }
            }
            (source, _) => {
                let unknown = || Origin { name: "the source".into(), position: None };
                let origin = self.last.clone().unwrap_or_else(unknown);
                PipelineError::Unattested { origin, source }
            }
        }
    }
}
