//! What all tokens of one owner have together: as much as one token. And what is left for another
//! owner: nearly half of what it has when it is alone. Each budget in turn, with requests that hold
//! their parts until the test lets them go.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use orrery::api::{ApiSettings, Deps};
use orrery::auth::IssueRequest;
use orrery::decode::decode;
use orrery::domain::{ContractId, Simulation};
use orrery::rpc::envelope::Reply;
use orrery::rpc::{self, HasRoom, NotSimulated, PastCall, PastNetwork, Rpc, RpcError, Upstream};
use orrery::settings::{Mib, nonzero};
use orrery::store::{Durability, IndexOptions};
use orrery::webhooks::manage::{WebhookDeps, Webhooks};
use orrery::webhooks::target::{Policy, Sender, Timeouts};
use serde_json::json;
use serde_json::value::RawValue;
use stellar_xdr::{Limits, TransactionEnvelope, TransactionV1Envelope, WriteXdr};
use tokio::sync::watch;

use orrery_testkit::http::Connection;
use orrery_testkit::pubnet;
use orrery_testkit::sandbox::{local, sandbox};
use orrery_testkit::server::{BudgetUsage, Server, TempStore, now};
use orrery_testkit::wait::wait_until;

/// Number of tokens of the owner that has many.
pub const TOKENS: usize = 8;
/// Number of requests that are sent at a time, more than any owner may have.
const SENT: u64 = 20;
/// Bytes that a change holds: those of its response, and about as many as its body has.
const CHANGE_BYTES: u64 = (1 << 20) + 256;

/// Issues as many tokens of an owner.
pub fn tokens(server: &Server, owner: &str, count: usize) -> Vec<String> {
    let issue = || server.tokens.issue(&IssueRequest::for_owner(owner)).unwrap().token;
    std::iter::repeat_with(issue).take(count).collect()
}

/// Lets nothing pass while it is closed.
#[derive(Clone)]
struct Door(watch::Sender<bool>);

impl Door {
    async fn pass(&self) {
        let mut is_open = self.0.subscribe();
        // The test may have ended.
        let _ = is_open.wait_for(|is_open| *is_open).await;
    }

    /// Like [`Self::pass`], for work that blocks its thread.
    fn pass_blocking(&self) {
        wait_until("the door is open", || *self.0.borrow());
    }

    fn open(&self, is_open: bool) {
        self.0.send_replace(is_open);
    }

    /// Makes the server that JSON-RPC calls are forwarded to, the clock of those that are answered
    /// here, and the lookup of the names of endpoints wait at the door.
    fn install(&self, deps: &mut Deps) {
        let store = Arc::clone(&deps.store);
        let door = self.clone();
        let clock = move || {
            door.pass_blocking();
            now()
        };
        let rpc = Rpc::new(Arc::clone(&store), rpc::Settings::default(), Arc::new(clock));
        let door = Arc::new(self.clone());
        deps.rpc = Arc::new(rpc.with_upstream(Arc::clone(&door) as _).with_past(door));
        deps.settings.rpc.require_token = true;
        let door = self.clone();
        let lookup = move |_| {
            let door = door.clone();
            async move {
                door.pass().await;
                // Not allowed, so that nothing is changed.
                Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)])
            }
            .boxed()
        };
        let timeouts = Timeouts { lookup: Duration::from_secs(3600), ..Timeouts::default() };
        deps.webhooks = Arc::new(Webhooks::new(WebhookDeps {
            store,
            registry: Arc::default(),
            sender: Sender::new(Policy::default(), Arc::new(lookup), timeouts),
            clock: Arc::new(|| now() * 1000),
        }));
    }
}

impl Upstream for Door {
    fn forward<'a>(
        &'a self,
        _: &'static str,
        _: Option<&'a RawValue>,
        _: HasRoom<'a>,
    ) -> BoxFuture<'a, Option<Reply>> {
        async {
            self.pass().await;
            Some(Reply::Error(RpcError::internal("the door was opened")))
        }
        .boxed()
    }
}

impl PastNetwork for Door {
    fn simulate(&self, _: &PastCall<'_>, _: &dyn Fn() -> bool) -> Result<Simulation, NotSimulated> {
        self.pass_blocking();
        Err(NotSimulated::TooExpensive)
    }
}

/// A request that is not answered while the door is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    /// A JSON-RPC call that is forwarded.
    Call,
    /// A JSON-RPC call that reads the store.
    Read,
    /// A change that needs the address of a name.
    Change,
    /// An upload of which more and more comes.
    Upload,
    /// A stream of events.
    Stream,
    /// A simulation on the state of a stored ledger.
    Simulation,
}

