//! Extracts what a run needs from a stored transaction: the function called, its authorization, and
//! the recorded result.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};
use stellar_xdr::{
    AccountId, ContractEvent, ContractIdPreimage, FeeBumpTransactionInnerTx, Hash, HashIdPreimage,
    HashIdPreimageContractId, HostFunction, InvokeHostFunctionOp, LedgerEntryChange,
    LedgerFootprint, LedgerKey, Limits, MuxedAccount, OperationBody, PublicKey, ReadXdr, ScAddress,
    ScVal, SorobanAuthorizationEntry, SorobanAuthorizedFunction, SorobanAuthorizedInvocation,
    SorobanCredentials, SorobanDelegateSignature, Transaction, TransactionEnvelope, TransactionExt,
    TransactionMeta, WriteXdr,
};

use orrery_ledger::domain::{CloseTime, ContractId, NetworkId, TxHash};
use orrery_store::{StoreError, TransactionPosition, TransactionRecord};

/// A transaction that calls a host function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCall {
    /// Position of the transaction in the chain.
    pub position: TransactionPosition,
    /// Close time of its ledger, in UNIX seconds.
    pub closed_at: CloseTime,
    /// Hash of the transaction; of the outer one for a fee bump.
    pub hash: TxHash,
    /// Whether the transaction succeeded.
    pub successful: bool,
    /// Source account of the operation, or of the transaction when the operation has none.
    pub source_account: AccountId,
    /// The host function that is called.
    pub function: HostFunction,
    /// Authorization entries of the operation.
    pub authorization: Vec<SorobanAuthorizationEntry>,
    /// Ledger entries that the transaction declared to read and write.
    pub footprint: LedgerFootprint,
    /// Result of the transaction, as the network recorded it.
    pub recorded: Recorded,
    /// Contracts that may have been invoked.
    pub called: Called,
}

/// Result of a transaction, as the network recorded it in the metadata.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recorded {
    /// Value that the function returned; `None` when it failed.
    pub return_value: Option<ScVal>,
    /// Contract and system events in order, without diagnostic events.
    pub events: Vec<ContractEvent>,
    /// Ledger entry changes of the operation.
    pub changes: Vec<LedgerEntryChange>,
    /// Diagnostic events, as far as the node that streamed the ledger kept them.
    pub diagnostics: Vec<ContractEvent>,
}

/// Contracts that a transaction may have invoked, each list sorted and without duplicates.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Called {
    /// Contracts that certainly take part: called or created by the host function, named in
    /// authorizations, or emitters of events.
    pub named: Vec<ContractId>,
    /// Contracts of which only the instance entry is in the footprint: they may have run, but need
    /// not have.
    pub in_footprint: Vec<ContractId>,
}

/// What a smart-contract transaction does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// It calls a host function.
    Call(Box<HostCall>),
    /// It changes how long entries live.
    Footprint(FootprintOperation),
}

/// An operation on the entries of a footprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FootprintOperation {
    /// It extends their time to live.
    Extend,
    /// It restores archived ones.
    Restore,
}

impl Operation {
    /// Decodes a stored transaction; returns `None` when its operation is none of these.
    ///
    /// # Errors
    /// Fails when the envelope or the metadata is not valid XDR.
    pub fn read(
        record: &TransactionRecord<'_>,
        network: &NetworkId,
    ) -> Result<Option<Self>, TransactionError> {
        if let Some(call) = HostCall::read(record, network)? {
            return Ok(Some(Self::Call(Box::new(call))));
        }
        let failed = |reason| {
            let hash = TxHash::from(*record.tx);
            TransactionError { position: record.position, hash, reason }
        };
        let transaction = inner(decoded(record.envelope).map_err(failed)?);
        let operation = transaction.and_then(|(transaction, _)| {
            Some(match transaction.operations.first()?.body {
                OperationBody::ExtendFootprintTtl(_) => FootprintOperation::Extend,
                OperationBody::RestoreFootprint(_) => FootprintOperation::Restore,
                _ => return None,
            })
        });
        Ok(operation.map(Self::Footprint))
    }
}

/// Why a stored transaction cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[error(
    "what is stored of the transaction {hash} in ledger {} cannot be decoded ({reason}): check the data directory with orrery verify",
    position.ledger
)]
pub struct TransactionError {
    position: TransactionPosition,
    hash: TxHash,
    reason: stellar_xdr::Error,
}

/// Why it cannot be told what a stored transaction did.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The database fails.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What is stored of this transaction alone cannot be read, or not be written as an answer.
    #[error("{0}")]
    Damaged(String),
}

impl From<TransactionError> for RecordError {
    fn from(error: TransactionError) -> Self {
        Self::Damaged(error.to_string())
    }
}

