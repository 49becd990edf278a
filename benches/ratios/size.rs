//! P5 and P6: bytes per event on disk.

use std::error::Error;
use std::path::Path;

use orrery::domain::Network;
use orrery::store::{Durability, Store};

use super::baseline::sqlite::Sqlite;
use super::baseline::zstd_blocks::ZstdBlocks;
use super::many::Generator;
use super::measure::{Sample, Sides};
use super::report::{Goal, Report, Row};

const P5: Goal = Goal::at_most(2.0, 1.1);
const P6: Goal = Goal::at_most(0.30, 0.10);

/// The counted column families: events and every index that refers to them.
const FAMILIES: [&str; 5] =
    ["events", "events_by_contract", "events_by_topic", "events_by_address", "tx_by_hash"];

/// Measures the sizes of this many generated events.
pub fn run(
    generator: &Generator<'_>,
    network: &Network,
    events: u64,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let ledgers = 0..generator.ledgers_for(events);
    let directory = tempfile::tempdir_in(directory)?;
    let store = Store::open(&directory.path().join("ours"), Some(network))?;
    generator.fill(&store, ledgers.clone(), Durability::Deferred);
    let count = store.status().totals.events as f64;
    let before = event_bytes(&store)? as f64 / count;
    store.compact()?;
    let after = event_bytes(&store)? as f64 / count;

    let mut sqlite = Sqlite::create(&directory.path().join("sqlite"))?;
    sqlite.never_sync()?;
    let mut blocks = ZstdBlocks::default();
    let mut xdr_bytes = 0;
    for number in ledgers {
        let ledger = generator.ledger(number);
        let view = ledger.view();
        view.events.iter().for_each(|event| {
            blocks.add(event.xdr);
            xdr_bytes += event.xdr.len();
        });
        sqlite.insert(&view)?;
    }
    let blocks = blocks.finish() as f64 / count;
    let sqlite = sqlite.vacuumed_bytes()? as f64 / count;

    let sides =
        |ours, baseline| Sides { ours: Sample::exact(ours), baseline: Sample::exact(baseline) };
    report.add(Row::new(
        "P5 size / zstd-3 of the events alone",
        "B/event",
        sides(after, blocks),
        P5,
    ));
    let name = "P5 before the final compaction";
    report.add(Row::information(name, "B/event", sides(before, blocks)));
    report.add(Row::new("P6 size / SQLite", "B/event", sides(after, sqlite), P6));
    let parts = store.sizes()?;
    let part = |family: &&str| format!("{family} {:.1}", parts[*family] as f64 / count);
    report.note(format!(
        "P5, P6: {count} generated events of {:.0} bytes XDR each; ours counts the files of {} bytes per event, \
         with transaction hashes, close times and positions; transactions and raw ledgers are no part. \
         zstd: the events' XDR alone, in blocks of 128, without any index. SQLite: the tables of events and \
         of transaction hashes with their indexes, after VACUUM.",
        xdr_bytes as f64 / count,
        FAMILIES.iter().map(part).collect::<Vec<_>>().join(", "),
    ));
    Ok(())
}

fn event_bytes(store: &Store) -> Result<u64, Box<dyn Error>> {
    let sizes = store.sizes()?;
    Ok(FAMILIES.iter().map(|family| sizes[*family]).sum())
}
