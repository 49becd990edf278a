//! Tests of routes over real HTTP: several segments in braces, every method, asynchronous handlers,
//! and failures in a format of their own.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{Barrier, Semaphore, oneshot};
use warp::http::StatusCode;

use super::super::answer::Answer;
use super::super::call::{AsyncCall, OwnerCall, ReadCall};
use super::super::identity::Access;
use super::super::route::{Route, Work};
use super::super::{ApiSettings, Tunables};
use super::*;
use orrery_auth::{Area, IssueRequest, Right, Scope, Tokens};
use orrery_executables::Interfaces;
use orrery_ledger::domain::Network;
use orrery_net::http::{Timeouts, local_client};
use orrery_net::reqwest;
use orrery_programs::{ProgramDeps, Programs, storage};
use orrery_rpc::{self as rpc, Rpc};
use orrery_settings::{self as settings, Queries};
use orrery_store::Store;
use orrery_tables::{self as tables, Tables, TablesSettings};
use orrery_webhooks::manage::{WebhookDeps, Webhooks};
use orrery_webhooks::target::{self, Policy, Sender, system_lookup};

/// Number of calls that wait for each other: many more than the server has threads.
const TOGETHER: usize = 24;
const LARGEST: usize = 1000;
const STOP_TIMEOUT: Duration = Duration::from_millis(100);
const READ: Right = Right { area: Area::Webhooks, scope: Scope::Read };
const WRITE: Right = Right { area: Area::Webhooks, scope: Scope::Webhooks };
const PART: &str = "/test/{owner}/parts/{part}";

static ROUTES: [Route; 8] = [
    Route::new("GET", PART, Work::own_read(READ, echo)).with_parameters(&["x"]),
    Route::new("POST", PART, Work::change(WRITE, echo)).with_parameters(&["x"]).with_body(LARGEST),
    Route::new("PUT", PART, Work::change(WRITE, echo)).with_parameters(&["x"]).with_body(LARGEST),
    Route::new("PATCH", PART, Work::change(WRITE, echo)).with_parameters(&["x"]).with_body(LARGEST),
    Route::new("DELETE", PART, Work::change(WRITE, echo)).with_parameters(&["x"]),
    Route::new("GET", "/test/together", Work::asynchronous(Access::Public, together)),
    Route::new("GET", "/test/long", Work::read(Access::Public, long)),
    Route {
        failure: rpc_failure,
        ..Route::new("POST", "/rpc", Work::asynchronous(Access::Public, rpc)).with_body(LARGEST)
    },
];

fn answer(value: &Value) -> Answer {
    Answer::json(value.to_string().into_bytes())
}

fn echo(_: &Deps, call: &OwnerCall<'_>) -> Result<Answer, ApiError> {
    let (owner, part) = (call.path.get("owner"), call.path.get("part"));
    let body = String::from_utf8_lossy(call.body.bytes);
    Ok(answer(&json!({ "owner": owner, "part": part, "x": call.query.get("x"), "body": body })))
}

fn together<'a>(_: &'a Deps, _: AsyncCall<'a>) -> BoxFuture<'a, Result<Answer, ApiError>> {
    static ALL: LazyLock<Barrier> = LazyLock::new(|| Barrier::new(TOGETHER));
    async {
        ALL.wait().await;
        Ok(answer(&json!("together")))
    }
    .boxed()
}

/// One permit for each call of [`long`] that has begun.
static BEGUN: Semaphore = Semaphore::const_new(0);
/// Whether a call of [`long`] has ended.
static HAS_ENDED: AtomicBool = AtomicBool::new(false);

/// Takes longer than requests may take at a stop, and less than the threads may.
fn long(_: &Deps, _: &ReadCall<'_>) -> Result<Answer, ApiError> {
    BEGUN.add_permits(1);
    std::thread::sleep(STOP_TIMEOUT * 5);
    HAS_ENDED.store(true, Ordering::Release);
    Ok(answer(&json!("long")))
}

fn rpc_error(id: &Value, code: i32, message: &str) -> Answer {
    answer(&json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } }))
}

/// Failures outside of every method: always a JSON-RPC object.
fn rpc_failure(error: &ApiError) -> Answer {
    let status = error.status_and_code().0;
    let status = if status.is_server_error() { StatusCode::OK } else { status };
    Answer { status, ..rpc_error(&Value::Null, -32603, &error.to_string()) }
}

