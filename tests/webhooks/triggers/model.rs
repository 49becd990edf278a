//! What subscriptions must be told, computed anew from whole ledgers: from the net changes of the model of
//! storage, and from envelopes and events as they are decoded.

use std::collections::{BTreeMap, BTreeSet};

use orrery::decode::{EventType, decode};
use orrery::domain::{ContractId, Network};
use orrery::interfaces::{PlainData, data_name};
use orrery::webhooks::trigger::{Durability, Entries, Keys, Trigger};
use orrery_testkit::storage::{
    After, Before, KeyHash, Kind, LedgerChanges, NetChange, TtlAfter, Value, contract_of,
    instance_key, key_hash,
};
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};
use stellar_xdr::{
    ContractDataDurability, ContractExecutable, FeeBumpTransactionInnerTx, Hash, HostFunction,
    LedgerKey, LedgerKeyContractCode, Limits, OperationBody, ReadXdr, ScAddress,
    ScContractInstance, ScVal, TransactionEnvelope, WriteXdr,
};

/// A delivery: its id without the subscription's tag, and the members of its body that are compared.
pub type Expected = (String, Json);

/// A subscription to one contract.
#[derive(Debug, Clone)]
pub struct Watch {
    pub contract: ContractId,
    pub trigger: Trigger,
    /// The newest ledger when it was made.
    pub after: u32,
}

/// Whole ledgers.
pub struct Chain {
    ledgers: Vec<Decoded>,
}

struct Decoded {
    sequence: u32,
    changes: LedgerChanges,
    /// Contracts that emitted events.
    heard: BTreeSet<ContractId>,
    /// Failed transactions: application order, and the contract that was called.
    failed: Vec<(u32, ContractId)>,
    /// The changes of executables that contracts make themselves, in order, by application order.
    updates: BTreeMap<u32, Vec<Update>>,
}

/// What the event of a change of an executable says.
struct Update {
    contract: ContractId,
    old: ScVal,
    new: ScVal,
}

