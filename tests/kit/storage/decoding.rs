//! Decodes a whole ledger, and reduces it to net changes.

use std::collections::{BTreeMap, BTreeSet};

use stellar_xdr::{
    FeeBumpTransactionInnerTx, GeneralizedTransactionSet, Hash, InnerTransactionResultPair,
    LedgerCloseMeta, LedgerEntryChange, LedgerEntryData, LedgerFootprint, LedgerHeaderHistoryEntry,
    LedgerKey, LedgerUpgrade, Limits, ReadXdr, Transaction, TransactionEnvelope, TransactionExt,
    TransactionMeta, TransactionPhase, TransactionResultMeta, TransactionResultPair,
    TransactionResultResult, TxSetComponent, UpgradeEntryMeta, VecM,
};

use super::answers::{TransactionId, Value};
use super::net::{NetChange, Place, Record, Records, Running};
use super::{KeyHash, is_recorded, key_hash};

/// First protocol with contracts.
const FIRST_WITH_CONTRACTS: u32 = 20;

/// One ledger, reduced to what it changes.
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerChanges {
    pub sequence: u32,
    /// Protocol of the header: after the ledger's upgrades.
    pub protocol: u32,
    /// Hash of the header.
    pub hash: [u8; 32],
    /// Hash of the header of the ledger before.
    pub previous_hash: [u8; 32],
    /// UNIX seconds.
    pub close_time: u64,
    /// Whether no contract data existed before the ledger. S2: a range "that begins at genesis or at
    /// the first ledger of protocol 20 knows everything". Choice: as far as the ledger itself shows
    /// it: it is ledger 1 or 2, or of a protocol without contracts, or its header upgrades to
    /// protocol 20.
    pub begins_everything: bool,
    /// Net changes. S1: "Order in a ledger: transactions in application order, then upgrades […],
    /// then evictions"; in a transaction by key hash.
    pub changes: Vec<NetChange>,
    /// TTL changes whose key stands in no footprint, which nothing can be said about.
    pub ttl_without_key: u32,
}

/// The parts of a ledger that count.
struct Parts {
    header: LedgerHeaderHistoryEntry,
    envelopes: Vec<TransactionEnvelope>,
    applied: Vec<(TransactionResultPair, TransactionMeta)>,
    upgrades: Vec<UpgradeEntryMeta>,
    evicted: Vec<LedgerKey>,
}

impl LedgerChanges {
    /// Decodes a ledger of the network with this id.
    ///
    /// # Panics
    /// When the bytes are not a `LedgerCloseMeta`.
    pub fn of(xdr: &[u8], network_id: [u8; 32]) -> Self {
        let parts = Parts::of(LedgerCloseMeta::from_xdr(xdr, Limits::none()).unwrap());
        let header = &parts.header.header;
        let mut found = Self {
            sequence: header.ledger_seq,
            protocol: header.ledger_version,
            hash: parts.header.hash.0,
            previous_hash: header.previous_ledger_hash.0,
            close_time: header.scp_value.close_time.0,
            begins_everything: begins_everything(&parts.header),
            changes: Vec::new(),
            ttl_without_key: 0,
        };
        let footprints = footprints(&parts.envelopes, network_id);
        let mut running = Running::new();
        for (order, (pair, meta)) in (1..).zip(&parts.applied) {
            found.add_transaction(order, pair, meta, &footprints, &mut running);
        }
        for upgrade in &parts.upgrades {
            found.add(&upgrade.changes, None, &LedgerFootprint::default(), &mut running);
        }
        for key in parts.evicted.into_iter().filter(is_recorded) {
            let hash = key_hash(&key);
            found.changes.push(NetChange::evicted(key, hash));
        }
        found
    }

    fn add_transaction(
        &mut self,
        order: u32,
        pair: &TransactionResultPair,
        meta: &TransactionMeta,
        footprints: &BTreeMap<[u8; 32], LedgerFootprint>,
        running: &mut Running,
    ) {
        // S1: "Operations' changes of failed transactions do not count (as for events)."
        let Outcome::Success(inner) = outcome(pair) else { return };
        let hash = pair.transaction_hash.0;
        let tx = TransactionId { hash, inner, order };
        let none = LedgerFootprint::default();
        let footprint = footprints.get(&hash).unwrap_or(&none);
        self.add(&operation_changes(meta), Some(tx), footprint, running);
    }

