//! Three services in a row: the first makes the ledgers of a network, the second follows the first
//! over JSON-RPC, the third follows the second. Whichever of them is killed, and whenever, all end
//! with the same ledgers.
//!
//! Small: 6 kills; full: 60.

use std::net::TcpListener;
use std::time::Duration;

use orrery::control::{CoveredRange, StatusReport};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

use crate::ALONE;
use orrery_testkit::process::{KillPoint, Program};
use orrery_testkit::size;
use orrery_testkit::wait::wait_until;

const CLOSE_TIME_MS: &str = "60";

/// What is stored. What is attested differs: only the first service knows the network's validator.
fn stored(status: &StatusReport) -> Vec<CoveredRange> {
    let of = |range: &CoveredRange| CoveredRange {
        attested_ledger: None,
        unattested_because: None,
        ..range.clone()
    };
    status.covered.iter().map(of).collect()
}

/// One of the three services: its data directory, address, source and process.
struct Member {
    directory: TempDir,
    listen: String,
    /// Address of the previous member, which this one follows; `None` for the first, which makes
    /// the ledgers.
    before: Option<String>,
    running: Option<Program>,
}

impl Member {
    fn new(before: Option<String>) -> Self {
        // A member keeps its address across restarts, because the next member follows it there.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let directory = tempfile::tempdir().unwrap();
        Self { directory, listen: format!("127.0.0.1:{port}"), before, running: None }
    }

    fn start(&mut self) {
        let source = self.before.as_ref().map(|address| format!("rpc:http://{address}/rpc"));
        let arguments: Vec<&str> = match &source {
            None => vec!["demo", "--close-time", CLOSE_TIME_MS, "--listen", &self.listen],
            Some(source) => vec![
                "serve",
                "--network",
                "local",
                "--source",
                source,
                "--start",
                "oldest",
                "--listen",
                &self.listen,
            ],
        };
        let settings = [("ORRERY_LIMITS_REQUESTS_PER_SECOND", "0".to_owned())];
        self.running = Some(Program::start(self.directory.path(), arguments, &settings));
    }

    /// Restarts the service without a source, so that it only serves what is stored.
    fn serve_without_source(&mut self) {
        drop(self.running.take());
        let arguments = ["serve", "--no-source", "--listen", &self.listen];
        self.running = Some(Program::start(self.directory.path(), arguments, &[]));
    }

    fn kill_at(&mut self, point: KillPoint) -> Option<&'static str> {
        let phase = self.running.as_mut().unwrap().kill_at(point);
        self.running = None;
        self.start();
        phase
    }

    fn status(&self) -> Option<StatusReport> {
        self.running.as_ref()?.status()
    }

    fn wait(&self, what: &str, condition: impl Fn(&StatusReport) -> bool) -> StatusReport {
        wait_until(what, || match self.status() {
            Some(status) if condition(&status) => Ok(status),
            status => Err(format!("{status:?} {:?}", self.running.as_ref().map(Program::errors))),
        })
    }
}

#[test]
fn three_chained_services_end_with_the_same_ledgers() {
    let _alone = ALONE.lock();
    let kills = size::choose(6, 60);
    let mut random = ChaCha8Rng::seed_from_u64(31);
    let first = Member::new(None);
    let second = Member::new(Some(first.listen.clone()));
    let third = Member::new(Some(second.listen.clone()));
    let mut members = [first, second, third];
    members.iter_mut().for_each(Member::start);
    let mut killed = Vec::new();
    for kill in 0..kills {
        // All members are killed equally often.
        let member = kill as usize % members.len();
        let after = Duration::from_millis(random.random_range(0..400));
        let point = match random.random_range(0..3) {
            0 => KillPoint::Start(after),
            1 => KillPoint::Up(after),
            _ => KillPoint::NewLedger(after),
        };
        killed.push((member, members[member].kill_at(point)));
    }
    // Waits until the last member has caught up.
    let newest = members[0].wait("ledgers", |it| it.latest_ledger > Some(40)).latest_ledger;
    members[2].wait("the third follows", |it| it.latest_ledger >= newest);
    // From here on the network makes no more ledgers, so the ledgers of the first member are final.
    members[0].serve_without_source();
    let complete = members[0].wait("the first rests", |it| it.latest_ledger >= newest);
    let [ledgers] = *complete.ranges else { panic!("{complete:?}") };
    for member in &members[1..] {
        let status =
            member.wait("the others follow", |it| it.latest_ledger >= Some(ledgers.last.0));
        assert_eq!(stored(&status), stored(&complete));
    }
    println!("{} ledgers, killed: {killed:?}", ledgers.len());
}
