//! A long import of dense ledgers: whether the rate holds while the store grows and its files are
//! compacted, and which family pays for that. `--variants FILE` repeats it with other options of RocksDB.

use std::error::Error;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use orrery::pipeline::Pipeline;
use orrery::store::{Durability, Extensions, Store};

use super::dense::{EVENTS, TRANSACTIONS, transfer};
use super::indexing::{Unobserved, raw};
use super::measure::{Sample, Sides, micros, quantile, sized};
use super::pages::json;
use super::recorded::Recorded;
use super::report::{Report, Row};
use super::stores::QuerySample;
use super::variants::Variant;
use super::{many, packed};

/// Copies of the recorded ledgers: 15 million events.
pub const COPIES: u64 = sized(100, 4);
/// The fastest zstd level, for the ledgers in memory: they are decompressed while they are
/// imported, as those of a lake are.
const COMPRESSION: i32 = 1;
/// Pages of each kind that are read before the store is compacted.
const QUESTIONS: usize = sized(2_000, 20);
const MEBIBYTE: f64 = (1u64 << 20) as f64;

/// Measures such an import of `copies` copies of the recorded ledgers with each choice of options.
pub fn run(
    recorded: &Recorded,
    copies: u64,
    variants: &[Variant],
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let mut ledgers = Vec::new();
    packed::each(recorded, copies, [TRANSACTIONS, EVENTS / TRANSACTIONS], transfer, |ledger| {
        ledgers.push(zstd::encode_all(&*ledger, COMPRESSION));
    });
    let ledgers = ledgers.into_iter().collect::<Result<Vec<_>, _>>()?;
    for variant in variants {
        let name = match variant.name.as_str() {
            "" => String::new(),
            name => format!(", {name}"),
        };
        import(recorded, &ledgers, variant, &name, directory, report)?;
    }
    Ok(())
}

/// Measures one import. `name` follows the names of its rows and notes.
fn import(
    recorded: &Recorded,
    ledgers: &[Vec<u8>],
    variant: &Variant,
    name: &str,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let count = ledgers.len();
    let directory = tempfile::tempdir_in(directory)?;
    let extensions = Extensions { tuning: variant.tuning.clone(), ..Extensions::default() };
    let store = Store::open_with(directory.path(), Some(&recorded.network), extensions)?;
    let store = Arc::new(store);
    let pipeline = Pipeline::new(Arc::clone(&store), many::options(true), Arc::new(Unobserved));
    // When the pipeline asked for each ledger; it holds only a few of them at a time.
    let (begun, mut asked) = (Instant::now(), Vec::with_capacity(count));
    let raw = ledgers.iter().map(|ledger| {
        asked.push(begun.elapsed().as_secs_f64());
        zstd::decode_all(&**ledger).map(|xdr| raw(&xdr))
    });
    let stored = pipeline.run(raw, Durability::Synced, |_| ControlFlow::Continue(()));
    stored.map_err(|error| error.to_string())?;
    let seconds = begun.elapsed().as_secs_f64();
    asked.push(seconds);
    let part = count / 4;
    let rate = |from: usize, to: usize| ((to - from) * EVENTS) as f64 / (asked[to] - asked[from]);
    note_pages(&store, name, report);
    let written = store.writes()?;
    let compacting = Instant::now();
    store.compact()?;
    report.note(format!(
        "Long import{name}: {count} dense ledgers in {seconds:.0} s, {:.0} k events/s; by quarters {}; then the store was \
         compacted in {:.0} s.",
        rate(0, count) / 1e3,
        (0..4).map(|n| format!("{:.0} k", rate(n * part, (n + 1) * part) / 1e3)).collect::<Vec<_>>().join(", "),
        compacting.elapsed().as_secs_f64(),
    ));
    note_writes(&store, &written, name, report)?;
    let sides = Sides {
        ours: Sample::exact(rate(count - part, count)),
        baseline: Sample::exact(rate(0, part)),
    };
    let name = format!("Long import of dense ledgers, last quarter / first quarter{name}");
    report.add(Row::information(name, "events/s", sides));
    Ok(())
}

/// Notes the time of pages right after an import, when most files are not compacted yet: options that
/// spare compactions make a reader look into more files.
fn note_pages(store: &Store, name: &str, report: &mut Report) {
    let questions = QuerySample::of(store);
    let pages = [
        ("of a contract", questions.usual_pages(QUESTIONS)),
        ("of a rare topic", questions.rare_topics(QUESTIONS)),
    ];
    let mut told = Vec::new();
    for (kind, queries) in pages {
        let times = micros(&queries, |query| drop(black_box(json(store, query))));
        told.push(format!("{kind} {:.0} and {:.0}", quantile(&times, 0.5), quantile(&times, 0.99)));
    }
    let hashes: Vec<_> = questions.transactions.iter().take(QUESTIONS).collect();
    let times = micros(&hashes, |hash| {
        let found = store.transaction(hash, |record| {
            black_box(record.meta.len());
        });
        black_box(found.expect("the store answers"));
    });
    told.push(format!(
        "a transaction {:.0} and {:.0}",
        quantile(&times, 0.5),
        quantile(&times, 0.99)
    ));
    report.note(format!(
        "Long import{name}, pages before the last compaction, µs at p50 and p99: {}.",
        told.join("; ")
    ));
}

/// Notes what was written for each family during the import, and how often its rows were.
fn note_writes(
    store: &Store,
    written: &std::collections::BTreeMap<String, orrery::store::FamilyWrites>,
    name: &str,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let sizes = store.sizes()?;
    let mut families: Vec<_> = written.iter().map(|(family, it)| (family.as_str(), *it)).collect();
    families.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds));
    let (mut bytes, mut rows, mut seconds, mut files) = (0, 0, 0.0, 0);
    let mut told = Vec::new();
    for (family, it) in families {
        let (all, size) = (it.flushed + it.compacted, sizes.get(family).copied().unwrap_or(0));
        (bytes, rows, seconds) = (bytes + all, rows + size, seconds + it.seconds);
        files += it.files;
        if all > 0 {
            told.push(format!(
                "{family} {:.0} + {:.0} MiB for {:.0} ({:.1} times, {:.0} moved, {:.1} s, {} files)",
                it.flushed as f64 / MEBIBYTE,
                it.compacted as f64 / MEBIBYTE,
                size as f64 / MEBIBYTE,
                all as f64 / size.max(1) as f64,
                it.moved as f64 / MEBIBYTE,
                it.seconds,
                it.files,
            ));
        }
    }
    report.note(format!(
        "Long import{name}, written by flushes + compactions for the bytes at the end: all {:.0} MiB for {:.0} ({:.1} times, \
         {seconds:.1} s of a processor, {files} files); {}.",
        bytes as f64 / MEBIBYTE,
        rows as f64 / MEBIBYTE,
        bytes as f64 / rows.max(1) as f64,
        told.join("; "),
    ));
    Ok(())
}