    /// Adds the net changes of a transaction or an upgrade, by key hash (S1: "Its number in the
    /// transaction is the rank by `key_hash`").
    fn add(
        &mut self,
        changes: &[LedgerEntryChange],
        tx: Option<TransactionId>,
        footprint: &LedgerFootprint,
        running: &mut Running,
    ) {
        let mut keys: BTreeMap<KeyHash, LedgerKey> = BTreeMap::new();
        let all = footprint.read_only.iter().chain(footprint.read_write.iter());
        keys.extend(all.map(|key| (key_hash(key), key.clone())));
        let only_read: BTreeSet<KeyHash> = footprint.read_only.iter().map(key_hash).collect();
        let mut records: BTreeMap<KeyHash, Records> = BTreeMap::new();
        for change in changes {
            add_record(change, &mut keys, &mut records);
        }
        for (hash, records) in records {
            // S1: "A TTL change names a hash; contract, key and durability come from the
            // transaction's footprint."
            let Some(key) = keys.get(&hash) else {
                self.ttl_without_key += 1;
                continue;
            };
            if is_recorded(key) {
                let only_read = only_read.contains(&hash);
                let place = Place { ledger: self.sequence, tx, only_read, running: &mut *running };
                self.changes.extend(NetChange::of(key.clone(), hash, &records, place));
            }
        }
    }
}

impl Parts {
    fn of(meta: LedgerCloseMeta) -> Self {
        match meta {
            LedgerCloseMeta::V0(meta) => Self {
                header: meta.ledger_header,
                envelopes: meta.tx_set.txs.into(),
                applied: applied(meta.tx_processing),
                upgrades: meta.upgrades_processing.into(),
                evicted: Vec::new(),
            },
            LedgerCloseMeta::V1(meta) => Self {
                header: meta.ledger_header,
                envelopes: envelopes(meta.tx_set),
                applied: applied(meta.tx_processing),
                upgrades: meta.upgrades_processing.into(),
                evicted: meta.evicted_keys.into(),
            },
            LedgerCloseMeta::V2(meta) => Self {
                header: meta.ledger_header,
                envelopes: envelopes(meta.tx_set),
                applied: Vec::from(meta.tx_processing)
                    .into_iter()
                    .map(|one| (one.result, one.tx_apply_processing))
                    .collect(),
                upgrades: meta.upgrades_processing.into(),
                evicted: meta.evicted_keys.into(),
            },
        }
    }
}

fn applied(
    processing: VecM<TransactionResultMeta>,
) -> Vec<(TransactionResultPair, TransactionMeta)> {
    let parts = |one: TransactionResultMeta| (one.result, one.tx_apply_processing);
    Vec::from(processing).into_iter().map(parts).collect()
}

fn envelopes(set: GeneralizedTransactionSet) -> Vec<TransactionEnvelope> {
    let GeneralizedTransactionSet::V1(set) = set;
    let mut found = Vec::new();
    for phase in Vec::from(set.phases) {
        match phase {
            TransactionPhase::V0(components) => {
                for component in Vec::from(components) {
                    let TxSetComponent::TxsetCompTxsMaybeDiscountedFee(component) = component;
                    found.extend(Vec::from(component.txs));
                }
            }
            TransactionPhase::V1(component) => {
                for stage in Vec::from(component.execution_stages) {
                    for cluster in Vec::from(stage.0) {
                        found.extend(Vec::from(cluster.0));
                    }
                }
            }
        }
    }
    found
}

/// The footprints of the transactions, by the hash of their envelope.
fn footprints(
    envelopes: &[TransactionEnvelope],
    network_id: [u8; 32],
) -> BTreeMap<[u8; 32], LedgerFootprint> {
    let footprint = |transaction: &Transaction| match &transaction.ext {
        TransactionExt::V1(data) => Some(data.resources.footprint.clone()),
        TransactionExt::V0 => None,
    };
    let of_envelope = |envelope: &TransactionEnvelope| {
        let footprint = match envelope {
            TransactionEnvelope::TxV0(_) => None,
            TransactionEnvelope::Tx(envelope) => footprint(&envelope.tx),
            TransactionEnvelope::TxFeeBump(bump) => {
                let FeeBumpTransactionInnerTx::Tx(inner) = &bump.tx.inner_tx;
                footprint(&inner.tx)
            }
        };
        footprint.map(|footprint| (envelope.hash(network_id).unwrap(), footprint))
    };
    envelopes.iter().filter_map(of_envelope).collect()
}

