//! An archive behind a web server.

use std::collections::BTreeMap;
use std::time::Duration;

use orrery_checkpoint::Archive;
use orrery_testkit::provider::{Provider, Reply, Request};
use tokio::runtime::Runtime;

/// A server of an archive, and a runtime for requests to it.
pub struct ArchiveServer {
    pub provider: Provider,
    runtime: Runtime,
}

impl ArchiveServer {
    /// Serves these files, each answer as `fault` changes it.
    pub fn start(
        files: BTreeMap<String, Vec<u8>>,
        fault: impl Fn(&Request, Reply) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let provider = Provider::start(move |request| {
            let found = files.get(request.target.trim_start_matches("/archive/"));
            let honest = match found {
                Some(content) => ranged(request, content),
                None => Reply::status(404),
            };
            fault(request, honest)
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        Self { provider, runtime }
    }

    pub fn archive(&self) -> Archive {
        let timeouts = orrery_net::http::Timeouts {
            idle: Duration::from_secs(2),
            ..orrery_net::http::Timeouts::default()
        };
        let address = self.provider.url("/archive/");
        Archive::open(&address, self.runtime.handle(), timeouts).unwrap()
    }

    /// Paths of all files that were requested with this method, below the archive.
    pub fn requested(&self, method: &str) -> Vec<String> {
        let requests = self.provider.requests().into_iter();
        let requests = requests.filter(|request| request.method == method);
        requests.map(|request| request.target.replace("/archive/", "")).collect()
    }
}

/// A whole file, or the part from a byte on.
fn ranged(request: &Request, content: &[u8]) -> Reply {
    let range = request.header("range").and_then(|range| range.strip_prefix("bytes="));
    let from = range.map(|range| range.trim_end_matches('-').parse::<usize>().unwrap());
    let kind = "application/octet-stream";
    match from {
        None => Reply::new(200, kind, content),
        Some(from) => {
            let range = format!("bytes {from}-{}/{}", content.len() - 1, content.len());
            Reply::new(206, kind, &content[from..]).header("content-range", range)
        }
    }
}