impl Chain {
    pub fn of<'l>(network: &Network, ledgers: impl Iterator<Item = &'l Vec<u8>>) -> Self {
        Self { ledgers: ledgers.map(|xdr| Decoded::of(network, xdr)).collect() }
    }

    /// Returns their number.
    pub fn ledgers(&self) -> u64 {
        self.ledgers.len() as u64
    }

    /// Returns what a subscription must be told in the order of the chain, from a ledger on that is newer
    /// than it.
    pub fn expected(&self, watch: &Watch) -> Vec<Expected> {
        match &watch.trigger {
            Trigger::Event => Vec::new(),
            Trigger::Storage { keys } => self.storage(watch, keys),
            Trigger::Upgrade => self.upgrades(watch),
            Trigger::FailedCall { functions } => self.failed_calls(watch, functions),
            Trigger::Silence { within } => self.silence(watch, *within),
            Trigger::Ttl { within, entries, keys } => self.ttl(watch, *within, *entries, keys),
        }
    }

    /// Returns what a subscription to a project must be told, whose members are these, each from a ledger on.
    pub fn expected_of_members(
        &self,
        members: &BTreeMap<ContractId, u32>,
        trigger: &Trigger,
        after: u32,
    ) -> Vec<Expected> {
        if let Trigger::Silence { within } = trigger {
            let has_heard = |ledger: &Decoded| {
                let since = |contract| members.get(contract).copied();
                ledger.heard.iter().filter_map(since).any(|since| since <= ledger.sequence)
            };
            return self.silence_of(after, *within, has_heard);
        }
        let mut all = Vec::new();
        for (contract, since) in members {
            let after = after.max(since.saturating_sub(1));
            all.extend(self.expected(&Watch {
                contract: *contract,
                trigger: trigger.clone(),
                after,
            }));
        }
        all.sort_by_key(|(id, _)| place(id));
        all
    }

    fn storage(&self, watch: &Watch, keys: &Keys) -> Vec<Expected> {
        let (mut known, mut expected) = (BTreeMap::new(), Vec::new());
        for ledger in &self.ledgers {
            for (order, changes) in by_transaction(&ledger.changes) {
                let mut number = 0;
                for change in &changes {
                    let Some(contract) = contract_of(&change.key).map(ContractId) else { continue };
                    for told in told_of(change, &known) {
                        number += 1;
                        let xdr = told.key.to_xdr(Limits::none()).unwrap();
                        let is_it = contract == watch.contract && ledger.sequence > watch.after;
                        if is_it && keys.has(&xdr, told.durability) {
                            let id = format!("-{}-{order}-s{number}", ledger.sequence);
                            expected.push((id, told.body(change)));
                        }
                    }
                }
                for change in &changes {
                    note_value(change, &mut known);
                }
            }
            for change in ledger.changes.changes.iter().filter(|change| change.tx.is_none()) {
                note_value(change, &mut known);
            }
        }
        expected
    }

    fn upgrades(&self, watch: &Watch) -> Vec<Expected> {
        let mut expected = Vec::new();
        for ledger in self.ledgers.iter().filter(|it| it.sequence > watch.after) {
            for (order, updates) in &ledger.updates {
                for (update, number) in updates.iter().zip(1..) {
                    if update.contract == watch.contract {
                        let id = format!("-{}-{order}-u{number}", ledger.sequence);
                        let (old, new) = (runs(&update.old), runs(&update.new));
                        expected.push((id, json!({ "old": old, "new": new })));
                    }
                }
            }
        }
        expected
    }

    fn failed_calls(&self, watch: &Watch, functions: &[String]) -> Vec<Expected> {
        let counts = functions.is_empty() || functions.iter().any(|it| it == "act");
        let newer = self.ledgers.iter().filter(|it| counts && it.sequence > watch.after);
        let of_ledger = |ledger: &Decoded| {
            let own = ledger.failed.iter().filter(|(_, called)| *called == watch.contract);
            let id = |(order, _): &(u32, ContractId)| format!("-{}-{order}-f1", ledger.sequence);
            own.map(id).collect::<Vec<_>>()
        };
        let body = json!({ "function": "act", "args": [], "error": null });
        newer.flat_map(of_ledger).map(|id| (id, body.clone())).collect()
    }

    fn silence(&self, watch: &Watch, within: u32) -> Vec<Expected> {
        self.silence_of(watch.after, within, |ledger| ledger.heard.contains(&watch.contract))
    }

    fn silence_of(
        &self,
        after: u32,
        within: u32,
        has_heard: impl Fn(&Decoded) -> bool,
    ) -> Vec<Expected> {
        let (mut last, mut expected) = (after, Vec::new());
        for ledger in self.ledgers.iter().filter(|it| it.sequence > after) {
            if after == 0 && last == 0 {
                // Made before the first ledger: counting begins behind what is missing.
                last = ledger.sequence - 1;
            }
            if has_heard(ledger) {
                last = ledger.sequence;
            }
            if ledger.sequence - last == within {
                let id = format!("-{}-0-q0", ledger.sequence);
                expected.push((id, json!({ "since_ledger": last })));
            }
        }
        expected
    }

    fn ttl(&self, watch: &Watch, within: u32, entries: Entries, keys: &Keys) -> Vec<Expected> {
        let instance = key_hash(&instance_key(&watch.contract.0));
        let mut until: BTreeMap<KeyHash, u32> = BTreeMap::new();
        let mut key_of: BTreeMap<KeyHash, LedgerKey> = BTreeMap::new();
        let (mut code, mut before) = (None, None::<BTreeMap<KeyHash, u32>>);
        let mut expected = Vec::new();
        for ledger in &self.ledgers {
            for change in &ledger.changes.changes {
                key_of.insert(change.key_hash, change.key.clone());
                match change.ttl_after {
                    TtlAfter::Until(last) => drop(until.insert(change.key_hash, last)),
                    TtlAfter::Gone | TtlAfter::Lost => drop(until.remove(&change.key_hash)),
                    TtlAfter::Same => {}
                }
                if change.key_hash == instance {
                    match &change.after {
                        After::Value(value, _) => code = executable(value),
                        After::Gone => code = None,
                        After::Same => {}
                    }
                }
            }
            let code = code.as_ref().and_then(code_hash);
            let counts = |hash: &KeyHash| {
                let Some(key) = key_of.get(hash) else { return false };
                let is_data = contract_of(key) == Some(watch.contract.0) && *hash != instance;
                entries.instance && *hash == instance
                    || entries.code && Some(*hash) == code
                    || entries.data && is_data && has(keys, key)
            };
            let sequence = ledger.sequence;
            let near: BTreeMap<KeyHash, u32> = until
                .iter()
                .filter(|(hash, last)| {
                    counts(hash) && **last >= sequence && **last < sequence.saturating_add(within)
                })
                .map(|(hash, last)| (*hash, *last))
                .collect();
            if sequence > watch.after {
                for (hash, last) in &near {
                    if before.as_ref().is_some_and(|before| before.get(hash) == Some(last)) {
                        continue;
                    }
                    let entry = match &key_of[hash] {
                        LedgerKey::ContractCode(_) => "code",
                        _ if *hash == instance => "instance",
                        _ => "data",
                    };
                    let body = json!({
                        "key_hash": hex::encode(hash),
                        "entry": entry,
                        "live_until": last,
                        "ledgers_left": last - sequence,
                    });
                    let first = |bytes: &[u8]| u64::from_be_bytes(bytes[..8].try_into().unwrap());
                    let (high, low) = (first(hash), first(&watch.contract.0));
                    let number = u128::from(high) << 64 | u128::from(low);
                    expected.push((format!("-{sequence}-0-l{number}"), body));
                }
                before = Some(near);
            }
        }
        expected
    }
}

