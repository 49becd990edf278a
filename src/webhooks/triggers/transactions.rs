//! What the transactions of a ledger do to contracts that subscriptions watch.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::body::Scene;
use super::storage;
use super::upgrade::{self, Differences};
use super::watching::{Listener, ProjectMembers, Watching};
use super::{LIMITS, Sources, Told, failed_call, with_stack};
use crate::number::{Number, TriggerKind};
use crate::subscription::Subscription;
use crate::trigger::Trigger;
use orrery_contract_data::{CONSUMER as CONTRACT_DATA, are_recorded, changed_in};
use orrery_executables::transaction::{HostCall, RecordError};
use orrery_executables::{DataForm, DataForms, References, Upgrade};
use orrery_ledger::domain::{ContractId, Hash32, LedgerRange, LedgerSeq, Page};
use orrery_store::{StoreError, TransactionPosition, TransactionQuery, TransactionRecord};

/// What subscriptions are told of the transactions of a ledger.
pub(crate) struct TransactionTriggers<'a> {
    sources: Sources<'a>,
    ledger: LedgerSeq,
    forms: Option<DataForms<'a>>,
    storage: Watching<'a>,
    upgrade: Watching<'a>,
    failed_call: Watching<'a>,
    /// Transactions that changed data; `None` when that is not known.
    changed: Option<BTreeSet<u32>>,
    /// To what the contracts refer.
    references: References,
    differences: Differences,
}

