//! Snapshots in a bucket: what making them costs ingestion, and how long restoring one takes, and starting a service
//! from one, against a plain download of its objects. The commands run as users run them.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use orrery_testkit::forged::forgers_key;
use orrery_testkit::size;
use stellar_xdr::{AccountId, PublicKey, Uint256};
use tempfile::TempDir;

use super::amplify;
use super::bucket::{BUCKET, Bucket};
use super::client::Client;
use super::measure::{COMPARISON_REPETITIONS, REPETITIONS, Sample, Sides, sized};
use super::process::Service;
use super::recorded::Recorded;
use super::report::{Goal, Report, Row};
use super::running::{Running, wait_until};

/// Goal for ingestion while snapshots are made against ingestion without.
const BESIDE: Goal = Goal::at_least(0.9, 1.0);
/// Goal for a restoration against a plain download of the same objects.
const RESTORED: Goal = Goal::at_least(0.8, 0.95);
/// Goal for a start from a snapshot, beyond a plain download, in seconds.
const STARTED: Goal = Goal::at_most(10.0, 2.0);

/// Ledgers that are stored first, and per repetition, and how many there are in the tests.
const FIRST: u64 = 2_400;
const EACH: u64 = 120;
const SMALLEST: u64 = 2;
/// Bytes per second of the bucket: a gigabit.
const RATE: u64 = 125_000_000;
/// Connections of a plain download.
const CONNECTIONS: usize = 8;

/// Measures snapshots.
///
/// # Errors
/// When a command fails, or what is restored is not there.
pub fn run(
    recorded: &Recorded,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir_in(directory)?;
    let scene = Scene { recorded, bucket: Bucket::start()?, directory };
    scene.trust()?;
    let service = Running::start(&recorded.network, scene.directory.path(), |_| {})?;
    scene.beside(&service, report)?;
    let data_dir = service.data.path().to_owned();
    scene.backup(&data_dir, "kept")?;
    service.stop()?;
    scene.restored(report)?;
    scene.started(report)
}

/// Returns the number of ledgers in a bench, and in a test of the full size.
fn ledgers(full: u64) -> usize {
    size::choose(sized(full, SMALLEST), full) as usize
}

struct Scene<'a> {
    recorded: &'a Recorded,
    bucket: Bucket,
    directory: TempDir,
}

