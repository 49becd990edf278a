//! An upstream server of ledger entries that hangs: how a program that queries it affects programs
//! that do not.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use orrery::domain::{LedgerSeq, LiveEntries, Owner};
use orrery::programs::engine::UpstreamError;
use orrery::programs::state::Upstream;
use stellar_xdr::LedgerKey;

use super::indexing::{Indexing, LedgersWithCalls, Which, raw};
use super::measure::{compare, sized};
use super::recorded::Recorded;
use super::report::{Goal, Report, Row};

/// Goal for the other programs beside the one that queries the server, against the other programs
/// alone.
const BESIDE_ASKING: Goal = Goal::at_least(0.95, 1.0);

/// Owners, and programs per owner that query nothing.
const OWNERS: usize = sized(10, 2);
const PROGRAMS: usize = sized(20, 2);
/// Copies of the recorded ledgers, and calls of these programs per ledger.
const COPIES: u64 = sized(3, 1);
const DEPOSITS: usize = 2;

/// A server that has reached this ledger. It answers that it has no network settings, which every
/// program requests once, and hangs on all other requests.
struct Hangs(LedgerSeq);

impl Upstream for Hangs {
    fn look_up(&self, keys: &[LedgerKey], within: Duration) -> Result<LiveEntries, UpstreamError> {
        if keys.iter().all(|key| matches!(key, LedgerKey::ConfigSetting(_))) {
            return Ok(LiveEntries { as_of: self.0, entries: vec![None; keys.len()] });
        }
        thread::sleep(within);
        Err(UpstreamError::Unreachable("it hangs".to_owned()))
    }
}

/// Measures the effect of the hanging server.
pub fn run(
    recorded: &Recorded,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let busy = LedgersWithCalls::with_unknown_endless(recorded, COPIES, DEPOSITS);
    let measured = |asks| runs_per_second(&busy, asks, directory).expect("the programs are run");
    let sides = compare(|| measured(true), || measured(false));
    let name = format!("{} programs beside one whose upstream hangs / alone", OWNERS * PROGRAMS);
    report.add(Row::new(name, "runs/s", sides, BESIDE_ASKING));
    Ok(())
}

/// Returns the runs per second of all programs that query nothing.
fn runs_per_second(
    busy: &LedgersWithCalls<'_>,
    with_one_that_asks: bool,
    directory: &Path,
) -> Result<f64, Box<dyn Error>> {
    let (last, upstream) = (busy.last()?, Arc::new(Hangs(busy.last()?)));
    let service = Indexing::start_with(busy.network, Some(upstream), directory)?;
    let mut programs = Vec::new();
    for owner in 0..OWNERS {
        let owner = Owner(format!("owner-{owner}"));
        for _ in 0..PROGRAMS {
            let project = format!("deposits{}", programs.len());
            let id = service.deploy_for(&owner, &project, Which::Deposits, busy)?;
            programs.push((owner.clone(), id));
        }
    }
    if with_one_that_asks {
        service.deploy(Which::Endless, busy)?;
    }
    let begun = Instant::now();
    service.ingest(busy.ledgers.iter().map(|xdr| raw(xdr))).map_err(|error| error.to_string())?;
    for (owner, id) in &programs {
        service.wait_for_run_of(owner, *id, last)?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    Ok((programs.len() * busy.ledgers.len() * DEPOSITS) as f64 / seconds)
}
