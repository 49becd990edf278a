//! The model: every change of every entry in complete ledgers, in a list in order of application.
//! Simple rather than fast; does not depend on the store and decodes with `stellar-xdr`.

use std::collections::BTreeMap;

use orrery::domain::Network;
use sha2::{Digest, Sha256};
use stellar_xdr::{
    ContractDataDurability, Hash, LedgerCloseMeta, LedgerEntry, LedgerEntryChange, LedgerEntryData,
    LedgerKey, LedgerKeyTtl, Limits, ReadXdr, TransactionMeta, WriteXdr,
};

use orrery_testkit::full;

/// Ledger, stage, application order of the transaction, and part of the transaction: 0 before its
/// operations, 1 operations, 2 after them.
pub type When = (u32, u8, u32, u8);

const FEES: u8 = 0;
const ONE_BY_ONE: u8 = 1;
const BEFORE_PARALLEL: u8 = 2;
const PARALLEL: u8 = 3;
const REFUNDS: u8 = 4;
const UPGRADES: u8 = 5;
const EVICTION: u8 = 6;

/// A change of an entry at one moment.
#[derive(Debug, Clone)]
pub struct Step {
    pub when: When,
    /// State before the change; `None` where the metadata do not contain it.
    pub before: Option<StateBefore>,
    /// State after the change; `None` when the entry was removed.
    pub after: Option<LedgerEntry>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum StateBefore {
    Absent,
    Present(LedgerEntry),
    Restored(LedgerEntry),
}

/// State of an entry at a moment.
#[derive(Debug, Clone, PartialEq)]
pub enum Truth {
    Present(LedgerEntry),
    /// Evicted to the archive.
    Archived(LedgerEntry),
    Absent,
    /// The ledgers do not determine it.
    Unknown,
}

/// A successful smart-contract transaction whose initial state the tests look up.
pub struct CheckedTransaction {
    pub ledger: u32,
    pub order: u32,
    pub when: When,
}

/// Counts of rare events.
#[derive(Default)]
pub struct Rare {
    pub restored: u32,
    pub evicted: u32,
    /// Changes of entries whose TTL had passed.
    pub expired: u32,
}

#[derive(Default)]
pub struct Timeline {
    steps: BTreeMap<LedgerKey, Vec<Step>>,
    pub checked: Vec<CheckedTransaction>,
    from_genesis: bool,
}

impl Timeline {
    pub fn new<'a>(
        ledgers: impl Iterator<Item = &'a Vec<u8>>,
        network: &Network,
        from_genesis: bool,
    ) -> Self {
        let mut timeline = Self { from_genesis, ..Self::default() };
        for xdr in ledgers {
            timeline.add(xdr, network);
        }
        timeline.steps.values_mut().for_each(|steps| steps.sort_by_key(|step| step.when));
        timeline
    }

    fn add(&mut self, xdr: &[u8], network: &Network) {
        let facts = full::decode(xdr, network.id()).unwrap();
        let limits = Limits { depth: 500, len: xdr.len() };
        let meta = LedgerCloseMeta::from_xdr(xdr, limits).unwrap();
        let ledger = facts.sequence.0;
        let parallel = matches!(meta, LedgerCloseMeta::V2(_));
        let (applied, upgrades, evicted) = parts(meta);
        for (order, (fees, meta, refunds)) in (1..).zip(&applied) {
            let transaction = &facts.transactions[order as usize - 1];
            let in_parallel = parallel && transaction.smart_contract;
            let (before_at, at) =
                if in_parallel { (BEFORE_PARALLEL, PARALLEL) } else { (ONE_BY_ONE, ONE_BY_ONE) };
            let (before, operations, after) = changes(meta);
            self.change((ledger, FEES, order, 0), fees);
            self.change((ledger, before_at, order, 0), &before);
            self.change((ledger, at, order, 1), &operations);
            self.change((ledger, at, order, 2), &after);
            self.change((ledger, REFUNDS, order, 0), refunds);
            if transaction.smart_contract && transaction.successful {
                self.checked.push(CheckedTransaction {
                    ledger,
                    order,
                    when: (ledger, at, order, 1),
                });
            }
        }
        self.change((ledger, UPGRADES, 0, 0), &upgrades);
        for key in evicted {
            let step = Step { when: (ledger, EVICTION, 0, 0), before: None, after: None };
            self.steps.entry(key).or_default().push(step);
        }
    }

