//! An upstream RPC server: responds about a chain of ledgers as stellar-rpc does, errors included.
//! A test can replace any response.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orrery_source::rpc::RpcSettings;
use serde_json::{Value, json};

use super::chain::Chain;
use super::following::timing;
use super::provider::{Provider, Reply, Request};

/// A JSON-RPC call as it was received.
pub struct Call {
    pub method: String,
    pub params: Value,
    pub id: Value,
}

impl Call {
    pub fn is(&self, method: &str) -> bool {
        self.method == method
    }

    pub fn limit(&self) -> u64 {
        self.params["pagination"]["limit"].as_u64().unwrap()
    }

    /// An error response to this call.
    pub fn refused(&self, code: i64, message: &str) -> Value {
        json!({"jsonrpc": "2.0", "id": self.id, "error": {"code": code, "message": message}})
    }

    fn answered(&self, result: Value) -> Value {
        json!({"jsonrpc": "2.0", "id": self.id, "result": result})
    }
}

/// Produces a response from the call and the honest response.
type Fault = dyn Fn(&Call, Value) -> Reply + Send + Sync;

pub struct Upstream {
    address: SocketAddr,
    /// `None` while the server is stopped.
    provider: Option<Provider>,
    state: Arc<Mutex<State>>,
}

struct State {
    chain: &'static Chain,
    passphrase: String,
    oldest: u32,
    latest: u32,
    /// First ledger that is served; may be older than `oldest`, which the server reports.
    reaches: u32,
    most: u64,
    names_ledgers: bool,
    fault: Option<Arc<Fault>>,
    calls: Vec<(String, Value)>,
    /// Error messages of `getLedgers` calls whose start ledger or cursor was refused.
    range_errors: Vec<String>,
}

impl Upstream {
    /// Serves a chain up to `latest`.
    pub fn start(chain: &'static Chain, latest: u32) -> Self {
        let state = Arc::new(Mutex::new(State {
            chain,
            passphrase: chain.network.passphrase().to_owned(),
            oldest: chain.first(),
            latest,
            reaches: chain.first(),
            most: 200,
            names_ledgers: true,
            fault: None,
            calls: Vec::new(),
            range_errors: Vec::new(),
        }));
        let provider = serve(SocketAddr::from(([127, 0, 0, 1], 0)), &state);
        Self { address: provider.address(), provider: Some(provider), state }
    }

    /// Closes the port and all connections.
    pub fn stop(&mut self) {
        self.provider = None;
    }