/// Methods with their own errors and responses, behind one path.
fn rpc<'a>(deps: &'a Deps, call: AsyncCall<'a>) -> BoxFuture<'a, Result<Answer, ApiError>> {
    async move {
        let Ok(request) = serde_json::from_slice::<Value>(call.body.bytes) else {
            return Ok(rpc_error(&Value::Null, -32700, "it is not JSON"));
        };
        let result = match request["method"].as_str() {
            Some("getNetwork") => json!({ "passphrase": deps.network.passphrase() }),
            Some("waits") => {
                tokio::task::yield_now().await;
                json!("waited")
            }
            Some("notify") => {
                let none = Answer::json(Vec::new());
                return Ok(Answer { status: StatusCode::NO_CONTENT, ..none });
            }
            Some("fails") => return Err(ApiError::NotReady("as it is asked to".to_owned())),
            Some("panics") => panic!("as it is asked to"),
            _ => return Ok(rpc_error(&request["id"], -32601, "method not found")),
        };
        Ok(answer(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result })))
    }
    .boxed()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Programs of a store in `directory`, none of which is registered.
fn no_programs(store: &Arc<Store>, directory: &Path) -> Programs {
    // No child process is started.
    let executable = PathBuf::new;
    let tables = Tables::open(TablesSettings {
        directory: directory.join("tables"),
        worker: executable(),
        queries: Queries { allow_unconfined: true, ..Queries::default() },
        chain: None,
        tunables: tables::Tunables::default(),
    });
    let programs = Programs::start(ProgramDeps {
        store: Arc::clone(store),
        tables: tables.unwrap(),
        interfaces: Interfaces::patient(Arc::clone(store), None, Duration::from_millis(1)),
        health: Arc::default(),
        settings: settings::Programs::default(),
        index: settings::Index::default(),
        upstream: None,
        clock: Arc::new(now),
        compiler: executable(),
        code_key: [7; 32],
    });
    programs.unwrap()
}

/// A server with these routes.
struct Serving {
    address: SocketAddr,
    token: String,
    reads_only: String,
    programs: Arc<Programs>,
    client: reqwest::Client,
    stop: oneshot::Sender<()>,
    served: tokio::task::JoinHandle<Result<(), ApiError>>,
    _directory: TempDir,
}

