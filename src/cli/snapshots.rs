//! What the verbs share that write snapshots and read them: the place, the passphrase, and how a data directory is
//! made of one.

use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use orrery::auth::is_public_key;
use orrery::backup::snapshot::{Expected, Passphrase, Place, Snapshot, Snapshots};
use orrery::backup::{BackupError, Progress};
use orrery::config::Config;
use orrery::net::buckets::{BucketSettings, Patience};
use orrery::net::http::Timeouts;
use orrery::service;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use super::Failure;

/// Idle timeout of requests to a bucket: a whole object must be sent, and its response begin, within this time.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum length of a file with a passphrase in bytes.
const LONGEST_PASSPHRASE: u64 = 64 << 10;

/// How a passphrase is given.
#[derive(Debug, Clone, Args)]
pub struct PassphraseFlag {
    /// File whose first line is the passphrase of encrypted snapshots; without it the terminal is asked
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

/// How snapshots are read.
#[derive(Debug, Clone, Args)]
pub struct ReadFlags {
    /// The key of the snapshots' writer, which `orrery backup --to` prints. Snapshots with another signature are
    /// refused; without it, the checksums detect accidents alone
    #[arg(long, value_name = "KEY", value_parser = public_key)]
    pub trusted: Option<String>,
    #[command(flatten)]
    pub passphrase: PassphraseFlag,
}

fn public_key(text: &str) -> Result<String, String> {
    let key = text.to_lowercase();
    if is_public_key(&key) {
        Ok(key)
    } else {
        Err("give a key of 64 hexadecimal digits".to_owned())
    }
}

/// Opens the place with this address.
pub fn place(address: &str, config: &Config) -> Result<Place, Failure> {
    let scheme = address.split_once("://").map(|(scheme, _)| scheme.to_lowercase());
    let backup = &config.backup;
    let (region, key) = match scheme.as_deref() {
        Some("s3") => {
            let secret = backup.s3_secret_access_key.as_option();
            (&*backup.s3_region, secret.map(|secret| (&*backup.s3_access_key_id, secret)))
        }
        _ => ("", None),
    };
    let endpoint = if scheme.is_some() { &*backup.endpoint } else { "" };
    let settings = BucketSettings {
        patience: Patience::LONG,
        timeouts: Timeouts { idle: UPLOAD_TIMEOUT, ..Timeouts::default() },
        ..BucketSettings::configured(address, region, endpoint, key)
    };
    Ok(Place::of(&settings)?)
}

impl PassphraseFlag {
    /// Whether a file with the passphrase is named.
    fn is_given(&self) -> bool {
        self.passphrase_file.is_some()
    }

    /// Reads the passphrase from the file, or from the terminal; one that begins to encrypt is asked for twice.
    pub fn read(&self, is_new: bool) -> Result<Passphrase, BackupError> {
        let text = match &self.passphrase_file {
            Some(path) => first_line(path)?,
            None => typed(is_new)?,
        };
        Ok(Passphrase::given(text))
    }
}

fn first_line(path: &Path) -> Result<String, BackupError> {
    let unreadable = |error: io::Error| {
        let path = path.display();
        BackupError::Other(format!("cannot read the passphrase in {path}: {error}"))
    };
    if fs::metadata(path).map_err(unreadable)?.len() > LONGEST_PASSPHRASE {
        return Err(unreadable(io::Error::other("it is longer than 64 KiB")));
    }
    let text = fs::read_to_string(path).map_err(unreadable)?;
    let line = text.lines().next().unwrap_or_default();
    if line.is_empty() {
        return Err(unreadable(io::Error::other("its first line is empty")));
    }
    Ok(line.to_owned())
}

/// Asks on the terminal.
fn typed(is_new: bool) -> Result<String, BackupError> {
    let failed = |error: io::Error| {
        BackupError::Other(format!("cannot read the passphrase from the terminal: {error}"))
    };
    if !io::stdin().is_terminal() {
        return Err(BackupError::Other(
            "the snapshots are encrypted: give the file with their passphrase, --passphrase-file FILE"
                .to_owned(),
        ));
    }
    let first = line_without_echo("passphrase: ").map_err(failed)?;
    if is_new && line_without_echo("the same again: ").map_err(failed)? != first {
        return Err(BackupError::Other(
            "the two passphrases differ: run the command again".to_owned(),
        ));
    }
    Ok(first)
}

/// Shows again what is typed when it is dropped.
struct Echo(Termios);

impl Drop for Echo {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

fn line_without_echo(prompt: &str) -> io::Result<String> {
    let shown = Echo(tcgetattr(io::stdin())?);
    let mut hidden = shown.0.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(io::stdin(), OptionalActions::Now, &hidden)?;
    let mut output = io::stderr();
    write!(output, "{prompt}")?;
    output.flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    writeln!(output)?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

impl ReadFlags {
    /// Opens the snapshots at an address, and checks whose and of which network they are.
    pub fn open(&self, address: &str, config: &Config) -> Result<Snapshots, Failure> {
        let mut ask = |is_new: bool| self.passphrase.read(is_new);
        let network = config.network();
        let expected = Expected {
            writer: self.trusted.as_deref(),
            network: network.as_ref(),
            encrypted: self.passphrase.is_given(),
        };
        Ok(Snapshots::open(place(address, config)?, &expected, &mut ask)?)
    }

    /// Says what follows from how the snapshot was read.
    pub fn words(&self, snapshots: &Snapshots, snapshot: &Snapshot) -> Vec<String> {
        let mut words = vec![format!(
            "this data directory is a reader of {}: webhooks, export, sinks and status messages are off until \
             `orrery promote`",
            snapshots.place()
        )];
        if !snapshot.description.secrets {
            words.push(
                "the snapshot has no keys: the tokens that its writer has issued are void here, but for those with \
                 --portable, and the secrets of its webhook subscriptions cannot be read, so that these deliver \
                 nothing until they are made again; issue tokens with `orrery token issue`, or make snapshots \
                 with --encrypt"
                    .to_owned(),
            );
        }
        if self.trusted.is_none() {
            words.push(format!(
                "the checksums of the snapshot detect accidents, and not whoever can write there, who may have \
                 changed it, and given it a key whose tokens are accepted here: --trusted {} checks its \
                 signature, if that is the key that its writer has printed",
                snapshots.writer()
            ));
        }
        words
    }
}

/// Restores a snapshot into the data directory of `config`.
pub fn restore(
    snapshots: &Snapshots,
    snapshot: &Snapshot,
    config: &Config,
    progress: Progress<'_>,
) -> Result<(), Failure> {
    let complete = |draft: &Path| {
        let of_draft = Config { data_dir: draft.to_owned(), ..config.clone() };
        service::check_restored(&of_draft).map_err(|error| {
            BackupError::Other(format!(
                "the data directory in snapshot {} cannot be used: {error}; use another snapshot",
                snapshot.name
            ))
        })
    };
    let restored = snapshots.restore(snapshot, &config.data_dir, &complete, progress);
    restored.map_err(|error| {
        let kept = matches!(error, BackupError::Io(_) | BackupError::Other(_))
            && draft_of(&config.data_dir).exists();
        let failure = Failure::from(error);
        match kept {
            true => failure.and(format_args!(
                "what was fetched is kept in {} for the next attempt, and can be removed",
                draft_of(&config.data_dir).display()
            )),
            false => failure,
        }
    })
}

fn draft_of(data_dir: &Path) -> PathBuf {
    let path: PathBuf = data_dir.components().collect();
    let mut name = path.into_os_string();
    name.push(".restoring");
    name.into()
}
