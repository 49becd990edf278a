//! A ledger lake on a plain HTTP server: one file per ledger of a chain, which appears when the
//! network closes the ledger. A test can replace any response.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orrery_net::http::Timeouts;
use orrery_source::lake::{LakeSettings, LakeSource};

use super::chain::Chain;
use super::provider::{Provider, Reply, Request};

/// Files in one directory of the lake.
const PER_PARTITION: u32 = 8;

/// A request for a file of the lake.
pub struct FileRequest {
    /// `GET` or `HEAD`.
    pub method: String,
    /// The key, without a leading slash.
    pub key: String,
    /// The ledger that the key names, if it names one.
    pub ledger: Option<u32>,
}

/// Produces a response from the request and the honest response.
type Fault = dyn Fn(&FileRequest, Reply) -> Reply + Send + Sync;

pub struct LakeServer {
    provider: Provider,
    state: Arc<Mutex<State>>,
}

struct State {
    chain: &'static Chain,
    latest: u32,
    passphrase: String,
    /// Extension after `.xdr.` in file names.
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
            move |request| answer(&state, request)
        });
        Self { provider, state }
    }

    /// Settings to follow the lake with short waits.
    pub fn settings(&self) -> LakeSettings {
        let mut settings = LakeSettings::at(self.provider.url("/lakes/it"));
        settings.bucket.timeouts =
            Timeouts { idle: Duration::from_millis(300), ..Timeouts::default() };
        settings
    }

    /// A source that follows the lake, starting near ledger `near`.
    pub fn source(&self, near: u32) -> LakeSource {
        let network = self.state.lock().unwrap().chain.network.clone();
        LakeSource::connect(&self.settings(), &network, Some(near.into())).unwrap()
    }

    /// Lets `fault` produce all further responses from the honest ones.
    pub fn set_fault(&self, fault: impl Fn(&FileRequest, Reply) -> Reply + Send + Sync + 'static) {
        self.state.lock().unwrap().fault = Some(Arc::new(fault));
    }

    /// Makes all further responses honest.
    pub fn clear_fault(&self) {
        self.state.lock().unwrap().fault = None;
    }

    /// Makes ledgers up to this one available.
    pub fn close_up_to(&self, latest: u32) {
        self.state.lock().unwrap().latest = latest;
    }

    /// Makes the manifest name another network.
    pub fn set_passphrase(&self, passphrase: &str) {
        self.state.lock().unwrap().passphrase = passphrase.to_owned();
    }

    /// Changes the extension of the files and removes the manifest, as in old lakes.
    pub fn use_old_layout(&self, extension: &'static str) {
        let mut state = self.state.lock().unwrap();
        (state.extension, state.has_manifest) = (extension, false);
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.provider.requests()
    }
}

/// Key of the file with a ledger, an implementation of SEP-54 that is independent of the source's.
pub fn key(ledger: u32, extension: &str) -> String {
    let first = ledger / PER_PARTITION * PER_PARTITION;
    let last = first + PER_PARTITION - 1;
    let (directory, file) = (u32::MAX - first, u32::MAX - ledger);
    format!("{directory:08X}--{first}-{last}/{file:08X}--{ledger}.xdr.{extension}")
}

/// Manifest of such a lake.
pub fn manifest(passphrase: &str) -> String {
    format!(
        r#"{{"networkPassphrase":"{passphrase}","version":"1.0","compression":"zstd","ledgersPerBatch":1,"batchesPerPartition":{PER_PARTITION}}}"#
    )
}

/// A file with one ledger, with the checksum that common writers add.
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

fn answer(state: &Mutex<State>, request: &Request) -> Reply {
    let key = request.target.strip_prefix("/lakes/it/").unwrap_or_default().to_owned();
    let (asked, honest, fault) = {
        let state = state.lock().unwrap();
        let ledger = ledger_of(&key);
        let asked = FileRequest { method: request.method.clone(), key, ledger };
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
    fn honest(&self, asked: &FileRequest) -> Reply {
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
