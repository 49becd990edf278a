//! Random lives of the built binary, each ended by SIGKILL: imports through the service, a project of
//! events that is laid out anew as code and contracts become known, and retention of raw ledgers, while a
//! client asks all the time. No id ever stands for another event, no name that was known becomes another
//! one or is forgotten while the process lives, no query counts fewer rows than one before it, and in the
//! end every answer is that of a fresh directory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use crate::service::{Owner, Scene};
use crate::service_projects::{Content, count, difference, tables, wait_for_events, watch};
use orrery_testkit::binary::{Service, orrery};
use orrery_testkit::client::HTTP;
use orrery_testkit::histories;
use orrery_testkit::upgraded::Upgraded;
use orrery_testkit::wait::wait_until;

/// Number of files in which the ledgers are imported.
const PARTS: usize = 6;
/// Longest time from a start to the kill.
const LONGEST: Duration = Duration::from_millis(900);

static UPGRADED: LazyLock<Upgraded> = LazyLock::new(Upgraded::made);

/// What a directory answers in the end: tables, and events without their ids.
static FRESH: LazyLock<(Content, Vec<Value>)> = LazyLock::new(|| {
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    scene.import_ledgers(&UPGRADED.ledgers);
    let id = watch(&ana, "p", &UPGRADED.contracts);
    let all = count(&UPGRADED.ledgers, &UPGRADED.contracts);
    settle(&ana, id, all);
    let tables = wait_until("all rows are in the tables", || {
        let tables = cells(&ana, id);
        let rows: usize = tables.values().map(|(_, rows)| rows.len()).sum();
        (rows as u64 == all).then_some(tables)
    });
    (tables, events(&service, &ana))
});

/// The tables as SQL has them, without the ids, which follow the order of arrival.
fn cells(owner: &Owner, id: u32) -> Content {
    let one = |table: String| {
        let name = format!("program_{id}_{table}");
        let columns = match owner.try_query(&format!("describe {name}")) {
            Ok(columns) => columns,
            // The table will be there with the next rows.
            Err((status, body)) => return (table, (vec![format!("{status} {body}")], Vec::new())),
        };
        let columns =
            columns.iter().map(|it| format!("{} {}", it["column_name"], it["column_type"]));
        let sql = format!("select * exclude (_service_event_id, _event_id) from {name}");
        let rows = owner.try_query(&sql).unwrap_or_default();
        let mut rows: Vec<_> = rows.iter().map(Value::to_string).collect();
        rows.sort_unstable();
        (table, (columns.collect(), rows))
    };
    tables(owner, id).into_iter().map(one).collect()
}

fn settle(owner: &Owner, id: u32, events: u64) {
    wait_for_events(owner, id, events);
    owner.wait("all events are in the tables", |it| {
        let status = it.get(&format!("{id}/status"));
        status["rows_in_tables"] == true && status["backfill"] != "running"
    });
}

/// All events with their names, by place in the chain and without ids.
fn events(service: &Service, owner: &Owner) -> Vec<Value> {
    let path = "/rest/events/by-ledger?limit=1000&order=asc&decoded=true";
    let rows = wait_until("all names are there", || {
        let (_, rows) = service.ask(path, Some(owner.token()));
        let rows = rows.as_array().unwrap().clone();
        let is_pending = |row: &Value| row["decoded"]["names_pending"] == true;
        (!rows.iter().any(is_pending)).then_some(rows)
    });
    let mut rows: Vec<_> = rows.into_iter().map(without_id).collect();
    rows.sort_by_key(|row| place(row).to_string());
    rows
}

fn without_id(mut row: Value) -> Value {
    drop(row.as_object_mut().unwrap().remove("id"));
    row
}

/// What tells an event from others, in whatever store.
fn place(row: &Value) -> Value {
    json!([row["ledger"], row["tx"], row["op_index"], row["event_index"]])
}

/// What the client has seen.
#[derive(Default)]
struct Seen {
    /// Rows that the last answer counted.
    least: u64,
    /// Events by id.
    ids: BTreeMap<u64, Value>,
    /// Names by place, and the places whose name this process knew.
    names: BTreeMap<String, Value>,
    known: BTreeSet<String>,
    answers: u64,
}

impl Seen {
    /// Asks once for everything; returns false once the service is gone.
    fn look(&mut self, owner: &Owner) -> bool {
        let sql = json!({ "query": "select count(*) n from p.events" });
        match owner.try_ask("POST", "query", Some(&sql)) {
            None => return false,
            Some((200, rows)) => {
                let now = rows[0]["n"].as_u64().unwrap();
                assert!(now >= self.least, "{now} rows, after {}", self.least);
                self.least = now;
                self.answers += 1;
            }
            Some((503, _)) => {}
            // There is no table before the first row.
            Some((status, body)) => assert!(status == 422 && self.least == 0, "{status} {body}"),
        }
        let url = owner.base("/rest/events/by-ledger?limit=1000&order=asc&decoded=true");
        let Ok(answer) = HTTP.get(url).bearer_auth(owner.token()).send() else { return false };
        let Ok(rows) = answer.json::<Value>() else { return false };
        rows.as_array().unwrap_or_else(|| panic!("{rows}")).iter().for_each(|row| self.note(row));
        true
    }

