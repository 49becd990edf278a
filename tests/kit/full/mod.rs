//! Second implementation of decoding: decodes everything with `stellar-xdr` and extracts the same
//! facts. Simple rather than fast; shares error types with the first implementation, but no code.

mod close_time;
mod ledger;

use std::ops::Range;
use std::sync::LazyLock;

use rayon::{ThreadPool, ThreadPoolBuilder};
use sha2::{Digest, Sha256};
use stellar_xdr as x;
use x::{Limits, ReadXdr, WriteXdr};

use orrery_ledger::decode::{DEEPEST, DecodeError, EventType, Placement};
use orrery_ledger::domain::{ContractId, Hash32, LedgerSeq, NetworkId, RpcEventId, TxHash};

pub use ledger::{Account, Event, Ledger, Transaction};

/// Reason why the second implementation rejects bytes.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `stellar-xdr` rejects them.
    #[error("the ledger cannot be decoded: {0}")]
    Xdr(#[from] x::Error),
    /// The decoded value encodes to other bytes.
    #[error("the ledger is not the encoding of what it decodes to")]
    NotCanonical,
    /// The parts of the ledger contradict each other.
    #[error(transparent)]
    Ledger(#[from] DecodeError),
}

/// Decodes one `LedgerCloseMeta` completely.
///
/// # Errors
///
/// When the bytes are not exactly one `LedgerCloseMeta`, or when its envelopes and results do not
/// belong together on this network.
pub fn decode(raw: &[u8], network: &NetworkId) -> Result<Ledger, Error> {
    with_stack(|| decode_all(raw, network))
}

/// Runs `work` on a stack that is large enough to decode whatever a ledger may nest. The threads
/// with such stacks stay: starting one for each ledger takes longer than most ledgers.
pub fn with_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    const STACK: usize = 64 << 20;
    static THREADS: LazyLock<ThreadPool> =
        LazyLock::new(|| ThreadPoolBuilder::new().stack_size(STACK).build().unwrap());
    THREADS.install(work)
}

fn decode_all(raw: &[u8], network: &NetworkId) -> Result<Ledger, Error> {
    let meta = x::LedgerCloseMeta::from_xdr(raw, Limits { depth: DEEPEST, len: raw.len() })?;
    if meta.to_xdr(Limits::none())? != raw {
        return Err(Error::NotCanonical);
    }
    let evicted = evicted(&meta)?;
    let (version, entry, envelopes, applied) = parts(meta);
    let header = entry.header;
    let ledger = LedgerSeq(header.ledger_seq);
    let close_time_ms = close_time::milliseconds(ledger, &header.scp_value)?;
    check_counts(ledger, &envelopes, &applied, network)?;
    let envelopes = match_envelopes(ledger, envelopes, &applied, network)?;

    let metas: Vec<&x::TransactionMeta> = applied.iter().map(|one| &one.meta).collect();
    let (events, ranges) = events(ledger, &metas)?;
    let mut transactions = Vec::new();
    for (index, one) in applied.iter().enumerate() {
        let range = ranges[index].clone();
        transactions.push(transaction(index, one, &envelopes[index], &events, range, network)?);
    }
    Ok(Ledger {
        version,
        header: encode(&header)?,
        hash: Hash32(entry.hash.0),
        previous_hash: Hash32(header.previous_ledger_hash.0),
        sequence: ledger,
        protocol: header.ledger_version,
        close_time: header.scp_value.close_time.0,
        close_time_ms,
        transactions,
        events,
        evicted,
    })
}

fn encode(value: &impl WriteXdr) -> Result<Vec<u8>, x::Error> {
    value.to_xdr(Limits::none())
}

struct Applied {
    pair: x::TransactionResultPair,
    meta: x::TransactionMeta,
}

type Parts = (u32, x::LedgerHeaderHistoryEntry, Vec<x::TransactionEnvelope>, Vec<Applied>);

fn parts(meta: x::LedgerCloseMeta) -> Parts {
    let applied = |one: &x::TransactionResultMeta| Applied {
        pair: one.result.clone(),
        meta: one.tx_apply_processing.clone(),
    };
    match meta {
        x::LedgerCloseMeta::V0(v0) => (
            0,
            v0.ledger_header,
            v0.tx_set.txs.to_vec(),
            v0.tx_processing.iter().map(applied).collect(),
        ),
        x::LedgerCloseMeta::V1(v1) => (
            1,
            v1.ledger_header,
            generalized(&v1.tx_set),
            v1.tx_processing.iter().map(applied).collect(),
        ),
        x::LedgerCloseMeta::V2(v2) => {
            let applied = v2.tx_processing.iter().map(|one| Applied {
                pair: one.result.clone(),
                meta: one.tx_apply_processing.clone(),
            });
            (2, v2.ledger_header, generalized(&v2.tx_set), applied.collect())
        }
    }
}

