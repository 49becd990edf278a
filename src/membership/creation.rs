//! Who created the contracts that a transaction created, as far as the transaction says it.
//!
//! The envelope shows the preimage of a contract's id (CAP-46-2, `ContractIDPreimage`) where the operation
//! creates the contract, or an authorization entry allows it: the address in it is the creator. A contract that
//! another one created on its own authority has neither. The host calls the constructor of code for protocol 22
//! and later (CAP-58), and the diagnostics, where they are kept, show from which contract.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};
use stellar_xdr::{
    ContractEventBody, ContractEventType, ContractIdPreimage, DiagnosticEvent, Hash,
    HashIdPreimage, HashIdPreimageContractId, HostFunction, InvokeHostFunctionOp, Limits,
    Operation, OperationBody, PublicKey, ReadXdr, ScAddress, ScVal, SorobanAuthorizedFunction,
    SorobanAuthorizedInvocation, TransactionEnvelope, TransactionMeta, WriteXdr,
};

use orrery_ledger::domain::{ContractId, NetworkId};
use orrery_store::RowCodec;

/// Maximum nesting depth of the XDR of a transaction: that which the contract host allows in values, and
/// some levels around it.
const DEPTH: u32 = 600;
/// The function of a contract that the host calls when it creates the contract.
const CONSTRUCTOR: &[u8] = b"__constructor";
/// First topic of the diagnostic event that the host emits for each call of a contract.
const CALL: &[u8] = b"fn_call";

/// Who created a contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Creator {
    /// The account with this ed25519 key.
    Account([u8; 32]),
    /// This contract.
    Contract(ContractId),
    /// Nobody: it is the contract of an asset.
    Asset,
    /// What is stored of the transaction does not say.
    Unread,
}

const ACCOUNT: u8 = 1;
const CONTRACT: u8 = 2;
const ASSET: u8 = 3;
const UNREAD: u8 = 4;

impl RowCodec for Creator {
    fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::Account(key) => (ACCOUNT, *key).write(to),
            Self::Contract(contract) => (CONTRACT, *contract).write(to),
            Self::Asset => (ASSET, [0u8; 32]).write(to),
            Self::Unread => (UNREAD, [0u8; 32]).write(to),
        }
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let (kind, id) = <(u8, [u8; 32])>::read(bytes)?;
        Some(match kind {
            ACCOUNT => Self::Account(id),
            CONTRACT => Self::Contract(ContractId(id)),
            ASSET => Self::Asset,
            UNREAD => Self::Unread,
            _ => return None,
        })
    }
}

impl Creator {
    /// Returns the creator with this address; `None` for an address that creates no contracts.
    pub fn of_address(address: &ScAddress) -> Option<Self> {
        match address {
            ScAddress::Account(account) => {
                let PublicKey::PublicKeyTypeEd25519(key) = &account.0;
                Some(Self::Account(key.0))
            }
            ScAddress::Contract(contract) => Some(Self::Contract(ContractId(contract.0.0))),
            _ => None,
        }
    }
}

/// Returns who created each of the contracts that a transaction created. `created` are the ids of these
/// contracts; the rest is what is stored of the transaction, as XDR.
///
/// # Errors
/// When the envelope or the metadata is not what it should be.
pub fn creators(
    (envelope, meta): (&[u8], &[u8]),
    network: &NetworkId,
    created: &BTreeSet<ContractId>,
) -> Result<BTreeMap<ContractId, Creator>, stellar_xdr::Error> {
    let limits = |xdr: &[u8]| Limits { depth: DEPTH, len: xdr.len() };
    let envelope_read = TransactionEnvelope::from_xdr(envelope, limits(envelope))?;
    let mut found = named(&envelope_read, network, created)?;
    if found.len() < created.len() {
        let meta = TransactionMeta::from_xdr(meta, limits(meta))?;
        let left = created.iter().filter(|contract| !found.contains_key(contract));
        let left: BTreeSet<ContractId> = left.copied().collect();
        let callers = constructed(diagnostics(&meta), &left);
        found.extend(left.into_iter().map(|contract| {
            let creator = callers.get(&contract).copied().flatten();
            (contract, creator.map_or(Creator::Unread, Creator::Contract))
        }));
    }
    Ok(found)
}

