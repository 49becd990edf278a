//! Backfill of older ledgers from a lake in a directory, as `orrery backfill` requests it from a
//! running service: alone, and beside a network that closes one ledger per second.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use orrery::control::{BACKFILL, BackfillOrder, BackfillRequest, BackfillState, Client};
use orrery::domain::{LedgerSeq, Network, StartPoint, sequence_of};
use orrery::settings::{SourceKind, Start};
use tempfile::TempDir;

use super::measure::{REPETITIONS, Sample, Sides, alternate, sized};
use super::report::{Goal, Report, Row};
use super::running::Running;

/// Goal for the speed of the backfill against a full decode.
const CATCH_UP: Goal = Goal::at_least(1.2, 2.5);
/// Goal for the backfill beside a live source against the backfill alone.
const BESIDE_LIVE: Goal = Goal::at_least(0.8, 1.0);

/// Number of live ledgers. At one per second, more than close during one repetition.
const LIVE: usize = sized(20, 2);
const CLOSE_INTERVAL: Duration = sized(Duration::from_secs(1), Duration::from_millis(100));
/// Interval between two requests of the backfill's status.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Timeout for a repetition, which usually takes seconds.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Measures on consecutive ledgers of a network. `full_decodes` measures the baseline, in ledgers
/// per second.
pub fn run(
    (name, network, ledgers): (&str, &Network, &[Vec<u8>]),
    full_decodes: impl Fn() -> f64,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let (older, live) = ledgers.split_at(ledgers.len() - LIVE);
    let archive = LakeDirectory::new(network, directory)?;
    older.iter().try_for_each(|xdr| archive.add(xdr))?;
    let scene = Scene { network, older, live, archive, directory };
    let sides = alternate(|| scene.measured(false), full_decodes);
    report.add(Row::new(
        format!("Catch-up from a lake / full decode, {name}"),
        "ledgers/s",
        sides,
        CATCH_UP,
    ));
    let sides: Sides =
        (0..REPETITIONS).map(|_| (scene.measured(true), scene.measured(false))).collect();
    report.add(Row::new(
        format!("Catch-up while live ledgers come / alone, {name}"),
        "ledgers/s",
        sides,
        BESIDE_LIVE,
    ));
    let followed: Vec<f64> =
        (0..REPETITIONS).map(|_| scene.followed()).collect::<Result<_, _>>()?;
    let followed = Sample::from(followed);
    report.note(format!(
        "Followed from its oldest ledger, each on disk before it counts, the same lake comes to {:.0} ledgers/s.",
        followed.median()
    ));
    Ok(())
}

struct Scene<'a> {
    network: &'a Network,
    older: &'a [Vec<u8>],
    live: &'a [Vec<u8>],
    archive: LakeDirectory,
    directory: &'a Path,
}

impl Scene<'_> {
    fn measured(&self, with_live: bool) -> f64 {
        self.backfilled(with_live).expect("the lake holds a valid chain")
    }

    /// Starts a service that follows a lake, or no source if `lake` is `None`.
    fn start(&self, lake: Option<&LakeDirectory>) -> Result<Running, Box<dyn Error>> {
        Running::start(self.network, self.directory, |config| {
            config.source.start = Start(Some(StartPoint::Oldest));
            if let Some(lake) = lake {
                (config.source.kind, config.source.path) = (SourceKind::Lake, lake.text());
            }
        })
    }

    /// Returns the speed of a backfill in ledgers per second.
    fn backfilled(&self, with_live: bool) -> Result<f64, Box<dyn Error>> {
        let lake = LakeDirectory::new(self.network, self.directory)?;
        lake.add(&self.live[0])?;
        let service = self.start(with_live.then_some(&lake))?;
        if with_live {
            service.wait_until_stored(sequence(&self.live[0])?)?;
        }
        let mut client = Client::connect(service.data.path())?.ok_or("the service answers")?;
        let order = BackfillOrder {
            from: sequence(&self.older[0])?.0,
            to: sequence(&self.older[self.older.len() - 1])?.0,
            sources: vec![self.archive.text()],
        };
        let begun = Instant::now();
        client.ask(BACKFILL, &BackfillRequest::Start(order))?;
        let mut closed = 1;
        loop {
            std::thread::sleep(POLL_INTERVAL);
            let elapsed = begun.elapsed();
            if with_live && elapsed > CLOSE_INTERVAL * closed as u32 && closed < self.live.len() {
                lake.add(&self.live[closed])?;
                closed += 1;
            }
            let report = client.ask(BACKFILL, &BackfillRequest::Status)?;
            match report.state {
                BackfillState::Running if elapsed < TIMEOUT => {}
                BackfillState::Done => break,
                state => return Err(format!("{state:?}: {:?}", report.reason).into()),
            }
        }
        let speed = self.older.len() as f64 / begun.elapsed().as_secs_f64();
        drop(client);
        if with_live {
            service.wait_until_stored(sequence(&self.live[closed - 1])?)?;
        }
        service.stop()?;
        Ok(speed)
    }

    /// Returns the speed in ledgers per second at which the service follows the archive itself.
    fn followed(&self) -> Result<f64, Box<dyn Error>> {
        let begun = Instant::now();
        let service = self.start(Some(&self.archive))?;
        service.wait_until_stored(sequence(&self.older[self.older.len() - 1])?)?;
        let speed = self.older.len() as f64 / begun.elapsed().as_secs_f64();
        service.stop()?;
        Ok(speed)
    }
}

fn sequence(xdr: &[u8]) -> Result<LedgerSeq, String> {
    sequence_of(xdr)
}

/// A lake with one ledger per file, compressed like the lakes of the public networks.
struct LakeDirectory {
    directory: TempDir,
}

impl LakeDirectory {
    /// Files per partition directory.
    const PER_PARTITION: u32 = 64_000;
    /// Compression level of Galexie, which is zstd's default.
    const LEVEL: i32 = 3;

    fn new(network: &Network, directory: &Path) -> Result<Self, Box<dyn Error>> {
        let directory = tempfile::tempdir_in(directory)?;
        let manifest = serde_json::json!({
            "networkPassphrase": network.passphrase(),
            "version": "1.0",
            "compression": "zstd",
            "ledgersPerBatch": 1,
            "batchesPerPartition": Self::PER_PARTITION,
        });
        fs::write(directory.path().join(".config.json"), manifest.to_string())?;
        Ok(Self { directory })
    }

    fn text(&self) -> String {
        self.directory.path().display().to_string()
    }

    fn add(&self, xdr: &[u8]) -> Result<(), Box<dyn Error>> {
        let number = sequence(xdr)?.0;
        let head = [number, number, 1].map(u32::to_be_bytes).concat();
        let file = self.file(number);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        let unfinished = self.directory.path().join("unfinished");
        fs::write(&unfinished, zstd::encode_all(&*[&head, xdr].concat(), Self::LEVEL)?)?;
        Ok(fs::rename(unfinished, file)?)
    }

    fn file(&self, number: u32) -> PathBuf {
        let first = number / Self::PER_PARTITION * Self::PER_PARTITION;
        let last = first + Self::PER_PARTITION - 1;
        let partition = format!("{:08X}--{first}-{last}", u32::MAX - first);
        let name = format!("{:08X}--{number}.xdr.zst", u32::MAX - number);
        self.directory.path().join(partition).join(name)
    }
}