fn generalized(set: &x::GeneralizedTransactionSet) -> Vec<x::TransactionEnvelope> {
    let x::GeneralizedTransactionSet::V1(set) = set;
    let mut envelopes = Vec::new();
    for phase in set.phases.iter() {
        match phase {
            x::TransactionPhase::V0(components) => {
                for component in components.iter() {
                    let x::TxSetComponent::TxsetCompTxsMaybeDiscountedFee(component) = component;
                    envelopes.extend(component.txs.iter().cloned());
                }
            }
            x::TransactionPhase::V1(parallel) => {
                for stage in parallel.execution_stages.iter() {
                    for cluster in stage.0.iter() {
                        envelopes.extend(cluster.0.iter().cloned());
                    }
                }
            }
        }
    }
    envelopes
}

fn check_counts(
    ledger: LedgerSeq,
    envelopes: &[x::TransactionEnvelope],
    applied: &[Applied],
    network: &NetworkId,
) -> Result<(), Error> {
    if envelopes.len() != applied.len() {
        let alone = differing(envelopes, applied, network)?;
        let (envelopes, results) = (envelopes.len(), applied.len());
        return Err(DecodeError::CountMismatch { ledger, envelopes, results, alone }.into());
    }
    if applied.len() >= (1 << 20) - 1 {
        return Err(DecodeError::TooManyTransactions(ledger, applied.len()).into());
    }
    for one in applied {
        if let x::TransactionMeta::V4(v4) = &one.meta
            && v4.operations.len() > 4095
        {
            let transaction = Hash32(one.pair.transaction_hash.0);
            let count = v4.operations.len();
            return Err(DecodeError::TooManyOperations { ledger, transaction, count }.into());
        }
    }
    Ok(())
}

/// The transaction that alone has one envelope more or one less than results.
fn differing(
    envelopes: &[x::TransactionEnvelope],
    applied: &[Applied],
    network: &NetworkId,
) -> Result<Option<TxHash>, Error> {
    let mut of_envelopes = Vec::new();
    for envelope in envelopes {
        of_envelopes.push(Hash32(envelope.hash(network.0)?));
    }
    let mut left = Vec::new();
    for one in applied {
        let hash = Hash32(one.pair.transaction_hash.0);
        match of_envelopes.iter().position(|other| *other == hash) {
            Some(at) => drop(of_envelopes.swap_remove(at)),
            None => left.push(hash),
        }
    }
    left.extend(of_envelopes);
    Ok(<[TxHash; 1]>::try_from(left).ok().map(|[only]| only))
}

/// Puts the envelopes into the order of the results, matched by transaction hash.
fn match_envelopes(
    ledger: LedgerSeq,
    envelopes: Vec<x::TransactionEnvelope>,
    applied: &[Applied],
    network: &NetworkId,
) -> Result<Vec<x::TransactionEnvelope>, Error> {
    let mut hashed = Vec::new();
    for envelope in envelopes {
        let hash = Hash32(envelope.hash(network.0)?);
        if hashed.iter().any(|(earlier, _)| *earlier == hash) {
            return Err(DecodeError::RepeatedEnvelope(ledger, hash).into());
        }
        hashed.push((hash, envelope));
    }
    let of_result = |one: &Applied| Hash32(one.pair.transaction_hash.0);
    let known = |hash: TxHash| hashed.iter().find(|(other, _)| *other == hash);
    if !applied.is_empty() && applied.iter().all(|one| known(of_result(one)).is_none()) {
        let envelopes = hashed.len();
        return Err(DecodeError::NoEnvelopeMatches(ledger, envelopes).into());
    }
    let mut ordered = Vec::new();
    for (index, one) in applied.iter().enumerate() {
        let transaction = of_result(one);
        let Some((_, envelope)) = known(transaction) else {
            return Err(DecodeError::ResultWithoutEnvelope(ledger, transaction).into());
        };
        if applied[..index].iter().any(|earlier| of_result(earlier) == transaction) {
            return Err(DecodeError::RepeatedResult(ledger, transaction).into());
        }
        if let x::TransactionResultResult::TxFeeBumpInnerSuccess(inner)
        | x::TransactionResultResult::TxFeeBumpInnerFailed(inner) = &one.pair.result.result
            && inner_hash(envelope, network)? != Some(Hash32(inner.transaction_hash.0))
        {
            return Err(DecodeError::InnerHashMismatch(ledger, transaction).into());
        }
        ordered.push(envelope.clone());
    }
    Ok(ordered)
}