/// Returns those whose preimage the envelope shows.
fn named(
    envelope: &TransactionEnvelope,
    network: &NetworkId,
    created: &BTreeSet<ContractId>,
) -> Result<BTreeMap<ContractId, Creator>, stellar_xdr::Error> {
    let mut found = BTreeMap::new();
    for preimage in preimages(operations(envelope)) {
        let contract = id_of(preimage, network)?;
        let creator = match preimage {
            ContractIdPreimage::Asset(_) => Some(Creator::Asset),
            ContractIdPreimage::Address(from) => Creator::of_address(&from.address),
        };
        if created.contains(&contract) {
            found.extend(creator.map(|creator| (contract, creator)));
        }
    }
    Ok(found)
}

fn operations(envelope: &TransactionEnvelope) -> &[Operation] {
    match envelope {
        TransactionEnvelope::TxV0(envelope) => &envelope.tx.operations,
        TransactionEnvelope::Tx(envelope) => &envelope.tx.operations,
        TransactionEnvelope::TxFeeBump(bump) => {
            let stellar_xdr::FeeBumpTransactionInnerTx::Tx(envelope) = &bump.tx.inner_tx;
            &envelope.tx.operations
        }
    }
}

/// Returns the preimages that operations and their authorization entries name.
fn preimages(operations: &[Operation]) -> Vec<&ContractIdPreimage> {
    let mut found = Vec::new();
    for operation in operations {
        let OperationBody::InvokeHostFunction(InvokeHostFunctionOp { host_function, auth }) =
            &operation.body
        else {
            continue;
        };
        match host_function {
            HostFunction::CreateContract(args) => found.push(&args.contract_id_preimage),
            HostFunction::CreateContractV2(args) => found.push(&args.contract_id_preimage),
            HostFunction::InvokeContract(_) | HostFunction::UploadContractWasm(_) => {}
        }
        let mut left: Vec<&SorobanAuthorizedInvocation> =
            auth.iter().map(|entry| &entry.root_invocation).collect();
        while let Some(invocation) = left.pop() {
            match &invocation.function {
                SorobanAuthorizedFunction::ContractFn(_) => {}
                SorobanAuthorizedFunction::CreateContractHostFn(args) => {
                    found.push(&args.contract_id_preimage);
                }
                SorobanAuthorizedFunction::CreateContractV2HostFn(args) => {
                    found.push(&args.contract_id_preimage);
                }
            }
            left.extend(invocation.sub_invocations.iter());
        }
    }
    found
}

/// Returns the id of the contract with a preimage: the SHA-256 of a `HashIDPreimage`.
fn id_of(
    preimage: &ContractIdPreimage,
    network: &NetworkId,
) -> Result<ContractId, stellar_xdr::Error> {
    let preimage = HashIdPreimage::ContractId(HashIdPreimageContractId {
        network_id: Hash(*network.as_bytes()),
        contract_id_preimage: preimage.clone(),
    });
    Ok(ContractId(Sha256::digest(preimage.to_xdr(Limits::none())?).into()))
}

fn diagnostics(meta: &TransactionMeta) -> &[DiagnosticEvent] {
    match meta {
        TransactionMeta::V3(meta) => {
            let soroban = meta.soroban_meta.as_ref();
            soroban.map_or(&[][..], |soroban| soroban.diagnostic_events.as_slice())
        }
        TransactionMeta::V4(meta) => &meta.diagnostic_events,
        TransactionMeta::V0(_) | TransactionMeta::V1(_) | TransactionMeta::V2(_) => &[],
    }
}

/// Returns the contracts in whose calls constructors were called: `None` where there was more than one.
fn constructed(
    events: &[DiagnosticEvent],
    wanted: &BTreeSet<ContractId>,
) -> BTreeMap<ContractId, Option<ContractId>> {
    let mut found = BTreeMap::new();
    for event in events.iter().filter(|it| it.in_successful_contract_call) {
        let Some((caller, called)) = constructor_call(event) else { continue };
        if wanted.contains(&called) {
            let known = found.entry(called).or_insert(Some(caller));
            if *known != Some(caller) {
                *known = None;
            }
        }
    }
    found
}

/// Returns the contract that called a constructor, and that of the constructor.
fn constructor_call(event: &DiagnosticEvent) -> Option<(ContractId, ContractId)> {
    if event.event.type_ != ContractEventType::Diagnostic {
        return None;
    }
    let caller = ContractId(event.event.contract_id.as_ref()?.0.0);
    let ContractEventBody::V0(body) = &event.event.body;
    let [ScVal::Symbol(what), ScVal::Bytes(called), ScVal::Symbol(function)] =
        body.topics.as_slice()
    else {
        return None;
    };
    let is_constructor = what.as_slice() == CALL && function.as_slice() == CONSTRUCTOR;
    let called = called.as_slice().try_into().ok().map(ContractId)?;
    is_constructor.then_some((caller, called))
}