impl Held {
    /// The request with a token.
    fn request(self, token: &str) -> Vec<u8> {
        let (line, body, length) = match self {
            Self::Call => {
                let params = json!({ "keys": [] });
                let call = json!({
                    "jsonrpc": "2.0", "id": 1, "method": "getLedgerEntries", "params": params
                });
                ("POST /rpc", call.to_string(), None)
            }
            Self::Read => {
                let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "getHealth" });
                ("POST /rpc", call.to_string(), None)
            }
            Self::Simulation => {
                let transaction = TransactionEnvelope::Tx(TransactionV1Envelope::default());
                let transaction = transaction.to_xdr_base64(Limits::none()).unwrap();
                let params = json!({ "transaction": transaction, "ledger": 2 });
                let call = json!({
                    "jsonrpc": "2.0", "id": 1, "method": "simulateTransaction", "params": params
                });
                ("POST /rpc", call.to_string(), None)
            }
            Self::Change => {
                let contract = ContractId([7; 32]).to_string();
                let endpoint = "https://hooks.example/";
                let new = json!({ "webhook_endpoint": endpoint, "contract_ids": [contract] });
                ("POST /rest/webhooks/new", new.to_string(), None)
            }
            Self::Upload => ("POST /rest/retroshade/deploy", String::new(), Some(9 << 20)),
            Self::Stream => ("GET /rest/events/stream", String::new(), None),
        };
        let lines = match (length.unwrap_or(body.len()), self) {
            (_, Self::Stream) => String::new(),
            (length, _) => {
                format!("content-type: application/json\r\ncontent-length: {length}\r\n")
            }
        };
        let head = format!("{line} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n");
        format!("{head}{lines}\r\n{body}").into_bytes()
    }
}

/// A budget, and requests that take parts of it.
struct Case {
    budget: &'static str,
    held: Held,
    /// Amount of the budget that a request takes.
    part: u64,
    /// Number of requests that an owner may have at a time when it is alone.
    most: u64,
    adjust: fn(&mut ApiSettings),
}

const CASES: [Case; 8] = [
    Case {
        budget: "requests",
        held: Held::Call,
        part: 1,
        most: 5,
        adjust: |settings| settings.limits.requests_in_flight = nonzero!(5),
    },
    Case {
        budget: "bytes",
        held: Held::Change,
        part: 1 << 20,
        most: 8,
        adjust: |settings| {
            settings.tunables.slow_requests = 128;
            settings.limits.bytes_in_flight_mib = Mib::exactly(16 * CHANGE_BYTES);
            settings.limits.bytes_in_flight_per_token_mib = Mib::exactly(8 * CHANGE_BYTES);
        },
    },
    Case {
        budget: "forwarded_bytes",
        held: Held::Call,
        part: 1 << 20,
        most: 8,
        adjust: |settings| settings.limits.bytes_in_flight_mib = Mib::new(nonzero!(64)),
    },
    Case {
        budget: "readers",
        held: Held::Read,
        part: 1,
        most: 4,
        adjust: |settings| {
            (settings.tunables.readers, settings.tunables.waiting_readers) = (8, 0);
        },
    },
    Case {
        budget: "simulations",
        held: Held::Simulation,
        part: 1,
        most: 1,
        adjust: |settings| settings.tunables.waiting_readers = 0,
    },
    Case { budget: "changes", held: Held::Change, part: 1, most: 4, adjust: |_| {} },
    Case { budget: "uploads", held: Held::Upload, part: 1, most: 1, adjust: |_| {} },
    Case {
        budget: "streams",
        held: Held::Stream,
        part: 1,
        most: 4,
        adjust: |settings| {
            (settings.limits.streams, settings.limits.streams_per_token) =
                (nonzero!(8), nonzero!(4));
        },
    },
];

/// A server whose requests are held.
struct Scene<'a> {
    case: &'a Case,
    server: &'a Server,
    budgets: &'a BudgetUsage,
    connections: Vec<Connection>,
    /// Number of requests that hold a part, and of those that were refused.
    served: u64,
    refused: u64,
}

impl Scene<'_> {
    /// Sends requests with these tokens in turn, and returns how many of them are served.
    fn serve(&mut self, tokens: &[String]) -> u64 {
        for token in tokens.iter().cycle().take(SENT as usize) {
            let mut connection = self.server.connect();
            // It may be refused before it is sent completely.
            let _ = connection.send(&self.case.held.request(token));
            self.connections.push(connection);
        }
        let (served, refused) = wait_until(self.case.budget, || {
            self.keep_up();
            let usage = self.budgets.of(self.server, self.case.budget);
            let served = (usage.taken / self.case.part).saturating_sub(self.served);
            let refused = (usage.refused_one + usage.refused_all).saturating_sub(self.refused);
            if served + refused == SENT { Ok((served, refused)) } else { Err((served, refused)) }
        });
        self.served += served;
        self.refused += refused;
        served
    }

    /// Sends a little more of what is sent slowly, because bodies have a least speed.
    fn keep_up(&mut self) {
        if self.case.held == Held::Upload {
            // Those that were refused are closed.
            self.connections.iter_mut().for_each(|it| drop(it.send(&[b' '; 2048])));
        }
    }

    /// Ends all requests.
    fn end(&mut self, door: &Door) {
        door.open(true);
        self.connections.clear();
        self.budgets.wait_for(self.server, self.case.budget, |usage| usage.taken == 0);
        door.open(false);
        self.served = 0;
    }
}

