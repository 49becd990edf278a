//! The sandbox as a ledger source: a network inside this process that closes one ledger per second,
//! or at another pace, accepts transactions of clients and resumes after a restart. Keeps its files
//! in a directory of its own.

mod error;
mod journal;
mod live;
mod maker;
mod queue;

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use orrery_ledger::domain::{ContractId, LedgerSeq, Network, NodeId};
use orrery_runtime::durable::write_atomically;
use serde::{Deserialize, Serialize};

use super::paced::Paced;
use crate::network::{Batch, FIRST_MARKET_LEDGER, Sandbox, SandboxConfig};

use journal::Journal;

pub use error::SandboxNetworkError;
pub use live::LiveSandbox;
pub use maker::Maker;

/// Function that returns the current time in UNIX milliseconds.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Default time between two ledgers.
pub const CLOSE_TIME: Duration = Duration::from_secs(1);
/// Seconds between the genesis of a network and its first ledger. Close times of ledgers follow the
/// clock.
const CLOSE_INTERVAL: u64 = 1;
/// Maximum lag behind the clock in milliseconds, beyond the time of the initial ledgers. A network
/// with a larger lag closes its next ledger at the current time.
const MAX_BEHIND: u64 = 30_000;
/// Number of ledgers that a new network starts with, so that there is data to query.
const LEDGERS_AT_ONCE: u32 = 24;
/// Range of the number of transactions in a regular ledger.
const TRANSACTIONS: RangeInclusive<usize> = 1..=8;
/// Number of ledgers between two snapshots. A snapshot is written this many ledgers late: by then
/// its ledger is stored, so that the network never resumes from a ledger that the store lacks.
const LEDGERS_PER_SNAPSHOT: u32 = 32;

/// Name of the sandbox's directory in the data directory.
pub const DIRECTORY: &str = "sandbox";
/// Names of all files in that directory.
pub const FILES: [&str; 3] = [BEGINNING_FILE, SNAPSHOT_FILE, JOURNAL_FILE];
const BEGINNING_FILE: &str = "beginning.json";
const SNAPSHOT_FILE: &str = "snapshot";
const JOURNAL_FILE: &str = "journal";

/// Initial parameters of a sandbox network. All its ledgers follow from them and the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Beginning {
    seed: u64,
    start_time: u64,
    /// Whether it has an exchange; networks that earlier versions began have none.
    #[serde(default)]
    exchange: bool,
}

/// An open sandbox network.
pub struct Opened {
    /// Source of the network's ledgers.
    pub source: Paced<Maker>,
    /// Queries and submissions of clients.
    pub live: Arc<LiveSandbox>,
    /// Contracts of the network itself, whether they exist yet or not.
    pub contracts: Vec<ContractId>,
    /// The factory of its exchange, whether it exists yet or not; `None` for a network without an exchange.
    pub factory: Option<ContractId>,
}

/// Parameters for opening a sandbox network.
pub struct Opening {
    /// Seed of a new network; an existing one keeps its own.
    pub seed: u64,
    /// Time between two ledgers.
    pub close_time: Duration,
    /// Clock that close times follow.
    pub clock: Clock,
}

/// Returns the only validator of the sandbox network of a data directory, which begins as
/// [`open`] would begin it if there is none.
///
/// # Errors
/// When `network` is a public one, or the files of the sandbox cannot be read or written.
pub fn validator(
    data_dir: &Path,
    network: &Network,
    opening: &Opening,
) -> Result<NodeId, SandboxNetworkError> {
    begin(data_dir, network, opening).map(|beginning| Sandbox::validator(beginning.seed))
}

/// Returns the same of a network that has begun; `None` when a data directory has none.
///
/// # Errors
/// When the file of its initial parameters cannot be read.
pub fn known_validator(data_dir: &Path) -> Result<Option<NodeId>, SandboxNetworkError> {
    let beginning = load_beginning(&data_dir.join(DIRECTORY))?;
    Ok(beginning.map(|beginning| Sandbox::validator(beginning.seed)))
}

