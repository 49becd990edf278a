//! Extends recorded ledgers to a longer chain of whole, distinct, linked ledgers with consistent
//! sequence numbers of accounts, transaction hashes, results, events, headers, links and signatures
//! of the values, by a key of their own. Signatures of transactions and ledger entry changes stay
//! as recorded, because nothing here checks them.

use std::collections::HashMap;

use orrery::domain::NetworkId;
use orrery_testkit::forged::{self, Extent};
use stellar_xdr::{
    ContractEvent, ContractEventBody, FeeBumpTransactionInnerTx, GeneralizedTransactionSet, Hash,
    LedgerCloseMeta, LedgerCloseMetaV2, TransactionEnvelope, TransactionMeta, TransactionPhase,
    TransactionResultMetaV1, TransactionResultResult, TxSetComponent,
};

use super::recorded::{Recorded, xdr};
use super::variation::{Regulars, Variation, edit};

/// Seconds between two ledgers.
pub const CLOSE_INTERVAL: u64 = 5;

/// Maps original transaction hashes to new ones.
pub type Hashes = HashMap<[u8; 32], [u8; 32]>;

/// Returns the XDR of `copies` copies of the recorded ledgers as one chain.
pub fn chain(recorded: &Recorded, copies: u64) -> Vec<Vec<u8>> {
    chain_with(recorded, copies, |_, _| {})
}

/// Like [`chain`], but calls `change` on each ledger, with its index from 0, before the ledger is
/// linked to its predecessor.
pub fn chain_with(
    recorded: &Recorded,
    copies: u64,
    change: impl FnMut(usize, &mut LedgerCloseMetaV2),
) -> Vec<Vec<u8>> {
    let mut chain = Vec::with_capacity(recorded.ledgers.len() * copies as usize);
    each_of_chain(recorded, copies, change, |ledger| chain.push(ledger));
    chain
}

/// Like [`chain_with`], but visits the ledgers one by one, for chains that do not fit into memory.
pub fn each_of_chain(
    recorded: &Recorded,
    copies: u64,
    mut change: impl FnMut(usize, &mut LedgerCloseMetaV2),
    mut visit: impl FnMut(Vec<u8>),
) {
    let regulars = regulars(recorded);
    let network = recorded.network.id();
    let mut numbers = 0..;
    let mut last: Option<(u32, u64, Hash)> = None;
    for copy in 0..copies {
        let mut variation = Variation::new(&regulars, copy, 0);
        for (ledger, number) in recorded.ledgers.iter().zip(&mut numbers) {
            let mut ledger = ledger.clone();
            let hashes = vary_envelopes(&mut ledger.tx_set, copy, network);
            edit(&mut ledger.tx_processing, |transactions| {
                for transaction in transactions {
                    vary_result(transaction, &hashes);
                    vary_events(&mut transaction.tx_apply_processing, &mut variation);
                }
            });
            change(number, &mut ledger);
            let (ledger, end) = link(ledger, last.take(), network);
            last = Some(end);
            visit(ledger);
        }
    }
}

/// Returns the accounts that act in most of the recorded ledgers.
pub fn regulars(recorded: &Recorded) -> Regulars {
    Regulars::of(recorded.ledgers.iter().map(|ledger| {
        let metas = ledger.tx_processing.iter().map(|t| &t.tx_apply_processing);
        metas.flat_map(events).map(|event| &event.body).collect::<Vec<&ContractEventBody>>()
    }))
}

fn events(meta: &TransactionMeta) -> impl Iterator<Item = &ContractEvent> {
    let operations = match meta {
        TransactionMeta::V4(meta) => meta.operations.as_slice(),
        _ => &[],
    };
    operations.iter().flat_map(|operation| operation.events.iter())
}

/// Shifts the sequence number of every transaction and returns the mapping from old to new hashes.
fn vary_envelopes(set: &mut GeneralizedTransactionSet, copy: u64, network: &NetworkId) -> Hashes {
    let mut hashes = Hashes::new();
    let mut vary = |envelope: &mut TransactionEnvelope| {
        vary_envelope(envelope, copy as i64, network, &mut hashes);
    };
    let GeneralizedTransactionSet::V1(set) = set;
    edit(&mut set.phases, |phases| {
        for phase in phases {
            match phase {
                TransactionPhase::V0(components) => edit(components, |components| {
                    for TxSetComponent::TxsetCompTxsMaybeDiscountedFee(component) in components {
                        edit(&mut component.txs, |envelopes| {
                            envelopes.iter_mut().for_each(&mut vary)
                        });
                    }
                }),
                TransactionPhase::V1(parallel) => edit(&mut parallel.execution_stages, |stages| {
                    for stage in stages {
                        edit(&mut stage.0, |clusters| {
                            for cluster in clusters {
                                edit(&mut cluster.0, |envelopes| {
                                    envelopes.iter_mut().for_each(&mut vary);
                                });
                            }
                        });
                    }
                }),
            }
        }
    });
    hashes
}