impl HostCall {
    /// Decodes a stored transaction; returns `None` when it calls no host function.
    ///
    /// # Errors
    /// Fails when the envelope or the metadata is not valid XDR, or deeper than the contract host allows.
    pub fn read(
        record: &TransactionRecord<'_>,
        network: &NetworkId,
    ) -> Result<Option<Self>, TransactionError> {
        Self::read_to_depth(record, network, MAX_XDR_DEPTH)
    }

    /// As [`Self::read`], with up to so many levels of XDR. The envelope of a transaction that failed may be as
    /// deep as a ledger may be ([`orrery_ledger::decode::DEEPEST`]): the host did not read it. The caller's
    /// stack must be large enough.
    ///
    /// # Errors
    /// Fails when the envelope or the metadata is not valid XDR, or deeper.
    pub fn read_to_depth(
        record: &TransactionRecord<'_>,
        network: &NetworkId,
        depth: u32,
    ) -> Result<Option<Self>, TransactionError> {
        let hash = TxHash::from(*record.tx);
        let failed = |reason| TransactionError { position: record.position, hash, reason };
        let transaction = inner(decoded_to(record.envelope, depth).map_err(failed)?);
        let Some((transaction, footprint)) = transaction else { return Ok(None) };
        let Some(operation) = transaction.operations.first().cloned() else { return Ok(None) };
        let OperationBody::InvokeHostFunction(call) = operation.body else { return Ok(None) };
        let recorded = recorded(decoded_to(record.meta, depth).map_err(failed)?);
        let called = called(&call, &footprint, &recorded.events, network).map_err(failed)?;
        let InvokeHostFunctionOp { host_function, auth } = call;
        let source = operation.source_account.unwrap_or(transaction.source_account);
        Ok(Some(Self {
            position: record.position,
            closed_at: record.closed_at,
            hash,
            successful: record.successful,
            source_account: account(&source),
            function: host_function,
            authorization: auth.into_vec(),
            footprint,
            recorded,
            called,
        }))
    }

    /// Returns all keys of the footprint.
    pub fn footprint_keys(&self) -> impl Iterator<Item = &LedgerKey> {
        self.footprint.read_only.iter().chain(self.footprint.read_write.iter())
    }
}

impl Called {
    /// Returns the contracts of both lists.
    pub fn all(&self) -> impl Iterator<Item = &ContractId> {
        self.named.iter().chain(&self.in_footprint)
    }
}

/// Maximum nesting depth of the XDR of a stored transaction. The contract host reads and writes
/// values, entries and events of up to 500 levels each (`DEFAULT_XDR_RW_LIMITS`), and envelopes and
/// metadata add a few levels.
const MAX_XDR_DEPTH: u32 = 600;

fn decoded<T: ReadXdr>(xdr: &[u8]) -> Result<T, stellar_xdr::Error> {
    decoded_to(xdr, MAX_XDR_DEPTH)
}

fn decoded_to<T: ReadXdr>(xdr: &[u8], depth: u32) -> Result<T, stellar_xdr::Error> {
    T::from_xdr(xdr, Limits { depth, len: xdr.len() })
}

/// Returns the transaction whose operations are applied, if it is a smart-contract transaction.
fn inner(envelope: TransactionEnvelope) -> Option<(Transaction, LedgerFootprint)> {
    let transaction = match envelope {
        TransactionEnvelope::TxV0(_) => return None,
        TransactionEnvelope::Tx(envelope) => envelope.tx,
        TransactionEnvelope::TxFeeBump(bump) => {
            let FeeBumpTransactionInnerTx::Tx(envelope) = bump.tx.inner_tx;
            envelope.tx
        }
    };
    let TransactionExt::V1(data) = &transaction.ext else { return None };
    let footprint = data.resources.footprint.clone();
    Some((transaction, footprint))
}

fn account(account: &MuxedAccount) -> AccountId {
    let key = match account {
        MuxedAccount::Ed25519(key) => key.clone(),
        MuxedAccount::MuxedEd25519(muxed) => muxed.ed25519.clone(),
    };
    AccountId(PublicKey::PublicKeyTypeEd25519(key))
}

/// Returns the contract and system events of a transaction, in order.
///
/// # Errors
/// When `meta` is not an XDR `TransactionMeta`.
pub fn recorded_events(meta: &[u8]) -> Result<Vec<ContractEvent>, stellar_xdr::Error> {
    Ok(recorded(decoded(meta)?).events)
}

