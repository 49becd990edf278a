//! Makes ledgers full of given events, with as little else as possible.

use orrery::domain::NetworkId;
use stellar_xdr::{
    ContractEvent, DependentTxCluster, GeneralizedTransactionSet, LedgerCloseMetaV2,
    ParallelTxExecutionStage, TransactionEnvelope, TransactionMeta, TransactionPhase,
    TransactionResultMetaV1, TransactionResultResult, VecM,
};

use super::amplify::{self, Hashes};
use super::recorded::{Recorded, xdr};
use super::variation::edit;

/// Maximum number of entry changes kept per transaction, which is enough for a transfer: the
/// balances before and after, and the payment for the transaction's execution.
const CHANGES: usize = 8;

/// Returns the XDR of `copies` copies of the recorded ledgers, each with only `transactions` copies
/// of their smallest smart-contract transaction. Each transaction has `events` events, which
/// `event` makes by number from 1.
pub fn ledgers(
    recorded: &Recorded,
    copies: u64,
    transactions: usize,
    events: usize,
    event: impl Fn(u64) -> ContractEvent,
) -> Vec<Vec<u8>> {
    let mut ledgers = Vec::with_capacity(recorded.ledgers.len() * copies as usize);
    each(recorded, copies, [transactions, events], event, |ledger| ledgers.push(ledger));
    ledgers
}

/// Like [`ledgers`], but visits the ledgers one by one, for chains that do not fit into memory. The
/// array holds the transactions per ledger and the events per transaction.
pub fn each(
    recorded: &Recorded,
    copies: u64,
    shape: [usize; 2],
    event: impl Fn(u64) -> ContractEvent,
    visit: impl FnMut(Vec<u8>),
) {
    each_with(recorded, copies, shape, event, |_, _| {}, visit);
}

/// Like [`each`], but calls `change` on each ledger, with its index from 0, before the ledger is
/// linked to its predecessor.
pub fn each_with(
    recorded: &Recorded,
    copies: u64,
    [transactions, events]: [usize; 2],
    event: impl Fn(u64) -> ContractEvent,
    mut change: impl FnMut(usize, &mut LedgerCloseMetaV2),
    visit: impl FnMut(Vec<u8>),
) {
    let network = recorded.network.id();
    let models = recorded.ledgers.iter().filter_map(|ledger| smallest(ledger, network));
    let model = models.min_by_key(|it| xdr(&it.result).len());
    let mut model = model.expect("there are calls in the recorded ledgers");
    keep_little(&mut model.result.tx_apply_processing);
    let mut made = 0;
    let fill = |number: usize, ledger: &mut LedgerCloseMetaV2| {
        let first = (number * transactions) as i64;
        let copies = (first..).take(transactions).map(|number| {
            let (mut envelope, mut hashes) = (model.envelope.clone(), Hashes::new());
            amplify::vary_envelope(&mut envelope, 1 + number, network, &mut hashes);
            (envelope, hashes)
        });
        let (envelopes, hashes): (Vec<_>, Vec<_>) = copies.unzip();
        let GeneralizedTransactionSet::V1(set) = &mut ledger.tx_set;
        edit(&mut set.phases, |phases| {
            for phase in phases {
                if let TransactionPhase::V1(parallel) = phase {
                    let cluster = envelopes.clone().try_into().expect("a few transactions");
                    let stage = vec![DependentTxCluster(cluster)].try_into().expect("one");
                    let stages = vec![ParallelTxExecutionStage(stage)];
                    parallel.execution_stages = stages.try_into().expect("one");
                }
            }
        });
        edit(&mut ledger.tx_processing, |results| {
            let copy = |hashes: &Hashes| {
                let mut copy = model.result.clone();
                amplify::vary_result(&mut copy, hashes);
                copy
            };
            *results = hashes.iter().map(copy).collect();
            for transaction in results {
                let TransactionMeta::V4(meta) = &mut transaction.tx_apply_processing else {
                    continue;
                };
                edit(&mut meta.operations, |operations| {
                    for operation in operations {
                        let own = (0..events).map(|_| {
                            made += 1;
                            event(made)
                        });
                        let own: Vec<_> = own.collect();
                        operation.events = own.try_into().expect("a few events");
                    }
                });
            }
        });
        change(number, ledger);
    };
    amplify::each_of_chain(&without_transactions(recorded), copies, fill, visit);
}

/// Returns the ledgers without their transactions, which a copy does not keep.
fn without_transactions(recorded: &Recorded) -> Recorded {
    let emptied = |ledger: &LedgerCloseMetaV2| {
        let mut ledger = ledger.clone();
        let GeneralizedTransactionSet::V1(set) = &mut ledger.tx_set;
        edit(&mut set.phases, |phases| {
            for phase in phases {
                match phase {
                    TransactionPhase::V0(components) => *components = VecM::default(),
                    TransactionPhase::V1(parallel) => parallel.execution_stages = VecM::default(),
                }
            }
        });
        ledger.tx_processing = VecM::default();
        ledger
    };
    let ledgers = recorded.ledgers.iter().map(emptied).collect();
    Recorded { name: recorded.name, network: recorded.network.clone(), ledgers }
}

/// A transaction and its result.
struct Model {
    envelope: TransactionEnvelope,
    result: TransactionResultMetaV1,
}

/// Returns the smallest successful smart-contract transaction of a ledger.
fn smallest(ledger: &LedgerCloseMetaV2, network: &NetworkId) -> Option<Model> {
    let results = ledger.tx_processing.iter().filter(|it| {
        is_success(&it.result.result.result) && is_of_contracts(&it.tx_apply_processing)
    });
    let result = results.min_by_key(|it| xdr(*it).len())?;
    let GeneralizedTransactionSet::V1(set) = &ledger.tx_set;
    let stages = set.phases.iter().filter_map(|phase| match phase {
        TransactionPhase::V1(parallel) => Some(&parallel.execution_stages),
        TransactionPhase::V0(_) => None,
    });
    let clusters = stages.flat_map(|stages| stages.iter()).flat_map(|stage| stage.0.iter());
    let mut envelopes = clusters.flat_map(|cluster| cluster.0.iter());
    let hash = result.result.transaction_hash.0;
    let envelope = envelopes.find(|it| amplify::hashes_of(it, network)[0] == hash)?;
    Some(Model { envelope: envelope.clone(), result: result.clone() })
}

fn is_success(result: &TransactionResultResult) -> bool {
    use TransactionResultResult::{TxFeeBumpInnerSuccess, TxSuccess};
    matches!(result, TxSuccess(_) | TxFeeBumpInnerSuccess(_))
}

fn is_of_contracts(meta: &TransactionMeta) -> bool {
    matches!(meta, TransactionMeta::V4(meta) if meta.soroban_meta.is_some())
}

/// Reduces the metadata of a transaction to that of a transfer: few entry changes, no diagnostic
/// events.
fn keep_little(meta: &mut TransactionMeta) {
    let TransactionMeta::V4(meta) = meta else { return };
    meta.diagnostic_events = VecM::default();
    edit(&mut meta.operations, |operations| {
        for operation in operations {
            edit(&mut operation.changes.0, |changes| changes.truncate(CHANGES));
        }
    });
}
