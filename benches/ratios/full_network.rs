//! A fully loaded network: ledgers of 6,000 transactions with two events each, one every 600 ms.
//! The whole service stores each ledger before the next is due; its latency is measured from the
//! moment at which it was due.

use std::error::Error;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::dense::transfer;
use super::indexing::raw;
use super::measure::{Sample, quantile, sized};
use super::packed;
use super::recorded::Recorded;
use super::report::{Goal, Report, Row};
use super::running::Running;

/// Goal for the milliseconds until a ledger is stored. The floor is what the reference
/// implementation plans for its next phase, the moonshot is what it reached with 32 processors.
const STORED: Goal = Goal::at_most(105.0, 31.0);

const TRANSACTIONS: usize = sized(6_000, 20);
/// Events per transaction.
const EVENTS: usize = 2;
const CLOSE_INTERVAL: Duration = Duration::from_millis(600);
/// The fastest zstd level, for the ledgers in memory: they are compressed before the measurement,
/// and decompressed between two ledgers.
const COMPRESSION: i32 = 1;

/// Measures `minutes` minutes of such a network.
pub fn run(
    recorded: &Recorded,
    minutes: u64,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let count = sized((minutes * 60_000).div_ceil(CLOSE_INTERVAL.as_millis() as u64), 2);
    let copies = count.div_ceil(recorded.ledgers.len() as u64);
    let (mut ledgers, mut bytes) = (Vec::new(), 0);
    packed::each(recorded, copies, [TRANSACTIONS, EVENTS], transfer, |ledger| {
        bytes += ledger.len();
        ledgers.push(zstd::encode_all(&*ledger, COMPRESSION));
    });
    let service = Running::start(&recorded.network, directory, |_| {})?;
    let begun = Instant::now();
    let mut times = Vec::with_capacity(ledgers.len());
    let count = ledgers.len();
    for (number, ledger) in ledgers.into_iter().enumerate() {
        let ledger = raw(&zstd::decode_all(&*ledger?)?);
        let due = begun + CLOSE_INTERVAL * (number as u32 + 1);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        service.ingest(std::iter::once(ledger)).map_err(|error| error.to_string())?;
        times.push(due.elapsed().as_secs_f64() * 1e3);
    }
    let longest = quantile(&times, 1.0);
    report.note(format!(
        "A full network: {count} ledgers of {} KB of XDR with {TRANSACTIONS} smart-contract transactions and {} \
         events each, one every {} ms; stored after {:.1} ms at the median, {longest:.1} ms at the most; {:.1} ms \
         at the median of the last tenth.",
        bytes / count / 1000,
        TRANSACTIONS * EVENTS,
        CLOSE_INTERVAL.as_millis(),
        quantile(&times, 0.5),
        quantile(&times[count - count.div_ceil(10)..], 0.5),
    ));
    let p99 = Sample::exact(quantile(&times, 0.99));
    report.add(Row::absolute("Full network, ledger due to ledger stored, p99", "ms", p99, STORED));
    service.stop()
}
