//! Ledger state in memory, replayed from the metadata of recorded ledgers, transaction by
//! transaction.
//!
//! A first pass finds the initial state: the first change of an entry says what it was before. A
//! second pass applies all changes in the order in which the network made them, and stops before
//! each transaction that ran a contract.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use orrery::programs::engine::{EntryState, PreState, StateError};
use orrery::programs::engine::{Invocation, Recorded};
use orrery_ledger::domain::{ContractId, Hash32, LedgerSeq, Network, TxHash};
use sha2::{Digest, Sha256};
use stellar_xdr::{
    AccountId, ContractDataDurability, ContractEvent, FeeBumpTransactionInnerTx,
    GeneralizedTransactionSet, Hash, InvokeHostFunctionOp, LedgerCloseMeta, LedgerEntry,
    LedgerEntryChange, LedgerEntryData, LedgerHeader, LedgerKey, LedgerKeyContractData, Limits,
    MuxedAccount, OperationBody, PublicKey, ReadXdr, ScAddress, ScVal, SorobanTransactionData,
    Transaction, TransactionEnvelope, TransactionExt, TransactionMeta, TransactionPhase,
    TransactionResultMeta, TransactionResultResult, TxSetComponent, UpgradeEntryMeta, WriteXdr,
};

/// State of every entry that the ledgers mention.
#[derive(Debug, Default, Clone)]
pub struct Replay {
    entries: HashMap<LedgerKey, Option<Rc<LedgerEntry>>>,
    /// `live_until_ledger_seq` of entries, by the hash of their key.
    live_until: HashMap<Hash, u32>,
    /// Contracts created within the ledgers, so that all their entries were created there too.
    created: BTreeSet<ContractId>,
    /// Whether an entry that was never mentioned is absent.
    from_genesis: bool,
}

impl PreState for Replay {
    fn entry(&self, key: &LedgerKey) -> Result<EntryState, StateError> {
        Ok(match self.entries.get(key) {
            Some(Some(entry)) => {
                EntryState::Present(Rc::clone(entry), self.live_until.get(&hash(key)).copied())
            }
            Some(None) => EntryState::Absent,
            None if self.from_genesis || self.is_of_created(key) => EntryState::Absent,
            None => EntryState::Unknown,
        })
    }
}

impl Replay {
    /// Computes the state before the first of these ledgers.
    pub fn before(ledgers: &[LedgerCloseMeta], from_genesis: bool) -> Self {
        let mut replay = Self { from_genesis, ..Self::default() };
        for ledger in ledgers {
            for change in all_changes(ledger) {
                replay.record_first_mention(change);
            }
        }
        replay
    }

    /// Records what the first mention of an entry says about the initial state.
    fn record_first_mention(&mut self, change: &LedgerEntryChange) {
        let (key, was) = match change {
            LedgerEntryChange::State(entry) | LedgerEntryChange::Restored(entry) => {
                (entry.to_key(), Some(entry))
            }
            LedgerEntryChange::Created(entry) => {
                if let Some(contract) = instance_of(&entry.to_key()) {
                    self.created.insert(contract);
                }
                (entry.to_key(), None)
            }
            LedgerEntryChange::Updated(_) | LedgerEntryChange::Removed(_) => return,
        };
        match was.map(|entry| &entry.data) {
            Some(LedgerEntryData::Ttl(ttl)) => {
                self.live_until.entry(ttl.key_hash.clone()).or_insert(ttl.live_until_ledger_seq);
            }
            _ => {
                self.entries.entry(key).or_insert_with(|| was.cloned().map(Rc::new));
            }
        }
    }