    /// Serves again at the same address.
    pub fn restart(&mut self) {
        self.provider = Some(serve(self.address, &self.state));
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Settings to follow the server with short waits.
    pub fn settings(&self) -> RpcSettings {
        let mut settings = RpcSettings::new(self.url("/"));
        settings.poll = timing().poll;
        settings.timeouts.idle = Duration::from_millis(300);
        settings
    }

    /// Lets `fault` produce all further responses from the honest ones.
    pub fn set_fault(&self, fault: impl Fn(&Call, Value) -> Reply + Send + Sync + 'static) {
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

    /// Reports `oldest` as the oldest ledger, but serves ledgers from `reaches` on.
    pub fn set_oldest(&self, oldest: u32, reaches: u32) {
        let mut state = self.state.lock().unwrap();
        (state.oldest, state.reaches) = (oldest, reaches);
    }

    /// Limits the number of ledgers per response.
    pub fn set_max_ledgers(&self, most: u64) {
        self.state.lock().unwrap().most = most;
    }

    /// Reports the network of this passphrase.
    pub fn set_passphrase(&self, passphrase: &str) {
        self.state.lock().unwrap().passphrase = passphrase.to_owned();
    }

    /// Responds to `getHealth` as older servers do, without ledgers.
    pub fn omit_ledgers_from_health(&self) {
        self.state.lock().unwrap().names_ledgers = false;
    }

    /// Parameters of all calls of a method so far.
    pub fn calls(&self, method: &str) -> Vec<Value> {
        let state = self.state.lock().unwrap();
        let calls = state.calls.iter().filter(|(called, _)| called == method);
        calls.map(|(_, params)| params.clone()).collect()
    }

    /// All HTTP requests since the server was last started.
    pub fn requests(&self) -> Vec<Request> {
        self.provider.as_ref().map(Provider::requests).unwrap_or_default()
    }

    /// Error messages of `getLedgers` calls whose start ledger or cursor was refused.
    pub fn range_errors(&self) -> Vec<String> {
        self.state.lock().unwrap().range_errors.clone()
    }
}

fn serve(address: SocketAddr, state: &Arc<Mutex<State>>) -> Provider {
    let state = Arc::clone(state);
    Provider::start_at(address, move |request| answer(&state, request))
}

fn answer(state: &Mutex<State>, request: &Request) -> Reply {
    assert_eq!(request.method, "POST");
    let asked: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(asked["jsonrpc"], "2.0");
    let method = asked["method"].as_str().unwrap().to_owned();
    let call = Call { method, params: asked["params"].clone(), id: asked["id"].clone() };
    let (honest, fault) = {
        let mut state = state.lock().unwrap();
        state.calls.push((call.method.clone(), call.params.clone()));
        (state.honest(&call), state.fault.clone())
    };
    match fault {
        Some(fault) => fault(&call, honest),
        None => Reply::json(&honest),
    }
}

impl State {
    fn honest(&mut self, call: &Call) -> Value {
        match call.method.as_str() {
            "getNetwork" => {
                call.answered(json!({"passphrase": self.passphrase, "protocolVersion": 26}))
            }
            "getHealth" if self.names_ledgers => call.answered(json!({
                "status": "healthy",
                "latestLedger": self.latest,
                "latestLedgerCloseTime": "1750000000",
                "oldestLedger": self.oldest,
                "oldestLedgerCloseTime": "1740000000",
                "ledgerRetentionWindow": 120_960,
            })),
            "getHealth" => call.answered(json!({"status": "healthy"})),
            "getLatestLedger" => {
                let ledger = self.chain.ledger(self.latest);
                call.answered(json!({
                    "id": ledger.hash.to_string(),
                    "sequence": self.latest,
                    "protocolVersion": 26,
                }))
            }
            "getLedgers" => self.ledgers(call),
            _ => call.refused(-32601, "method not found"),
        }
    }

    /// Makes the checks of stellar-rpc in their order, with its error messages.
    fn ledgers(&mut self, call: &Call) -> Value {
        let params = &call.params;
        let cursor = params["pagination"]["cursor"].as_str();
        let start = params["startLedger"].as_u64().unwrap_or(0);
        let window = format!(
            "must be between the oldest ledger: {} and the latest ledger: {} for this rpc instance",
            self.oldest, self.latest
        );
        let has = u64::from(self.reaches)..=u64::from(self.latest);
        if let (Some(cursor), 1..) = (cursor, start) {
            let both = format!("startLedger ({start}) and cursor ({cursor}) cannot both be set");
            return self.missed(call, -32600, &both);
        }
        if cursor.is_none() && !has.contains(&start) {
            return self.missed(call, -32600, &format!("start ledger ({start}) {window}"));
        }
        if call.limit() > self.most {
            return call.refused(-32600, &format!("limit must not exceed {}", self.most));
        }
        let first = match cursor.map(str::parse::<u64>) {
            None => start,
            Some(Err(error)) => return self.missed(call, -32602, &error.to_string()),
            Some(Ok(cursor)) if !has.contains(&(cursor + 1)) => {
                return self.missed(call, -32602, &format!("cursor ('{cursor}') {window}"));
            }
            Some(Ok(cursor)) => cursor + 1,
        };
        let last = (first + call.limit() - 1).min(u64::from(self.latest));
        let item = |sequence: u64| {
            let ledger = self.chain.ledger(sequence as u32);
            json!({
                "hash": ledger.hash.to_string(),
                "sequence": ledger.sequence,
                "ledgerCloseTime": ledger.close_time.to_string(),
                "headerXdr": "",
                "metadataXdr": ledger.base64,
            })
        };
        call.answered(json!({
            "ledgers": (first..=last).map(item).collect::<Vec<_>>(),
            "latestLedger": self.latest,
            "latestLedgerCloseTime": 1_750_000_000,
            "oldestLedger": self.oldest,
            "oldestLedgerCloseTime": 1_740_000_000,
            "cursor": last.to_string(),
        }))
    }

    fn missed(&mut self, call: &Call, code: i64, message: &str) -> Value {
        self.range_errors.push(message.to_owned());
        call.refused(code, message)
    }
}
