//! The sandbox as a source: a network of its own inside this process, one ledger a second, that goes
//! on where it stopped. Keeps what it needs for that in a directory of its own.

use std::fs;
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::paced::{LedgerMaker, Paced};
use super::sandbox::{FIRST_LEDGER, FIRST_MARKET_LEDGER, Sandbox, SandboxConfig, SandboxError};
use crate::domain::{LedgerSeq, Network};
use crate::durable::write_atomically;

/// Seconds between two ledgers.
const CLOSE_INTERVAL: u64 = 1;
/// Ledgers that a new network begins with, so that there is something to ask for.
const LEDGERS_AT_ONCE: u32 = 24;
/// Transactions of an everyday ledger.
const TRANSACTIONS: RangeInclusive<usize> = 1..=8;
/// Ledgers between two snapshots. A snapshot is written this many ledgers late: by then its ledger is
/// stored, and the network never goes on from a ledger that nobody has.
const LEDGERS_PER_SNAPSHOT: u32 = 32;

/// Names of its files in the data directory.
const DIRECTORY: &str = "sandbox";
const BEGINNING_FILE: &str = "beginning.json";
const SNAPSHOT_FILE: &str = "snapshot";

/// Why the sandbox could not begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum SandboxNetworkError {
    /// It never pretends to be a network that others use.
    #[error(
        "a sandbox cannot make ledgers of {0}: give the network local, or a passphrase of its own"
    )]
    PublicNetwork(Network),
    /// A file of it failed.
    #[error("the sandbox's file {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// Its beginning is not known any more.
    #[error("the sandbox's file {} is damaged: {reason}; use a new data directory", path.display())]
    Beginning {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The sandbox itself failed.
    #[error("the sandbox failed: {0}")]
    Sandbox(#[from] SandboxError),
}

/// What a sandbox network began with; all its ledgers follow from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Beginning {
    seed: u64,
    start_time: u64,
    /// The first ledger with a market; absent in what was written before there were markets.
    #[serde(default)]
    market_from: Option<u32>,
    /// The first ledger with a close time in milliseconds; absent in what was written before.
    #[serde(default)]
    milliseconds_from: Option<u32>,
    /// The first ledger with accounts that have signers; absent in what was written before.
    #[serde(default)]
    wallets_from: Option<u32>,
}

/// The sandbox network of a data directory in which `stored` is the newest ledger; a new one begins
/// with chance `seed`, so that its newest ledgers close at `now`, UNIX seconds. May take a while when
/// many ledgers must be made again.
///
/// # Errors
/// When `network` is a public one, or the files of the sandbox cannot be read or written.
pub fn open(
    data_dir: &Path,
    network: &Network,
    stored: Option<LedgerSeq>,
    seed: u64,
    now: u64,
) -> Result<Paced<Maker>, SandboxNetworkError> {
    if !matches!(network.name(), "local" | "custom") {
        return Err(SandboxNetworkError::PublicNetwork(network.clone()));
    }
    let directory = data_dir.join(DIRECTORY);
    fs::create_dir_all(&directory).map_err(file_error(&directory))?;
    let start_time = now.saturating_sub(u64::from(LEDGERS_AT_ONCE) * CLOSE_INTERVAL);
    let new = Beginning {
        seed,
        start_time,
        market_from: None,
        milliseconds_from: None,
        wallets_from: None,
    };
    let beginning = load_beginning(&directory, new)?;
    // Ledgers that are stored stay as they are: a network that had no market opens one now, and one that
    // closed at whole seconds goes on in milliseconds.
    let from = |known: Option<u32>, first: LedgerSeq| match (known, stored) {
        (Some(ledger), _) => LedgerSeq(ledger),
        (None, Some(stored)) => LedgerSeq(stored.0.saturating_add(1)).max(first),
        (None, None) => first,
    };
    let market_from = from(beginning.market_from, FIRST_MARKET_LEDGER);
    let milliseconds_from = from(beginning.milliseconds_from, FIRST_LEDGER);
    let wallets_from = from(beginning.wallets_from, FIRST_MARKET_LEDGER);
    let settled = Beginning {
        market_from: Some(market_from.0),
        milliseconds_from: Some(milliseconds_from.0),
        wallets_from: Some(wallets_from.0),
        ..beginning
    };
    if settled != beginning {
        save_beginning(&directory, &settled)?;
    }
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
    let sandbox = sandbox.with_market(market_from).with_wallets(wallets_from);
    let mut sandbox = sandbox.with_milliseconds(milliseconds_from, 1);
    if let Some(stored) = stored {
        sandbox.skip_to(stored)?;
    }
    let latest = sandbox.latest_ledger();
    let at_once = if stored.is_none() { LEDGERS_AT_ONCE } else { 0 };
    let maker = Maker { sandbox, snapshot_file: directory.join(SNAPSHOT_FILE), pending: None };
    let interval = Duration::from_secs(CLOSE_INTERVAL);
    Ok(Paced::new("the sandbox", network.passphrase(), maker, latest, at_once, interval))
}

/// Makes ledgers, and snapshots from time to time.
pub struct Maker {
    sandbox: Sandbox,
    snapshot_file: PathBuf,
    /// The latest snapshot, until it is old enough to be written.
    pending: Option<Vec<u8>>,
}