    /// Applies one change.
    pub fn apply(&mut self, change: &LedgerEntryChange) {
        let entry = match change {
            LedgerEntryChange::State(entry)
            | LedgerEntryChange::Created(entry)
            | LedgerEntryChange::Updated(entry)
            | LedgerEntryChange::Restored(entry) => entry,
            LedgerEntryChange::Removed(key) => {
                self.entries.insert(key.clone(), None);
                return;
            }
        };
        if let LedgerEntryData::Ttl(ttl) = &entry.data {
            self.live_until.insert(ttl.key_hash.clone(), ttl.live_until_ledger_seq);
        } else {
            self.entries.insert(entry.to_key(), Some(Rc::new(entry.clone())));
        }
    }

    /// The WASM code that a contract has now; `None` if it is unknown or the executable is not
    /// WASM.
    pub fn code_of(&self, contract: &ContractId) -> Option<Vec<u8>> {
        let entry = self.entries.get(&instance_key(contract))?.as_ref()?;
        let LedgerEntryData::ContractData(data) = &entry.data else { return None };
        let ScVal::ContractInstance(instance) = &data.val else { return None };
        let stellar_xdr::ContractExecutable::Wasm(hash) = &instance.executable else { return None };
        self.code(hash)
    }

    /// WASM code by its hash.
    pub fn code(&self, hash: &Hash) -> Option<Vec<u8>> {
        let key =
            LedgerKey::ContractCode(stellar_xdr::LedgerKeyContractCode { hash: hash.clone() });
        match &self.entries.get(&key)?.as_ref()?.data {
            LedgerEntryData::ContractCode(code) => Some(code.code.to_vec()),
            _ => None,
        }
    }

    /// Sets an entry, for states made by tests.
    pub fn set(&mut self, entry: LedgerEntry, live_until: Option<u32>) {
        let key = entry.to_key();
        if let Some(live_until) = live_until {
            self.live_until.insert(hash(&key), live_until);
        }
        self.entries.insert(key, Some(Rc::new(entry)));
    }

    /// Makes every entry that is not mentioned absent instead of unknown.
    pub fn complete(mut self) -> Self {
        self.from_genesis = true;
        self
    }

    /// Makes an entry unknown. Also drops the knowledge from which other entries are inferred to be
    /// absent.
    pub fn forget(&mut self, key: &LedgerKey) {
        self.entries.remove(key);
        self.created.clear();
        self.from_genesis = false;
    }

    fn is_of_created(&self, key: &LedgerKey) -> bool {
        match key {
            LedgerKey::ContractData(LedgerKeyContractData {
                contract: ScAddress::Contract(contract),
                ..
            }) => self.created.contains(&ContractId(contract.0.0)),
            _ => false,
        }
    }
}

/// A transaction that called or created a contract, with the network's result.
pub struct Call {
    pub invocation: Arc<Invocation>,
    pub successful: bool,
}

/// Replays ledgers and calls `visit` with the state before each transaction that calls a host
/// function, whether it succeeded or not.
pub fn replay(
    ledgers: &[LedgerCloseMeta],
    network: &Network,
    from_genesis: bool,
    mut visit: impl FnMut(&Call, &Replay),
) {
    let mut state = Replay::before(ledgers, from_genesis);
    for ledger in ledgers {
        let parts = Parts::of(ledger, network);
        for one in &parts.applied {
            one.fees.iter().for_each(|change| state.apply(change));
        }
        for (index, one) in parts.applied.iter().enumerate() {
            let effects = Effects::of(one.meta);
            effects.before.iter().for_each(|change| state.apply(change));
            if let Some(call) = call(&parts, index, &effects) {
                visit(&call, &state);
            }
            effects.operations.iter().flatten().for_each(|change| state.apply(change));
            effects.after.iter().for_each(|change| state.apply(change));
        }
        for one in &parts.applied {
            one.after_all.iter().for_each(|change| state.apply(change));
        }
        parts.upgrades.iter().for_each(|change| state.apply(change));
        parts.evicted.iter().filter(|key| is_temporary(key)).for_each(|key| {
            state.entries.insert((*key).clone(), None);
        });
    }
}

