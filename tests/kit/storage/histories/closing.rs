//! Writes ledgers as stellar-core does: transaction set, results and header that bind each other, and
//! a signature.

use orrery_ledger::domain::Network;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use sha2::{Digest, Sha256};
use stellar_xdr::*;

use super::transactions::{Action, Draft, Drafts};
use crate::forged::{forgers_key, hash, list, sign};
use crate::values::{self, fields, symbol};

/// First protocol with metadata of version 4 in a `LedgerCloseMeta` of version 2.
const VERSION_2_SINCE: u32 = 23;

/// A ledger to write.
pub struct ToClose<'a> {
    pub network: &'a Network,
    pub sequence: u32,
    /// Protocol of the transactions.
    pub protocol: u32,
    pub upgrade: Option<u32>,
    pub previous_hash: &'a Hash,
    /// The ledger that last changed a setting.
    pub setting_modified: u32,
    pub regenerated: bool,
}

/// A transaction as applied.
struct Applied {
    envelope: TransactionEnvelope,
    pair: TransactionResultPair,
    meta: TransactionMeta,
}

/// An account of the sources of transactions.
pub fn account(number: u8) -> AccountId {
    AccountId(PublicKey::PublicKeyTypeEd25519(Uint256([number + 1; 32])))
}

/// Returns the XDR of the ledger, its hash, and the hashes of its transactions.
pub fn ledger(
    rng: &mut StdRng,
    close: ToClose<'_>,
    drafts: Drafts,
) -> (Vec<u8>, Hash, Vec<[u8; 32]>) {
    let v4 = close.protocol >= VERSION_2_SINCE || close.regenerated;
    let mut apply = |draft: &Draft| apply(rng, draft, close.network, v4);
    let stages: Vec<Vec<Vec<Applied>>> = drafts
        .stages
        .iter()
        .map(|stage| stage.iter().map(|one| one.iter().map(&mut apply).collect()).collect())
        .collect();
    let hashes = stages.iter().flatten().flatten().map(|one| one.pair.transaction_hash.0).collect();
    let meta = if close.protocol < 20 {
        version_0(rng, &close)
    } else if close.protocol < VERSION_2_SINCE {
        version_1(rng, &close, stages, drafts.evicted)
    } else {
        version_2(rng, &close, stages, drafts.evicted)
    };
    let hash = match &meta {
        LedgerCloseMeta::V0(meta) => meta.ledger_header.hash.clone(),
        LedgerCloseMeta::V1(meta) => meta.ledger_header.hash.clone(),
        LedgerCloseMeta::V2(meta) => meta.ledger_header.hash.clone(),
    };
    (meta.to_xdr(Limits::none()).unwrap(), hash, hashes)
}

fn version_0(rng: &mut StdRng, close: &ToClose<'_>) -> LedgerCloseMeta {
    let previous_ledger_hash = close.previous_hash.clone();
    // The number of envelopes is not hashed.
    let set_hash = Hash(Sha256::digest(previous_ledger_hash.0).into());
    LedgerCloseMeta::V0(LedgerCloseMetaV0 {
        ledger_header: header(rng, close, set_hash, &[]),
        tx_set: TransactionSet { previous_ledger_hash, txs: VecM::default() },
        upgrades_processing: upgrades(close),
        ..Default::default()
    })
}

fn version_1(
    rng: &mut StdRng,
    close: &ToClose<'_>,
    stages: Vec<Vec<Vec<Applied>>>,
    evicted: Vec<LedgerKey>,
) -> LedgerCloseMeta {
    let applied: Vec<Applied> = stages.into_iter().flatten().flatten().collect();
    // A set has its own order.
    let mut envelopes: Vec<_> = applied.iter().map(|one| one.envelope.clone()).collect();
    envelopes.shuffle(rng);
    let tx_set = transaction_set(close, vec![sequential(Vec::new()), sequential(envelopes)]);
    let processing = applied.iter().map(|one| TransactionResultMeta {
        result: one.pair.clone(),
        fee_processing: fee(rng, close.sequence),
        tx_apply_processing: one.meta.clone(),
    });
    let processing: Vec<_> = processing.collect();
    LedgerCloseMeta::V1(LedgerCloseMetaV1 {
        ledger_header: header(rng, close, hash(&tx_set), &applied),
        tx_set,
        tx_processing: list(processing),
        upgrades_processing: upgrades(close),
        evicted_keys: list(evicted),
        ..Default::default()
    })
}