#[test]
fn eight_tokens_of_an_owner_take_what_one_takes_and_leave_half_to_another() {
    let store = TempStore::with_storage(&local());
    let ledger = sandbox(1, 0..=0).next_ledger().unwrap();
    let view = decode(&ledger, local().id()).unwrap();
    let prepared = store.store.prepare(&view, None, &IndexOptions::default()).unwrap();
    store.store.commit(prepared, Durability::Synced).unwrap();
    for case in &CASES {
        let (budgets, door) = (BudgetUsage::default(), Door(watch::Sender::new(false)));
        let server = Server::start_with(&store, |deps| {
            deps.settings.limits.connections_per_address = nonzero!(100);
            (case.adjust)(&mut deps.settings);
            door.install(deps);
            budgets.watch(deps);
        });
        let [greedy, other] =
            [("greedy", TOKENS), ("other", 1)].map(|(owner, count)| tokens(&server, owner, count));
        let (connections, served, refused) = (Vec::new(), 0, 0);
        let mut scene =
            Scene { case, server: &server, budgets: &budgets, connections, served, refused };
        let alone = scene.serve(&other);
        scene.end(&door);
        let many = scene.serve(&greedy);
        let beside = scene.serve(&other);
        scene.end(&door);
        let name = case.budget;
        println!("{name}: {alone} with one token, {many} with {TOKENS}, {beside} beside these");
        assert_eq!((alone, many), (case.most, case.most), "{name}: one token, and {TOKENS}");
        assert!(20 * beside >= 9 * alone, "{name}: {beside} beside another owner, {alone} alone");
    }
}

/// Sends 40 requests, and returns the number of those that are answered with 200, and that which the
/// rate of one a second adds to a burst meanwhile.
fn answered(tokens: &[String], mut request: impl FnMut(&str) -> u16) -> (usize, usize) {
    let begun = Instant::now();
    let sent = tokens.iter().cycle().take(40);
    let answered = sent.filter(|token| request(token) == 200).count();
    (answered, begun.elapsed().as_secs() as usize + 1)
}

#[test]
fn eight_tokens_of_an_owner_have_the_rate_of_one() {
    const BURST: usize = 10;
    let store = TempStore::new(&pubnet::network());
    let server = Server::start_with(&store, |deps| {
        (deps.settings.limits.requests_per_second, deps.settings.limits.burst) = (1, BURST as u32);
    });
    for (owner, count) in [("one", 1), ("many", TOKENS), ("other", 1)] {
        let (answered, more) = answered(&tokens(&server, owner, count), |token| {
            server.get_with("/rest/events/by-ledger", token).status
        });
        assert!((BURST..=BURST + more).contains(&answered), "{owner}: {answered}");
    }
}

/// The rate at which calls are forwarded is one of all clients.
#[test]
fn eight_tokens_of_an_owner_leave_half_of_the_forwarded_calls_to_another() {
    const BURST: u32 = 20;
    let served = |owners: &[(&str, usize)]| -> Vec<(usize, usize)> {
        let store = TempStore::new(&pubnet::network());
        let door = Door(watch::Sender::new(true));
        let server = Server::start_with(&store, |deps| {
            door.install(deps);
            deps.settings.rpc.upstream_requests_per_second = 1;
            deps.settings.tunables.forwarding_burst = BURST;
        });
        let of = |&(owner, count): &(&str, usize)| {
            answered(&tokens(&server, owner, count), |token| {
                let mut connection = server.connect();
                connection.send(&Held::Call.request(token)).unwrap();
                connection.answer(false).status
            })
        };
        owners.iter().map(of).collect()
    };
    let [(alone, _)] = served(&[("other", 1)])[..] else { unreachable!() };
    let [(many, more), (beside, _)] = served(&[("greedy", TOKENS), ("other", 1)])[..] else {
        unreachable!()
    };
    println!("{alone} forwarded with one token, {many} with {TOKENS}, {beside} beside these");
    assert!(many <= alone + more, "{TOKENS} tokens: {many}, one: {alone}");
    assert!(20 * beside >= 9 * alone, "{beside} beside another owner, {alone} alone");
    assert!(alone >= BURST as usize / 2, "{alone}");
}
