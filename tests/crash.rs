//! Kills the binary with SIGKILL at random moments, repeatedly: it loses nothing that it
//! acknowledged, stores nothing that did not happen, and responds within two seconds of the
//! restart.
//!
//! Small: 13 kills; full: 200.

mod damage {
    mod chain;
    mod flips;
    mod upgrades;
}

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use orrery::domain::{Fetched, LedgerSeq, LedgerSource, Network};
use orrery::sandbox::paced::Paced;
use orrery::sandbox::source::{self, CLOSE_TIME, Maker, Opening};
use orrery::store::{Store, StoreStatus};
use orrery_testkit::client::HTTP;
use orrery_testkit::contents::Contents;
use orrery_testkit::material::Material;
use orrery_testkit::process::{KillPoint, Program, copy, run};
use orrery_testkit::size;
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

/// Maximum time from the start of a service to its response that it is up.
const TIME_TO_HEALTH: Duration = Duration::from_secs(2);

/// Held by each test, because services that run at the same time would distort each other's
/// timings.
static ALONE: Mutex<()> = Mutex::new(());

/// Phases that the kills hit, what was found afterwards, and how long the restarts took.
#[derive(Default)]
struct Tally {
    phases: BTreeMap<&'static str, u64>,
    restarts: Vec<Duration>,
    found: BTreeMap<&'static str, u64>,
}

impl Tally {
    fn killed(&mut self, phase: &'static str) {
        *self.phases.entry(phase).or_default() += 1;
    }

    fn found(&mut self, what: &'static str) {
        *self.found.entry(what).or_default() += 1;
    }

    #[track_caller]
    fn restarted(&mut self, service: &mut Program) {
        let took = service.time_to_health();
        assert!(took <= TIME_TO_HEALTH, "up only after {took:?}: {}", service.errors());
        self.restarts.push(took);
    }

    #[track_caller]
    /// Examines what a killed process left: `restart` on a copy must be up in time and is killed as
    /// well; then the store of the copy is read. So the next process gets the directory itself
    /// exactly as the killed one left it.
    fn after_kill(
        &mut self,
        directory: &Path,
        network: &Network,
        restart: impl FnOnce(&Path) -> Program,
    ) -> Contents {
        let parent = tempfile::tempdir().unwrap();
        let examined = parent.path().join("copy");
        copy(directory, &examined);
        let mut service = restart(&examined);
        self.restarted(&mut service);
        service.kill();
        let store = Store::open(&examined, Some(network)).unwrap();
        let contents = Contents::of(&store);
        if is_half_pruned(&store.status()) {
            self.found("amid pruning");
        }
        contents
    }

    fn report(&mut self, what: &str) {
        self.restarts.sort();
        println!(
            "{what}: {} kills {:?}, of these {:?}; {} restarts, up after {:?}, at most {:?}",
            self.phases.values().sum::<u64>(),
            self.phases,
            self.found,
            self.restarts.len(),
            self.restarts[self.restarts.len() / 2],
            self.restarts[self.restarts.len() - 1],
        );
    }
}

fn serve(directory: &Path, network: &Network, settings: &[(&str, String)]) -> Program {
    let arguments = ["serve", "--no-source", "--listen", "127.0.0.1:0", "--network"];
    Program::start(directory, arguments.into_iter().chain([network.passphrase()]), settings)
}

fn demo(directory: &Path, settings: &[(&str, String)]) -> Program {
    Program::start(directory, ["demo", "--listen", "127.0.0.1:0"], settings)
}

fn import(directory: &Path, material: &Material, files: usize) -> Program {
    let arguments = ["import", "--network", material.network.passphrase()];
    let files = material.files[..files].iter().map(|file| file.to_str().unwrap());
    Program::start(directory, arguments.into_iter().chain(files), &[])
}

/// Imports everything without interruption and returns how long that took.
fn import_all(directory: &Path, material: &Material) -> Duration {
    let start = Instant::now();
    let ended = import(directory, material, material.files.len()).end();
    assert!(ended.code == 0, "{}", ended.stderr);
    let duration = start.elapsed();
    assert_complete(directory, material);
    duration
}