enum Outcome {
    /// With the inner hash of a fee bump.
    Success(Option<[u8; 32]>),
    Failure,
}

fn outcome(pair: &TransactionResultPair) -> Outcome {
    match &pair.result.result {
        TransactionResultResult::TxSuccess(_) => Outcome::Success(None),
        TransactionResultResult::TxFeeBumpInnerSuccess(InnerTransactionResultPair {
            transaction_hash: Hash(inner),
            ..
        }) => Outcome::Success(Some(*inner)),
        _ => Outcome::Failure,
    }
}

/// The changes of the operations. Metadata of versions 1 and 2 is of protocols without contracts, and
/// gives nothing; fees, sequence numbers and refunds change accounts alone.
fn operation_changes(meta: &TransactionMeta) -> Vec<LedgerEntryChange> {
    match meta {
        TransactionMeta::V0(_) | TransactionMeta::V1(_) | TransactionMeta::V2(_) => Vec::new(),
        TransactionMeta::V3(meta) => {
            meta.operations.iter().flat_map(|one| one.changes.iter().cloned()).collect()
        }
        TransactionMeta::V4(meta) => {
            meta.operations.iter().flat_map(|one| one.changes.iter().cloned()).collect()
        }
    }
}

fn begins_everything(header: &LedgerHeaderHistoryEntry) -> bool {
    let header = &header.header;
    let upgrades = header.scp_value.upgrades.iter();
    let mut upgrades = upgrades.map(|one| LedgerUpgrade::from_xdr(&one.0, Limits::none()));
    header.ledger_seq <= 2
        || header.ledger_version < FIRST_WITH_CONTRACTS
        || upgrades.any(|one| matches!(one, Ok(LedgerUpgrade::Version(FIRST_WITH_CONTRACTS))))
}

fn add_record(
    change: &LedgerEntryChange,
    keys: &mut BTreeMap<KeyHash, LedgerKey>,
    records: &mut BTreeMap<KeyHash, Records>,
) {
    let entry = match change {
        LedgerEntryChange::Removed(LedgerKey::Ttl(key)) => {
            records.entry(key.key_hash.0).or_default().ttl.push(Record::Removed);
            return;
        }
        LedgerEntryChange::Removed(key) => {
            if is_recorded(key) {
                let hash = key_hash(key);
                keys.insert(hash, key.clone());
                records.entry(hash).or_default().entry.push(Record::Removed);
            }
            return;
        }
        LedgerEntryChange::State(entry)
        | LedgerEntryChange::Created(entry)
        | LedgerEntryChange::Updated(entry)
        | LedgerEntryChange::Restored(entry) => entry,
    };
    let modified = entry.last_modified_ledger_seq;
    let value = match &entry.data {
        LedgerEntryData::Ttl(ttl) => {
            let record = record(change, ttl.live_until_ledger_seq, modified);
            records.entry(ttl.key_hash.0).or_default().ttl.push(record);
            return;
        }
        LedgerEntryData::ContractData(data) => Value::Data(data.val.clone()),
        LedgerEntryData::ContractCode(_) => Value::Code,
        LedgerEntryData::ConfigSetting(setting) => Value::Setting(Box::new(setting.clone())),
        _ => return,
    };
    let key = entry.to_key();
    if is_recorded(&key) {
        let hash = key_hash(&key);
        keys.insert(hash, key);
        records.entry(hash).or_default().entry.push(record(change, value, modified));
    }
}

fn record<T>(change: &LedgerEntryChange, value: T, modified: u32) -> Record<T> {
    match change {
        LedgerEntryChange::State(_) => Record::State(value, modified),
        LedgerEntryChange::Created(_) => Record::Created(value, modified),
        LedgerEntryChange::Updated(_) => Record::Updated(value, modified),
        LedgerEntryChange::Restored(_) => Record::Restored(value, modified),
        LedgerEntryChange::Removed(_) => Record::Removed,
    }
}
