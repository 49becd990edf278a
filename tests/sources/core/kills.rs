//! Kills core, and the service that runs it, with SIGKILL at random moments: the store holds what
//! an uninterrupted run stores, no core process is left, and nothing leaks.
//!
//! Small: 8 kills of each; full: 200 of each.

use std::fs;
use std::path::Path;
use std::time::Duration;

use orrery::domain::LedgerSeq;
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::free_port;
use super::stand_in::{CHAIN, OfChain, StandIn, cores};
use orrery_testkit::contents::Contents;
use orrery_testkit::process::{KillPoint, Program, open_released};
use orrery_testkit::signal::{self, Signal};
use orrery_testkit::size;

/// First ledger that is followed, except in a standalone network, which begins at ledger 2.
const FIRST: u32 = 70;

/// Runs one test at a time: concurrent services would slow each other down.
static ALONE: Mutex<()> = Mutex::new(());

/// A service that runs a core in its data directory.
struct Service<'a> {
    directory: &'a Path,
    settings: Vec<(&'static str, String)>,
}

impl<'a> Service<'a> {
    fn new(stand_in: &StandIn, directory: &'a Path, standalone: bool) -> Self {
        let text = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
        let mut settings = vec![
            ("ORRERY_SOURCE_KIND", "core".to_owned()),
            ("ORRERY_CORE_BINARY", text(stand_in.program())),
        ];
        if standalone {
            settings.push(("ORRERY_CORE_HTTP_PORT", free_port().to_string()));
        } else {
            settings.push(("ORRERY_CORE_CONFIG", text(stand_in.own_config())));
            settings.push(("ORRERY_SOURCE_START", FIRST.to_string()));
        }
        Self { directory, settings }
    }

    fn start(&self) -> Program {
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--network", "local"];
        Program::start(self.directory, arguments, &self.settings)
    }

    fn storage(&self) -> std::path::PathBuf {
        self.directory.join("core")
    }
}

fn latest(program: &Program) -> u32 {
    program.status().and_then(|status| status.latest_ledger).unwrap_or(0)
}

/// Waits for the end of the chain, stops the service with SIGINT as an operator would, and
/// compares.
fn finish(program: Program, service: &Service<'_>, first: u32) {
    program.wait_until("everything is stored", || latest(&program) == CHAIN.last());
    assert_eq!(program.status().unwrap().down, None);
    interrupt(program.id());
    let ended = program.end();
    assert!(ended.code == 0, "{}", ended.stderr);
    assert_eq!(cores(&service.storage()), [0; 0], "stopped with the service");
    let contents = stored(service.directory);
    let whole = CHAIN.stored_from(first);
    contents.assert_beginning_of(&whole, LedgerSeq(0));
    assert_eq!(contents.count(), whole.count());
}

fn stored(directory: &Path) -> Contents {
    Contents::of(&open_released(directory, &CHAIN.network))
}

fn interrupt(pid: u32) {
    assert!(signal::send(pid, Signal::INT));
}

fn kill(pid: i32) {
    // It may have ended by itself.
    signal::send(pid as u32, Signal::KILL);
}

/// Counts the pipes and pidfds that a process has open. Files are left out, because the store opens
/// and closes them all the time.
fn held(pid: u32) -> usize {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let targets = open.filter_map(|entry| fs::read_link(entry.path()).ok());
    let targets = targets.map(|target| target.to_string_lossy().into_owned());
    targets.filter(|target| target.starts_with("pipe:") || target.contains("pidfd")).count()
}

/// Counts the children of a process that have ended and were not reaped.
fn zombies(pid: u32) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let stats = processes.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    let mark = format!(") Z {pid} ");
    stats.filter(|stat| stat.contains(&mark)).count()
}

#[test]
fn a_service_survives_the_kills_of_its_core() {
    let _alone = ALONE.lock();
    let kills = size::choose(8, 200);
    let rng = &mut ChaCha8Rng::seed_from_u64(3);
    let stand_in = StandIn::new().with("early", true).with("pause_us", 130 * kills);
    stand_in.archive(255, Some(CHAIN.network.passphrase()));
    let directory = tempfile::tempdir().unwrap();
    let service = Service::new(&stand_in, directory.path(), false);
    let program = service.start();
    program.wait_until("something is stored", || latest(&program) > FIRST);
    let before = held(program.id());
    for kill_number in 0..kills {
        program.wait_until("a core runs", || !cores(&service.storage()).is_empty());
        std::thread::sleep(Duration::from_millis(60).mul_f64(rng.random()));
        let killed = cores(&service.storage());
        killed.iter().for_each(|pid| kill(*pid));
        program.wait_until("it is gone", || {
            cores(&service.storage()).iter().all(|pid| !killed.contains(pid))
        });
        assert!(cores(&service.storage()).len() <= 1, "after kill {kill_number}");
    }
    program.wait_until("everything is stored", || latest(&program) == CHAIN.last());
    program.wait_until("nothing waits to be cleaned up", || {
        zombies(program.id()) == 0 && held(program.id()) <= before
    });
    let starts = stand_in.commands().iter().filter(|command| command.starts_with("run")).count();
    println!("{kills} kills of core, which ran {starts} times");
    finish(program, &service, FIRST);
}

fn kill_services(standalone: bool, seed: u64) {
    let _alone = ALONE.lock();
    let kills = size::choose(8, 200);
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let stand_in = StandIn::new().with("early", !standalone).with("pause_us", 1_000 * kills);
    stand_in.archive(255, None);
    let directory = tempfile::tempdir().unwrap();
    let service = Service::new(&stand_in, directory.path(), standalone);
    let first = if standalone { 2 } else { FIRST };
    let whole = CHAIN.stored_from(first);
    let (mut durable, mut orphans) = (None, 0);
    for _ in 0..kills {
        let mut program = service.start();
        let up_to =
            |rng: &mut ChaCha8Rng, millis| Duration::from_millis(millis).mul_f64(rng.random());
        let more_to_come = durable.is_none_or(|durable: LedgerSeq| durable.0 + 5 < CHAIN.last());
        let moment = match rng.random_range(0..4) {
            0 => KillPoint::Start(up_to(rng, 400)),
            1 if more_to_come => KillPoint::NewLedger(up_to(rng, 200)),
            _ => KillPoint::Up(up_to(rng, 600)),
        };
        program.kill_at(moment).expect("a service does not end by itself");
        orrery_left(&service, &program, rng.random_bool(0.5), &mut orphans);
        let contents = stored(directory.path());
        contents.assert_beginning_of(&whole, LedgerSeq(0));
        assert!(contents.latest() >= durable.max(program.acknowledged()), "ledgers are gone");
        durable = contents.latest();
    }
    println!("{kills} kills of the service, which left {orphans} cores; up to {durable:?}");
    finish(service.start(), &service, first);
}

/// Checks that at most one core is left. It ends by itself, because nothing reads its output; with
/// `wait`, waits for that, otherwise the next service may find it still running.
fn orrery_left(service: &Service<'_>, program: &Program, wait: bool, orphans: &mut usize) {
    let left = cores(&service.storage());
    assert!(left.len() <= 1, "{left:?}");
    *orphans += left.len();
    if wait {
        program.wait_until("no core is left", || cores(&service.storage()).is_empty());
    }
}

#[test]
fn a_killed_service_resumes_following_its_network() {
    kill_services(false, 4);
}

#[test]
fn a_killed_service_resumes_its_standalone_network() {
    kill_services(true, 5);
}