impl<'a> TransactionTriggers<'a> {
    /// Looks what of a ledger concerns these subscriptions. `None` when its transactions need not be read.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn open(
        sources: Sources<'a>,
        ledger: LedgerSeq,
        subscriptions: impl Iterator<Item = Arc<Subscription>>,
    ) -> Result<Option<Self>, StoreError> {
        let (mut storage, mut upgrade, mut failed_call) =
            (Watching::default(), Watching::default(), Watching::default());
        let mut members = ProjectMembers::default();
        for subscription in subscriptions {
            let to = match subscription.definition.trigger {
                Trigger::Storage { .. } => &mut storage,
                Trigger::Upgrade => &mut upgrade,
                Trigger::FailedCall { .. } => &mut failed_call,
                _ => continue,
            };
            let members = match subscription.contracts.project() {
                Some(project) => members.of(&sources, project, ledger)?,
                None => None,
            };
            to.add(subscription, members);
        }
        let changed = changed(sources, ledger, &storage)?;
        let references = match sources.names {
            Some(names) => names.references(upgrade.contracts(), ledger)?,
            None => References::default(),
        };
        let called = upgrade.contracts().chain(failed_call.contracts());
        let called: Vec<ContractId> = called.copied().collect();
        let may_change = changed.as_ref().is_none_or(|orders| !orders.is_empty());
        let is_needed = may_change && !storage.is_empty()
            || upgrade.has_projects()
            || failed_call.has_projects()
            || !references.is_empty()
            || sources.store.touches(ledger, &called)?;
        let forms = sources.names.map(DataForms::new);
        let differences = Differences::default();
        Ok(is_needed.then_some(Self {
            sources,
            ledger,
            forms,
            storage,
            upgrade,
            failed_call,
            changed,
            references,
            differences,
        }))
    }

    /// Returns the query for the transactions after one.
    pub fn query(&self, after: u32) -> TransactionQuery {
        let cursor = TransactionPosition { ledger: self.ledger, application_order: after };
        let cursor = (after > 0).then_some(cursor);
        TransactionQuery {
            ledgers: Some(LedgerRange::only(self.ledger)),
            contracts: Vec::new(),
            page: Page { cursor, ..Page::all() },
        }
    }

    /// Returns what subscriptions are told of a transaction, in the order of numbers. Of a transaction that
    /// cannot be read it is not known what they would be told.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn of(&self, record: &TransactionRecord<'_>) -> Result<Vec<Told>, StoreError> {
        with_stack(|| {
            let mut told = Vec::new();
            if record.successful {
                let storage = self.add_storage(record, &mut told);
                self.check(storage, record, (&self.storage, TriggerKind::Storage), &mut told)?;
                let upgrades = self.add_upgrades(record, &mut told);
                self.check(upgrades, record, (&self.upgrade, TriggerKind::Upgrade), &mut told)?;
            } else {
                let calls = self.add_failed_calls(record, &mut told);
                let of = (&self.failed_call, TriggerKind::FailedCall);
                self.check(calls, record, of, &mut told)?;
            }
            Ok(told)
        })
    }

    /// Returns the subscriptions whose conditions are asked of what a transaction changed.
    pub fn asked_of(
        &self,
        record: &TransactionRecord<'_>,
    ) -> impl Iterator<Item = &Arc<Subscription>> {
        let order = record.position.application_order;
        let may_change = self.changed.as_ref().is_none_or(|orders| orders.contains(&order));
        let contracts = record.contracts.iter().filter(move |_| may_change);
        let subscriptions =
            contracts.flat_map(move |contract| self.storage.who_may_be_told(contract));
        subscriptions.filter(|subscription| subscription.condition.is_some())
    }

    /// Where a transaction could not be read: notes for those who watch a contract of it that it is not known
    /// what they would be told, because nobody else may wait for it.
    fn check(
        &self,
        done: Result<(), RecordError>,
        record: &TransactionRecord<'_>,
        (watching, kind): (&Watching<'_>, TriggerKind),
        told: &mut Vec<Told>,
    ) -> Result<(), StoreError> {
        let problem = match done {
            Ok(()) => return Ok(()),
            Err(RecordError::Store(error)) => return Err(error),
            Err(RecordError::Damaged(problem)) => problem,
        };
        tracing::warn!("what a transaction did is told to nobody: {problem}");
        let mut noted = BTreeSet::new();
        for contract in record.contracts.iter().filter(|it| watching.may_have(it)) {
            for (subscription, _) in watching.of(contract, record.position.application_order)? {
                if noted.insert(subscription.id) {
                    let number = (kind, [0, 0]);
                    told.push(self.told((subscription, false), record, number, Vec::new()));
                }
            }
        }
        Ok(())
    }

    fn add_storage(
        &self,
        record: &TransactionRecord<'_>,
        told: &mut Vec<Told>,
    ) -> Result<(), RecordError> {
        let order = record.position.application_order;
        let may_change = self.changed.as_ref().is_none_or(|orders| orders.contains(&order));
        if self.storage.is_empty() || !may_change {
            return Ok(());
        }
        let is_wanted = |contract: &ContractId| self.storage.may_have(contract);
        let mut last: Option<(ContractId, DataForm)> = None;
        for change in storage::changes(&self.sources, record, is_wanted)? {
            let contract = change.contract;
            let form = match last.take().filter(|(of, _)| *of == contract) {
                Some(known) => known,
                None => {
                    let form =
                        self.forms.as_ref().map(|forms| forms.of(&contract, record.position));
                    (contract, form.unwrap_or_default())
                }
            };
            let mut body = None;
            for (subscription, is_sure) in self.storage.of(&contract, order)? {
                let trigger = &subscription.definition.trigger;
                let keys = trigger.keys();
                let condition = subscription.condition.as_ref();
                if !keys.is_some_and(|keys| keys.has(change.key(), change.durability))
                    || !condition.is_none_or(|condition| change.meets(condition, &form.1))
                {
                    continue;
                }
                let body = match &body {
                    Some(body) => Vec::clone(body),
                    None => {
                        let scene = scene(record, contract);
                        body.insert(change.body(trigger, &scene, &form.1)?).clone()
                    }
                };
                let number = [0, change.number];
                let told_of = (TriggerKind::Storage, number);
                told.push(self.told((subscription, is_sure), record, told_of, body));
            }
            last = Some(form);
        }
        Ok(())
    }

    fn add_upgrades(
        &self,
        record: &TransactionRecord<'_>,
        told: &mut Vec<Told>,
    ) -> Result<(), RecordError> {
        let Some(names) = self.sources.names.filter(|_| !self.upgrade.is_empty()) else {
            return Ok(());
        };
        let is_wanted = |contract: &ContractId| self.upgrade.may_have(contract);
        let is_touched = record.contracts.iter().any(is_wanted);
        if is_touched {
            for upgrade in names.upgrades(record, is_wanted)? {
                self.add_upgrade(record, TriggerKind::Upgrade, &upgrade, told)?;
            }
        }
        let mut repointed = names.repointed(record, &self.references)?;
        if self.upgrade.has_projects() {
            let referring = |entry| self.upgrade.referring(entry);
            let references = names.referring(record, referring)?;
            repointed.extend(names.repointed(record, &references)?);
            repointed.sort_by_key(|upgrade| upgrade.contract);
            repointed.dedup_by_key(|upgrade| upgrade.contract);
        }
        for upgrade in repointed {
            self.add_upgrade(record, TriggerKind::Repointed, &upgrade, told)?;
        }
        Ok(())
    }

    fn add_upgrade(
        &self,
        record: &TransactionRecord<'_>,
        kind: TriggerKind,
        upgrade: &Upgrade,
        told: &mut Vec<Told>,
    ) -> Result<(), RecordError> {
        let scene = scene(record, upgrade.contract);
        let order = record.position.application_order;
        for listener in self.upgrade.of(&upgrade.contract, order)? {
            let trigger = &listener.0.definition.trigger;
            let body = upgrade::body(&self.sources, trigger, &scene, upgrade, &self.differences)?;
            told.push(self.told(listener, record, (kind, [0, upgrade.number]), body));
        }
        Ok(())
    }

    fn add_failed_calls(
        &self,
        record: &TransactionRecord<'_>,
        told: &mut Vec<Told>,
    ) -> Result<(), RecordError> {
        let is_wanted = |contract: &ContractId| self.failed_call.may_have(contract);
        if !record.contracts.iter().any(is_wanted) {
            return Ok(());
        }
        // The host may not have read it, so it may be as deep as a ledger.
        let call = HostCall::read_to_depth(record, self.sources.network, LIMITS.depth)?;
        let Some(call) = call else { return Ok(()) };
        let calls = failed_call::calls(&call);
        let contracts: BTreeSet<ContractId> = calls.iter().map(|called| called.contract).collect();
        for contract in contracts.into_iter().filter(is_wanted) {
            for listener in self.failed_call.of(&contract, record.position.application_order)? {
                let trigger = &listener.0.definition.trigger;
                let functions = trigger.functions().unwrap_or_default();
                let first = calls
                    .iter()
                    .find(|called| called.contract == contract && called.is_of(functions));
                let Some(called) = first else { continue };
                let scene = scene(record, contract);
                let body = failed_call::body(&self.sources, trigger, &scene, (&call, called))?;
                let number = (TriggerKind::FailedCall, [0, called.number]);
                told.push(self.told(listener, record, number, body));
            }
        }
        Ok(())
    }

    fn told(
        &self,
        (subscription, is_sure): Listener<'_>,
        record: &TransactionRecord<'_>,
        (kind, number): (TriggerKind, [u64; 2]),
        body: Vec<u8>,
    ) -> Told {
        let TransactionPosition { ledger, application_order } = record.position;
        Told {
            subscription: Arc::clone(subscription),
            number: Number::of_trigger(ledger, Some(application_order), kind, number),
            ledger,
            body,
            is_sure,
        }
    }
}

/// Returns the transactions of a ledger that changed data of the contracts; `None` while the index has not
/// processed the ledger, or lacks a contract that is watched from now on, or where contracts are not listed.
fn changed(
    sources: Sources<'_>,
    ledger: LedgerSeq,
    storage: &Watching<'_>,
) -> Result<Option<BTreeSet<u32>>, StoreError> {
    if storage.is_empty() {
        return Ok(Some(BTreeSet::new()));
    }
    if storage.has_projects()
        || sources.store.lacks(CONTRACT_DATA, ledger) != Some(false)
        || !are_recorded(sources.store, storage.contracts())?
    {
        return Ok(None);
    }
    let contracts: Vec<ContractId> = storage.contracts().copied().collect();
    let changed = changed_in(sources.store, ledger, &contracts)?;
    let positions = changed.into_iter().flat_map(|(_, positions)| positions);
    Ok(Some(positions.map(|at| at.application_order).collect()))
}

fn scene(record: &TransactionRecord<'_>, contract: ContractId) -> Scene {
    Scene {
        contract: Some(contract),
        ledger: record.position.ledger,
        closed_at: Some(record.closed_at),
        transaction: Some((record.position.application_order, Hash32(*record.tx))),
    }
}