fn recorded(meta: TransactionMeta) -> Recorded {
    match meta {
        TransactionMeta::V3(meta) => {
            let changes = meta.operations.iter().flat_map(|one| one.changes.iter().cloned());
            let changes = changes.collect();
            let Some(soroban) = meta.soroban_meta else {
                return Recorded { changes, ..Recorded::default() };
            };
            Recorded {
                return_value: Some(soroban.return_value),
                events: soroban.events.into_vec(),
                changes,
                diagnostics: soroban.diagnostic_events.iter().map(|it| it.event.clone()).collect(),
            }
        }
        TransactionMeta::V4(meta) => Recorded {
            diagnostics: meta.diagnostic_events.iter().map(|it| it.event.clone()).collect(),
            return_value: meta.soroban_meta.and_then(|soroban| soroban.return_value),
            events: meta.operations.iter().flat_map(|one| one.events.iter().cloned()).collect(),
            changes: meta.operations.iter().flat_map(|one| one.changes.iter().cloned()).collect(),
        },
        TransactionMeta::V0(_) | TransactionMeta::V1(_) | TransactionMeta::V2(_) => {
            Recorded::default()
        }
    }
}

fn called(
    call: &InvokeHostFunctionOp,
    footprint: &LedgerFootprint,
    events: &[ContractEvent],
    network: &NetworkId,
) -> Result<Called, stellar_xdr::Error> {
    let mut named = NamedContracts { network, contracts: BTreeSet::new() };
    match &call.host_function {
        HostFunction::InvokeContract(args) => named.add_address(&args.contract_address),
        HostFunction::CreateContract(args) => named.add_created(&args.contract_id_preimage)?,
        HostFunction::CreateContractV2(args) => named.add_created(&args.contract_id_preimage)?,
        HostFunction::UploadContractWasm(_) => {}
    }
    for entry in call.auth.iter() {
        named.add_credentials(&entry.credentials);
        named.add_invocation(&entry.root_invocation)?;
    }
    let emitters = events.iter().filter_map(|event| event.contract_id.as_ref());
    named.contracts.extend(emitters.map(|id| ContractId(id.0.0)));
    let mut in_footprint = BTreeSet::new();
    for key in footprint.read_only.iter().chain(footprint.read_write.iter()) {
        if let LedgerKey::ContractData(data) = key
            && data.key == ScVal::LedgerKeyContractInstance
        {
            in_footprint.extend(contract(&data.contract));
        }
    }
    let in_footprint = in_footprint.difference(&named.contracts).copied().collect();
    Ok(Called { named: named.contracts.into_iter().collect(), in_footprint })
}

/// Collects the contracts that a call names.
struct NamedContracts<'n> {
    network: &'n NetworkId,
    contracts: BTreeSet<ContractId>,
}

impl NamedContracts<'_> {
    fn add_address(&mut self, address: &ScAddress) {
        self.contracts.extend(contract(address));
    }

    /// Adds the id of a contract that is created: the SHA-256 of a `HashIDPreimage`.
    fn add_created(&mut self, preimage: &ContractIdPreimage) -> Result<(), stellar_xdr::Error> {
        let preimage = HashIdPreimage::ContractId(HashIdPreimageContractId {
            network_id: Hash(*self.network.as_bytes()),
            contract_id_preimage: preimage.clone(),
        });
        let xdr = preimage.to_xdr(Limits::none())?;
        self.contracts.insert(ContractId(Sha256::digest(xdr).into()));
        Ok(())
    }

    fn add_credentials(&mut self, credentials: &SorobanCredentials) {
        match credentials {
            SorobanCredentials::SourceAccount => {}
            SorobanCredentials::Address(one) | SorobanCredentials::AddressV2(one) => {
                self.add_address(&one.address);
            }
            SorobanCredentials::AddressWithDelegates(one) => {
                self.add_address(&one.address_credentials.address);
                one.delegates.iter().for_each(|delegate| self.add_delegate(delegate));
            }
        }
    }

    fn add_delegate(&mut self, delegate: &SorobanDelegateSignature) {
        self.add_address(&delegate.address);
        delegate.nested_delegates.iter().for_each(|nested| self.add_delegate(nested));
    }

    fn add_invocation(
        &mut self,
        invocation: &SorobanAuthorizedInvocation,
    ) -> Result<(), stellar_xdr::Error> {
        match &invocation.function {
            SorobanAuthorizedFunction::ContractFn(args) => self.add_address(&args.contract_address),
            SorobanAuthorizedFunction::CreateContractHostFn(args) => {
                self.add_created(&args.contract_id_preimage)?;
            }
            SorobanAuthorizedFunction::CreateContractV2HostFn(args) => {
                self.add_created(&args.contract_id_preimage)?;
            }
        }
        invocation.sub_invocations.iter().try_for_each(|sub| self.add_invocation(sub))
    }
}

fn contract(address: &ScAddress) -> Option<ContractId> {
    match address {
        ScAddress::Contract(id) => Some(ContractId(id.0.0)),
        ScAddress::MuxedContract(muxed) => Some(ContractId(muxed.contract_id.0.0)),
        _ => None,
    }
}