/// Returns the order of a delivery with this id: ledger, transaction, number. Those of one subscription are of
/// one kind.
fn place(id: &str) -> (u32, u32, u128) {
    let parts: Vec<&str> = id.split('-').collect();
    let [_, ledger, order, number] = parts[..] else { panic!("{id}") };
    (ledger.parse().unwrap(), order.parse().unwrap(), number[1..].parse().unwrap())
}

impl Decoded {
    fn of(network: &Network, xdr: &[u8]) -> Self {
        let view = decode(xdr, network.id()).unwrap();
        let heard = view.events.iter().filter_map(|event| event.contract);
        let failed = view.transactions.iter().filter(|transaction| !transaction.successful);
        let failed = failed.filter_map(|transaction| {
            Some((transaction.application_order, called(transaction.envelope)?))
        });
        let mut updates: BTreeMap<u32, Vec<Update>> = BTreeMap::new();
        for event in view.events.iter().filter(|event| event.event_type == EventType::System) {
            let order = view.transactions[event.transaction].application_order;
            let topic = |xdr: &&[u8]| ScVal::from_xdr(xdr, Limits::none()).unwrap();
            let [_, old, new] = view.topics(event) else { continue };
            updates.entry(order).or_default().push(Update {
                contract: ContractId(*event.contract.unwrap()),
                old: topic(old),
                new: topic(new),
            });
        }
        Self {
            sequence: view.header.sequence.0,
            changes: LedgerChanges::of(xdr, network.id().0),
            heard: heard.map(|contract| ContractId(*contract)).collect(),
            failed: failed.collect(),
            updates,
        }
    }
}

