//! A ledger lake behind a plain HTTP server: the ledgers of a chain as files, one for each, which appear
//! as the network closes them. A script may put something else in the place of any answer.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orrery::source::http::Timeouts;
use orrery::source::lake::{LakeSettings, LakeSource};

use super::chain::Chain;
use super::provider::{Provider, Question, Reply};

/// Files in one directory of the lake.
const PER_PARTITION: u32 = 8;

/// What is asked for.
pub struct Asked {
    /// `GET` or `HEAD`.
    pub method: String,
    /// The key, without a slash before it.
    pub key: String,
    /// The ledger that lies under the key.
    pub ledger: Option<u32>,
}

/// What goes over the wire instead of an honest answer.
type Fault = dyn Fn(&Asked, Reply) -> Reply + Send + Sync;

/// A running server.
pub struct LakeServer {
    provider: Provider,
    state: Arc<Mutex<State>>,
}

struct State {
    chain: &'static Chain,
    latest: u32,
    passphrase: String,
    /// What follows `.xdr.` in the names.
    extension: &'static str,
    has_manifest: bool,
    fault: Option<Arc<Fault>>,
}

impl LakeServer {
    /// Serves a chain up to `latest`.
    pub fn start(chain: &'static Chain, latest: u32) -> Self {
        let state = Arc::new(Mutex::new(State {
            chain,
            latest,
            passphrase: chain.network.passphrase().to_owned(),
            extension: "zst",
            has_manifest: true,
            fault: None,
        }));
        let provider = Provider::start({
            let state = Arc::clone(&state);
            move |question| answer(&state, question)
        });
        Self { provider, state }
    }

    /// Settings to follow it with short waits.
    pub fn settings(&self) -> LakeSettings {
        let mut settings = LakeSettings::at(self.provider.url("/lakes/it"));
        settings.timeouts = Timeouts { idle: Duration::from_millis(300), ..Timeouts::default() };
        settings
    }

    /// A source that follows it from about the ledger `near`.
    pub fn source(&self, near: u32) -> LakeSource {
        let network = self.state.lock().unwrap().chain.network.clone();
        LakeSource::connect(&self.settings(), &network, Some(near.into())).unwrap()
    }

    /// From now on, `fault` makes the answers; it is shown the honest ones.
    pub fn misbehaves(&self, fault: impl Fn(&Asked, Reply) -> Reply + Send + Sync + 'static) {
        self.state.lock().unwrap().fault = Some(Arc::new(fault));
    }

    /// From now on, all answers are honest.
    pub fn heals(&self) {
        self.state.lock().unwrap().fault = None;
    }

    /// The network closes ledgers up to this one.
    pub fn closes(&self, latest: u32) {
        self.state.lock().unwrap().latest = latest;
    }

    /// The manifest names another network.
    pub fn says_passphrase(&self, passphrase: &str) {
        self.state.lock().unwrap().passphrase = passphrase.to_owned();
    }

    /// Files are named with another extension, and there is no manifest.
    pub fn is_old(&self, extension: &'static str) {
        let mut state = self.state.lock().unwrap();
        (state.extension, state.has_manifest) = (extension, false);
    }

    /// Everything that was asked so far.
    pub fn questions(&self) -> Vec<Question> {
        self.provider.questions()
    }
}

/// Key of the file with a ledger, written down here once more (SEP-54).
pub fn key(ledger: u32, extension: &str) -> String {
    let first = ledger / PER_PARTITION * PER_PARTITION;
    let last = first + PER_PARTITION - 1;
    let (directory, file) = (u32::MAX - first, u32::MAX - ledger);
    format!("{directory:08X}--{first}-{last}/{file:08X}--{ledger}.xdr.{extension}")
}

/// What the manifest of such a lake says.
pub fn manifest(passphrase: &str) -> String {
    format!(
        r#"{{"networkPassphrase":"{passphrase}","version":"1.0","compression":"zstd","ledgersPerBatch":1,"batchesPerPartition":{PER_PARTITION}}}"#
    )
}

/// A file with one ledger, with the checksum that usual writers add.
pub fn file(sequence: u32, xdr: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    for word in [sequence, sequence, 1] {
        plain.extend(word.to_be_bytes());
    }
    plain.extend(xdr);
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(&plain).unwrap();
    encoder.finish().unwrap()
}

fn answer(state: &Mutex<State>, question: &Question) -> Reply {
    let key = question.target.strip_prefix("/lakes/it/").unwrap_or_default().to_owned();
    let (asked, honest, fault) = {
        let state = state.lock().unwrap();
        let ledger = ledger_of(&key);
        let asked = Asked { method: question.method.clone(), key, ledger };
        let honest = state.honest(&asked);
        (asked, honest, state.fault.clone())
    };
    match fault {
        Some(fault) => fault(&asked, honest),
        None => honest,
    }
}

fn ledger_of(key: &str) -> Option<u32> {
    let (stem, _) = key.split_once(".xdr.")?;
    stem.rsplit_once("--")?.1.parse().ok()
}

impl State {
    fn honest(&self, asked: &Asked) -> Reply {
        let object = |body| Reply::new(200, "application/octet-stream", body);
        if asked.key == ".config.json" && self.has_manifest {
            return object(manifest(&self.passphrase).into_bytes());
        }
        match asked.ledger {
            Some(ledger)
                if (self.chain.first()..=self.latest).contains(&ledger)
                    && asked.key == key(ledger, self.extension) =>
            {
                object(file(ledger, &self.chain.ledger(ledger).xdr))
            }
            _ => Reply::status(404),
        }
    }
}
