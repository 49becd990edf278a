//! P21: the time from the bytes of a ledger to the rows of its transactions in an SQL result.
//! Ledgers arrive one at a time, as a network closes them; a client polls over HTTP until the rows
//! are there.

use std::error::Error;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use super::indexing::{Indexing, LedgersWithCalls, Which, raw};
use super::measure::{REPETITIONS, Sample, quantile, sized};
use super::recorded::Recorded;
use super::report::{Goal, Report, Row};
use super::sql::ask_if_ready;

const P21: Goal = Goal::at_most(250.0, 30.0);

/// Copies of the recorded ledgers per repetition; the first is a warm-up.
const COPIES: u64 = sized(9, 2);
/// Calls of the program per ledger.
const DEPOSITS: usize = 5;
/// Pause between two queries.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Pause after the rows of a ledger were visible, before the next ledger closes.
const PAUSE: Duration = Duration::from_millis(20);
const TIMEOUT: Duration = Duration::from_secs(60);

/// Measures P21.
pub fn run(
    recorded: &Recorded,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let busy = LedgersWithCalls::new(recorded, COPIES, DEPOSITS);
    let (mut worst, mut usual) = (Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        let times = repetition(&busy, recorded.ledgers.len(), directory)?;
        worst.push(quantile(&times, 0.99));
        usual.push(quantile(&times, 0.5));
    }
    report.note(format!(
        "P21: {} ledgers a repetition (the p99 of so few is about the second slowest), each as in P1 with a thousand \
         events and {DEPOSITS} calls of the program; a client asks for count(*) over HTTP with a pause of {} ms after \
         each answer; median {:.1} ms.",
        busy.ledgers.len() - recorded.ledgers.len(),
        POLL_INTERVAL.as_millis(),
        Sample::from(usual).median(),
    ));
    let name = "P21 ledger bytes to row visible to SQL, p99";
    report.add(Row::absolute(name, "ms", Sample::from(worst), P21));
    Ok(())
}

/// Returns the milliseconds that each ledger took, except the first ones.
fn repetition(
    busy: &LedgersWithCalls<'_>,
    first: usize,
    directory: &Path,
) -> Result<Vec<f64>, Box<dyn Error>> {
    let service = Indexing::start(busy.network, directory)?;
    let program = service.deploy(Which::Deposits, busy)?;
    let mut client = service.server.client()?;
    let count = format!("select count(*) as n from program_{program}_deposit_made");
    let mut times = Vec::with_capacity(busy.ledgers.len());
    thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let (closed, ledgers) = sync_channel(1);
        let ingesting = scope.spawn(|| service.ingest(ledgers.into_iter()));
        for (number, xdr) in (1u64..).zip(&busy.ledgers) {
            let ledger = raw(xdr);
            let wanted = number * DEPOSITS as u64;
            let begun = Instant::now();
            if closed.send(ledger).is_err() {
                break;
            }
            while ask_if_ready(&mut client, &count)?.is_none_or(|rows| rows[0]["n"] != wanted) {
                if begun.elapsed() > TIMEOUT {
                    return Err(format!("{wanted} rows do not come").into());
                }
                thread::sleep(POLL_INTERVAL);
            }
            times.push(begun.elapsed().as_secs_f64() * 1e3);
            thread::sleep(PAUSE);
        }
        drop(closed);
        let ingested = ingesting.join().map_err(|_| "ingestion panicked")?;
        ingested.map_err(|error| Box::<dyn Error>::from(error.to_string()))
    })?;
    service.verify_runs(program)?;
    Ok(times.split_off(first))
}
