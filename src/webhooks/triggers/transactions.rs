//! What the transactions of a ledger do to contracts that subscriptions watch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::body::Scene;
use super::storage;
use super::upgrade::{self, Differences};
use super::{Sources, Told, failed_call, with_stack};
use crate::number::{Number, TriggerKind};
use crate::subscription::Subscription;
use crate::trigger::Trigger;
use orrery_contract_data::{CONSUMER as CONTRACT_DATA, are_recorded, changed_in};
use orrery_executables::transaction::HostCall;
use orrery_executables::{DataForm, DataForms, References, Upgrade};
use orrery_ledger::domain::{ContractId, Hash32, LedgerRange, LedgerSeq, Page};
use orrery_store::{StoreError, TransactionPosition, TransactionQuery, TransactionRecord};

/// Subscriptions by contract.
type ByContract = BTreeMap<ContractId, Vec<Arc<Subscription>>>;

/// What subscriptions are told of the transactions of a ledger.
pub(crate) struct TransactionTriggers<'a> {
    sources: Sources<'a>,
    ledger: LedgerSeq,
    forms: Option<DataForms<'a>>,
    storage: ByContract,
    upgrade: ByContract,
    failed_call: ByContract,
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
            (ByContract::new(), ByContract::new(), ByContract::new());
        for subscription in subscriptions {
            let to = match subscription.definition.trigger {
                Trigger::Storage { .. } => &mut storage,
                Trigger::Upgrade => &mut upgrade,
                Trigger::FailedCall { .. } => &mut failed_call,
                _ => continue,
            };
            for contract in subscription.contracts.all().unwrap_or_default() {
                to.entry(contract).or_default().push(Arc::clone(&subscription));
            }
        }
        let changed = changed(sources, ledger, &storage)?;
        let references = match sources.names {
            Some(names) => names.references(upgrade.keys(), ledger)?,
            None => References::default(),
        };
        let called: Vec<ContractId> = upgrade.keys().chain(failed_call.keys()).copied().collect();
        let may_change = changed.as_ref().is_none_or(|orders| !orders.is_empty());
        let is_needed = may_change && !storage.is_empty()
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

    /// Returns what subscriptions are told of a transaction, in the order of numbers.
    ///
    /// # Errors
    /// Errors of the database, or that the transaction is damaged.
    pub fn of(&self, record: &TransactionRecord<'_>) -> Result<Vec<Told>, StoreError> {
        with_stack(|| {
            let mut told = Vec::new();
            if record.successful {
                self.add_storage(record, &mut told)?;
                self.add_upgrades(record, &mut told)?;
            } else {
                self.add_failed_calls(record, &mut told)?;
            }
            Ok(told)
        })
    }

    fn add_storage(
        &self,
        record: &TransactionRecord<'_>,
        told: &mut Vec<Told>,
    ) -> Result<(), StoreError> {
        let order = record.position.application_order;
        let may_change = self.changed.as_ref().is_none_or(|orders| orders.contains(&order));
        if self.storage.is_empty() || !may_change {
            return Ok(());
        }
        let is_wanted = |contract: &ContractId| self.storage.contains_key(contract);
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
            for subscription in self.storage.get(&contract).into_iter().flatten() {
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
                told.push(self.told(subscription, record, (TriggerKind::Storage, number), body));
            }
            last = Some(form);
        }
        Ok(())
    }

    fn add_upgrades(
        &self,
        record: &TransactionRecord<'_>,
        told: &mut Vec<Told>,
    ) -> Result<(), StoreError> {
        let Some(names) = self.sources.names.filter(|_| !self.upgrade.is_empty()) else {
            return Ok(());
        };
        let is_wanted = |contract: &ContractId| self.upgrade.contains_key(contract);
        let is_touched = record.contracts.iter().any(is_wanted);
        if is_touched {
            for upgrade in names.upgrades(record, is_wanted)? {
                self.add_upgrade(record, TriggerKind::Upgrade, &upgrade, told)?;
            }
        }
        for upgrade in names.repointed(record, &self.references)? {
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
    ) -> Result<(), StoreError> {
        let scene = scene(record, upgrade.contract);
        for subscription in self.upgrade.get(&upgrade.contract).into_iter().flatten() {
            let trigger = &subscription.definition.trigger;
            let body = upgrade::body(&self.sources, trigger, &scene, upgrade, &self.differences)?;
            told.push(self.told(subscription, record, (kind, [0, upgrade.number]), body));
        }
        Ok(())
    }

    fn add_failed_calls(
        &self,
        record: &TransactionRecord<'_>,
        told: &mut Vec<Told>,
    ) -> Result<(), StoreError> {
        let is_wanted = |contract: &ContractId| self.failed_call.contains_key(contract);
        if !record.contracts.iter().any(is_wanted) {
            return Ok(());
        }
        let call = HostCall::read(record, self.sources.network)
            .map_err(|error| StoreError::Database(error.to_string()))?;
        let Some(call) = call else { return Ok(()) };
        let calls = failed_call::calls(&call);
        for (contract, subscriptions) in &self.failed_call {
            for subscription in subscriptions {
                let trigger = &subscription.definition.trigger;
                let functions = trigger.functions().unwrap_or_default();
                let first = calls
                    .iter()
                    .find(|called| called.contract == *contract && called.is_of(functions));
                let Some(called) = first else { continue };
                let scene = scene(record, *contract);
                let body = failed_call::body(&self.sources, trigger, &scene, (&call, called))?;
                let number = (TriggerKind::FailedCall, [0, called.number]);
                told.push(self.told(subscription, record, number, body));
            }
        }
        Ok(())
    }

    fn told(
        &self,
        subscription: &Arc<Subscription>,
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
        }
    }
}

/// Returns the transactions of a ledger that changed data of the contracts; `None` while the index has not
/// processed the ledger, or lacks a contract that is watched from now on.
fn changed(
    sources: Sources<'_>,
    ledger: LedgerSeq,
    storage: &ByContract,
) -> Result<Option<BTreeSet<u32>>, StoreError> {
    if storage.is_empty() {
        return Ok(Some(BTreeSet::new()));
    }
    if sources.store.lacks(CONTRACT_DATA, ledger) != Some(false)
        || !are_recorded(sources.store, storage.keys())?
    {
        return Ok(None);
    }
    let contracts: Vec<ContractId> = storage.keys().copied().collect();
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
