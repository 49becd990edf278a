//! Ledgers with something changed, and everything above the change made right again as far as
//! somebody without the validators' keys can.

use ed25519_dalek::{Signer, SigningKey};
use orrery_ledger::domain::{NetworkId, NodeId};
use sha2::{Digest, Sha256};
use stellar_xdr::*;

/// How far hashes are made right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extent {
    /// Nothing is made right.
    Nothing,
    /// The hashes in the results of invocations.
    Invocations,
    /// And the hashes of set and results in the header.
    Header,
    /// And the hash of the header.
    HeaderHash,
    /// And a valid signature, by the forger's own key.
    Signature,
}

impl Extent {
    /// All of them, in ascending order.
    pub const ALL: [Self; 5] =
        [Self::Nothing, Self::Invocations, Self::Header, Self::HeaderHash, Self::Signature];
}

/// A ledger whose metadata has version 1 or 2, in parts that can be changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Ledger {
    meta: LedgerCloseMeta,
    /// Header and claimed hash.
    pub header: LedgerHeaderHistoryEntry,
    /// The transaction set.
    pub set: GeneralizedTransactionSet,
    /// What was applied, in order.
    pub applied: Vec<TransactionResultMetaV1>,
}

impl Ledger {
    /// Reads a ledger; `None` for metadata of version 0.
    pub fn read(raw: &[u8]) -> Option<Self> {
        let mut meta = LedgerCloseMeta::from_xdr(raw, Limits::none()).unwrap();
        let (header, set, applied) = match &mut meta {
            LedgerCloseMeta::V0(_) => return None,
            LedgerCloseMeta::V1(v1) => {
                let widened = |one: &TransactionResultMeta| TransactionResultMetaV1 {
                    result: one.result.clone(),
                    fee_processing: one.fee_processing.clone(),
                    tx_apply_processing: one.tx_apply_processing.clone(),
                    ..Default::default()
                };
                let applied = v1.tx_processing.iter().map(widened).collect();
                v1.tx_processing = VecM::default();
                (v1.ledger_header.clone(), std::mem::take(&mut v1.tx_set), applied)
            }
            LedgerCloseMeta::V2(v2) => {
                let applied = std::mem::take(&mut v2.tx_processing).into();
                (v2.ledger_header.clone(), std::mem::take(&mut v2.tx_set), applied)
            }
        };
        Some(Self { meta, header, set, applied })
    }

    /// Encodes the ledger.
    pub fn encode(&self) -> Vec<u8> {
        let mut meta = self.meta.clone();
        match &mut meta {
            LedgerCloseMeta::V0(_) => {}
            LedgerCloseMeta::V1(v1) => {
                let narrowed = |one: &TransactionResultMetaV1| TransactionResultMeta {
                    result: one.result.clone(),
                    fee_processing: one.fee_processing.clone(),
                    tx_apply_processing: one.tx_apply_processing.clone(),
                };
                v1.ledger_header = self.header.clone();
                v1.tx_set = self.set.clone();
                v1.tx_processing = list(self.applied.iter().map(narrowed).collect());
            }
            LedgerCloseMeta::V2(v2) => {
                v2.ledger_header = self.header.clone();
                v2.tx_set = self.set.clone();
                v2.tx_processing = list(self.applied.clone());
            }
        }
        xdr(&meta)
    }

    /// Makes hashes right again, and signs with the forger's key where `extent` says so.
    pub fn make_right(&mut self, extent: Extent, network: &NetworkId, key: &SigningKey) {
        if extent >= Extent::Invocations {
            self.applied.iter_mut().for_each(bind_invocation);
        }
        let header = &mut self.header.header;
        if extent >= Extent::Header {
            if !drops_set(&header.scp_value) {
                header.scp_value.tx_set_hash = hash(&self.set);
            }
            header.tx_set_result_hash = hash(&TransactionResultSet {
                results: list(self.applied.iter().map(|one| one.result.clone()).collect()),
            });
        }
        if extent >= Extent::Signature {
            sign(&mut header.scp_value, network, key);
        }
        if extent >= Extent::HeaderHash {
            self.header.hash = hash(&self.header.header);
        }
    }