/// Opens the sandbox network of a data directory whose newest stored ledger is `stored`, or creates
/// one whose initial ledgers end at the current time. Takes a while when many ledgers must be
/// regenerated.
///
/// # Errors
/// When `network` is a public one, the files of the sandbox cannot be read or written, or the
/// journal lacks a stored ledger.
pub fn open(
    data_dir: &Path,
    network: &Network,
    stored: Option<LedgerSeq>,
    opening: Opening,
) -> Result<Opened, SandboxNetworkError> {
    let beginning = begin(data_dir, network, &opening)?;
    let Opening { close_time, clock, .. } = opening;
    let directory = data_dir.join(DIRECTORY);
    let interval = interval(close_time);
    let journal = directory.join(JOURNAL_FILE);
    let config = SandboxConfig {
        network: network.clone(),
        seed: beginning.seed,
        start_time: beginning.start_time,
        close_interval: CLOSE_INTERVAL,
        transactions_per_ledger: TRANSACTIONS,
    };
    let sandbox = match load_snapshot(&directory, &config) {
        Some(snapshot) if Some(snapshot.latest_ledger()) <= stored => snapshot,
        _ => Sandbox::new(config)?,
    };
    let mut sandbox = sandbox.with_market(FIRST_MARKET_LEDGER).with_wallets(FIRST_MARKET_LEDGER);
    if beginning.exchange {
        sandbox = sandbox.with_exchange(FIRST_MARKET_LEDGER);
    }
    let (journal, journalled) = Journal::open(&journal, sandbox.latest_ledger())?;
    let replay_queue = catch_up(&mut sandbox, journalled, stored)?;
    let latest = sandbox.latest_ledger();
    let at_once = if stored.is_none() { LEDGERS_AT_ONCE } else { 0 };
    let live = Arc::new(LiveSandbox::new(&sandbox));
    let contracts = sandbox.contracts()?;
    let factory = match beginning.exchange {
        true => Some(Sandbox::exchange_factory(network)?),
        false => None,
    };
    let maker = Maker {
        sandbox,
        live: Arc::clone(&live),
        journal,
        replay_queue,
        pending_input: None,
        interval,
        clock,
        snapshot_file: directory.join(SNAPSHOT_FILE),
        pending: None,
    };
    let source =
        Paced::new("the sandbox", network.passphrase(), maker, latest, at_once, close_time);
    Ok(Opened { source, live, contracts, factory })
}

/// Regenerates the stored ledgers after the sandbox's latest. Returns the journal's batches for
/// later ledgers, which are regenerated as journalled too, because clients may have seen them.
fn catch_up(
    sandbox: &mut Sandbox,
    journalled: Vec<(LedgerSeq, Batch)>,
    stored: Option<LedgerSeq>,
) -> Result<VecDeque<Batch>, SandboxNetworkError> {
    let mut journalled: VecDeque<_> = journalled.into();
    while Some(sandbox.latest_ledger()) < stored {
        let next = LedgerSeq(sandbox.latest_ledger().0.saturating_add(1));
        match journalled.pop_front() {
            Some((ledger, batch)) if ledger == next => drop(sandbox.next_ledger_of(&batch)?),
            _ => {
                return Err(SandboxNetworkError(format!(
                    "the sandbox's journal has no entry for ledger {next}: use a new data directory"
                )));
            }
        }
    }
    Ok(journalled.into_iter().map(|(_, batch)| batch).collect())
}

/// Returns the initial parameters of the network in a data directory. A new one begins so that its
/// initial ledgers end at the current time.
fn begin(
    data_dir: &Path,
    network: &Network,
    opening: &Opening,
) -> Result<Beginning, SandboxNetworkError> {
    if !matches!(network.name(), "local" | "custom") {
        return Err(SandboxNetworkError(format!(
            "a sandbox cannot make ledgers of {network}: give the network local, or a passphrase of \
             its own"
        )));
    }
    let directory = data_dir.join(DIRECTORY);
    fs::create_dir_all(&directory).map_err(SandboxNetworkError::of_file(&directory))?;
    if let Some(beginning) = load_beginning(&directory)? {
        return Ok(beginning);
    }
    let initial = interval(opening.close_time).saturating_mul(LEDGERS_AT_ONCE.into());
    let first_at = (opening.clock)().saturating_sub(initial);
    let beginning = Beginning { seed: opening.seed, start_time: first_at / 1000, exchange: true };
    Journal::begin(&directory.join(JOURNAL_FILE))?;
    save_beginning(&directory, &beginning)?;
    Ok(beginning)
}