/// Splits ledgers into sections of consecutive ledgers.
pub fn sections(ledgers: &[Vec<u8>]) -> Vec<Vec<LedgerCloseMeta>> {
    let mut sections: Vec<Vec<LedgerCloseMeta>> = Vec::new();
    let mut last = (0, Hash([0; 32]));
    for xdr in ledgers {
        let meta = LedgerCloseMeta::from_xdr(xdr, Limits::depth(1000)).unwrap();
        let (header, ledger_hash) = header(&meta);
        let follows = header.previous_ledger_hash == last.1 && header.ledger_seq == last.0 + 1;
        last = (header.ledger_seq, ledger_hash);
        match sections.last_mut() {
            Some(section) if follows => section.push(meta),
            _ => sections.push(vec![meta]),
        }
    }
    sections
}

fn header(meta: &LedgerCloseMeta) -> (&LedgerHeader, Hash) {
    let entry = match meta {
        LedgerCloseMeta::V0(v0) => &v0.ledger_header,
        LedgerCloseMeta::V1(v1) => &v1.ledger_header,
        LedgerCloseMeta::V2(v2) => &v2.ledger_header,
    };
    (&entry.header, entry.hash.clone())
}

/// Sequence of the first ledger of a section.
pub fn first_sequence(section: &[LedgerCloseMeta]) -> u32 {
    header(&section[0]).0.ledger_seq
}

struct Applied<'a> {
    hash: Hash,
    result: &'a TransactionResultResult,
    fees: &'a [LedgerEntryChange],
    meta: &'a TransactionMeta,
    after_all: &'a [LedgerEntryChange],
}

struct Parts<'a> {
    header: &'a LedgerHeader,
    network: &'a Network,
    envelopes: HashMap<Hash, TransactionEnvelope>,
    applied: Vec<Applied<'a>>,
    upgrades: Vec<&'a LedgerEntryChange>,
    evicted: Vec<&'a LedgerKey>,
}

impl<'a> Parts<'a> {
    fn of(meta: &'a LedgerCloseMeta, network: &'a Network) -> Self {
        let (header, _) = header(meta);
        let applied = applied(meta);
        let (envelopes, upgrades, evicted): (_, &[UpgradeEntryMeta], &[LedgerKey]) = match meta {
            LedgerCloseMeta::V0(v0) => (v0.tx_set.txs.to_vec(), &v0.upgrades_processing, &[]),
            LedgerCloseMeta::V1(v1) => {
                (of_set(&v1.tx_set), &v1.upgrades_processing, &v1.evicted_keys)
            }
            LedgerCloseMeta::V2(v2) => {
                (of_set(&v2.tx_set), &v2.upgrades_processing, &v2.evicted_keys)
            }
        };
        let envelopes = envelopes
            .into_iter()
            .map(|envelope| (Hash(envelope.hash(network.id().0).unwrap()), envelope))
            .collect();
        let upgrades = upgrades.iter().flat_map(|upgrade| upgrade.changes.iter()).collect();
        Self { header, network, envelopes, applied, upgrades, evicted: evicted.iter().collect() }
    }
}

fn of_old(one: &TransactionResultMeta) -> Applied<'_> {
    Applied {
        hash: one.result.transaction_hash.clone(),
        result: &one.result.result.result,
        fees: &one.fee_processing,
        meta: &one.tx_apply_processing,
        after_all: &[],
    }
}

fn applied(meta: &LedgerCloseMeta) -> Vec<Applied<'_>> {
    match meta {
        LedgerCloseMeta::V0(v0) => v0.tx_processing.iter().map(of_old).collect(),
        LedgerCloseMeta::V1(v1) => v1.tx_processing.iter().map(of_old).collect(),
        LedgerCloseMeta::V2(v2) => v2
            .tx_processing
            .iter()
            .map(|one| Applied {
                hash: one.result.transaction_hash.clone(),
                result: &one.result.result.result,
                fees: &one.fee_processing,
                meta: &one.tx_apply_processing,
                after_all: &one.post_tx_apply_fee_processing,
            })
            .collect(),
    }
}

