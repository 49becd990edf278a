//! The transactions and evictions of one ledger.

use std::collections::{BTreeMap, BTreeSet};

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use stellar_xdr::{LedgerEntryChange, LedgerKey, ScVal};

use super::world::{Effect, Slot, Then, World, data};
use super::{Shape, TrueChange, keys};
use crate::storage::{
    KeyHash, Kind, Value, contract_of, instance_key, is_recorded, is_temporary, key_hash,
};

/// First protocol with stages, RESTORED and the hot archive.
const PARALLEL_SINCE: u32 = 23;

/// What a transaction does.
#[derive(Debug, Clone)]
pub enum Action {
    Invoke([u8; 32]),
    Create,
    Upload(Vec<u8>),
    Extend,
    Restore,
}

/// A transaction before it is written down.
#[derive(Debug, Clone)]
pub struct Draft {
    pub number: i64,
    pub action: Action,
    pub read_only: Vec<LedgerKey>,
    pub read_write: Vec<LedgerKey>,
    /// Positions in `read_write` of the entries that it restores by itself.
    pub restores: Vec<u32>,
    /// The changes of its operation, those of an entry and of a TTL together, in any order.
    pub groups: Vec<Vec<LedgerEntryChange>>,
    pub failed: bool,
    pub fee_bump: bool,
    /// Bumps of the TTL by others that its footprint made effective.
    applied_bumps: Vec<(KeyHash, u32)>,
}

/// The transactions of a ledger by stage and cluster, and what they and evictions changed.
#[derive(Debug, Clone, Default)]
pub struct Drafts {
    pub stages: Vec<Vec<Vec<Draft>>>,
    pub evicted: Vec<LedgerKey>,
    pub changes: Vec<TrueChange>,
    /// Names of what happened.
    pub cases: Vec<&'static str>,
}

/// A ledger that is being closed.
pub struct Closing<'w> {
    ledger: u32,
    protocol: u32,
    number: &'w mut i64,
    world: &'w mut World,
    found: Drafts,
    /// Transactions so far.
    order: u32,
    /// The greatest TTL that the ledger gave each key.
    given: BTreeMap<KeyHash, u32>,
    /// Keys in footprints of this ledger's transactions that write.
    written: BTreeSet<KeyHash>,
    /// The footprints of the clusters of this stage: written, and read.
    clusters: Vec<(BTreeSet<KeyHash>, BTreeSet<KeyHash>)>,
    /// Bumps of the TTL that the current cluster has not applied yet (CAP-63).
    deferred: BTreeMap<KeyHash, u32>,
    regenerated: bool,
}

impl<'w> Closing<'w> {
    pub fn new(ledger: u32, protocol: u32, number: &'w mut i64, world: &'w mut World) -> Self {
        Self {
            ledger,
            protocol,
            number,
            world,
            found: Drafts::default(),
            order: 0,
            given: BTreeMap::new(),
            written: BTreeSet::new(),
            clusters: Vec::new(),
            deferred: BTreeMap::new(),
            regenerated: false,
        }
    }

    /// Returns what was made.
    pub fn finish(mut self) -> Drafts {
        let changes = &self.found.changes;
        let of_instance = |kind: Kind, change: &TrueChange| {
            let key = &self.world.keys[&change.key_hash];
            let is = contract_of(key).is_some_and(|id| instance_key(&id) == *key);
            is && change.kind == Some(kind)
        };
        let upgraded: BTreeSet<Option<u32>> = changes
            .iter()
            .filter(|change| of_instance(Kind::Updated, change))
            .map(|change| change.order)
            .collect();
        let removes = |change: &TrueChange| change.kind == Some(Kind::Removed);
        if changes.iter().any(|change| removes(change) && upgraded.contains(&change.order)) {
            self.case("instance updated and data removed");
        }
        let mut keys = BTreeSet::new();
        if !self.found.changes.iter().all(|change| keys.insert(change.key_hash)) {
            self.case("several changes of a key");
        }
        self.found
    }

    fn is_parallel(&self) -> bool {
        self.protocol >= PARALLEL_SINCE
    }