impl LedgerMaker for Maker {
    fn next_ledger(&mut self) -> Result<Vec<u8>, String> {
        if self.sandbox.latest_ledger().0.is_multiple_of(LEDGERS_PER_SNAPSHOT) {
            let snapshot = self.sandbox.snapshot().map_err(|error| error.to_string())?;
            if let Some(due) = self.pending.replace(snapshot)
                && let Err(error) =
                    write_atomically(&self.snapshot_file, |file| file.write_all(&due))
            {
                // Without it the next start takes longer, and nothing else.
                tracing::warn!("the sandbox's snapshot could not be written: {error}");
            }
        }
        self.sandbox.next_ledger().map_err(|error| error.to_string())
    }
}

/// What the network of a directory began with, or `new` when nothing has begun there.
fn load_beginning(directory: &Path, new: Beginning) -> Result<Beginning, SandboxNetworkError> {
    let path = directory.join(BEGINNING_FILE);
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).map_err(damaged(&path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(new),
        Err(error) => Err(file_error(&path)(error)),
    }
}

fn save_beginning(directory: &Path, beginning: &Beginning) -> Result<(), SandboxNetworkError> {
    let path = directory.join(BEGINNING_FILE);
    let text = serde_json::to_vec(beginning).map_err(damaged(&path))?;
    write_atomically(&path, |file| file.write_all(&text)).map_err(file_error(&path))
}

fn damaged(path: &Path) -> impl Fn(serde_json::Error) -> SandboxNetworkError {
    let path = path.to_owned();
    move |error| SandboxNetworkError::Beginning { path: path.clone(), reason: error.to_string() }
}

/// A snapshot saves making ledgers again; one that cannot be used costs only time.
fn load_snapshot(directory: &Path, config: &SandboxConfig) -> Option<Sandbox> {
    let bytes = fs::read(directory.join(SNAPSHOT_FILE)).ok()?;
    match Sandbox::restore(config.clone(), &bytes) {
        Ok(sandbox) => Some(sandbox),
        Err(error) => {
            tracing::warn!("the sandbox makes all its ledgers again: {error}");
            None
        }
    }
}

fn file_error(path: &Path) -> impl Fn(io::Error) -> SandboxNetworkError {
    let path = path.to_owned();
    move |source| SandboxNetworkError::File { path: path.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::follow::{Fetched, LedgerSource};

    /// Fetches until `last`; the clock is paused, so the pace takes no time.
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
    async fn goes_on_where_it_stopped() {
        let network = Network::from_name_or_passphrase("local");
        let (stopped, straight) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let begin = |at: &Path, stored: Option<u32>| {
            open(at, &network, stored.map(LedgerSeq), 7, 1_700_000_000).unwrap()
        };
        let mut ledgers = fetch_to(&mut begin(stopped.path(), None), 70).await;
        assert!(stopped.path().join("sandbox/snapshot").exists());
        // Once from the snapshot, and once from a ledger before it.
        ledgers.extend(fetch_to(&mut begin(stopped.path(), Some(70)), 75).await);
        let from_before = fetch_to(&mut begin(stopped.path(), Some(20)), 75).await;
        let expected = fetch_to(&mut begin(straight.path(), None), 75).await;
        assert!(ledgers == expected, "the same ledgers, interrupted or not");
        assert!(from_before == expected[19..]);
    }

    /// A directory as it was before there were markets.
    #[tokio::test(start_paused = true)]
    async fn a_network_without_a_market_gets_one_and_keeps_its_ledgers() {
        let network = Network::from_name_or_passphrase("local");
        let directory = tempfile::tempdir().unwrap();
        let beginning = directory.path().join("sandbox/beginning.json");
        fs::create_dir_all(beginning.parent().unwrap()).unwrap();
        fs::write(&beginning, r#"{"seed":7,"start_time":1700000000}"#).unwrap();
        let config = SandboxConfig {
            network: network.clone(),
            seed: 7,
            start_time: 1_700_000_000,
            close_interval: CLOSE_INTERVAL,
            transactions_per_ledger: TRANSACTIONS,
        };
        let mut without = Sandbox::new(config).unwrap();
        without.skip_to(LedgerSeq(39)).unwrap();
        let last = without.next_ledger().unwrap();
        let last = crate::decode::header(&last).unwrap().hash;
        let begin = |stored| open(directory.path(), &network, Some(LedgerSeq(stored)), 8, 1);
        let ledgers = fetch_to(&mut begin(40).unwrap(), 60).await;
        let linked = ledgers[0].windows(32).any(|hash| hash == last.as_bytes());
        assert!(linked, "what is stored has a successor");
        let market = Sandbox::market_contract(&network).unwrap();
        let named = |ledger: &Vec<u8>| ledger.windows(32).any(|id| id == market.0);
        assert!(ledgers.iter().any(named), "the market is used");
        // From then on it is where it is.
        let again = fetch_to(&mut begin(50).unwrap(), 60).await;
        assert!(again == ledgers[10..]);
        let settled = fs::read_to_string(&beginning).unwrap();
        assert!(settled.contains(r#""market_from":41,"milliseconds_from":41"#), "{settled}");
        // So are close times in milliseconds.
        let times = ledgers.iter().map(|xdr| crate::decode::header(xdr).unwrap().close_time_ms);
        assert!(times.clone().all(|time| time.is_some()) && times.is_sorted());
    }

    #[test]
    fn never_pretends_to_be_a_public_network() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["mainnet", "testnet", "futurenet"] {
            let network = Network::from_name_or_passphrase(name);
            let error = open(directory.path(), &network, None, 1, 1).err().unwrap().to_string();
            assert!(error.contains(name), "{error}");
        }
    }
}