fn version_2(
    rng: &mut StdRng,
    close: &ToClose<'_>,
    stages: Vec<Vec<Vec<Applied>>>,
    evicted: Vec<LedgerKey>,
) -> LedgerCloseMeta {
    let of_stage = |stage: &Vec<Vec<Applied>>| {
        let clusters = stage.iter().filter(|cluster| !cluster.is_empty()).map(|cluster| {
            let envelopes: Vec<_> = cluster.iter().map(|one| one.envelope.clone()).collect();
            DependentTxCluster(list(envelopes))
        });
        ParallelTxExecutionStage(list(clusters.collect()))
    };
    let parallel = TransactionPhase::V1(ParallelTxsComponent {
        base_fee: None,
        execution_stages: list(
            stages.iter().map(of_stage).filter(|stage| !stage.0.is_empty()).collect(),
        ),
    });
    let tx_set = transaction_set(close, vec![sequential(Vec::new()), parallel]);
    let applied: Vec<Applied> = stages.into_iter().flatten().flatten().collect();
    let processing = applied.iter().map(|one| TransactionResultMetaV1 {
        result: one.pair.clone(),
        fee_processing: fee(rng, close.sequence),
        tx_apply_processing: one.meta.clone(),
        post_tx_apply_fee_processing: fee(rng, close.sequence),
        ..Default::default()
    });
    let processing: Vec<_> = processing.collect();
    LedgerCloseMeta::V2(LedgerCloseMetaV2 {
        ledger_header: header(rng, close, hash(&tx_set), &applied),
        tx_set,
        tx_processing: list(processing),
        upgrades_processing: upgrades(close),
        evicted_keys: list(evicted),
        ..Default::default()
    })
}

fn transaction_set(
    close: &ToClose<'_>,
    phases: Vec<TransactionPhase>,
) -> GeneralizedTransactionSet {
    GeneralizedTransactionSet::V1(TransactionSetV1 {
        previous_ledger_hash: close.previous_hash.clone(),
        phases: list(phases),
    })
}

fn sequential(envelopes: Vec<TransactionEnvelope>) -> TransactionPhase {
    let component = TxSetComponentTxsMaybeDiscountedFee { base_fee: None, txs: list(envelopes) };
    let components = vec![TxSetComponent::TxsetCompTxsMaybeDiscountedFee(component)];
    TransactionPhase::V0(list(components))
}

/// The header, with a signature by a key that nobody knows.
fn header(
    rng: &mut StdRng,
    close: &ToClose<'_>,
    tx_set_hash: Hash,
    applied: &[Applied],
) -> LedgerHeaderHistoryEntry {
    let upgrade = |version: u32| {
        let upgrade = LedgerUpgrade::Version(version).to_xdr(Limits::none()).unwrap();
        UpgradeType(upgrade.try_into().unwrap())
    };
    let mut scp_value = StellarValue {
        tx_set_hash,
        close_time: TimePoint(1_700_000_000 + 5 * u64::from(close.sequence)),
        upgrades: list(close.upgrade.map(upgrade).into_iter().collect()),
        ext: StellarValueExt::Basic,
    };
    sign(&mut scp_value, close.network.id(), &forgers_key(7));
    let results = applied.iter().map(|one| one.pair.clone()).collect();
    let header = LedgerHeader {
        ledger_version: close.upgrade.unwrap_or(close.protocol),
        previous_ledger_hash: close.previous_hash.clone(),
        scp_value,
        tx_set_result_hash: hash(&TransactionResultSet { results: list(results) }),
        bucket_list_hash: Hash(rng.random()),
        ledger_seq: close.sequence,
        base_fee: 100,
        base_reserve: 5_000_000,
        max_tx_set_size: 100,
        ..Default::default()
    };
    LedgerHeaderHistoryEntry { hash: hash(&header), header, ext: Default::default() }
}