fn assert_complete(directory: &Path, material: &Material) {
    let contents = Contents::of(&Store::open(directory, None).unwrap());
    contents.assert_beginning_of(&material.whole, LedgerSeq(0));
    assert_eq!(contents.count(), material.whole.count());
}

/// Settings that keep this many raw ledgers, and the events and transactions of as many ledgers.
fn keep(ledgers: u32) -> [(&'static str, String); 3] {
    ["ORRERY_RETENTION_RAW_LEDGERS", "ORRERY_RETENTION_EVENTS", "ORRERY_RETENTION_TRANSACTIONS"]
        .map(|setting| (setting, ledgers.to_string()))
}

/// Whether a prune was interrupted, where retention keeps as many raw ledgers as events: it begins with
/// the raw ledgers.
fn is_half_pruned(status: &StoreStatus) -> bool {
    let mut left = status.removed.raw_ledgers.clone();
    left.remove_all(&status.removed.events);
    !left.is_empty()
}

/// Oldest ledger that is kept when retention keeps this many, up to the newest.
fn kept_from(latest: Option<LedgerSeq>, ledgers: u32) -> LedgerSeq {
    LedgerSeq(latest.map_or(0, |latest| (latest.0 + 1).saturating_sub(ledgers)))
}

fn up_to(rng: &mut ChaCha8Rng, longest: Duration) -> Duration {
    longest.mul_f64(rng.random())
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Kills imports of `material`, one after the other, `kills` times. An import that finishes leaves
/// the same as an uninterrupted one, ids included.
fn kill_imports(tally: &mut Tally, material: &Material, rng: &mut ChaCha8Rng, kills: u64) {
    let duration = import_all(tempfile::tempdir().unwrap().path(), material);
    println!("an uninterrupted import of {} ledgers: {duration:?}", material.whole.count());
    let mut kills_left = kills;
    while kills_left > 0 {
        let directory = tempfile::tempdir().unwrap();
        let mut durable = None;
        while kills_left > 0 {
            let some = rng.random_range(1..=material.files.len());
            let files = if rng.random_bool(0.5) { material.files.len() } else { some };
            let mut running = import(directory.path(), material, files);
            let moment = match rng.random_range(0..10) {
                0..2 => KillPoint::Start(up_to(rng, millis(150))),
                2..6 => KillPoint::Start(up_to(rng, duration.mul_f64(1.1))),
                _ => KillPoint::FirstTable(up_to(rng, millis(100))),
            };
            let Some(phase) = running.kill_at(moment) else {
                let ended = running.end();
                assert!(ended.code == 0, "{}", ended.stderr);
                // What a finished import reported as stored stays, whatever is killed afterwards.
                durable = durable.max(Some(material.ends[files - 1]));
                if files == material.files.len() {
                    break;
                }
                continue;
            };
            kills_left -= 1;
            tally.killed(phase);
            let restart = |copy: &Path| serve(copy, &material.network, &[]);
            let contents = tally.after_kill(directory.path(), &material.network, restart);
            contents.assert_beginning_of(&material.whole, LedgerSeq(0));
            assert!(contents.latest() >= durable, "ledgers stored before the import are lost");
            if contents.latest() > durable {
                tally.found("with new ledgers on disk");
            }
            durable = contents.latest();
        }
        import_all(directory.path(), material);
    }
}

/// Kills the service while an import goes through it: the import must report this, and the ledgers
/// that it counts as stored must be stored.
fn kill_service_under_import(
    tally: &mut Tally,
    material: &Material,
    rng: &mut ChaCha8Rng,
    kills: u64,
) {
    let restart = |directory: &Path| serve(directory, &material.network, &[]);
    for _ in 0..kills {
        let directory = tempfile::tempdir().unwrap();
        let mut service = restart(directory.path());
        tally.restarted(&mut service);
        let client = import(directory.path(), material, material.files.len());
        let longest = millis(material.whole.count() as u64 / 2);
        let phase = service.kill_at(KillPoint::NewLedger(up_to(rng, longest)));
        tally.killed(phase.expect("the service does not end by itself"));
        let ended = client.end();
        let contents = tally.after_kill(directory.path(), &material.network, restart);
        contents.assert_beginning_of(&material.whole, LedgerSeq(0));
        match ended.code {
            1 => {
                tally.found("with an import that says so");
                let acknowledged = acknowledged(&ended.stderr);
                assert!(contents.count() as u64 >= acknowledged, "only {}", contents.count());
            }
            0 => assert_eq!(contents.count(), material.whole.count()),
            other => panic!("the import ended with {other}: {}", ended.stderr),
        }
        import_all(directory.path(), material);
    }
}

/// Number of ledgers that are stored according to an import that lost its service. The import
/// reports it in one sentence.
fn acknowledged(errors: &str) -> u64 {
    let sentences: Vec<_> =
        errors.lines().filter_map(|line| line.strip_prefix("orrery: ")).collect();
    let [sentence] = sentences[..] else { panic!("not one sentence: {errors}") };
    let stored = sentence.strip_prefix("the running service ended the connection");
    let stored = stored.unwrap_or_else(|| panic!("it says nothing of the service: {sentence}"));
    let count = stored.split(' ').find_map(|word| word.parse().ok());
    count.unwrap_or(u64::from(stored.contains("the ledger before it is stored")))
}

/// Kills a service while it prunes.
fn kill_prunings(tally: &mut Tally, material: &Material, rng: &mut ChaCha8Rng, kills: u64) {
    let parent = tempfile::tempdir().unwrap();
    let imported = parent.path().join("imported");
    import_all(&imported, material);
    let ledgers = material.whole.count() as u32 / 10;
    let floor = kept_from(material.whole.latest(), ledgers);
    let longest = millis(u64::from(ledgers) * 2);
    for kill in 0..kills {
        let directory = parent.path().join(kill.to_string());
        copy(&imported, &directory);
        // The second service continues where the first one was killed.
        for _ in 0..2 {
            let mut service = serve(&directory, &material.network, &keep(ledgers));
            tally.restarted(&mut service);
            let phase = service.kill_at(KillPoint::Up(up_to(rng, longest)));
            tally.killed(phase.expect("the service does not end by itself"));
            let restart = |copy: &Path| serve(copy, &material.network, &[]);
            let contents = tally.after_kill(&directory, &material.network, restart);
            contents.assert_beginning_of(&material.whole, floor);
        }
    }
}

#[test]
fn a_killed_import_resumes_without_loss() {
    let _alone = ALONE.lock();
    let rng = &mut ChaCha8Rng::seed_from_u64(1);
    let mut tally = Tally::default();
    let made = Material::made(size::choose(300, 3000) as u32);
    kill_imports(&mut tally, &made, rng, size::choose(3, 55));
    kill_service_under_import(&mut tally, &made, rng, size::choose(1, 10));
    kill_prunings(&mut tally, &made, rng, size::choose(1, 8));
    if let Some(public) = Material::public() {
        kill_imports(&mut tally, &public, rng, size::choose(1, 19));
    }
    tally.report("import");
}

/// The network of a demo's data directory, run again in this process without interruptions and
/// without waiting between ledgers.
struct Uninterrupted {
    source: Paced<Maker>,
    runtime: tokio::runtime::Runtime,
    network: Network,
    contents: Contents,
    _directory: TempDir,
}

impl Uninterrupted {
    /// Copies the network's journal, which has the close times of its ledgers.
    fn of(data_dir: &Path, network: &Network) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("sandbox")).unwrap();
        for file in ["beginning.json", "journal"] {
            let file = Path::new("sandbox").join(file);
            fs::copy(data_dir.join(&file), directory.path().join(&file)).unwrap();
        }
        let opening = Opening { seed: 0, close_time: CLOSE_TIME, clock: Arc::new(|| 0) };
        let opened = source::open(directory.path(), network, None, opening).unwrap();
        let source = opened.source;
        // With a paused clock, waiting for the next ledger takes no time.
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        let (network, contents) = (network.clone(), Contents::default());
        Self { source, runtime, network, contents, _directory: directory }
    }

    /// Content of a store with all ledgers up to `latest`.
    fn up_to(&mut self, latest: Option<LedgerSeq>) -> &Contents {
        while self.contents.latest() < latest {
            let fetched = self.runtime.block_on(self.source.fetch(LedgerSeq(0))).unwrap();
            let Fetched::Ledgers(ledgers) = fetched else { panic!("it always makes a ledger") };
            ledgers.iter().for_each(|ledger| self.contents.add(&ledger.xdr, &self.network));
        }
        &self.contents
    }
}