fn called(envelope: &[u8]) -> Option<ContractId> {
    let envelope = TransactionEnvelope::from_xdr(envelope, Limits::none()).unwrap();
    let transaction = match envelope {
        TransactionEnvelope::Tx(envelope) => envelope.tx,
        TransactionEnvelope::TxFeeBump(bump) => {
            let FeeBumpTransactionInnerTx::Tx(inner) = bump.tx.inner_tx;
            inner.tx
        }
        TransactionEnvelope::TxV0(_) => return None,
    };
    match &transaction.operations.first()?.body {
        OperationBody::InvokeHostFunction(operation) => match &operation.host_function {
            HostFunction::InvokeContract(args) => match &args.contract_address {
                ScAddress::Contract(id) => Some(ContractId(id.0.0)),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

/// Returns the changes of each transaction, by key hash.
fn by_transaction(ledger: &LedgerChanges) -> BTreeMap<u32, Vec<&NetChange>> {
    let mut by_order: BTreeMap<u32, Vec<&NetChange>> = BTreeMap::new();
    for change in &ledger.changes {
        if let Some(tx) = &change.tx {
            by_order.entry(tx.order).or_default().push(change);
        }
    }
    by_order.values_mut().for_each(|changes| changes.sort_by_key(|change| change.key_hash));
    by_order
}

/// A change that is told of.
struct Told {
    key: ScVal,
    durability: Durability,
    change: Kind,
    value: Option<ScVal>,
    previous: Option<ScVal>,
}

impl Told {
    fn body(&self, change: &NetChange) -> Json {
        let plain = PlainData::default();
        let shown = |value: &Option<ScVal>| match value {
            Some(value) => {
                serde_json::from_str(plain.value(&self.key, value).unwrap().get()).unwrap()
            }
            None => Json::Null,
        };
        let name = data_name(&self.key).map(|(name, _)| String::from_utf8(name.to_vec()).unwrap());
        json!({
            "key_hash": hex::encode(change.key_hash),
            "key_name": name,
            "durability": self.durability.name(),
            "change": self.change.name(),
            "value": shown(&self.value),
            "previous": shown(&self.previous),
        })
    }
}

fn told_of(change: &NetChange, known: &BTreeMap<KeyHash, ScVal>) -> Vec<Told> {
    let kinds = [Kind::Created, Kind::Updated, Kind::Removed, Kind::Restored];
    let Some(kind) = change.kind.filter(|kind| kinds.contains(kind)) else { return Vec::new() };
    let LedgerKey::ContractData(data) = &change.key else { return Vec::new() };
    let earlier = || known.get(&change.key_hash).cloned();
    let value = match &change.after {
        After::Value(value, _) => value.data().cloned(),
        After::Gone => None,
        After::Same => earlier(),
    };
    let previous = match &change.before {
        _ if kind == Kind::Created => None,
        Before::Value(value, _) => value.data().cloned(),
        _ if change.after == After::Same => earlier(),
        _ => None,
    };
    if data.key != ScVal::LedgerKeyContractInstance {
        let durability = match data.durability {
            ContractDataDurability::Temporary => Durability::Temporary,
            ContractDataDurability::Persistent => Durability::Persistent,
        };
        return vec![Told { key: data.key.clone(), durability, change: kind, value, previous }];
    }
    let durability = Durability::Instance;
    let (old, new) = (instance(&previous), instance(&value));
    let mut told = Vec::new();
    if kind != Kind::Updated || old.map(|it| &it.executable) != new.map(|it| &it.executable) {
        let (value, previous) = (value.clone(), previous.clone());
        told.push(Told { key: data.key.clone(), durability, change: kind, value, previous });
    }
    let items = |of: Option<&ScContractInstance>| -> BTreeMap<Vec<u8>, (ScVal, ScVal)> {
        let each = of.and_then(|it| it.storage.as_ref()).map(|map| map.0.to_vec());
        let each = each.unwrap_or_default().into_iter();
        each.map(|item| (item.key.to_xdr(Limits::none()).unwrap(), (item.key, item.val))).collect()
    };
    let (old, new) = (items(old), items(new));
    for key in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
        let (before, after) = (old.get(key), new.get(key));
        let change = match (before, after) {
            (before, after) if before == after => continue,
            (None, _) => Kind::Created,
            (_, None) => Kind::Removed,
            _ => Kind::Updated,
        };
        told.push(Told {
            key: before.or(after).unwrap().0.clone(),
            durability,
            change,
            value: after.map(|(_, value)| value.clone()),
            previous: before.map(|(_, value)| value.clone()),
        });
    }
    told
}

fn instance(value: &Option<ScVal>) -> Option<&ScContractInstance> {
    match value {
        Some(ScVal::ContractInstance(instance)) => Some(instance),
        _ => None,
    }
}

fn note_value(change: &NetChange, known: &mut BTreeMap<KeyHash, ScVal>) {
    match &change.after {
        After::Value(value, _) => {
            if let Some(value) = value.data() {
                known.insert(change.key_hash, value.clone());
            }
        }
        After::Gone => drop(known.remove(&change.key_hash)),
        After::Same => {}
    }
}

fn executable(value: &Value) -> Option<ContractExecutable> {
    match value.data() {
        Some(ScVal::ContractInstance(instance)) => Some(instance.executable.clone()),
        _ => None,
    }
}

fn runs(topic: &ScVal) -> Json {
    let ScVal::Vec(Some(items)) = topic else { panic!("{topic:?}") };
    match items.as_slice() {
        [_, ScVal::Bytes(hash)] => json!({ "wasm": hex::encode(hash) }),
        [_] => json!({ "stellar_asset": true }),
        // No ledger has the entry that is referred to.
        _ => Json::Null,
    }
}

/// Returns the hash of the key of a module.
fn code_hash(executable: &ContractExecutable) -> Option<KeyHash> {
    let ContractExecutable::Wasm(Hash(hash)) = executable else { return None };
    let key = LedgerKey::ContractCode(LedgerKeyContractCode { hash: Hash(*hash) });
    Some(Sha256::digest(key.to_xdr(Limits::none()).unwrap()).into())
}

fn has(keys: &Keys, key: &LedgerKey) -> bool {
    let LedgerKey::ContractData(data) = key else { return false };
    let durability = match data.durability {
        ContractDataDurability::Temporary => Durability::Temporary,
        ContractDataDurability::Persistent => Durability::Persistent,
    };
    keys.has(&data.key.to_xdr(Limits::none()).unwrap(), durability)
}