    /// Runs the transactions.
    pub fn run(&mut self, rng: &mut StdRng, shape: &Shape) {
        self.regenerated = shape.regenerated;
        let most = if self.is_parallel() { 3 } else { 1 };
        for _ in 0..rng.random_range(1..=most) {
            self.clusters.clear();
            let mut bumps: BTreeMap<KeyHash, u32> = BTreeMap::new();
            let mut stage = Vec::new();
            for _ in 0..rng.random_range(1..=most) {
                self.clusters.push(Default::default());
                let count = rng.random_range(0..=shape.transactions);
                let cluster: Vec<Draft> = (0..count).map(|_| self.transaction(rng)).collect();
                for (hash, until) in std::mem::take(&mut self.deferred) {
                    let bump = bumps.entry(hash).or_default();
                    *bump = until.max(*bump);
                }
                stage.push(cluster);
            }
            bumps.into_iter().for_each(|(hash, until)| self.bump(&hash, until));
            self.found.stages.push(stage);
        }
    }

    /// Applies a bump of the TTL.
    fn bump(&mut self, hash: &KeyHash, until: u32) {
        let ledger = self.ledger;
        if let Some(slot) = self.world.slots.get_mut(hash).filter(|slot| slot.until < until) {
            (slot.until, slot.until_modified) = (until, ledger);
        }
    }

    fn transaction(&mut self, rng: &mut StdRng) -> Draft {
        *self.number += 1;
        self.order += 1;
        let contract = *self.world.contracts.choose(rng).unwrap();
        let is_new = !self.world.created.contains_key(&contract);
        let action = match rng.random_range(0..20) {
            _ if is_new => Action::Create,
            0 => Action::Upload(keys::codes().choose(rng).unwrap().clone()),
            1 | 2 => Action::Extend,
            3..=5 => Action::Restore,
            // Nothing else restores in these protocols.
            6..=9 if !self.is_parallel() => Action::Restore,
            _ => Action::Invoke(contract),
        };
        let mut draft = Draft {
            number: *self.number,
            action,
            read_only: Vec::new(),
            read_write: Vec::new(),
            restores: Vec::new(),
            groups: Vec::new(),
            failed: rng.random_bool(0.12),
            fee_bump: rng.random_bool(0.15),
            applied_bumps: Vec::new(),
        };
        let before = draft.failed.then(|| (self.world.clone(), self.given.clone()));
        let known = (self.found.changes.len(), self.found.cases.len());
        self.act(rng, &mut draft, contract);
        if let Some((world, given)) = before {
            self.found.changes.truncate(known.0);
            self.found.cases.truncate(known.1);
            self.undo(rng, &mut draft, world, given);
        }
        if draft.fee_bump {
            self.case("fee bump");
        }
        draft.groups.shuffle(rng);
        draft
    }

    /// Takes back what a failed transaction did. The bumps that its footprint made effective stay, and
    /// its metadata may list changes all the same.
    fn undo(
        &mut self,
        rng: &mut StdRng,
        draft: &mut Draft,
        world: World,
        given: BTreeMap<KeyHash, u32>,
    ) {
        let nonces = std::mem::take(&mut self.world.nonces);
        *self.world = World { nonces, ..world };
        draft.applied_bumps.iter().for_each(|(hash, until)| self.bump(hash, *until));
        self.given = given;
        if rng.random() {
            draft.groups.clear();
        } else if !draft.groups.is_empty() {
            self.case("failed with changes");
        }
    }

    fn case(&mut self, name: &'static str) {
        self.found.cases.push(name);
    }

    fn act(&mut self, rng: &mut StdRng, draft: &mut Draft, contract: [u8; 32]) {
        match draft.action.clone() {
            Action::Create => {
                let key = instance_key(&contract);
                if self.may_write(&key) {
                    let value = data(keys::value_of(rng, &key));
                    self.create(rng, draft, &key, value);
                    self.world.created.insert(contract, self.ledger);
                }
            }
            Action::Upload(code) => {
                let key = keys::code_key(&code);
                if self.may_write(&key) && !self.world.slots.contains_key(&key_hash(&key)) {
                    self.create(rng, draft, &key, Value::Code);
                }
            }
            Action::Extend => self.read(rng, draft, 4, 1.0),
            Action::Restore => {
                for key in self.some_keys(rng, 4) {
                    self.restore(rng, draft, &key);
                }
            }
            Action::Invoke(_) => {
                self.read(rng, draft, 3, 0.5);
                for key in self.some_keys(rng, 4) {
                    self.write(rng, draft, &key);
                }
                if rng.random_bool(0.2) {
                    let nonce = keys::nonce(rng, &contract);
                    self.world.nonces.insert(key_hash(&nonce), nonce.clone());
                    self.create(rng, draft, &nonce, data(ScVal::Void));
                }
            }
        }
    }