fn inner_hash(
    envelope: &x::TransactionEnvelope,
    network: &NetworkId,
) -> Result<Option<TxHash>, x::Error> {
    match envelope {
        x::TransactionEnvelope::TxFeeBump(bump) => {
            let x::FeeBumpTransactionInnerTx::Tx(inner) = &bump.tx.inner_tx;
            inner.hash(network.0).map(|hash| Some(Hash32(hash)))
        }
        _ => Ok(None),
    }
}

/// All events in canonical order, and the range of each transaction's operation events among them.
fn events(
    ledger: LedgerSeq,
    metas: &[&x::TransactionMeta],
) -> Result<(Vec<Event>, Vec<Range<usize>>), x::Error> {
    use x::TransactionEventStage as Stage;

    let mut events = Vec::new();
    let mut ranges = Vec::new();
    let mut number = 0;
    for (index, meta) in metas.iter().enumerate() {
        for one in transaction_events(meta, Stage::BeforeAllTxs) {
            let id = RpcEventId::new(ledger.0, 0, 0, number);
            events.extend(event(one, index, Placement::BeforeAllTransactions, id)?);
            number += 1;
        }
    }
    for (index, meta) in metas.iter().enumerate() {
        let order = index as u32 + 1;
        let start = events.len();
        let mut event_index = 0;
        for (operation, list) in (0..).zip(operation_events(meta)) {
            for (number, one) in (0..).zip(list) {
                let id = RpcEventId::new(ledger.0, order, operation, number);
                let placement = Placement::Operation { operation, event_index };
                events.extend(event(one, index, placement, id)?);
                event_index += 1;
            }
        }
        ranges.push(start..events.len());
        for (number, one) in (0..).zip(transaction_events(meta, Stage::AfterTx)) {
            let id = RpcEventId::new(ledger.0, order, 4095, number);
            events.extend(event(one, index, Placement::AfterTransaction, id)?);
        }
    }
    number = 0;
    for (index, meta) in metas.iter().enumerate() {
        for one in transaction_events(meta, Stage::AfterAllTxs) {
            let id = RpcEventId::new(ledger.0, 1_048_575, 0, number);
            events.extend(event(one, index, Placement::AfterAllTransactions, id)?);
            number += 1;
        }
    }
    Ok((events, ranges))
}

fn transaction_events(
    meta: &x::TransactionMeta,
    stage: x::TransactionEventStage,
) -> impl Iterator<Item = &x::ContractEvent> {
    let events = match meta {
        x::TransactionMeta::V4(v4) => v4.events.as_slice(),
        _ => &[],
    };
    events.iter().filter(move |one| one.stage == stage).map(|one| &one.event)
}

fn operation_events(meta: &x::TransactionMeta) -> Vec<&[x::ContractEvent]> {
    match meta {
        x::TransactionMeta::V3(v3) => {
            v3.soroban_meta.iter().map(|soroban| soroban.events.as_slice()).collect()
        }
        x::TransactionMeta::V4(v4) => v4.operations.iter().map(|op| op.events.as_slice()).collect(),
        _ => Vec::new(),
    }
}

fn event(
    event: &x::ContractEvent,
    transaction: usize,
    placement: Placement,
    rpc_id: RpcEventId,
) -> Result<Option<Event>, x::Error> {
    let event_type = match event.type_ {
        x::ContractEventType::System => EventType::System,
        x::ContractEventType::Contract => EventType::Contract,
        x::ContractEventType::Diagnostic => return Ok(None),
    };
    let x::ContractEventBody::V0(body) = &event.body;
    Ok(Some(Event {
        transaction,
        placement,
        contract: event.contract_id.as_ref().map(|id| id.0.0),
        event_type,
        topics: body.topics.iter().map(encode).collect::<Result<_, _>>()?,
        data: encode(&body.data)?,
        xdr: encode(event)?,
        rpc_id,
    }))
}