    /// Links the ledger to another previous one, in header and set.
    pub fn link_to(&mut self, previous: &Hash) {
        self.header.header.previous_ledger_hash = previous.clone();
        let GeneralizedTransactionSet::V1(set) = &mut self.set;
        set.previous_ledger_hash = previous.clone();
    }

    /// Positions of the transactions that invoked a contract with success, each with the number of
    /// its events.
    pub fn invocations(&self) -> Vec<(usize, usize)> {
        let events = |position: usize| events_of(&self.applied[position].tx_apply_processing);
        (0..self.applied.len())
            .filter(|position| {
                let mut result = self.applied[*position].result.clone();
                invocation(&mut result).is_some()
            })
            .map(|position| (position, events(position).map_or(0, <[_]>::len)))
            .collect()
    }

    /// The events of the invocation of a transaction.
    pub fn events(&self, position: usize) -> Vec<ContractEvent> {
        events_of(&self.applied[position].tx_apply_processing).unwrap_or_default().to_vec()
    }

    /// Replaces the events of the invocation of a transaction.
    pub fn set_events(&mut self, position: usize, events: Vec<ContractEvent>) {
        match &mut self.applied[position].tx_apply_processing {
            TransactionMeta::V3(TransactionMetaV3 { soroban_meta: Some(meta), .. }) => {
                meta.events = list(events);
            }
            TransactionMeta::V4(meta) => {
                if let Some(operation) = meta.operations.iter_mut().next() {
                    operation.events = list(events);
                }
            }
            _ => {}
        }
    }

    /// Replaces the return value of the invocation of a transaction.
    pub fn set_return_value(&mut self, position: usize, value: ScVal) {
        match &mut self.applied[position].tx_apply_processing {
            TransactionMeta::V3(TransactionMetaV3 { soroban_meta: Some(meta), .. }) => {
                meta.return_value = value;
            }
            TransactionMeta::V4(TransactionMetaV4 { soroban_meta: Some(meta), .. }) => {
                meta.return_value = Some(value);
            }
            _ => {}
        }
    }

    /// Calls `change` on each list of envelopes of the set.
    pub fn change_envelopes(&mut self, mut change: impl FnMut(&mut Vec<TransactionEnvelope>)) {
        let mut each = |envelopes: &mut VecM<TransactionEnvelope>| {
            let mut changed: Vec<_> = std::mem::take(envelopes).into();
            change(&mut changed);
            *envelopes = list(changed);
        };
        let GeneralizedTransactionSet::V1(set) = &mut self.set;
        for phase in set.phases.iter_mut() {
            match phase {
                TransactionPhase::V0(components) => {
                    for component in components.iter_mut() {
                        let TxSetComponent::TxsetCompTxsMaybeDiscountedFee(component) = component;
                        each(&mut component.txs);
                    }
                }
                TransactionPhase::V1(component) => {
                    for stage in component.execution_stages.iter_mut() {
                        stage.0.iter_mut().for_each(|cluster| each(&mut cluster.0));
                    }
                }
            }
        }
    }
}

/// The key of a forger, which nobody trusts.
pub fn forgers_key(number: u8) -> SigningKey {
    SigningKey::from_bytes(&[number; 32])
}

/// The hash of a value.
pub fn hash(value: &impl WriteXdr) -> Hash {
    Hash(Sha256::digest(xdr(value)).into())
}