/// An upgrade of the protocol changes settings.
fn upgrades(close: &ToClose<'_>) -> VecM<UpgradeEntryMeta> {
    let Some(version) = close.upgrade else { return VecM::default() };
    let setting = |bytes: u32, modified: u32| LedgerEntry {
        last_modified_ledger_seq: modified,
        data: LedgerEntryData::ConfigSetting(ConfigSettingEntry::ContractMaxSizeBytes(bytes)),
        ..Default::default()
    };
    let new = setting(1000 + version, close.sequence);
    let changes = match version {
        20 => vec![LedgerEntryChange::Created(new)],
        _ => {
            let old = setting(1000 + close.protocol, close.setting_modified);
            vec![LedgerEntryChange::State(old), LedgerEntryChange::Updated(new)]
        }
    };
    let upgrade = LedgerUpgrade::Version(version);
    list(vec![UpgradeEntryMeta { upgrade, changes: LedgerEntryChanges(list(changes)) }])
}

/// A change of the account that pays.
fn fee(rng: &mut StdRng, sequence: u32) -> LedgerEntryChanges {
    let entry = |balance: i64| LedgerEntry {
        last_modified_ledger_seq: sequence,
        data: LedgerEntryData::Account(AccountEntry {
            account_id: account(0),
            balance,
            ..Default::default()
        }),
        ..Default::default()
    };
    let balance = rng.random_range(1000..1_000_000);
    let changes = vec![
        LedgerEntryChange::State(entry(balance)),
        LedgerEntryChange::Updated(entry(balance - 100)),
    ];
    LedgerEntryChanges(list(changes))
}

fn apply(rng: &mut StdRng, draft: &Draft, network: &Network, v4: bool) -> Applied {
    let mut events = match &draft.action {
        Action::Invoke(contract) if !draft.failed && rng.random() => vec![event(contract)],
        _ => Vec::new(),
    };
    if !draft.failed {
        events.extend(updates(draft));
    }
    let return_value = ScVal::U32(rng.random_range(0..9));
    let envelope = envelope(draft);
    let id = network.id().0;
    let outcome = outcome(draft, &return_value, &events);
    let result = match &envelope {
        TransactionEnvelope::TxFeeBump(bump) => {
            let FeeBumpTransactionInnerTx::Tx(inner) = &bump.tx.inner_tx;
            let transaction_hash = Hash(inner.hash(id).unwrap());
            of_inner(outcome, draft.failed, transaction_hash)
        }
        _ if draft.failed => TransactionResultResult::TxFailed(list(vec![outcome])),
        _ => TransactionResultResult::TxSuccess(list(vec![outcome])),
    };
    let pair = TransactionResultPair {
        transaction_hash: Hash(envelope.hash(id).unwrap()),
        result: TransactionResult { fee_charged: 100, result, ..Default::default() },
    };
    let meta = meta(draft, return_value, events, v4);
    Applied { envelope, pair, meta }
}

fn of_inner(
    outcome: OperationResult,
    failed: bool,
    transaction_hash: Hash,
) -> TransactionResultResult {
    let results = list(vec![outcome]);
    let result = match failed {
        true => InnerTransactionResultResult::TxFailed(results),
        false => InnerTransactionResultResult::TxSuccess(results),
    };
    let result = InnerTransactionResult { result, ..Default::default() };
    let pair = InnerTransactionResultPair { transaction_hash, result };
    match failed {
        true => TransactionResultResult::TxFeeBumpInnerFailed(pair),
        false => TransactionResultResult::TxFeeBumpInnerSuccess(pair),
    }
}