    /// Some keys of created contracts, and of code.
    fn some_keys(&self, rng: &mut StdRng, most: usize) -> Vec<LedgerKey> {
        let is = |key: &&LedgerKey| {
            contract_of(key).is_none_or(|id| self.world.created.contains_key(&id))
        };
        let all: Vec<&LedgerKey> = self.world.keys.values().filter(is).collect();
        let count = rng.random_range(1..=most);
        all.choose_multiple(rng, count).map(|key| (*key).clone()).collect()
    }

    /// Whether this cluster may write a key: no other of the stage has it in a footprint.
    fn may_write(&self, key: &LedgerKey) -> bool {
        let hash = key_hash(key);
        let (_, others) = self.clusters.split_last().unwrap();
        !others.iter().any(|(writes, reads)| writes.contains(&hash) || reads.contains(&hash))
    }

    fn may_read(&self, key: &LedgerKey) -> bool {
        let hash = key_hash(key);
        let (_, others) = self.clusters.split_last().unwrap();
        !others.iter().any(|(writes, _)| writes.contains(&hash))
    }

    /// Adds a key to the footprint's part that is written, which makes bumps before it effective.
    fn add_written(&mut self, draft: &mut Draft, key: &LedgerKey) {
        let hash = key_hash(key);
        draft.read_write.push(key.clone());
        self.written.insert(hash);
        self.clusters.last_mut().unwrap().0.insert(hash);
        if let Some(until) = self.deferred.remove(&hash) {
            draft.applied_bumps.push((hash, until));
            self.bump(&hash, until);
        }
    }

    fn has(draft: &Draft, key: &LedgerKey) -> bool {
        draft.read_only.contains(key) || draft.read_write.contains(key)
    }

    /// Reads live entries, and bumps the TTL of some.
    fn read(&mut self, rng: &mut StdRng, draft: &mut Draft, most: usize, bumps: f64) {
        for key in self.some_keys(rng, most) {
            let hash = key_hash(&key);
            let Some(slot) = self.world.slots.get(&hash).cloned() else { continue };
            let live = !slot.hot && slot.until >= self.ledger;
            if !live || !self.may_read(&key) || Self::has(draft, &key) {
                continue;
            }
            draft.read_only.push(key);
            self.clusters.last_mut().unwrap().1.insert(hash);
            if rng.random_bool(bumps) {
                self.bump_of_reader(rng, draft, &slot);
            }
        }
    }

    /// A bump by a transaction that only reads: it sees no bump of the others in its stage.
    fn bump_of_reader(&mut self, rng: &mut StdRng, draft: &mut Draft, slot: &Slot) {
        let hash = key_hash(&slot.key);
        let until = slot.until + rng.random_range(1..6);
        let new = Slot { until, until_modified: self.ledger, ..slot.clone() };
        draft.groups.push(vec![
            LedgerEntryChange::State(slot.ttl()),
            LedgerEntryChange::Updated(new.ttl()),
        ]);
        let greatest = self.given.get(&hash).copied().unwrap_or(0).max(slot.until);
        self.case(match (until > greatest, self.is_parallel()) {
            (false, _) => "bump that raises nothing",
            (true, false) => "extended by a reader at once",
            (true, true) => "extended by a reader, deferred",
        });
        if until > greatest {
            self.given.insert(hash, until);
            let change = Some(Some(Kind::Extended));
            self.note(hash, &slot.key, &Effect { change, ..Effect::default() }, Some(until));
        }
        if !self.is_parallel() {
            self.bump(&hash, until);
        } else if !draft.failed {
            let deferred = self.deferred.entry(hash).or_default();
            *deferred = until.max(*deferred);
        }
    }

