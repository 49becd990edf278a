//! Dense ledgers, with as many events as a fully loaded network could produce: the cost of storing
//! them, and the disk space of each column family.

use std::convert::Infallible;
use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use orrery::pipeline::Pipeline;
use orrery::store::{Durability, Store};
use stellar_xdr::{
    AccountId, ContractEvent, ContractEventBody, ContractEventType, ContractEventV0, ContractId,
    ExtensionPoint, Hash, Int128Parts, PublicKey, ScAddress, ScString, ScSymbol, ScVal, Uint256,
};

use super::indexing::raw;
use super::ingest::Steps;
use super::many;
use super::measure::{REPETITIONS, Sample, Sides, repeat, sized, time};
use super::packed;
use super::recorded::Recorded;
use super::report::{Goal, Report, Row};
use super::variation::spread;

/// Goal for durably stored events per second.
const DENSE: Goal = Goal::at_least(400e3, 1e6);

/// Events per ledger.
pub const EVENTS: usize = sized(12_400, 500);
/// Smart-contract transactions per ledger.
pub const TRANSACTIONS: usize = sized(248, 10);
/// Number of contracts that emit the events.
const CONTRACTS: u64 = 100;
/// Copies of the recorded ledgers.
const COPIES: u64 = sized(6, 2);

/// Measures storing dense ledgers, with and without keeping the raw ledgers.
pub fn run(
    recorded: &Recorded,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let ledgers = chain(recorded);
    let bytes: usize = ledgers.iter().map(Vec::len).sum();
    report.note(format!(
        "Dense: {} ledgers of {} KB of XDR with {} events in {TRANSACTIONS} smart-contract transactions each.",
        ledgers.len(),
        bytes / ledgers.len() / 1000,
        EVENTS / TRANSACTIONS * TRANSACTIONS,
    ));
    let [without, with] =
        [false, true].map(|raw| stored(recorded, &ledgers, raw, directory, report));
    report.add(Row::absolute("Dense ledgers, durable", "events/s", with.clone(), DENSE));
    let sides = Sides { ours: without, baseline: with };
    report.add(Row::information("Dense ledgers, raw ledgers not kept / kept", "events/s", sides));
    Ok(())
}

/// Returns a chain of dense ledgers.
pub fn chain(recorded: &Recorded) -> Vec<Vec<u8>> {
    packed::ledgers(recorded, COPIES, TRANSACTIONS, EVENTS / TRANSACTIONS, transfer)
}

/// Returns the events stored per second. Reports the disk space per event and the time of each
/// ingestion step.
fn stored(
    recorded: &Recorded,
    ledgers: &[Vec<u8>],
    raw_ledgers: bool,
    directory: &Path,
    report: &mut Report,
) -> Sample {
    let (mut events, mut sizes) = (0.0, Vec::new());
    let steps = Arc::new(Steps::default());
    let sample = repeat(|| {
        let directory = tempfile::tempdir_in(directory).expect("a directory");
        let store = Store::open(directory.path(), Some(&recorded.network)).expect("a new store");
        let store = Arc::new(store);
        let options = many::options(raw_ledgers);
        let pipeline = Pipeline::new(Arc::clone(&store), options, steps.clone());
        let raw: Vec<_> = ledgers.iter().map(|xdr| raw(xdr)).collect();
        let took = time(|| {
            let raw = raw.into_iter().map(Ok::<_, Infallible>);
            let stored = pipeline.run(raw, Durability::Synced, |_| ControlFlow::Continue(()));
            stored.expect("the load is a valid chain");
        });
        events = store.status().totals.events as f64;
        store.compact().expect("the store is sorted");
        sizes = store.sizes().expect("the store has sizes").into_iter().collect();
        events / took.as_secs_f64()
    });
    sizes.retain(|(_, bytes)| *bytes > 0);
    sizes.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let all: u64 = sizes.iter().map(|(_, bytes)| bytes).sum();
    let parts = sizes.iter().map(|(name, bytes)| format!("{name} {:.1}", *bytes as f64 / events));
    report.note(format!(
        "Dense, raw ledgers {}: {:.0} bytes for each event, transactions and the index of entries included: {}; {}.",
        if raw_ledgers { "kept" } else { "not kept" },
        all as f64 / events,
        parts.collect::<Vec<_>>().join(", "),
        steps.per_ledger((REPETITIONS * ledgers.len()) as f64),
    ));
    sample
}

/// Returns a transfer event as an asset contract emits it, with accounts and an amount derived from
/// `number`.
pub fn transfer(number: u64) -> ContractEvent {
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