fn of_set(set: &GeneralizedTransactionSet) -> Vec<TransactionEnvelope> {
    let GeneralizedTransactionSet::V1(set) = set;
    let mut envelopes = Vec::new();
    for phase in set.phases.iter() {
        match phase {
            TransactionPhase::V0(components) => {
                for component in components.iter() {
                    let TxSetComponent::TxsetCompTxsMaybeDiscountedFee(component) = component;
                    envelopes.extend(component.txs.iter().cloned());
                }
            }
            TransactionPhase::V1(parallel) => {
                let stages = parallel.execution_stages.iter();
                let clusters = stages.flat_map(|stage| stage.0.iter());
                envelopes.extend(clusters.flat_map(|cluster| cluster.0.iter().cloned()));
            }
        }
    }
    envelopes
}

/// Changes, return value and events of a transaction, independent of the version of its metadata.
#[derive(Default)]
struct Effects<'a> {
    before: Vec<&'a LedgerEntryChange>,
    operations: Vec<Vec<&'a LedgerEntryChange>>,
    after: Vec<&'a LedgerEntryChange>,
    value: Option<ScVal>,
    events: Vec<ContractEvent>,
}

impl<'a> Effects<'a> {
    fn of(meta: &'a TransactionMeta) -> Self {
        match meta {
            TransactionMeta::V0(operations) => Self {
                operations: operations.iter().map(|one| one.changes.iter().collect()).collect(),
                ..Self::default()
            },
            TransactionMeta::V1(v1) => Self {
                before: v1.tx_changes.iter().collect(),
                operations: v1.operations.iter().map(|one| one.changes.iter().collect()).collect(),
                ..Self::default()
            },
            TransactionMeta::V2(v2) => Self {
                before: v2.tx_changes_before.iter().collect(),
                operations: v2.operations.iter().map(|one| one.changes.iter().collect()).collect(),
                after: v2.tx_changes_after.iter().collect(),
                ..Self::default()
            },
            TransactionMeta::V3(v3) => Self {
                before: v3.tx_changes_before.iter().collect(),
                operations: v3.operations.iter().map(|one| one.changes.iter().collect()).collect(),
                after: v3.tx_changes_after.iter().collect(),
                value: v3.soroban_meta.as_ref().map(|meta| meta.return_value.clone()),
                events: v3.soroban_meta.as_ref().map_or(Vec::new(), |meta| meta.events.to_vec()),
            },
            TransactionMeta::V4(v4) => Self {
                before: v4.tx_changes_before.iter().collect(),
                operations: v4.operations.iter().map(|one| one.changes.iter().collect()).collect(),
                after: v4.tx_changes_after.iter().collect(),
                value: v4.soroban_meta.as_ref().and_then(|meta| meta.return_value.clone()),
                events: v4.operations.iter().flat_map(|one| one.events.to_vec()).collect(),
            },
        }
    }
}

fn all_changes(meta: &LedgerCloseMeta) -> Vec<&LedgerEntryChange> {
    let applied = applied(meta);
    let mut changes: Vec<_> = applied.iter().flat_map(|one| one.fees.iter()).collect();
    for one in &applied {
        let effects = Effects::of(one.meta);
        changes.extend(effects.before);
        changes.extend(effects.operations.into_iter().flatten());
        changes.extend(effects.after);
    }
    changes.extend(applied.iter().flat_map(|one| one.after_all.iter()));
    let upgrades = match meta {
        LedgerCloseMeta::V0(v0) => &v0.upgrades_processing,
        LedgerCloseMeta::V1(v1) => &v1.upgrades_processing,
        LedgerCloseMeta::V2(v2) => &v2.upgrades_processing,
    };
    changes.extend(upgrades.iter().flat_map(|upgrade| upgrade.changes.iter()));
    changes
}