/// Tokens of a demo, issued and revoked while it runs.
#[derive(Default)]
struct Tokens {
    valid: Vec<String>,
    revoked: Vec<String>,
}

impl Tokens {
    /// Issues a token, and revokes the oldest when there are more than two. Both are acknowledged.
    fn change(&mut self, data_dir: &Path) {
        let issued = run(data_dir, ["token", "issue", "--sub", "someone"]);
        assert!(issued.code == 0, "{}", issued.stderr);
        self.valid.push(issued.stdout.trim().to_owned());
        if self.valid.len() > 2 {
            let oldest = self.valid.remove(0);
            let claims = oldest.split('.').nth(1).unwrap();
            let claims: serde_json::Value =
                serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
            let revoked = run(data_dir, ["token", "revoke", claims["jti"].as_str().unwrap()]);
            assert!(revoked.code == 0, "{}", revoked.stderr);
            self.revoked.push(oldest);
        }
    }

    fn check(&self, base: &str) {
        let ask = |token: &String| {
            let request = HTTP.get(format!("{base}/events/by-ledger?limit=1"));
            request.bearer_auth(token).send().unwrap().status().as_u16()
        };
        assert!(self.valid.iter().all(|token| ask(token) == 200), "a token was lost");
        assert!(self.revoked.iter().all(|token| ask(token) == 401), "a revocation was lost");
    }
}

