//! Dense ledgers: as many events as a network that is full could have. What storing them costs, and what
//! each family takes of the disk.

use std::convert::Infallible;
use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use orrery::domain::{LedgerSeq, NetworkId};
use orrery::pipeline::Pipeline;
use orrery::source::{Origin, RawLedger};
use orrery::store::{Durability, Store};
use stellar_xdr::{
    AccountId, ContractEvent, ContractEventBody, ContractEventType, ContractEventV0, ContractId,
    DependentTxCluster, ExtensionPoint, GeneralizedTransactionSet, Hash, Int128Parts,
    LedgerCloseMetaV2, ParallelTxExecutionStage, PublicKey, ScAddress, ScString, ScSymbol, ScVal,
    TransactionEnvelope, TransactionMeta, TransactionPhase, TransactionResultMetaV1,
    TransactionResultResult, Uint256, VecM,
};

use crate::amplify::{self, Hashes};
use crate::ingest::Steps;
use crate::many;
use crate::measure::{REPETITIONS, repeat, time};
use crate::recorded::{Recorded, xdr};
use crate::report::{Goal, Report, Row};
use crate::variation::{edit, spread};

/// Events a second, durable.
const DENSE: Goal = Goal::at_least(400e3, 1e6);

/// Events in a ledger.
const EVENTS: usize = 12_400;
/// Smart-contract transactions in a ledger.
const TRANSACTIONS: usize = 248;
/// Contracts whose events they are.
const CONTRACTS: u64 = 100;
/// Changes of entries in a transaction at most: of a transfer, the balances before and after, and what pays for
/// the transaction's time.
const CHANGES: usize = 8;
/// Copies of the recorded ledgers.
const COPIES: u64 = 6;

/// Measures storing ledgers with so many events.
pub fn run(
    recorded: &Recorded,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let ledgers = dense(recorded);
    let bytes: usize = ledgers.iter().map(Vec::len).sum();
    let (mut events, mut transactions, mut sizes) = (0.0, 0, Vec::new());
    let steps = Arc::new(Steps::default());
    let sample = repeat(|| {
        let directory = tempfile::tempdir_in(directory).expect("a directory");
        let store = Store::open(directory.path(), Some(&recorded.network)).expect("a new store");
        let store = Arc::new(store);
        let pipeline = Pipeline::new(Arc::clone(&store), many::options(true), steps.clone());
        let origin = Origin { name: "the load".into(), position: None };
        let raw: Vec<_> = ledgers
            .iter()
            .map(|xdr| RawLedger {
                sequence: LedgerSeq(0),
                xdr: xdr.clone(),
                compressed: None,
                origin: origin.clone(),
            })
            .collect();
        let took = time(|| {
            let raw = raw.into_iter().map(Ok::<_, Infallible>);
            let stored = pipeline.run(raw, Durability::Synced, |_| ControlFlow::Continue(()));
            stored.expect("the load is a valid chain");
        });
        events = store.status().totals.events as f64;
        transactions = store.status().totals.transactions;
        store.compact().expect("the store is sorted");
        sizes = store.sizes().expect("the store has sizes").into_iter().collect();
        events / took.as_secs_f64()
    });
    report.add(Row::absolute("Dense ledgers, durable", "events/s", sample, DENSE));
    sizes.retain(|(_, bytes)| *bytes > 0);
    sizes.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let all: u64 = sizes.iter().map(|(_, bytes)| bytes).sum();
    let parts = sizes.iter().map(|(name, bytes)| format!("{name} {:.1}", *bytes as f64 / events));
    report.note(format!(
        "Dense: {} ledgers of {} KB of XDR with {:.0} events and {} smart-contract transactions each; {:.0} bytes \
         for each event, transactions, the index of entries and raw ledgers included: {}.",
        ledgers.len(),
        bytes / ledgers.len() / 1000,
        events / ledgers.len() as f64,
        transactions / ledgers.len() as u64,
        all as f64 / events,
        parts.collect::<Vec<_>>().join(", "),
    ));
    let measured = (REPETITIONS * ledgers.len()) as f64;
    report.note(format!("Dense, per ledger: {}.", steps.per_ledger(measured)));
    Ok(())
}

