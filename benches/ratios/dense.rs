//! Dense ledgers: as many events as a network that is full could have. What storing them costs, and what
//! each family takes of the disk.

use std::convert::Infallible;
use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use orrery::domain::LedgerSeq;
use orrery::pipeline::Pipeline;
use orrery::source::{Origin, RawLedger};
use orrery::store::{Durability, Store};
use stellar_xdr::{ContractEvent, TransactionMeta};

use crate::amplify;
use crate::indexing::Unobserved;
use crate::many;
use crate::measure::{repeat, time};
use crate::recorded::Recorded;
use crate::report::{Goal, Report, Row};
use crate::variation::{Variation, edit};

/// Events a second, durable.
const DENSE: Goal = Goal::at_least(400e3, 1e6);

/// Events in a ledger.
const EVENTS: usize = 12_400;
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
    let sample = repeat(|| {
        let directory = tempfile::tempdir_in(directory).expect("a directory");
        let store = Store::open(directory.path(), Some(&recorded.network)).expect("a new store");
        let store = Arc::new(store);
        let pipeline = Pipeline::new(Arc::clone(&store), many::options(true), Arc::new(Unobserved));
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
    Ok(())
}

/// The recorded ledgers, copied, in which every transaction with events has as many more, all of them
/// different, that a ledger has [`EVENTS`].
fn dense(recorded: &Recorded) -> Vec<Vec<u8>> {
    let regulars = amplify::regulars(recorded);
    amplify::chain_with(recorded, COPIES, |number, ledger| {
        let mut variation = Variation::new(&regulars, number as u64, 1);
        edit(&mut ledger.tx_processing, |transactions| {
            let has_events = |meta: &TransactionMeta| match meta {
                TransactionMeta::V4(meta) => meta.operations.iter().any(|it| !it.events.is_empty()),
                _ => false,
            };
            let metas = transactions.iter_mut().map(|it| &mut it.tx_apply_processing);
            let mut metas: Vec<_> = metas.filter(|meta| has_events(meta)).collect();
            let each = EVENTS.div_ceil(metas.len().max(1));
            for meta in &mut metas {
                let TransactionMeta::V4(meta) = &mut **meta else { continue };
                edit(&mut meta.operations, |operations| {
                    let Some(first) = operations.iter_mut().find(|it| !it.events.is_empty()) else {
                        return;
                    };
                    edit(&mut first.events, |events| {
                        let recorded = events.len();
                        while events.len() < each {
                            let model = &events[events.len() % recorded];
                            let body = variation.body(&model.body);
                            events.push(ContractEvent { body, ..model.clone() });
                        }
                    });
                });
            }
        });
    })
}