/// Kills demos on one directory, one after the other.
fn kill_demos(tally: &mut Tally, rng: &mut ChaCha8Rng, kills: u64) {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("demo");
    let network = Network::from_name_or_passphrase("local");
    let mut tokens = Tokens::default();
    let (mut floor, mut durable) = (LedgerSeq(0), None);
    for kill in 0..kills {
        let kept = rng.random_bool(0.4).then(|| rng.random_range(20..30));
        let settings: Vec<_> = kept.into_iter().flat_map(keep).collect();
        let mut running = demo(&directory, &settings);
        if kill % 3 == 2 {
            tally.restarted(&mut running);
            tokens.check(&running.base().unwrap());
            tokens.change(&directory);
        }
        let moment = match rng.random_range(0..10) {
            0..4 => KillPoint::Start(up_to(rng, millis(250))),
            4..6 => KillPoint::Up(up_to(rng, millis(30))),
            6..8 => KillPoint::Up(up_to(rng, millis(2000))),
            // The next ledger comes a second after the last.
            _ => KillPoint::NewLedger(millis(950) + up_to(rng, millis(100))),
        };
        tally.killed(running.kill_at(moment).expect("a demo does not end by itself"));
        let contents = tally.after_kill(&directory, &network, |copy| demo(copy, &[]));
        assert!(contents.latest() >= durable.max(running.acknowledged()), "ledgers are gone");
        durable = durable.max(running.acknowledged());
        floor = floor.max(kept.map_or(floor, |kept| kept_from(contents.latest(), kept)));
        let Some((first, latest)) = contents.range() else { continue };
        assert_eq!(first, LedgerSeq(2));
        let mut uninterrupted = Uninterrupted::of(&directory, &network);
        contents.assert_beginning_of(uninterrupted.up_to(Some(latest)), floor);
    }
}

#[test]
fn a_killed_demo_resumes_without_loss() {
    let _alone = ALONE.lock();
    let rng = &mut ChaCha8Rng::seed_from_u64(2);
    let mut tally = Tally::default();
    for _ in 0..size::choose(1, 2) {
        kill_demos(&mut tally, rng, size::choose(6, 50));
    }
    tally.report("demo");
}