/// Adds `by` to the sequence number of a transaction, and records its old and new hashes in
/// `hashes`.
pub fn vary_envelope(
    envelope: &mut TransactionEnvelope,
    by: i64,
    network: &NetworkId,
    hashes: &mut Hashes,
) {
    let before = hashes_of(envelope, network);
    let sequence = match envelope {
        TransactionEnvelope::TxV0(envelope) => &mut envelope.tx.seq_num,
        TransactionEnvelope::Tx(envelope) => &mut envelope.tx.seq_num,
        TransactionEnvelope::TxFeeBump(envelope) => {
            let FeeBumpTransactionInnerTx::Tx(inner) = &mut envelope.tx.inner_tx;
            &mut inner.tx.seq_num
        }
    };
    sequence.0 += by;
    hashes.extend(before.into_iter().zip(hashes_of(envelope, network)));
}

/// Returns the hash of an envelope and, for a fee bump, that of the inner transaction.
pub fn hashes_of(envelope: &TransactionEnvelope, network: &NetworkId) -> Vec<[u8; 32]> {
    let mut hashes = vec![envelope.hash(network.0)];
    if let TransactionEnvelope::TxFeeBump(envelope) = envelope {
        let FeeBumpTransactionInnerTx::Tx(inner) = &envelope.tx.inner_tx;
        hashes.push(inner.tx.hash(network.0));
    }
    hashes.into_iter().map(|hash| hash.unwrap_or_else(|error| unreachable!("{error}"))).collect()
}

/// Replaces the hashes in a result by the new hashes of its transaction.
pub fn vary_result(transaction: &mut TransactionResultMetaV1, hashes: &Hashes) {
    let pair = &mut transaction.result;
    pair.transaction_hash = renamed(&pair.transaction_hash, hashes);
    if let TransactionResultResult::TxFeeBumpInnerSuccess(inner)
    | TransactionResultResult::TxFeeBumpInnerFailed(inner) = &mut pair.result.result
    {
        inner.transaction_hash = renamed(&inner.transaction_hash, hashes);
    }
}

fn renamed(hash: &Hash, hashes: &Hashes) -> Hash {
    Hash(*hashes.get(&hash.0).unwrap_or(&hash.0))
}

fn vary_events(meta: &mut TransactionMeta, variation: &mut Variation<'_>) {
    let TransactionMeta::V4(meta) = meta else { return };
    let mut vary = |event: &mut ContractEvent| event.body = variation.body(&event.body);
    edit(&mut meta.operations, |operations| {
        for operation in operations {
            edit(&mut operation.events, |events| events.iter_mut().for_each(&mut vary));
        }
    });
    edit(&mut meta.events, |events| events.iter_mut().for_each(|e| vary(&mut e.event)));
}

/// Links a ledger to the previous one, makes its header bind what is in it, and signs it. Returns
/// its XDR, and its sequence number, close time and hash.
fn link(
    ledger: LedgerCloseMetaV2,
    last: Option<(u32, u64, Hash)>,
    network: &NetworkId,
) -> (Vec<u8>, (u32, u64, Hash)) {
    let ledger = xdr(&LedgerCloseMeta::V2(ledger));
    let ledger = forged::Ledger::read(&ledger);
    let mut ledger = ledger.unwrap_or_else(|| unreachable!("it has version 2"));
    if let Some((sequence, close_time, hash)) = last {
        ledger.link_to(&hash);
        let header = &mut ledger.header.header;
        header.ledger_seq = sequence + 1;
        header.scp_value.close_time.0 = close_time + CLOSE_INTERVAL;
    }
    ledger.make_right(Extent::Signature, network, &forged::forgers_key(1));
    let header = &ledger.header.header;
    let end = (header.ledger_seq, header.scp_value.close_time.0, ledger.header.hash.clone());
    (ledger.encode(), end)
}