    fn change(&mut self, when: When, changes: &[LedgerEntryChange]) {
        for change in changes {
            let (key, before, after) = match change.clone() {
                LedgerEntryChange::Created(entry) => {
                    (entry.to_key(), Some(StateBefore::Absent), Some(entry))
                }
                LedgerEntryChange::Updated(entry) => (entry.to_key(), None, Some(entry)),
                LedgerEntryChange::State(entry) => {
                    (entry.to_key(), Some(StateBefore::Present(entry.clone())), Some(entry))
                }
                LedgerEntryChange::Restored(entry) => {
                    (entry.to_key(), Some(StateBefore::Restored(entry.clone())), Some(entry))
                }
                LedgerEntryChange::Removed(key) => (key, None, None),
            };
            let steps = self.steps.entry(key).or_default();
            match steps.iter_mut().find(|step| step.when == when) {
                Some(step) => step.after = after,
                None => steps.push(Step { when, before, after }),
            }
        }
    }

    /// All keys that were ever changed.
    pub fn keys(&self) -> impl Iterator<Item = &LedgerKey> {
        self.steps.keys()
    }

    /// Whether the operations of a successful smart-contract transaction in another stored ledger
    /// changed the entry.
    pub fn is_changed_by_stored(
        &self,
        key: &LedgerKey,
        checked: &CheckedTransaction,
        is_stored: impl Fn(u32) -> bool,
    ) -> bool {
        self.of(key).iter().any(|step| {
            let (ledger, _, order, part) = step.when;
            let by_one =
                |one: &CheckedTransaction| one.ledger == ledger && one.order == order && part == 1;
            ledger != checked.ledger && is_stored(ledger) && self.checked.iter().any(by_one)
        })
    }

    fn of(&self, key: &LedgerKey) -> &[Step] {
        self.steps.get(key).map_or(&[], Vec::as_slice)
    }

    /// State of an entry just before the change at a moment.
    pub fn truth(&self, key: &LedgerKey, when: When) -> Truth {
        let value = self.value(key, when);
        if let (LedgerKey::ContractData(data), Truth::Present(_)) = (key, &value)
            && data.durability == ContractDataDurability::Temporary
        {
            match self.live_until(key, when) {
                Some(until) if until < when.0 => return Truth::Absent,
                Some(_) => {}
                // As long as its TTL is unknown, it is unknown whether it still exists.
                None => return Truth::Unknown,
            }
        }
        value
    }

    /// Last ledger in which an entry is live, as of a moment.
    pub fn live_until(&self, key: &LedgerKey, when: When) -> Option<u32> {
        match self.value(&ttl_key(key), when) {
            Truth::Present(LedgerEntry { data: LedgerEntryData::Ttl(ttl), .. }) => {
                Some(ttl.live_until_ledger_seq)
            }
            _ => None,
        }
    }

    fn value(&self, key: &LedgerKey, when: When) -> Truth {
        let steps = self.of(key);
        if let Some(before) =
            steps.iter().find(|step| step.when == when).and_then(|s| s.before.as_ref())
        {
            return match before {
                StateBefore::Absent => Truth::Absent,
                StateBefore::Present(entry) | StateBefore::Restored(entry) => {
                    Truth::Present(entry.clone())
                }
            };
        }
        let position = steps.partition_point(|step| step.when < when);
        if let Some(last) = position.checked_sub(1).map(|at| &steps[at]) {
            return match &last.after {
                Some(entry) => Truth::Present(entry.clone()),
                None if last.when.1 == EVICTION && is_persistent(key) => {
                    let before = steps[..position].iter().rev().find_map(|step| step.after.clone());
                    before.map_or(Truth::Unknown, Truth::Archived)
                }
                None => Truth::Absent,
            };
        }
        match steps.get(position).map(|step| &step.before) {
            Some(Some(StateBefore::Absent)) => Truth::Absent,
            Some(Some(StateBefore::Present(entry))) => Truth::Present(entry.clone()),
            Some(Some(StateBefore::Restored(entry))) if !matches!(key, LedgerKey::Ttl(_)) => {
                Truth::Archived(entry.clone())
            }
            None if self.from_genesis && is_of_contract(key) => Truth::Absent,
            _ => Truth::Unknown,
        }
    }

    /// Counts rare events of contract data and code.
    pub fn rare(&self) -> Rare {
        let mut rare = Rare::default();
        let of_contract = self.steps.iter().filter(|(key, _)| is_of_contract(key));
        for (key, steps) in of_contract.filter(|(key, _)| !matches!(key, LedgerKey::Ttl(_))) {
            for step in steps {
                rare.restored += u32::from(matches!(step.before, Some(StateBefore::Restored(_))));
                rare.evicted += u32::from(step.when.1 == EVICTION);
                let until = self.live_until(key, step.when);
                let expired = until.is_some_and(|until| until < step.when.0);
                rare.expired += u32::from(expired && step.when.1 != EVICTION);
            }
        }
        rare
    }