fn outcome(draft: &Draft, return_value: &ScVal, events: &[ContractEvent]) -> OperationResult {
    use OperationResultTr::{ExtendFootprintTtl, InvokeHostFunction, RestoreFootprint};

    let pre_image = InvokeHostFunctionSuccessPreImage {
        return_value: return_value.clone(),
        events: list(events.to_vec()),
    };
    OperationResult::OpInner(match (&draft.action, draft.failed) {
        (Action::Extend, false) => ExtendFootprintTtl(ExtendFootprintTtlResult::Success),
        (Action::Extend, true) => {
            ExtendFootprintTtl(ExtendFootprintTtlResult::ResourceLimitExceeded)
        }
        (Action::Restore, false) => RestoreFootprint(RestoreFootprintResult::Success),
        (Action::Restore, true) => RestoreFootprint(RestoreFootprintResult::ResourceLimitExceeded),
        (_, false) => InvokeHostFunction(InvokeHostFunctionResult::Success(hash(&pre_image))),
        (_, true) => InvokeHostFunction(InvokeHostFunctionResult::Trapped),
    })
}

fn event(contract: &[u8; 32]) -> ContractEvent {
    ContractEvent {
        contract_id: Some(ContractId(Hash(*contract))),
        type_: ContractEventType::Contract,
        body: ContractEventBody::V0(ContractEventV0 {
            topics: list(vec![symbol("changed")]),
            data: ScVal::Void,
        }),
        ..Default::default()
    }
}

/// Returns the events that the host emits when contracts change their executable. Some contracts change it and
/// take that back in the same transaction.
fn updates(draft: &Draft) -> Vec<ContractEvent> {
    let executable = |change: &LedgerEntryChange| {
        let entry = match change {
            LedgerEntryChange::State(entry)
            | LedgerEntryChange::Updated(entry)
            | LedgerEntryChange::Restored(entry) => entry,
            LedgerEntryChange::Created(_) | LedgerEntryChange::Removed(_) => return None,
        };
        let LedgerEntryData::ContractData(data) = &entry.data else { return None };
        let (ScAddress::Contract(contract), ScVal::ContractInstance(instance)) =
            (&data.contract, &data.val)
        else {
            return None;
        };
        let is_after = matches!(change, LedgerEntryChange::Updated(_));
        Some((contract.clone(), is_after, instance.executable.clone()))
    };
    let mut events = Vec::new();
    for group in &draft.groups {
        let mut before = None;
        for (contract, is_after, new) in group.iter().filter_map(executable) {
            let Some(old) = before.replace(new.clone()).filter(|_| is_after) else { continue };
            if old != new {
                events.push(update(&contract, &old, &new));
            } else if draft.number % 5 == 0 {
                let other = ContractExecutable::Wasm(Hash([5; 32]));
                events.push(update(&contract, &old, &other));
                events.push(update(&contract, &other, &old));
            }
        }
    }
    events
}

fn update(
    contract: &ContractId,
    old: &ContractExecutable,
    new: &ContractExecutable,
) -> ContractEvent {
    let topic = |executable: &ContractExecutable| match executable {
        ContractExecutable::Wasm(Hash(hash)) => {
            let hash = ScVal::Bytes(ScBytes(hash.to_vec().try_into().unwrap()));
            values::list([symbol("Wasm"), hash])
        }
        ContractExecutable::StellarAsset => values::list([symbol("StellarAsset")]),
        ContractExecutable::ExternalRef(of) => {
            let owner = ScVal::Address(of.executable_owner.clone());
            let named = fields([("owner", owner), ("tag", ScVal::String(of.tag.clone()))]);
            values::list([symbol("ExternalRef"), named])
        }
    };
    ContractEvent {
        contract_id: Some(contract.clone()),
        type_: ContractEventType::System,
        body: ContractEventBody::V0(ContractEventV0 {
            topics: list(vec![symbol("executable_update"), topic(old), topic(new)]),
            data: values::list([]),
        }),
        ..Default::default()
    }
}