    fn lifetime(&self, rng: &mut StdRng, key: &LedgerKey) -> u32 {
        self.ledger
            + if is_temporary(key) { rng.random_range(0..6) } else { rng.random_range(1..11) }
    }

    fn create(&mut self, rng: &mut StdRng, draft: &mut Draft, key: &LedgerKey, value: Value) {
        if Self::has(draft, key) {
            return;
        }
        self.add_written(draft, key);
        self.case(match key {
            LedgerKey::ContractCode(_) => "code created",
            _ if !is_recorded(key) => "nonce",
            _ if contract_of(key).is_some_and(|id| instance_key(&id) == *key) => "contract created",
            _ if is_temporary(key) => "temporary created",
            _ => "persistent created",
        });
        let until = self.lifetime(rng, key);
        let effect = self.world.create(key, value, self.ledger, until);
        self.add(draft, key, effect);
    }

    fn restore(&mut self, rng: &mut StdRng, draft: &mut Draft, key: &LedgerKey) {
        let hash = key_hash(key);
        let archived =
            |slot: &Slot| !is_temporary(&slot.key) && (slot.hot || slot.until < self.ledger);
        let is = self.world.slots.get(&hash).is_some_and(archived);
        if !is || !self.may_write(key) || Self::has(draft, key) {
            return;
        }
        self.add_written(draft, key);
        let until = self.lifetime(rng, key);
        let names_restored = self.is_parallel() || self.regenerated;
        self.case(match (names_restored, self.is_parallel(), self.world.slots[&hash].hot) {
            (false, ..) => "restored by hand without RESTORED",
            (true, false, _) => "restored by hand, RESTORED added later",
            (true, true, false) => "restored by hand before its eviction",
            (true, true, true) => "restored by hand from the hot archive",
        });
        let effect = self.world.restore_by_hand(&hash, self.ledger, until, names_restored);
        self.add(draft, key, effect);
    }

    /// Writes a key in the way that its state allows.
    fn write(&mut self, rng: &mut StdRng, draft: &mut Draft, key: &LedgerKey) {
        let hash = key_hash(key);
        if !self.may_write(key) || Self::has(draft, key) {
            return;
        }
        let is_instance = contract_of(key).is_some_and(|id| instance_key(&id) == *key);
        let is_code = contract_of(key).is_none();
        let Some(slot) = self.world.slots.get(&hash).cloned() else {
            if !is_code && !is_instance {
                let value = data(keys::value_of(rng, key));
                self.create(rng, draft, key, value);
            }
            return;
        };
        let value = if is_code { Value::Code } else { data(keys::value_of(rng, key)) };
        let expired = slot.hot || slot.until < self.ledger;
        if expired && !is_temporary(key) && !self.is_parallel() {
            return;
        }
        self.add_written(draft, key);
        let may_remove = !is_code && !is_instance;
        let effect = match (expired, is_temporary(key)) {
            (true, true) => {
                let until = self.lifetime(rng, key);
                let value = rng.random_bool(0.6).then_some(value);
                self.case(match &value {
                    Some(_) => "temporary created over dead data",
                    None => "dead data erased",
                });
                self.world.revive(&hash, value, self.ledger, until)
            }
            (true, false) => self.restore_itself(rng, draft, key, value, may_remove),
            (false, _) => self.write_live(rng, &hash, (!is_code).then_some(value), may_remove),
        };
        self.add(draft, key, effect);
    }

    fn restore_itself(
        &mut self,
        rng: &mut StdRng,
        draft: &mut Draft,
        key: &LedgerKey,
        value: Value,
        may_remove: bool,
    ) -> Effect {
        draft.restores.push(draft.read_write.len() as u32 - 1);
        let then = match rng.random_range(0..5) {
            0 | 1 => Then::Nothing,
            2 if may_remove => Then::Remove,
            _ if may_remove => Then::Write(value),
            _ => Then::Nothing,
        };
        let until = self.lifetime(rng, key);
        let later = rng.random_bool(0.3).then(|| until + rng.random_range(1..5));
        let hot = self.world.slots[&key_hash(key)].hot;
        self.case(match (&then, hot) {
            (Then::Nothing, false) => "restored by itself before its eviction",
            (Then::Nothing, true) => "restored by itself from the hot archive",
            (Then::Write(_), false) => "restored before its eviction and written",
            (Then::Write(_), true) => "restored from the hot archive and written",
            (Then::Remove, false) => "restored before its eviction and removed",
            (Then::Remove, true) => "restored from the hot archive and removed",
        });
        self.world.restore_itself(&key_hash(key), then, self.ledger, until, later)
    }