    /// Neighbouring steps that contradict each other: the state after one is not the state before
    /// the next. Shows whether the moments are in the right order.
    pub fn contradictions(&self) -> Vec<(LedgerKey, Step, Step)> {
        let mut contradictions = Vec::new();
        for (key, steps) in &self.steps {
            for pair in steps.windows(2) {
                let fits = match (&pair[0].after, &pair[1].before) {
                    (_, None) | (None, Some(StateBefore::Absent | StateBefore::Restored(_))) => {
                        true
                    }
                    (Some(after), Some(StateBefore::Present(before))) => after == before,
                    // An entry may be restored with its TTL or its last modified ledger changed.
                    (Some(after), Some(StateBefore::Restored(before))) => {
                        after.data == before.data || matches!(key, LedgerKey::Ttl(_))
                    }
                    (Some(_), Some(StateBefore::Absent))
                    | (None, Some(StateBefore::Present(_))) => false,
                };
                if !fits {
                    contradictions.push((key.clone(), pair[0].clone(), pair[1].clone()));
                }
            }
        }
        contradictions
    }
}

type Parts = (
    Vec<(Vec<LedgerEntryChange>, TransactionMeta, Vec<LedgerEntryChange>)>,
    Vec<LedgerEntryChange>,
    Vec<LedgerKey>,
);

fn parts(meta: LedgerCloseMeta) -> Parts {
    match meta {
        LedgerCloseMeta::V0(v0) => (
            v0.tx_processing
                .iter()
                .map(|one| (one.fee_processing.to_vec(), one.tx_apply_processing.clone(), vec![]))
                .collect(),
            v0.upgrades_processing.iter().flat_map(|one| one.changes.to_vec()).collect(),
            Vec::new(),
        ),
        LedgerCloseMeta::V1(v1) => (
            v1.tx_processing
                .iter()
                .map(|one| (one.fee_processing.to_vec(), one.tx_apply_processing.clone(), vec![]))
                .collect(),
            v1.upgrades_processing.iter().flat_map(|one| one.changes.to_vec()).collect(),
            v1.evicted_keys.to_vec(),
        ),
        LedgerCloseMeta::V2(v2) => (
            v2.tx_processing
                .iter()
                .map(|one| {
                    let refunds = one.post_tx_apply_fee_processing.to_vec();
                    (one.fee_processing.to_vec(), one.tx_apply_processing.clone(), refunds)
                })
                .collect(),
            v2.upgrades_processing.iter().flat_map(|one| one.changes.to_vec()).collect(),
            v2.evicted_keys.to_vec(),
        ),
    }
}

type Changes = Vec<LedgerEntryChange>;

fn changes(meta: &TransactionMeta) -> (Changes, Changes, Changes) {
    match meta {
        TransactionMeta::V0(operations) => {
            (vec![], operations.iter().flat_map(|one| one.changes.to_vec()).collect(), vec![])
        }
        TransactionMeta::V1(v1) => (
            v1.tx_changes.to_vec(),
            v1.operations.iter().flat_map(|one| one.changes.to_vec()).collect(),
            vec![],
        ),
        TransactionMeta::V2(v2) => (
            v2.tx_changes_before.to_vec(),
            v2.operations.iter().flat_map(|one| one.changes.to_vec()).collect(),
            v2.tx_changes_after.to_vec(),
        ),
        TransactionMeta::V3(v3) => (
            v3.tx_changes_before.to_vec(),
            v3.operations.iter().flat_map(|one| one.changes.to_vec()).collect(),
            v3.tx_changes_after.to_vec(),
        ),
        TransactionMeta::V4(v4) => (
            v4.tx_changes_before.to_vec(),
            v4.operations.iter().flat_map(|one| one.changes.to_vec()).collect(),
            v4.tx_changes_after.to_vec(),
        ),
    }
}

pub fn ttl_key(key: &LedgerKey) -> LedgerKey {
    let hash = Sha256::digest(key.to_xdr(Limits::none()).unwrap());
    LedgerKey::Ttl(LedgerKeyTtl { key_hash: Hash(hash.into()) })
}

pub fn is_of_contract(key: &LedgerKey) -> bool {
    matches!(key, LedgerKey::ContractData(_) | LedgerKey::ContractCode(_) | LedgerKey::Ttl(_))
}

fn is_persistent(key: &LedgerKey) -> bool {
    match key {
        LedgerKey::ContractData(data) => data.durability == ContractDataDurability::Persistent,
        LedgerKey::ContractCode(_) => true,
        _ => false,
    }
}