impl Scene<'_> {
    /// Writes settings by which ledgers are attested as those of a network are: enough of the validators have signed
    /// them, and some have signed none.
    fn trust(&self) -> io::Result<()> {
        let of = |number| {
            let key = Uint256(forgers_key(number).verifying_key().to_bytes());
            AccountId(PublicKey::PublicKeyTypeEd25519(key))
        };
        let text = format!(
            "[trust]\nthreshold = 1\n[trust.validators]\n\"one.example\" = [\"{}\"]\n\"other.example\" = [\"{}\"]\n",
            of(1),
            of(2)
        );
        fs::write(self.settings(), text)
    }

    fn settings(&self) -> PathBuf {
        self.directory.path().join("orrery.toml")
    }

    /// The binary, with access to the bucket.
    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orrery"));
        command
            .current_dir(self.directory.path())
            .env("ORRERY_BACKUP_ENDPOINT", self.bucket.endpoint())
            .env("AWS_ACCESS_KEY_ID", "id")
            .env("AWS_SECRET_ACCESS_KEY", "secret")
            .env("ORRERY_LIMITS_REQUESTS_PER_SECOND", "0")
            .stdout(Stdio::null());
        command
    }

    fn backup(&self, data_dir: &Path, name: &str) -> Result<(), Box<dyn Error>> {
        let to = format!("s3://{BUCKET}/{name}");
        let mut command = self.command();
        let made = command.args(["backup", "--to", &to, "--data-dir"]).arg(data_dir).status()?;
        if made.success() { Ok(()) } else { Err(format!("the backup ended with {made}").into()) }
    }

    /// Makes snapshots, each in a place of its own, until `stop` is set.
    fn backups(&self, data_dir: &Path, stop: &AtomicBool) -> Result<usize, String> {
        let mut number = 0;
        while !stop.load(Ordering::Relaxed) {
            self.backup(data_dir, &format!("beside-{number}"))
                .map_err(|error| error.to_string())?;
            number += 1;
            self.bucket.remove(&format!("beside-{}", number - 1));
        }
        Ok(number)
    }

    /// Stores ledgers with and without snapshots being made of what is stored.
    fn beside(&self, service: &Running, report: &mut Report) -> Result<(), Box<dyn Error>> {
        let (first, each) = (ledgers(FIRST), ledgers(EACH));
        let all = first + 2 * COMPARISON_REPETITIONS * each;
        let copies = all.div_ceil(self.recorded.ledgers.len());
        let (mut batch, mut stored, mut seconds) = (Vec::new(), 0, Vec::new());
        let mut outcome = Ok(());
        let mut visit = |ledger| -> Result<(), Box<dyn Error>> {
            batch.push(ledger);
            if batch.len() < each || stored == all {
                return Ok(());
            }
            let batch = std::mem::take(&mut batch);
            stored += batch.len();
            if stored <= first {
                service.seconds_to_ingest(&batch)?;
                return Ok(());
            }
            let number = seconds.len();
            // In turns, because what was measured last is compacted during the next measurement.
            seconds.push(match number % 4 {
                0 | 3 => self.seconds_beside(service, &batch)?,
                _ => service.seconds_to_ingest(&batch)?,
            });
            Ok(())
        };
        amplify::each_of_chain(
            self.recorded,
            copies as u64,
            |_, _| {},
            |ledger| {
                if outcome.is_ok() {
                    outcome = visit(ledger);
                }
            },
        );
        outcome?;
        let pairs = seconds.chunks_exact(2).enumerate().map(|(number, pair)| match number % 2 {
            0 => (pair[0], pair[1]),
            _ => (pair[1], pair[0]),
        });
        let sides = pairs.collect::<Sides>().to_rates(each as f64);
        report.add(Row::new(
            "Ingestion while snapshots are made / without",
            "ledgers/s",
            sides,
            BESIDE,
        ));
        Ok(())
    }

    /// Returns the seconds in which ledgers are stored while snapshots are made.
    fn seconds_beside(
        &self,
        service: &Running,
        ledgers: &[Vec<u8>],
    ) -> Result<f64, Box<dyn Error>> {
        let (stop, data_dir) = (AtomicBool::new(false), service.data.path());
        thread::scope(|scope| {
            let making = scope.spawn(|| self.backups(data_dir, &stop));
            let begun = || {
                let is_there =
                    self.bucket.keys("beside-").iter().any(|(key, _)| key.contains("/objects/"));
                is_there || making.is_finished()
            };
            let took = wait_until("a snapshot is being made", begun)
                .and_then(|()| service.seconds_to_ingest(ledgers));
            stop.store(true, Ordering::Relaxed);
            let made = making.join().map_err(|_| "the backups panicked")??;
            if made == 0 { Err("no snapshot was made".into()) } else { took }
        })
    }

    /// Downloads all objects as files, as a tool for buckets does. Returns the seconds until they are on disk.
    fn download(&self, to: &Path) -> Result<f64, Box<dyn Error>> {
        let keys = self.bucket.keys("kept/objects/");
        fs::create_dir(to)?;
        let (begun, next) = (Instant::now(), AtomicUsize::new(0));
        thread::scope(|scope| {
            let downloads: Vec<_> = (0..CONNECTIONS)
                .map(|_| {
                    scope.spawn(|| -> io::Result<()> {
                        let mut client = Client::connect(self.bucket.address, "none")?;
                        loop {
                            let index = next.fetch_add(1, Ordering::Relaxed);
                            let Some((key, _)) = keys.get(index) else { return Ok(()) };
                            let body = client.get(&format!("/{BUCKET}/{key}"))?;
                            let mut file = File::create(to.join(index.to_string()))?;
                            file.write_all(body)?;
                            file.sync_all()?;
                        }
                    })
                })
                .collect();
            downloads.into_iter().try_for_each(|download| {
                download.join().map_err(|_| io::Error::other("a download panicked"))?
            })
        })?;
        let seconds = begun.elapsed().as_secs_f64();
        fs::remove_dir_all(to)?;
        Ok(seconds)
    }

    /// Restores the snapshot. Returns the seconds until the command has ended.
    fn restore(&self, to: &Path) -> Result<f64, Box<dyn Error>> {
        let from = format!("s3://{BUCKET}/kept");
        let begun = Instant::now();
        let mut command = self.command();
        command.args(["restore", "--from", &from, "--config"]).arg(self.settings());
        let restored = command.arg("--data-dir").arg(to).stderr(Stdio::null()).status()?;
        let seconds = begun.elapsed().as_secs_f64();
        if !restored.success() || !to.join("raw").exists() {
            return Err(format!("the restoration ended with {restored}").into());
        }
        fs::remove_dir_all(to)?;
        Ok(seconds)
    }

    /// Restores the snapshot and downloads its objects, in turn.
    fn restored(&self, report: &mut Report) -> Result<(), Box<dyn Error>> {
        let (restored, downloaded) =
            (self.directory.path().join("restored"), self.directory.path().join("downloaded"));
        let megabytes =
            self.bucket.keys("kept/").iter().map(|(_, bytes)| bytes).sum::<u64>() as f64 / 1e6;
        report.note(format!("Snapshots: the one that is restored has {megabytes:.0} MB."));
        for (rate, name) in [(RATE, "125 MB/s"), (0, "no limit")] {
            self.bucket.limit(rate);
            let pairs: Vec<(f64, f64)> = (0..REPETITIONS)
                .map(|_| Ok((self.restore(&restored)?, self.download(&downloaded)?)))
                .collect::<Result<_, Box<dyn Error>>>()?;
            let sides = pairs.into_iter().collect::<Sides>().to_rates(megabytes);
            let name = format!("Restoring a snapshot / a plain download of its objects, {name}");
            report.add(match rate {
                0 => Row::information(name, "MB/s", sides),
                _ => Row::new(name, "MB/s", sides, RESTORED),
            });
        }
        Ok(())
    }

    /// Starts services from the snapshot, each in an empty directory.
    fn started(&self, report: &mut Report) -> Result<(), Box<dyn Error>> {
        let (from, place) = (format!("s3://{BUCKET}/kept"), self.directory.path().join("reader"));
        self.bucket.limit(RATE);
        let mut beyond = Vec::new();
        for _ in 0..REPETITIONS {
            let downloaded = self.download(&self.directory.path().join("downloaded"))?;
            let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
            let mut command = self.command();
            command.args(["serve", "--from-snapshot", &from, "--no-source", "--config"]);
            command.arg(self.settings()).arg("--data-dir").arg(&place);
            command.args(["--log-level", "error", "--listen", &address.to_string()]);
            let begun = Instant::now();
            let service = Service::started(&mut command, address)?;
            beyond.push((begun.elapsed().as_secs_f64() - downloaded).max(0.0));
            drop(service);
            fs::remove_dir_all(&place)?;
        }
        report.add(Row::absolute(
            "Start from a snapshot to health up, beyond a plain download",
            "s",
            Sample::from(beyond),
            STARTED,
        ));
        Ok(())
    }
}
