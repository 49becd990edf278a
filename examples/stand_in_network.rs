//! A stand-in for a public network, for walks through the documents: closes ledgers, which call
//! contracts, on a network with a given passphrase, and writes them to a lake (SEP-54) as they are
//! closed. It is never installed.
//!
//! Takes the passphrase and the directory of the lake. The lake begins with ledger 2, and its first
//! [`AT_ONCE`] ledgers are there at once, as if they had been closed before. No validator of a
//! public network has signed them.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use orrery_ledger::domain::Network;
use orrery_sandbox::network::{FIRST_MARKET_LEDGER, Sandbox, SandboxConfig};

/// Number of ledgers that were closed before the start.
const AT_ONCE: u32 = 200;
/// Seconds between two ledgers.
const INTERVAL: u64 = 1;
/// Files per directory of the lake, each with one ledger.
const PER_PARTITION: u32 = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [passphrase, lake] = &arguments[..] else {
        return Err("usage: stand_in_network PASSPHRASE DIRECTORY".into());
    };
    let lake = Path::new(lake);
    fs::create_dir_all(lake)?;
    let manifest = serde_json::json!({
        "networkPassphrase": passphrase,
        "version": "1.0",
        "compression": "zstd",
        "ledgersPerBatch": 1,
        "batchesPerPartition": PER_PARTITION,
    });
    write(lake, &lake.join(".config.json"), manifest.to_string().as_bytes())?;
    let config = SandboxConfig {
        network: Network::from_passphrase(passphrase),
        seed: 7,
        start_time: now()?.as_secs().saturating_sub(u64::from(AT_ONCE) * INTERVAL),
        close_interval: INTERVAL,
        transactions_per_ledger: 2..=9,
    };
    let sandbox = Sandbox::new(config)?;
    let mut sandbox = sandbox.with_market(FIRST_MARKET_LEDGER).with_wallets(FIRST_MARKET_LEDGER);
    loop {
        let ledger = sandbox.next_ledger()?;
        add(lake, sandbox.latest_ledger().0, &ledger)?;
        let next = Duration::from_secs(sandbox.latest_close_time() + INTERVAL);
        thread::sleep(next.saturating_sub(now()?));
    }
}

/// Time since the UNIX epoch.
fn now() -> Result<Duration, Box<dyn Error>> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?)
}

/// Adds a ledger to the lake.
fn add(lake: &Path, sequence: u32, ledger: &[u8]) -> Result<(), Box<dyn Error>> {
    let mut batch = Vec::with_capacity(ledger.len() + 12);
    for word in [sequence, sequence, 1] {
        batch.extend_from_slice(&word.to_be_bytes());
    }
    batch.extend_from_slice(ledger);
    let first = sequence / PER_PARTITION * PER_PARTITION;
    let partition =
        lake.join(format!("{:08X}--{first}-{}", u32::MAX - first, first + PER_PARTITION - 1));
    fs::create_dir_all(&partition)?;
    let file = partition.join(format!("{:08X}--{sequence}.xdr.zst", u32::MAX - sequence));
    write(lake, &file, &zstd::encode_all(&*batch, 1)?)
}

/// Writes a file of the lake atomically, because it is read meanwhile.
fn write(lake: &Path, file: &Path, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    let unfinished = lake.join("unfinished");
    fs::write(&unfinished, bytes)?;
    Ok(fs::rename(unfinished, file)?)
}