impl Serving {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let network = Network::from_name_or_passphrase("testnet");
        let store =
            Store::open_with(directory.path(), Some(&network), storage::extensions()).unwrap();
        let store = Arc::new(store);
        let tokens = Tokens::open(&directory.path().join("secrets"), &network).unwrap();
        let token = tokens.issue(&IssueRequest::for_owner("ana")).unwrap().token;
        let narrow = IssueRequest { scopes: vec![Scope::Read], ..IssueRequest::for_owner("ana") };
        let reads_only = tokens.issue(&narrow).unwrap().token;
        let programs = Arc::new(no_programs(&store, directory.path()));
        let webhooks = Webhooks::new(WebhookDeps {
            store: Arc::clone(&store),
            registry: Arc::default(),
            sender: Sender::new(Policy::default(), system_lookup(), target::Timeouts::default()),
            clock: Arc::new(now),
        });
        let rpc = Rpc::new(Arc::clone(&store), rpc::Settings::default(), Arc::new(now));
        let interfaces = Interfaces::patient(Arc::clone(&store), None, Duration::from_millis(1));
        let deps = Deps {
            store,
            interfaces,
            tokens: Arc::new(tokens),
            health: Arc::default(),
            attestation: Arc::default(),
            network,
            settings: ApiSettings {
                limits: settings::Limits { requests_per_second: 0, ..Default::default() },
                tunables: Tunables {
                    readers: 1,
                    stop_timeout: STOP_TIMEOUT,
                    ..Tunables::default()
                },
                ..ApiSettings::default()
            },
            clock: Arc::new(now),
            programs: Arc::clone(&programs),
            rpc: Arc::new(rpc),
            friendbot: None,
            example_token: None,
            exported: None,
            webhooks: Arc::new(webhooks),
            contract_sizes: watch::channel(None).1,
            metrics: Arc::new(|_| String::new()),
            on_request: Arc::new(|_| {}),
        };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let router = Router::new(&[&ROUTES]).unwrap();
        let served = tokio::spawn(serve_routes(deps, router, listener, async {
            let _ = stopped.await;
        }));
        let client = local_client(Timeouts::default()).unwrap();
        Self { address, token, reads_only, programs, client, stop, served, _directory: directory }
    }

    async fn ask(
        &self,
        method: Method,
        target: &str,
        token: Option<&str>,
        body: &str,
    ) -> (u16, HeaderMap, String) {
        let url = format!("http://{}{target}", self.address);
        let mut request = self.client.request(method, url).body(body.to_owned());
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        (status, headers, response.text().await.unwrap())
    }

    async fn rpc(&self, body: &str) -> (u16, Value) {
        let (status, headers, text) = self.ask(Method::POST, "/rpc", None, body).await;
        assert_eq!(headers["access-control-allow-origin"], "*");
        (status, serde_json::from_str(&text).unwrap_or_default())
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.served.await.unwrap().unwrap();
        self.programs.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_method_of_a_resource_requires_its_own_right() {
    let serving = Serving::start().await;
    let path = "/test/ana/parts/7%2F8?x=1";
    let token = Some(serving.token.as_str());
    for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        let takes_body = method != Method::GET && method != Method::DELETE;
        let body = if takes_body { "sent" } else { "" };
        let (status, _, text) = serving.ask(method.clone(), path, token, body).await;
        assert_eq!(status, 200, "{method}: {text}");
        let expected = json!({ "owner": "ana", "part": "7%2F8", "x": "1", "body": body });
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected, "{method}");
        let narrow = serving.ask(method.clone(), path, Some(&serving.reads_only), body).await.0;
        assert_eq!(narrow, if method == Method::GET { 200 } else { 403 }, "{method}");
        assert_eq!(serving.ask(method.clone(), path, None, body).await.0, 401, "{method}");
        if takes_body {
            let long = "x".repeat(LARGEST + 1);
            assert_eq!(serving.ask(method, path, token, &long).await.0, 413);
        }
    }
    let allowed = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
    for (method, status) in [(Method::OPTIONS, 204), (Method::TRACE, 405)] {
        let (answered, headers, _) = serving.ask(method, path, token, "").await;
        assert_eq!((answered, headers["allow"].to_str().unwrap()), (status, allowed));
    }
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_handlers_occupy_no_thread() {
    let serving = Serving::start().await;
    let calls = (0..TOGETHER).map(|_| serving.ask(Method::GET, "/test/together", None, ""));
    for (status, _, text) in join_all(calls).await {
        assert_eq!((status, &*text), (200, "\"together\""));
    }
    serving.stop().await;
}

/// The caller of `serve` closes the store next, so no handler may still read it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_waits_for_handlers_that_were_cut_off() {
    let serving = Serving::start().await;
    let call = serving.client.get(format!("http://{}/test/long", serving.address)).send();
    tokio::spawn(call);
    BEGUN.acquire().await.unwrap().forget();
    serving.stop().await;
    assert!(HAS_ENDED.load(Ordering::Acquire));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_route_formats_its_own_errors() {
    let serving = Serving::start().await;
    let call = |method: &str| json!({ "jsonrpc": "2.0", "id": 7, "method": method }).to_string();
    let (status, answer) = serving.rpc(&call("getNetwork")).await;
    assert_eq!((status, &answer["id"]), (200, &json!(7)));
    assert!(answer["result"]["passphrase"].as_str().unwrap().contains("Test SDF"));
    assert_eq!(serving.rpc(&call("waits")).await.1["result"], "waited");
    assert_eq!(serving.rpc(&call("notify")).await, (204, Value::Null));
    for (body, status, code) in [
        (call("other"), 200, -32601),
        ("{".to_owned(), 200, -32700),
        (call("fails"), 200, -32603),
        (call("panics"), 200, -32603),
        ("x".repeat(LARGEST + 1), 413, -32603),
    ] {
        let (answered, answer) = serving.rpc(&body).await;
        assert_eq!((answered, &answer["error"]["code"]), (status, &json!(code)), "{answer}");
        assert_eq!(answer["jsonrpc"], "2.0");
    }
    let (status, headers, text) = serving.ask(Method::GET, "/rpc", None, "").await;
    assert_eq!((status, headers["allow"].to_str().unwrap()), (405, "POST, OPTIONS"));
    assert!(text.contains("-32603"), "{text}");
    // An unknown path gets the REST format, as elsewhere.
    let (status, _, text) = serving.ask(Method::POST, "/rpc/x", None, "").await;
    let body: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &body["code"]), (404, &json!("not_found")));
    serving.stop().await;
}