    fn write_live(
        &mut self,
        rng: &mut StdRng,
        hash: &KeyHash,
        value: Option<Value>,
        may_remove: bool,
    ) -> Effect {
        let slot = &self.world.slots[hash];
        let later = Some(slot.until + rng.random_range(1..6));
        let until = later.filter(|_| rng.random_bool(0.3));
        let same = value.is_some().then(|| slot.value.clone());
        let effect = match rng.random_range(0..10) {
            0 | 1 if may_remove => self.world.remove(hash),
            2 => Effect::default(),
            3 => self.world.update(hash, None, later, self.ledger),
            4..=6 => self.world.update(hash, same, until, self.ledger),
            _ => self.world.update(hash, value, until, self.ledger),
        };
        self.case(match effect.change {
            None => "written and left as it was",
            Some(None) => "equal",
            Some(Some(Kind::Extended)) if effect.names_value => "equal and extended",
            Some(Some(Kind::Extended)) => "extended by a writer",
            Some(Some(Kind::Removed)) => "removed",
            Some(Some(_)) if effect.ttl.is_empty() => "updated",
            Some(Some(_)) => "updated and extended",
        });
        effect
    }

    /// Adds what a transaction did to a key that it writes.
    fn add(&mut self, draft: &mut Draft, key: &LedgerKey, effect: Effect) {
        let hash = key_hash(key);
        let until = self.world.slots.get(&hash).map(|slot| slot.until);
        match until {
            Some(until) if !effect.ttl.is_empty() => self.given.insert(hash, until),
            Some(_) => None,
            None => self.given.remove(&hash),
        };
        self.note(hash, key, &effect, until);
        draft.groups.extend([effect.entry, effect.ttl].into_iter().filter(|one| !one.is_empty()));
    }

    fn note(&mut self, hash: KeyHash, key: &LedgerKey, effect: &Effect, until: Option<u32>) {
        let Some(kind) = effect.change.filter(|_| is_recorded(key)) else { return };
        self.found.changes.push(TrueChange {
            ledger: self.ledger,
            order: Some(self.order),
            key_hash: hash,
            kind,
            names_value: effect.names_value,
            names_before: effect.names_before,
            value: self.world.slots.get(&hash).map(|slot| slot.value.clone()),
            live_until: until,
        });
    }

    /// Evicts some entries whose TTL has passed: temporary data, and from protocol 23 on persistent
    /// entries (CAP-62), which no transaction of this ledger has touched.
    pub fn evict(&mut self, rng: &mut StdRng) {
        let parallel = self.is_parallel();
        let may = |(hash, slot): &(&KeyHash, &Slot)| {
            !slot.hot
                && slot.until < self.ledger
                && !self.written.contains(*hash)
                && (parallel || is_temporary(&slot.key))
        };
        let all: Vec<KeyHash> =
            self.world.slots.iter().filter(may).map(|(hash, _)| *hash).collect();
        for hash in all {
            if !rng.random_bool(0.25) {
                continue;
            }
            let slot = self.world.slots[&hash].clone();
            let temporary = is_temporary(&slot.key);
            self.case(if temporary { "temporary evicted" } else { "persistent evicted" });
            self.found.evicted.push(slot.key.clone());
            self.found.evicted.push(slot.ttl_key());
            if temporary {
                self.world.slots.remove(&hash);
            } else if let Some(slot) = self.world.slots.get_mut(&hash) {
                slot.hot = true;
            }
            if is_recorded(&slot.key) {
                self.found.changes.push(TrueChange {
                    ledger: self.ledger,
                    order: None,
                    key_hash: hash,
                    kind: Some(Kind::Evicted),
                    names_value: temporary,
                    names_before: false,
                    value: (!temporary).then_some(slot.value),
                    live_until: (!temporary).then_some(slot.until),
                });
            }
        }
    }
}
