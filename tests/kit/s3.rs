//! An S3-compatible server (s3s on a directory) with one bucket, behind a proxy that forwards
//! requests, or responds as a script says.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use orrery_net::buckets::{AccessKey, BucketSettings, S3Credentials};
use orrery_net::http::Timeouts;
use reqwest::blocking::Client;
use reqwest::redirect::Policy;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s::{S3Result, s3_error};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::chain::Chain;
use super::lake_server::{file, key, manifest};
use super::provider::{Delivery, Provider, Reply, Request};

pub const BUCKET: &str = "ledgers";
/// Id of the only access key that the server accepts.
pub const KEY_ID: &str = "AKIDOFTHETESTS";
/// Secret of the access key.
pub const SECRET: &str = "the-secret-that-nobody-may-see";

/// Access rights to the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// Anonymous clients may do everything.
    Open,
    /// Clients with the access key may do everything, others nothing.
    Closed,
    /// Anonymous clients may read objects; all other operations are denied.
    NoListing,
}

/// Produces a response from the request and a function that returns the honest response.
type Fault = dyn Fn(&Request, &dyn Fn() -> Reply) -> Reply + Send + Sync;

/// A running server. Stops when dropped.
pub struct S3Server {
    root: TempDir,
    provider: Provider,
    fault: Arc<Mutex<Option<Arc<Fault>>>>,
    _runtime: Runtime,
}

impl S3Server {
    /// Starts a server with an empty bucket.
    pub fn start(rights: Rights) -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join(BUCKET)).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let behind = serve(&runtime, root.path().to_owned(), rights);
        let fault: Arc<Mutex<Option<Arc<Fault>>>> = Arc::default();
        // As in `client`: the library fails without a crypto provider, and no code of the project
        // has installed one yet.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().redirect(Policy::none()).no_gzip().build().unwrap();
        let provider = Provider::start({
            let fault = Arc::clone(&fault);
            move |request| {
                let honest = || pass_on(&client, behind, request);
                let fault = fault.lock().unwrap().clone();
                match fault {
                    Some(fault) => fault(request, &honest),
                    None => honest(),
                }
            }
        });
        Self { root, provider, fault, _runtime: runtime }
    }

    /// Settings for the lake under a prefix, without credentials.
    pub fn anonymous(&self, prefix: &str) -> BucketSettings {
        let mut settings = BucketSettings::at(format!("s3://{BUCKET}/{prefix}"));
        settings.endpoint = Some(self.provider.url("/"));
        settings.credentials = S3Credentials::Anonymous;
        settings.timeouts = Timeouts { idle: Duration::from_millis(500), ..Timeouts::default() };
        settings
    }

    /// As [`Self::anonymous`], with a `gs://` address: Google's buckets speak the protocol of S3.
    pub fn google(&self, prefix: &str) -> BucketSettings {
        BucketSettings { address: format!("gs://{BUCKET}/{prefix}"), ..self.anonymous(prefix) }
    }

    /// As [`Self::anonymous`], with the access key and this secret.
    pub fn signed(&self, prefix: &str, secret: &str) -> BucketSettings {
        let mut settings = self.anonymous(prefix);
        settings.credentials = S3Credentials::Key(AccessKey {
            id: KEY_ID.to_owned(),
            secret: secret.to_owned(),
            session_token: None,
        });
        settings
    }

    /// Lets `fault` produce all further responses; it may request the honest ones.
    pub fn set_fault(
        &self,
        fault: impl Fn(&Request, &dyn Fn() -> Reply) -> Reply + Send + Sync + 'static,
    ) {
        *self.fault.lock().unwrap() = Some(Arc::new(fault));
    }

    /// Makes all further responses honest.
    pub fn clear_fault(&self) {
        *self.fault.lock().unwrap() = None;
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.provider.requests()
    }

    /// URL of the server.
    pub fn endpoint(&self) -> String {
        self.provider.url("/")
    }

    /// Directory with the objects under a prefix.
    pub fn directory(&self, prefix: &str) -> PathBuf {
        self.root.path().join(BUCKET).join(prefix)
    }

    /// Writes an object atomically, as an upload does.
    pub fn put(&self, key: &str, bytes: &[u8]) {
        let path = self.root.path().join(BUCKET).join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let partly = self.root.path().join("partly");
        fs::write(&partly, bytes).unwrap();
        fs::rename(partly, path).unwrap();
    }
}

/// Serves a directory of buckets on a free port.
fn serve(runtime: &Runtime, root: PathBuf, rights: Rights) -> SocketAddr {
    let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(root).unwrap());
    if rights != Rights::Open {
        builder.set_auth(SimpleAuth::from_single(KEY_ID, SECRET));
    }
    if rights == Rights::NoListing {
        builder.set_access(NoListing);
    }
    let service = builder.build();
    let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0))).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let service = service.clone();
            tokio::spawn(async move {
                let http = hyper::server::conn::http1::Builder::new();
                // The client may close the connection at any time.
                let _ = http.serve_connection(TokioIo::new(socket), service).await;
            });
        }
    });
    address
}

struct NoListing;

#[async_trait::async_trait]
impl S3Access for NoListing {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        match context.s3_op().name() {
            "GetObject" | "HeadObject" => Ok(()),
            other => Err(s3_error!(AccessDenied, "{other} is not allowed")),
        }
    }
}

/// Forwards a request to the server behind the proxy; the `host` header stays the one that was
/// signed.
fn pass_on(client: &Client, behind: SocketAddr, request: &Request) -> Reply {
    // The server checks the condition of a write before it writes, not atomically, so writes are
    // forwarded one at a time.
    static WRITING: Mutex<()> = Mutex::new(());
    let _one = (request.method == "PUT").then(|| WRITING.lock().unwrap());
    let method = request.method.parse().unwrap();
    let mut forwarded = client.request(method, format!("http://{behind}{}", request.target));
    for (name, value) in &request.headers {
        forwarded = forwarded.header(name, value);
    }
    if !request.body.is_empty() {
        forwarded = forwarded.body(request.body.clone());
    }
    let response = forwarded.send().unwrap();
    let mut reply = Reply { headers: Vec::new(), ..Reply::status(response.status().as_u16()) };
    let headers = response.headers().clone();
    let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap());
    for name in PASSED_ON {
        if let Some(value) = header(name) {
            reply = reply.header(name, value);
        }
    }
    reply.body = response.bytes().unwrap().to_vec();
    // The answer to such a request has the length of an object, and no body.
    let length = header("content-length").filter(|_| request.method == "HEAD");
    match length.map(|length| length.parse().unwrap()) {
        Some(length) => reply.delivered(Delivery::Announced(length)),
        None => reply,
    }
}

/// Headers of an answer that are passed on.
const PASSED_ON: [&str; 6] = [
    "accept-ranges",
    "content-range",
    "content-type",
    "etag",
    "last-modified",
    "x-amz-bucket-region",
];

impl S3Server {
    /// Writes the manifest of a lake below `prefix`.
    pub fn put_manifest(&self, prefix: &str, chain: &Chain) {
        self.put(
            &format!("{prefix}/.config.json"),
            manifest(chain.network.passphrase()).as_bytes(),
        );
    }

    /// Writes the files of ledgers `first` to `last` below `prefix`, in order.
    pub fn close_ledgers(&self, prefix: &str, chain: &Chain, first: u32, last: u32) {
        for ledger in first..=last {
            let bytes = file(ledger, &chain.ledger(ledger).xdr);
            self.put(&format!("{prefix}/{}", key(ledger, "zst")), &bytes);
        }
    }
}
