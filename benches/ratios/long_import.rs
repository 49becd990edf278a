//! A long import of dense ledgers: whether the rate holds while the store grows and its files are
//! compacted.

use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use orrery::pipeline::Pipeline;
use orrery::store::{Durability, Store};

use super::dense::{EVENTS, TRANSACTIONS, transfer};
use super::indexing::{Unobserved, raw};
use super::measure::{Sample, Sides, sized};
use super::recorded::Recorded;
use super::report::{Report, Row};
use super::{many, packed};

/// Copies of the recorded ledgers.
const COPIES: u64 = sized(100, 4);
/// The fastest zstd level, for the ledgers in memory: they are decompressed while they are
/// imported, as those of a lake are.
const COMPRESSION: i32 = 1;

/// Measures such an import.
pub fn run(
    recorded: &Recorded,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let mut ledgers = Vec::new();
    packed::each(recorded, COPIES, [TRANSACTIONS, EVENTS / TRANSACTIONS], transfer, |ledger| {
        ledgers.push(zstd::encode_all(&*ledger, COMPRESSION));
    });
    let ledgers = ledgers.into_iter().collect::<Result<Vec<_>, _>>()?;
    let count = ledgers.len();
    let directory = tempfile::tempdir_in(directory)?;
    let store = Arc::new(Store::open(directory.path(), Some(&recorded.network))?);
    let pipeline = Pipeline::new(Arc::clone(&store), many::options(true), Arc::new(Unobserved));
    // When the pipeline asked for each ledger; it holds only a few of them at a time.
    let (begun, mut asked) = (Instant::now(), Vec::with_capacity(count));
    let raw = ledgers.into_iter().map(|ledger| {
        asked.push(begun.elapsed().as_secs_f64());
        zstd::decode_all(&*ledger).map(|xdr| raw(&xdr))
    });
    let stored = pipeline.run(raw, Durability::Synced, |_| ControlFlow::Continue(()));
    stored.map_err(|error| error.to_string())?;
    let seconds = begun.elapsed().as_secs_f64();
    asked.push(seconds);
    let part = count / 4;
    let rate = |from: usize, to: usize| ((to - from) * EVENTS) as f64 / (asked[to] - asked[from]);
    let compacting = Instant::now();
    store.compact()?;
    report.note(format!(
        "Long import: {count} dense ledgers in {seconds:.0} s, {:.0} k events/s; then the store was compacted in {:.0} s.",
        rate(0, count) / 1e3,
        compacting.elapsed().as_secs_f64(),
    ));
    let sides = Sides {
        ours: Sample::exact(rate(count - part, count)),
        baseline: Sample::exact(rate(0, part)),
    };
    let name = "Long import of dense ledgers, last quarter / first quarter";
    report.add(Row::information(name, "events/s", sides));
    Ok(())
}