/// The recorded ledgers, copied, with so many times their smallest smart-contract transaction and nothing else, each
/// with so many transfers between accounts that occur nowhere else.
fn dense(recorded: &Recorded) -> Vec<Vec<u8>> {
    let network = recorded.network.id();
    let models = recorded.ledgers.iter().filter_map(|ledger| smallest(ledger, network));
    let model = models.min_by_key(|it| xdr(&it.result).len());
    let mut model = model.expect("there are calls in the recorded ledgers");
    keep_little(&mut model.result.tx_apply_processing);
    let mut made = 0;
    amplify::chain_with(recorded, COPIES, |number, ledger| {
        let first = (number * TRANSACTIONS) as i64;
        let copies = (first..).take(TRANSACTIONS).map(|number| {
            let (mut envelope, mut hashes) = (model.envelope.clone(), Hashes::new());
            amplify::vary_envelope(&mut envelope, 1 + number, network, &mut hashes);
            (envelope, hashes)
        });
        let (envelopes, hashes): (Vec<_>, Vec<_>) = copies.unzip();
        let GeneralizedTransactionSet::V1(set) = &mut ledger.tx_set;
        edit(&mut set.phases, |phases| {
            for phase in phases {
                match phase {
                    TransactionPhase::V0(components) => *components = VecM::default(),
                    TransactionPhase::V1(parallel) => {
                        let cluster = envelopes.clone().try_into().expect("a few transactions");
                        let stage = vec![DependentTxCluster(cluster)].try_into().expect("one");
                        let stages = vec![ParallelTxExecutionStage(stage)];
                        parallel.execution_stages = stages.try_into().expect("one");
                    }
                }
            }
        });
        edit(&mut ledger.tx_processing, |transactions| {
            let copy = |hashes: &Hashes| {
                let mut copy = model.result.clone();
                amplify::vary_result(&mut copy, hashes);
                copy
            };
            *transactions = hashes.iter().map(copy).collect();
            for transaction in transactions {
                let TransactionMeta::V4(meta) = &mut transaction.tx_apply_processing else {
                    continue;
                };
                edit(&mut meta.operations, |operations| {
                    for operation in operations {
                        let events = (0..EVENTS / TRANSACTIONS).map(|_| {
                            made += 1;
                            transfer(made)
                        });
                        let events: Vec<_> = events.collect();
                        operation.events = events.try_into().expect("a few events");
                    }
                });
            }
        });
    })
}

/// A transaction, and what came of it.
struct Model {
    envelope: TransactionEnvelope,
    result: TransactionResultMetaV1,
}

/// The smallest smart-contract transaction of a ledger that succeeded.
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

/// Leaves of a transaction's metadata what a transfer has: few changes of entries, no diagnostics.
fn keep_little(meta: &mut TransactionMeta) {
    let TransactionMeta::V4(meta) = meta else { return };
    meta.diagnostic_events = VecM::default();
    edit(&mut meta.operations, |operations| {
        for operation in operations {
            edit(&mut operation.changes.0, |changes| changes.truncate(CHANGES));
        }
    });
}

/// An event as the contract of an asset emits it, with accounts and an amount of its own.
fn transfer(number: u64) -> ContractEvent {
    let account = |part| {
        let key = spread(2 * number + part);
        let account = AccountId(PublicKey::PublicKeyTypeEd25519(Uint256(key)));
        ScVal::Address(ScAddress::Account(account))
    };
    let symbol = ScVal::Symbol(ScSymbol("transfer".try_into().expect("a short symbol")));
    let asset = ScString("DENSE:GADENSE".try_into().expect("a short name"));
    let topics = vec![symbol, account(0), account(1), ScVal::String(asset)];
    let amount = spread(u64::MAX - number);
    let lo = u64::from_be_bytes(amount[..8].try_into().expect("eight bytes")) >> 16;
    ContractEvent {
        ext: ExtensionPoint::V0,
        contract_id: Some(ContractId(Hash(spread(number % CONTRACTS)))),
        type_: ContractEventType::Contract,
        body: ContractEventBody::V0(ContractEventV0 {
            topics: topics.try_into().expect("four topics"),
            data: ScVal::I128(Int128Parts { hi: 0, lo }),
        }),
    }
}