fn transaction(
    index: usize,
    applied: &Applied,
    envelope: &x::TransactionEnvelope,
    events: &[Event],
    operation_events: Range<usize>,
    network: &NetworkId,
) -> Result<Transaction, x::Error> {
    use x::TransactionResultResult as Result_;

    let inner = match envelope {
        x::TransactionEnvelope::TxV0(_) => None,
        x::TransactionEnvelope::Tx(envelope) => Some(&envelope.tx),
        x::TransactionEnvelope::TxFeeBump(bump) => {
            let x::FeeBumpTransactionInnerTx::Tx(inner) = &bump.tx.inner_tx;
            Some(&inner.tx)
        }
    };
    let source_account = match (envelope, inner) {
        (_, Some(inner)) => account(&inner.source_account),
        (x::TransactionEnvelope::TxV0(v0), _) => {
            Account { ed25519: v0.tx.source_account_ed25519.0, id: None }
        }
        (_, None) => return Err(x::Error::Invalid),
    };
    let fee_account = match envelope {
        x::TransactionEnvelope::TxFeeBump(bump) => account(&bump.tx.fee_source),
        _ => source_account.clone(),
    };
    let soroban = inner.and_then(|inner| match &inner.ext {
        x::TransactionExt::V0 => None,
        x::TransactionExt::V1(data) => Some((inner, data)),
    });
    let mut contracts = Vec::new();
    if let Some((inner, data)) = soroban {
        touched_contracts(inner, data, network, &mut contracts)?;
        let emitters = events[operation_events.clone()].iter().filter_map(|event| event.contract);
        contracts.extend(emitters.map(ContractId));
        contracts.sort();
        contracts.dedup();
    }
    let result = &applied.pair.result;
    let successful =
        matches!(result.result, Result_::TxSuccess(_) | Result_::TxFeeBumpInnerSuccess(_));
    let changes = if soroban.is_some() && successful { changes(&applied.meta) } else { Vec::new() };
    Ok(Transaction {
        application_order: index as u32 + 1,
        hash: Hash32(applied.pair.transaction_hash.0),
        inner_hash: inner_hash(envelope, network)?,
        successful,
        smart_contract: soroban.is_some(),
        source_account,
        fee_account,
        fee_charged: result.fee_charged,
        envelope: encode(envelope)?,
        result: encode(result)?,
        meta: encode(&applied.meta)?,
        contracts,
        changed_entries: changed_entries(&changes)?,
        restored_entries: restored_entries(&changes)?,
        has_new_contract: changes.iter().any(creates_contract),
        operation_events,
    })
}

/// Changes that the operations of a transaction made to entries.
fn changes(meta: &x::TransactionMeta) -> Vec<x::LedgerEntryChange> {
    let of_operation = |one: &x::OperationMeta| one.changes.to_vec();
    match meta {
        x::TransactionMeta::V0(operations) => operations.iter().flat_map(of_operation).collect(),
        x::TransactionMeta::V1(v1) => v1.operations.iter().flat_map(of_operation).collect(),
        x::TransactionMeta::V2(v2) => v2.operations.iter().flat_map(of_operation).collect(),
        x::TransactionMeta::V3(v3) => v3.operations.iter().flat_map(of_operation).collect(),
        x::TransactionMeta::V4(v4) => {
            v4.operations.iter().flat_map(|one| one.changes.to_vec()).collect()
        }
    }
}

/// Whether a change creates the instance of a contract.
fn creates_contract(change: &x::LedgerEntryChange) -> bool {
    matches!(
        change,
        x::LedgerEntryChange::Created(x::LedgerEntry {
            data: x::LedgerEntryData::ContractData(x::ContractDataEntry {
                key: x::ScVal::LedgerKeyContractInstance,
                ..
            }),
            ..
        })
    )
}

/// Keys of the entries that operations changed and that a contract can read, sorted.
fn changed_entries(changes: &[x::LedgerEntryChange]) -> Result<Vec<Vec<u8>>, x::Error> {
    let keys = changes.iter().filter_map(|change| match change {
        x::LedgerEntryChange::State(_) => None,
        x::LedgerEntryChange::Removed(key) => Some(key.clone()),
        x::LedgerEntryChange::Created(entry)
        | x::LedgerEntryChange::Updated(entry)
        | x::LedgerEntryChange::Restored(entry) => Some(entry.to_key()),
    });
    let mut keys = readable(keys)?;
    keys.sort();
    keys.dedup();
    Ok(keys)
}

/// Keys of the entries that operations restored.
fn restored_entries(changes: &[x::LedgerEntryChange]) -> Result<Vec<Vec<u8>>, x::Error> {
    readable(changes.iter().filter_map(|change| match change {
        x::LedgerEntryChange::Restored(entry) => Some(entry.to_key()),
        _ => None,
    }))
}

/// Keys of the entries that a ledger evicts.
fn evicted(meta: &x::LedgerCloseMeta) -> Result<Vec<Vec<u8>>, x::Error> {
    let keys: &[x::LedgerKey] = match meta {
        x::LedgerCloseMeta::V0(_) => &[],
        x::LedgerCloseMeta::V1(v1) => &v1.evicted_keys,
        x::LedgerCloseMeta::V2(v2) => &v2.evicted_keys,
    };
    readable(keys.iter().cloned())
}