/// The host function call in a transaction, if there is one.
fn call(parts: &Parts<'_>, index: usize, effects: &Effects<'_>) -> Option<Call> {
    let one = &parts.applied[index];
    let transaction = inner(parts.envelopes.get(&one.hash)?)?;
    let operation = transaction.operations.first()?;
    let OperationBody::InvokeHostFunction(InvokeHostFunctionOp { host_function, auth }) =
        &operation.body
    else {
        return None;
    };
    let successful = matches!(
        one.result,
        TransactionResultResult::TxSuccess(_) | TransactionResultResult::TxFeeBumpInnerSuccess(_)
    );
    let footprint = match &transaction.ext {
        TransactionExt::V1(SorobanTransactionData { resources, .. }) => {
            let footprint = &resources.footprint;
            footprint.read_only.iter().chain(footprint.read_write.iter()).cloned().collect()
        }
        TransactionExt::V0 => Vec::new(),
    };
    let changes = effects
        .operations
        .first()
        .map_or(Vec::new(), |changes| changes.iter().map(|change| (*change).clone()).collect());
    let recorded = effects.value.clone().map(|return_value| Recorded {
        return_value,
        events: effects.events.clone(),
        changes: stellar_xdr::LedgerEntryChanges(changes.try_into().unwrap()),
    });
    let source = operation.source_account.as_ref().unwrap_or(&transaction.source_account);
    let invocation = Invocation {
        ledger: LedgerSeq(parts.header.ledger_seq),
        closed_at: parts.header.scp_value.close_time.0,
        network_id: *parts.network.id(),
        protocol: parts.header.ledger_version,
        base_reserve: parts.header.base_reserve,
        transaction: Hash32(one.hash.0) as TxHash,
        application_order: index as u32 + 1,
        source_account: account(source),
        host_function: host_function.clone(),
        authorization: auth.to_vec(),
        footprint,
        recorded,
    };
    Some(Call { invocation: Arc::new(invocation), successful })
}

fn inner(envelope: &TransactionEnvelope) -> Option<&Transaction> {
    match envelope {
        TransactionEnvelope::TxV0(_) => None,
        TransactionEnvelope::Tx(v1) => Some(&v1.tx),
        TransactionEnvelope::TxFeeBump(bump) => {
            let FeeBumpTransactionInnerTx::Tx(v1) = &bump.tx.inner_tx;
            Some(&v1.tx)
        }
    }
}

fn account(account: &MuxedAccount) -> AccountId {
    let key = match account {
        MuxedAccount::Ed25519(key) => key,
        MuxedAccount::MuxedEd25519(muxed) => &muxed.ed25519,
    };
    AccountId(PublicKey::PublicKeyTypeEd25519(key.clone()))
}

/// Ledger key of a contract's instance.
pub fn instance_key(contract: &ContractId) -> LedgerKey {
    LedgerKey::ContractData(LedgerKeyContractData {
        contract: ScAddress::Contract(stellar_xdr::ContractId(Hash(contract.0))),
        key: ScVal::LedgerKeyContractInstance,
        durability: ContractDataDurability::Persistent,
    })
}

fn instance_of(key: &LedgerKey) -> Option<ContractId> {
    match key {
        LedgerKey::ContractData(LedgerKeyContractData {
            contract: ScAddress::Contract(contract),
            key: ScVal::LedgerKeyContractInstance,
            ..
        }) => Some(ContractId(contract.0.0)),
        _ => None,
    }
}

fn is_temporary(key: &LedgerKey) -> bool {
    matches!(
        key,
        LedgerKey::ContractData(LedgerKeyContractData {
            durability: ContractDataDurability::Temporary,
            ..
        })
    )
}

fn hash(key: &LedgerKey) -> Hash {
    Hash(Sha256::digest(key.to_xdr(Limits::none()).unwrap()).into())
}