/// Signs a value, and makes it one that has a signature.
pub fn sign(value: &mut StellarValue, network: &NetworkId, key: &SigningKey) {
    let node = NodeId(key.verifying_key().to_bytes());
    let signature = |set: &Hash, milliseconds: Option<u64>| {
        let mut message = network.as_bytes().to_vec();
        message.extend((EnvelopeType::Scpvalue as i32).to_be_bytes());
        message.extend(set.0);
        message.extend(value.close_time.0.to_be_bytes());
        message.extend(milliseconds.map(u64::to_be_bytes).iter().flatten());
        LedgerCloseValueSignature {
            node_id: stellar_xdr::NodeId(PublicKey::PublicKeyTypeEd25519(Uint256(node.0))),
            signature: Signature(key.sign(&message).to_bytes().to_vec().try_into().unwrap()),
        }
    };
    let mut ext = value.ext.clone();
    match &mut ext {
        StellarValueExt::Basic => {
            ext = StellarValueExt::Signed(signature(&value.tx_set_hash, None))
        }
        StellarValueExt::Signed(signed) => *signed = signature(&value.tx_set_hash, None),
        StellarValueExt::SignedMs(signed) => {
            signed.lc_value_signature = signature(&value.tx_set_hash, Some(signed.close_time_ms.0));
        }
        StellarValueExt::EmptyTxSet(dropped) => {
            dropped.lc_value_signature = signature(&dropped.tx_set_hash, None);
        }
        StellarValueExt::EmptyTxSetMs(dropped) => {
            dropped.lc_value_signature =
                signature(&dropped.tx_set_hash, Some(dropped.close_time_ms.0));
        }
    }
    value.ext = ext;
}

/// The signature of a value.
pub fn signature_of(value: &mut StellarValue) -> Option<&mut LedgerCloseValueSignature> {
    match &mut value.ext {
        StellarValueExt::Basic => None,
        StellarValueExt::Signed(signed) => Some(signed),
        StellarValueExt::SignedMs(signed) => Some(&mut signed.lc_value_signature),
        StellarValueExt::EmptyTxSet(dropped) => Some(&mut dropped.lc_value_signature),
        StellarValueExt::EmptyTxSetMs(dropped) => Some(&mut dropped.lc_value_signature),
    }
}

fn drops_set(value: &StellarValue) -> bool {
    matches!(value.ext, StellarValueExt::EmptyTxSet(_) | StellarValueExt::EmptyTxSetMs(_))
}

/// Puts the hash of return value and events into the result of an invocation.
fn bind_invocation(applied: &mut TransactionResultMetaV1) {
    let (events, return_value) = match &applied.tx_apply_processing {
        TransactionMeta::V3(TransactionMetaV3 { soroban_meta: Some(meta), .. }) => {
            (meta.events.clone(), Some(meta.return_value.clone()))
        }
        TransactionMeta::V4(meta) => (
            meta.operations.first().map(|one| one.events.clone()).unwrap_or_default(),
            meta.soroban_meta.as_ref().and_then(|meta| meta.return_value.clone()),
        ),
        _ => return,
    };
    if let (Some(named), Some(return_value)) = (invocation(&mut applied.result), return_value) {
        *named = hash(&InvokeHostFunctionSuccessPreImage { return_value, events });
    }
}

/// The hash in the result of a successful invocation.
fn invocation(pair: &mut TransactionResultPair) -> Option<&mut Hash> {
    let operations = match &mut pair.result.result {
        TransactionResultResult::TxSuccess(operations) => operations,
        TransactionResultResult::TxFeeBumpInnerSuccess(inner) => match &mut inner.result.result {
            InnerTransactionResultResult::TxSuccess(operations) => operations,
            _ => return None,
        },
        _ => return None,
    };
    match operations.iter_mut().next() {
        Some(OperationResult::OpInner(OperationResultTr::InvokeHostFunction(
            InvokeHostFunctionResult::Success(named),
        ))) => Some(named),
        _ => None,
    }
}

/// The events of the first operation.
fn events_of(meta: &TransactionMeta) -> Option<&[ContractEvent]> {
    match meta {
        TransactionMeta::V3(meta) => meta.soroban_meta.as_ref().map(|meta| meta.events.as_slice()),
        TransactionMeta::V4(meta) => meta.operations.first().map(|one| one.events.as_slice()),
        _ => None,
    }
}

/// Converts items to an XDR list.
pub fn list<T, const MAX: u32>(items: Vec<T>) -> VecM<T, MAX> {
    items.try_into().unwrap()
}

fn xdr(value: &impl WriteXdr) -> Vec<u8> {
    value.to_xdr(Limits::none()).unwrap()
}
