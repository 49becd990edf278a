//! Adds what becomes known, whoever says it. It does not matter how often.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use orrery_ledger::domain::{ContractId, Hash32, LedgerSeq};
use orrery_store::{ConsumerEffects, StoreError, TransactionPosition};

use super::creation::Creator;
use super::learnt::Learnt;
use super::named::Named;
use super::of_transaction::OfTransaction;
use super::rows::{
    CREATED, Creation, LEARNT, Later, MADE, READ, RUNNERS, SEEN, TAGS, UNREAD, Unread,
};

/// Rows that are added.
pub struct Adding<'a, 'e> {
    effects: &'a mut ConsumerEffects<'e>,
    before: Unread,
    unread: Unread,
    /// What was learnt in this step, each once.
    learnt: BTreeSet<Learnt>,
}

impl<'a, 'e> Adding<'a, 'e> {
    pub fn new(effects: &'a mut ConsumerEffects<'e>) -> Result<Self, StoreError> {
        let before = UNREAD.get(effects, &())?.unwrap_or_default();
        Ok(Self { effects, before, unread: before, learnt: BTreeSet::new() })
    }

    /// Puts what is counted.
    pub fn finish(self) -> Result<(), StoreError> {
        match self.unread == self.before {
            true => Ok(()),
            false => UNREAD.put(self.effects, &(), &self.unread),
        }
    }

    /// Returns the ledger of the last transaction, up to the end of a ledger, that was read for what a contract runs.
    pub fn last_read(
        effects: &ConsumerEffects<'_>,
        contract: &ContractId,
        ledger: LedgerSeq,
    ) -> Result<Option<LedgerSeq>, StoreError> {
        let end = TransactionPosition { ledger, application_order: u32::MAX };
        let mut last = None;
        READ.scan(effects, contract, Some(&(*contract, Later(end))), |(_, Later(at)), ()| {
            last = Some(at.ledger);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(last)
    }

    /// Adds what a transaction says.
    pub fn add(
        &mut self,
        at: TransactionPosition,
        found: &OfTransaction,
    ) -> Result<(), StoreError> {
        for (contract, creator) in &found.created {
            let (transaction, creator) = (found.transaction, *creator);
            self.add_creation(*contract, Creation { at, transaction, creator })?;
        }
        for (contract, executables) in &found.instances {
            READ.put(self.effects, &(*contract, Later(at)), &())?;
            self.know(contract)?;
            for named in executables {
                self.add_runner(*named, *contract)?;
            }
        }
        for (tag, codes) in &found.tags {
            for code in codes {
                self.add_tag(*code, *tag)?;
            }
        }
        // Also where all of it is known: times in which a code ran begin and end.
        found.changed.iter().try_for_each(|what| self.learn(*what))
    }

    fn add_creation(&mut self, contract: ContractId, creation: Creation) -> Result<(), StoreError> {
        // A contract is created once; instances are never removed.
        if !CREATED.put_new(self.effects, &contract, &creation)? {
            return Ok(());
        }
        match creation.creator {
            Creator::Unread => self.unread.add_creation(creation.at.ledger),
            Creator::Asset => {}
            creator => {
                MADE.put(self.effects, &(creator, contract), &())?;
            }
        }
        self.learn(Learnt::Contract(contract))
    }

    /// Adds that a contract runs, or has run, something.
    pub fn add_runner(&mut self, named: Named, contract: ContractId) -> Result<(), StoreError> {
        match RUNNERS.put_new(self.effects, &(named, contract), &())? {
            true => self.learn(Learnt::Ran(contract, named)),
            false => Ok(()),
        }
    }

    /// Adds what an entry names to which contracts refer, by the SHA-256 of its key.
    pub fn add_tag(&mut self, code: Hash32, tag: [u8; 32]) -> Result<(), StoreError> {
        match TAGS.put_new(self.effects, &(code, tag), &())? {
            true => self.learn(Learnt::Tag(tag)),
            false => Ok(()),
        }
    }

    /// Adds a contract that has emitted an event.
    pub fn add_emitter(&mut self, contract: &ContractId, is_asset: bool) -> Result<(), StoreError> {
        if SEEN.put_new(self.effects, contract, &is_asset)? {
            self.unread.code += u64::from(!is_asset);
        }
        Ok(())
    }

    /// Notes that it is known what a contract runs, or has run at some time.
    pub fn know(&mut self, contract: &ContractId) -> Result<(), StoreError> {
        match SEEN.get(self.effects, contract)? {
            Some(true) => return Ok(()),
            Some(false) => self.unread.code = self.unread.code.saturating_sub(1),
            None => {}
        }
        SEEN.put(self.effects, contract, &true)
    }

    /// Notes that something was learnt.
    pub fn learn(&mut self, what: Learnt) -> Result<(), StoreError> {
        if !self.learnt.insert(what) {
            return Ok(());
        }
        self.unread.learnt += 1;
        LEARNT.put(self.effects, &self.unread.learnt, &what)
    }
}