    fn note(&mut self, row: &Value) {
        let (id, place) = (row["id"].as_u64().unwrap(), place(row));
        let before = self.ids.entry(id).or_insert_with(|| place.clone());
        assert_eq!(before, &place, "id {id} was given to another event");
        let (name, place) = (&row["decoded"]["name"], place.to_string());
        if name.is_null() {
            assert!(!self.known.contains(&place), "{place} has no name any more");
            return;
        }
        let before = self.names.entry(place.clone()).or_insert_with(|| name.clone());
        assert_eq!(before, name, "{place} has another name");
        self.known.insert(place);
    }
}

struct Life {
    rng: ChaCha8Rng,
    scene: Scene,
    parts: Vec<PathBuf>,
    token: String,
    id: u32,
    contracts: usize,
    seen: Seen,
}

impl Life {
    fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let scene = Scene::new();
        let service = Service::start(scene.path());
        let ana = scene.owner(&service, "ana");
        let contracts = rng.random_range(1..3);
        let id = watch(&ana, "p", &UPGRADED.contracts[..contracts]);
        let token = ana.token().to_owned();
        let mut ledgers: Vec<&Vec<u8>> = UPGRADED.ledgers.iter().collect();
        if rng.random_bool(0.3) {
            ledgers.shuffle(&mut rng);
        }
        let mut parts = Vec::new();
        for (number, part) in ledgers.chunks(ledgers.len().div_ceil(PARTS)).enumerate() {
            let file = scene.path().join(format!("part{number}.xdr"));
            let framed = part.iter().flat_map(|xdr| {
                let mark = u32::try_from(xdr.len()).unwrap() | 1 << 31;
                [&mark.to_be_bytes()[..], xdr.as_slice()].concat()
            });
            std::fs::write(&file, framed.collect::<Vec<u8>>()).unwrap();
            parts.push(file);
        }
        parts.shuffle(&mut rng);
        drop(service);
        Self { rng, scene, parts, token, id, contracts, seen: Seen::default() }
    }

    /// Starts the service, lets it work for a while, and kills it.
    fn live(&mut self) {
        let kept = self.rng.random_range(0..40).to_string();
        let retention = [("ORRERY_RETENTION_RAW_LEDGERS", kept.as_str())];
        let service = Service::start_with(self.scene.path(), &retention);
        let owner = Owner::with_token(&service, &self.token);
        self.seen.known.clear();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let (seen, asking, over) = (&mut self.seen, &owner, &over);
            let client =
                scope.spawn(move || while !over.load(Ordering::Acquire) && seen.look(asking) {});
            let file = self.parts.choose(&mut self.rng).unwrap();
            let mut import = orrery();
            import.current_dir(self.scene.path()).args(["import", "--data-dir", "."]).arg(file);
            let mut import = import.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            if self.contracts < 3 && self.rng.random_bool(0.3) {
                let more = [UPGRADED.contracts[self.contracts].to_string()];
                let body = json!({ "program_id": self.id, "contracts": more });
                owner.post("append-contracts", &body);
                self.contracts += 1;
            }
            // The process is killed at a random moment; there is no condition to wait for.
            thread::sleep(LONGEST.mul_f64(self.rng.random()));
            drop(service);
            over.store(true, Ordering::Release);
            // It ends with the service, or goes on without.
            import.wait().unwrap();
            client.join().unwrap();
        });
    }

    /// Everything arrives, and what is answered is what a fresh directory answers.
    fn end(mut self) {
        let service = Service::start(self.scene.path());
        let ana = Owner::with_token(&service, &self.token);
        self.seen.known.clear();
        for file in &self.parts {
            self.scene.import(file);
            assert!(self.seen.look(&ana));
        }
        let more: Vec<_> =
            UPGRADED.contracts[self.contracts..].iter().map(ToString::to_string).collect();
        if !more.is_empty() {
            ana.post("append-contracts", &json!({ "program_id": self.id, "contracts": more }));
        }
        let all = count(&UPGRADED.ledgers, &UPGRADED.contracts);
        settle(&ana, self.id, all);
        let (expected, named) = &*FRESH;
        wait_until("the tables are those of a fresh directory", || {
            let found = cells(&ana, self.id);
            if found == *expected { Ok(()) } else { Err(difference(&found, expected)) }
        });
        assert!(self.seen.look(&ana));
        assert_eq!(self.seen.least, all);
        assert_eq!(events(&service, &ana), *named);
    }
}

/// Small: 2 histories; full: 200.
#[test]
fn nothing_known_is_lost_or_changed_by_kills() {
    LazyLock::force(&FRESH);
    histories::run(2, 200, |seed| {
        let mut life = Life::new(seed);
        for _ in 0..life.rng.random_range(3..6) {
            life.live();
        }
        life.end();
    });
}