fn body(action: &Action, number: i64) -> OperationBody {
    let invoke = |host_function: HostFunction| {
        OperationBody::InvokeHostFunction(InvokeHostFunctionOp {
            host_function,
            auth: VecM::default(),
        })
    };
    match action {
        Action::Invoke(contract) => invoke(HostFunction::InvokeContract(InvokeContractArgs {
            contract_address: ScAddress::Contract(ContractId(Hash(*contract))),
            function_name: "act".try_into().unwrap(),
            args: VecM::default(),
        })),
        Action::Create => {
            let mut salt = [0; 32];
            salt[..8].copy_from_slice(&number.to_be_bytes());
            let from = ContractIdPreimageFromAddress {
                address: ScAddress::Account(account(0)),
                salt: Uint256(salt),
            };
            invoke(HostFunction::CreateContract(CreateContractArgs {
                contract_id_preimage: ContractIdPreimage::Address(from),
                executable: ContractExecutable::StellarAsset,
            }))
        }
        Action::Upload(code) => {
            invoke(HostFunction::UploadContractWasm(code.as_slice().try_into().unwrap()))
        }
        Action::Extend => OperationBody::ExtendFootprintTtl(ExtendFootprintTtlOp {
            extend_to: 100,
            ..Default::default()
        }),
        Action::Restore => OperationBody::RestoreFootprint(RestoreFootprintOp::default()),
    }
}

fn envelope(draft: &Draft) -> TransactionEnvelope {
    let archived = draft.restores.clone();
    let ext = match archived.is_empty() {
        true => SorobanTransactionDataExt::V0,
        false => SorobanTransactionDataExt::V1(SorobanResourcesExtV0 {
            archived_soroban_entries: list(archived),
        }),
    };
    let footprint = LedgerFootprint {
        read_only: list(draft.read_only.clone()),
        read_write: list(draft.read_write.clone()),
    };
    let resources = SorobanResources { footprint, ..Default::default() };
    let source = |number: u8| {
        let AccountId(PublicKey::PublicKeyTypeEd25519(key)) = account(number);
        MuxedAccount::Ed25519(key)
    };
    let operation = Operation { source_account: None, body: body(&draft.action, draft.number) };
    let tx = Transaction {
        source_account: source((draft.number % 3) as u8),
        fee: 1000,
        seq_num: SequenceNumber(draft.number),
        operations: list(vec![operation]),
        ext: TransactionExt::V1(SorobanTransactionData { ext, resources, resource_fee: 500 }),
        ..Default::default()
    };
    let inner = TransactionV1Envelope { tx, signatures: VecM::default() };
    if !draft.fee_bump {
        return TransactionEnvelope::Tx(inner);
    }
    TransactionEnvelope::TxFeeBump(FeeBumpTransactionEnvelope {
        tx: FeeBumpTransaction {
            fee_source: source(2),
            fee: 3000,
            inner_tx: FeeBumpTransactionInnerTx::Tx(inner),
            ext: FeeBumpTransactionExt::V0,
        },
        signatures: VecM::default(),
    })
}

fn meta(
    draft: &Draft,
    return_value: ScVal,
    events: Vec<ContractEvent>,
    v4: bool,
) -> TransactionMeta {
    let changes: Vec<LedgerEntryChange> = draft.groups.iter().flatten().cloned().collect();
    let changes = LedgerEntryChanges(list(changes));
    let invokes = !matches!(draft.action, Action::Extend | Action::Restore);
    if v4 {
        let operation = OperationMetaV2 { changes, events: list(events), ..Default::default() };
        let return_value = invokes.then_some(return_value);
        let soroban = SorobanTransactionMetaV2 { return_value, ..Default::default() };
        return TransactionMeta::V4(TransactionMetaV4 {
            operations: list(vec![operation]),
            soroban_meta: (!draft.failed).then_some(soroban),
            ..Default::default()
        });
    }
    let return_value = if invokes { return_value } else { ScVal::Void };
    let soroban =
        SorobanTransactionMeta { events: list(events), return_value, ..Default::default() };
    TransactionMeta::V3(TransactionMetaV3 {
        operations: list(vec![OperationMeta { changes }]),
        soroban_meta: (!draft.failed).then_some(soroban),
        ..Default::default()
    })
}