/// XDR of those keys whose entries a contract can read.
fn readable(keys: impl Iterator<Item = x::LedgerKey>) -> Result<Vec<Vec<u8>>, x::Error> {
    let is_readable = |key: &x::LedgerKey| {
        matches!(
            key,
            x::LedgerKey::Account(_)
                | x::LedgerKey::Trustline(_)
                | x::LedgerKey::ContractData(_)
                | x::LedgerKey::ContractCode(_)
                | x::LedgerKey::Ttl(_)
        )
    };
    keys.filter(is_readable).map(|key| encode(&key)).collect()
}

fn account(account: &x::MuxedAccount) -> Account {
    match account {
        x::MuxedAccount::Ed25519(key) => Account { ed25519: key.0, id: None },
        x::MuxedAccount::MuxedEd25519(muxed) => {
            Account { ed25519: muxed.ed25519.0, id: Some(muxed.id) }
        }
    }
}

fn touched_contracts(
    transaction: &x::Transaction,
    data: &x::SorobanTransactionData,
    network: &NetworkId,
    contracts: &mut Vec<ContractId>,
) -> Result<(), x::Error> {
    let footprint = &data.resources.footprint;
    for key in footprint.read_only.iter().chain(footprint.read_write.iter()) {
        if let x::LedgerKey::ContractData(key) = key
            && key.key == x::ScVal::LedgerKeyContractInstance
        {
            contracts.extend(contract(&key.contract));
        }
    }
    for operation in transaction.operations.iter() {
        let x::OperationBody::InvokeHostFunction(invoke) = &operation.body else { continue };
        match &invoke.host_function {
            x::HostFunction::InvokeContract(args) => {
                contracts.extend(contract(&args.contract_address));
            }
            x::HostFunction::CreateContract(args) => {
                contracts.push(created(&args.contract_id_preimage, network)?);
            }
            x::HostFunction::CreateContractV2(args) => {
                contracts.push(created(&args.contract_id_preimage, network)?);
            }
            x::HostFunction::UploadContractWasm(_) => {}
        }
        for entry in invoke.auth.iter() {
            match &entry.credentials {
                x::SorobanCredentials::SourceAccount => {}
                x::SorobanCredentials::Address(credentials)
                | x::SorobanCredentials::AddressV2(credentials) => {
                    contracts.extend(contract(&credentials.address));
                }
                x::SorobanCredentials::AddressWithDelegates(credentials) => {
                    contracts.extend(contract(&credentials.address_credentials.address));
                    credentials.delegates.iter().for_each(|one| delegates(one, contracts));
                }
            }
            invocations(&entry.root_invocation, network, contracts)?;
        }
    }
    Ok(())
}

fn delegates(delegate: &x::SorobanDelegateSignature, contracts: &mut Vec<ContractId>) {
    contracts.extend(contract(&delegate.address));
    delegate.nested_delegates.iter().for_each(|nested| delegates(nested, contracts));
}

fn invocations(
    invocation: &x::SorobanAuthorizedInvocation,
    network: &NetworkId,
    contracts: &mut Vec<ContractId>,
) -> Result<(), x::Error> {
    match &invocation.function {
        x::SorobanAuthorizedFunction::ContractFn(args) => {
            contracts.extend(contract(&args.contract_address));
        }
        x::SorobanAuthorizedFunction::CreateContractHostFn(args) => {
            contracts.push(created(&args.contract_id_preimage, network)?);
        }
        x::SorobanAuthorizedFunction::CreateContractV2HostFn(args) => {
            contracts.push(created(&args.contract_id_preimage, network)?);
        }
    }
    invocation.sub_invocations.iter().try_for_each(|sub| invocations(sub, network, contracts))
}

fn contract(address: &x::ScAddress) -> Option<ContractId> {
    match address {
        x::ScAddress::Contract(id) => Some(ContractId(id.0.0)),
        x::ScAddress::MuxedContract(muxed) => Some(ContractId(muxed.contract_id.0.0)),
        _ => None,
    }
}

fn created(preimage: &x::ContractIdPreimage, network: &NetworkId) -> Result<ContractId, x::Error> {
    let preimage = x::HashIdPreimage::ContractId(x::HashIdPreimageContractId {
        network_id: x::Hash(network.0),
        contract_id_preimage: preimage.clone(),
    });
    Ok(ContractId(Sha256::digest(encode(&preimage)?).into()))
}