/// Returns the time between two ledgers in milliseconds.
fn interval(close_time: Duration) -> u64 {
    u64::try_from(close_time.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// Loads the initial parameters of the network in a directory; `None` when there is none.
fn load_beginning(directory: &Path) -> Result<Option<Beginning>, SandboxNetworkError> {
    let path = directory.join(BEGINNING_FILE);
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(damaged(&path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(SandboxNetworkError::of_file(&path)(error)),
    }
}

fn save_beginning(directory: &Path, beginning: &Beginning) -> Result<(), SandboxNetworkError> {
    let path = directory.join(BEGINNING_FILE);
    let text = serde_json::to_vec(beginning).map_err(damaged(&path))?;
    write_atomically(&path, |file| file.write_all(&text))
        .map_err(SandboxNetworkError::of_file(&path))
}

fn damaged(path: &Path) -> impl Fn(serde_json::Error) -> SandboxNetworkError {
    move |error| SandboxNetworkError::damaged(path, error)
}

/// Loads the snapshot, which saves regenerating ledgers. Returns `None` when it cannot be used,
/// which only costs time.
fn load_snapshot(directory: &Path, config: &SandboxConfig) -> Option<Sandbox> {
    let bytes = fs::read(directory.join(SNAPSHOT_FILE)).ok()?;
    match Sandbox::restore(config.clone(), &bytes) {
        Ok(sandbox) => Some(sandbox),
        Err(error) => {
            tracing::warn!("the sandbox makes all its ledgers again, without a snapshot: {error}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use orrery_ledger::domain::{Fetched, LedgerSource, NotFunded};

    /// Returns parameters with a clock that stands still.
    fn at_rest(seed: u64) -> Opening {
        let clock: Clock = Arc::new(|| 1_700_000_000_000);
        Opening { seed, close_time: CLOSE_TIME, clock }
    }

    /// Fetches until `last`; tokio's clock is paused, so that pacing takes no time.
    async fn fetch_to(source: &mut Paced<Maker>, last: u32) -> Vec<Vec<u8>> {
        let mut ledgers = Vec::new();
        loop {
            let Fetched::Ledgers(mut made) = source.fetch(LedgerSeq(0)).await.unwrap() else {
                panic!("a sandbox always makes")
            };
            let sequence = made[0].sequence.0;
            ledgers.push(made.remove(0).xdr);
            if sequence == last {
                return ledgers;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_network_resumes_after_a_restart() {
        let network = Network::from_name_or_passphrase("local");
        let (stopped, straight) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let begin = |at: &Path, stored: Option<u32>| {
            open(at, &network, stored.map(LedgerSeq), at_rest(7)).unwrap().source
        };
        let mut ledgers = fetch_to(&mut begin(stopped.path(), None), 70).await;
        assert!(stopped.path().join("sandbox/snapshot").exists());
        // Resumes once from the snapshot, and once from a ledger before it.
        ledgers.extend(fetch_to(&mut begin(stopped.path(), Some(70)), 75).await);
        let from_before = fetch_to(&mut begin(stopped.path(), Some(20)), 75).await;
        let expected = fetch_to(&mut begin(straight.path(), None), 75).await;
        assert!(ledgers == expected, "the same ledgers, interrupted or not");
        assert!(from_before == expected[19..]);
    }

    /// Regenerated ledgers contain the input from outside, wherever the network resumes: the newest
    /// ledgers may not have been stored.
    #[tokio::test(start_paused = true)]
    async fn regenerated_ledgers_contain_submitted_transactions() {
        let network = Network::from_name_or_passphrase("local");
        let directory = tempfile::tempdir().unwrap();
        let begin = |stored: Option<u32>| {
            open(directory.path(), &network, stored.map(LedgerSeq), at_rest(3)).unwrap()
        };
        let Opened { mut source, live, .. } = begin(None);
        let mut ledgers = Vec::new();
        for last in 2..=110_u32 {
            let funded = (last.is_multiple_of(3) && last > 6).then(|| {
                let key = stellar_xdr::Uint256([u8::try_from(last).unwrap(); 32]);
                let id = stellar_xdr::PublicKey::PublicKeyTypeEd25519(key);
                let account = stellar_xdr::AccountId(id);
                let receiver = live.fund(stellar_xdr::ScAddress::Account(account.clone())).unwrap();
                (account, receiver)
            });
            ledgers.extend(fetch_to(&mut source, last).await);
            if let Some((account, receiver)) = funded {
                assert!(receiver.await.unwrap().is_some());
                assert!(live.newest().has_account(&account));
                let again = live.fund(stellar_xdr::ScAddress::Account(account));
                assert_eq!(again.err(), Some(NotFunded::Exists));
            }
        }
        let state = live.newest().snapshot().unwrap();
        drop((source, live));
        for stored in [110, 109, 97, 96] {
            let Opened { mut source, live, .. } = begin(Some(stored));
            if stored < 110 {
                let again = fetch_to(&mut source, 110).await;
                assert!(again == ledgers[stored as usize - 1..], "from {stored}");
            }
            assert!(live.newest().snapshot().unwrap() == state, "from {stored}");
        }
        // The journal alone suffices; an entry that it lacks is reported. A torn line counts as
        // missing.
        fs::remove_file(directory.path().join("sandbox/snapshot")).unwrap();
        assert!(begin(Some(110)).live.newest().snapshot().unwrap() == state);
        let journal = directory.path().join("sandbox/journal");
        let text = fs::read_to_string(&journal).unwrap();
        let torn = &text[..text.len() - 5];
        fs::write(&journal, torn).unwrap();
        let error = open(directory.path(), &network, Some(LedgerSeq(110)), at_rest(3)).err();
        let lacking = "the sandbox's journal has no entry for ledger 110: use a new data directory";
        assert_eq!(error.unwrap().to_string(), lacking);
        let mut source = begin(Some(109)).source;
        assert_eq!(fetch_to(&mut source, 110).await.len(), 1);
        drop(source);
        drop(begin(Some(110)));
        fs::remove_file(&journal).unwrap();
        let error = open(directory.path(), &network, Some(LedgerSeq(110)), at_rest(3)).err();
        let error = error.expect("no ledger is made on a guess").to_string();
        assert!(error.contains("sandbox/journal: No such file"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_delayed_network_catches_up_with_the_clock() {
        const START: u64 = 1_700_000_000_000;
        let network = Network::from_name_or_passphrase("local");
        let directory = tempfile::tempdir().unwrap();
        let now = Arc::new(AtomicU64::new(START));
        let clock: Clock = {
            let now = Arc::clone(&now);
            Arc::new(move || now.load(Ordering::Relaxed))
        };
        let opening = Opening { seed: 7, close_time: CLOSE_TIME, clock };
        let mut source = open(directory.path(), &network, None, opening).unwrap().source;
        let mut fetched = fetch_to(&mut source, LEDGERS_AT_ONCE).await;
        now.fetch_add(10_000, Ordering::Relaxed);
        for ledger in LEDGERS_AT_ONCE + 1..=LEDGERS_AT_ONCE + 15 {
            now.fetch_add(1000, Ordering::Relaxed);
            fetched.extend(fetch_to(&mut source, ledger).await);
        }
        let times: Vec<_> = fetched
            .iter()
            .map(|xdr| orrery_ledger::decode::header(xdr).unwrap().close_time)
            .collect();
        let steps: Vec<_> = times.windows(2).map(|two| two[1] - two[0]).collect();
        assert!(steps.iter().all(|step| (1..=2).contains(step)), "{steps:?}");
        assert_eq!(times.last(), Some(&(now.load(Ordering::Relaxed) / 1000)), "{times:?}");
    }

    #[test]
    fn public_networks_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["mainnet", "testnet", "futurenet"] {
            let network = Network::from_name_or_passphrase(name);
            let error =
                open(directory.path(), &network, None, at_rest(1)).err().unwrap().to_string();
            assert!(error.contains(name), "{error}");
        }
    }
}
