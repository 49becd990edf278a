//! `chain.events` and `chain.transactions` of a running service: the rows that REST serves up to the ledger that an
//! answer names, through kills, gaps and backfills, for every owner and in every format.

use std::path::Path;

use orrery_testkit::binary::{Service, configure, run, token};
use orrery_testkit::client::HTTP;
use orrery_testkit::exported::{self, OF_EVENTS, OF_TRANSACTIONS};
use orrery_testkit::lake_files::{Chain, LakeFiles};
use orrery_testkit::size;
use orrery_testkit::wait::wait_until;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Ledgers per portion of the export.
const PORTION: u32 = 5;

struct Scene {
    directory: TempDir,
    chain: Chain,
    lake: LakeFiles,
}

/// An answer to a query.
struct Answer {
    status: u16,
    as_of: Option<u32>,
    tables: Option<u32>,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

fn ask(service: &Service, token: &str, question: &Value) -> Answer {
    let request = HTTP.post(format!("{}/rest/retroshade/query", service.base));
    let answer = request.bearer_auth(token).json(question).send().unwrap();
    let header = |name: &str| {
        let value = answer.headers().get(name)?;
        Some(value.to_str().unwrap().parse().unwrap())
    };
    let (as_of, tables) = (header("orrery-as-of-ledger"), header("orrery-tables-ledger"));
    let status = answer.status().as_u16();
    Answer { status, as_of, tables, body: answer.bytes().unwrap().to_vec() }
}

fn sql(service: &Service, sql: &str) -> Answer {
    ask(service, service.token(), &json!({ "query": sql }))
}

impl Scene {
    fn new(seed: u64, last: u32, settings: &str) -> Self {
        let chain = Chain::made(seed, last);
        let lake = LakeFiles::new(&chain.network);
        let scene = Self { directory: tempfile::tempdir().unwrap(), chain, lake };
        let text = format!(
            "network = 'local'\n[source]\nkind = 'lake'\npath = '{}'\n{settings}\n",
            scene.lake.text()
        );
        configure(scene.at(), &text);
        scene
    }

    fn exporting(seed: u64, last: u32) -> Self {
        Self::new(seed, last, &format!("[export]\nto = 'x'\nledgers_per_file = {PORTION}"))
    }

    fn at(&self) -> &Path {
        self.directory.path()
    }

    fn close(&self, ledgers: std::ops::RangeInclusive<u32>) {
        ledgers.for_each(|sequence| self.lake.add(&self.chain, sequence));
    }

    fn start(&self, more: &[&str]) -> Service {
        Service::local(self.at(), &[&["--config", "orrery.toml"][..], more].concat())
    }

    /// Asserts that SQL has the rows that REST has up to the ledger that its answer names. Returns that ledger.
    fn assert_same(service: &Service) -> u32 {
        let mut newest = 0;
        for (table, route, cursor, columns, order) in [
            ("events", "events", "id", &OF_EVENTS[..], "id"),
            ("transactions", "txs", "tx", &OF_TRANSACTIONS[..], "ledger, application_order"),
        ] {
            let stored = service.health()["service_latest_ledger"].as_u64().unwrap_or(0) as u32;
            let names = columns.iter().map(|it| format!("\"{it}\"")).collect::<Vec<_>>().join(", ");
            let answer =
                sql(service, &format!("select {names} from chain.{table} order by {order}"));
            assert_eq!(answer.status, 200, "{}", answer.json());
            let as_of = answer.as_of.unwrap_or(0);
            assert!(as_of >= stored, "{as_of} is older than {stored}");
            let found = answer.json();
            let mut rows = service.rows(&format!("/rest/{route}/by-ledger?limit=1000"), cursor);
            rows.retain(|row| row["ledger"].as_u64().unwrap() <= as_of.into());
            match table {
                "events" => rows.sort_by_key(|row| row["id"].as_u64()),
                _ => rows
                    .sort_by_key(|row| (row["ledger"].as_u64(), row["application_order"].as_u64())),
            }
            let rows: Vec<_> = rows.iter().map(|row| exported::comparable(row, columns)).collect();
            let found: Vec<_> = found.as_array().unwrap().clone();
            assert!(found == rows, "{table} up to {as_of}: {} and {}", found.len(), rows.len());
            newest = as_of;
        }
        newest
    }
}

/// Small: 4 kills; full: 60.
#[test]
fn sql_equals_rest_through_kills() {
    let kills = size::choose(4, 60) as u32;
    let last = 30 + kills;
    let scene = Scene::exporting(21, last);
    scene.close(2..=12);
    let mut random = ChaCha8Rng::seed_from_u64(4);
    for kill in 0..kills {
        let service = scene.start(&[]);
        scene.close(13 + kill..=13 + kill);
        for _ in 0..random.random_range(0..4) {
            Scene::assert_same(&service);
        }
        // Killed at whatever the service is at then.
        drop(service);
    }
    let service = scene.start(&[]);
    scene.close(2..=last);
    service.wait_until_stored(last);
    assert_eq!(Scene::assert_same(&service), last);
    service.stop();
}

#[test]
fn gaps_and_backfills_are_in_no_file_and_in_sql() {
    let scene = Scene::exporting(22, 60);
    scene.close(2..=60);
    let service = scene.start(&["--start", "38"]);
    service.wait_until_stored(60);
    assert_eq!(Scene::assert_same(&service), 60);
    let lake = scene.lake.text();
    let part = ["backfill", "--data-dir", "d", "--json", "--source", &lake];
    for (from, to) in [("10", "19"), ("2", "5"), ("6", "37")] {
        let report = run(scene.at(), &[&part[..], &["--from", from, "--to", to]].concat()).json();
        assert_eq!(report["state"], "done", "{report}");
        assert_eq!(Scene::assert_same(&service), 60);
    }
    // Not every ledger has transactions.
    let stored = service.rows("/rest/txs/by-ledger?limit=1000", "tx");
    let stored = stored.iter().filter_map(|row| row["ledger"].as_u64()).min().unwrap();
    let first = sql(&service, "select min(ledger) as first from chain.transactions").json();
    assert!(first[0]["first"] == stored && stored <= 5, "{first} {stored}");
    service.stop();
}

#[test]
fn every_owner_and_format_has_the_tables_and_is_told_their_ledger() {
    let scene = Scene::exporting(23, 23);
    scene.close(2..=23);
    let service = scene.start(&[]);
    service.wait_until_stored(23);
    let data_dir = scene.at().join("d");
    let mut counts = Vec::new();
    for owner in ["ana", "bo"] {
        let token = token(&data_dir, owner);
        let question = json!({ "query": "select count(*) as n from chain.events" });
        let answer = ask(&service, &token, &question);
        assert_eq!((answer.as_of, answer.tables), (Some(23), None));
        counts.push(answer.json());
        let (_, tables) = service.ask("/rest/retroshade/tables", Some(&token));
        let chain = |name: &str| json!({ "table_name": format!("chain.{name}"), "project_name_plain": "chain", "own": false });
        assert_eq!(tables, json!([chain("events"), chain("transactions")]));
    }
    assert!(counts[0] == counts[1] && counts[0][0]["n"].as_u64().unwrap() > 10, "{counts:?}");
    for format in ["rows", "columns", "csv", "parquet", "arrow"] {
        let question = json!({ "query": "select * from chain.transactions where ledger = 23", "format": format });
        let answer = ask(&service, service.token(), &question);
        assert_eq!((answer.status, answer.as_of), (200, Some(23)), "{format}");
    }
    let of_nothing = sql(&service, "select 1 as a");
    assert_eq!((of_nothing.as_of, of_nothing.tables), (None, None));
    // A project's tables have a ledger of their own.
    let contract = sql(&service, "select contract_id as c, count(*) from chain.events where contract_id is not null group by 1 order by 2 desc limit 1").json();
    let contract = contract[0]["c"].as_str().unwrap().to_owned();
    let base = format!("{}/rest", service.base);
    let remote = ["--base", &base, "--jwt", service.token()];
    run(scene.at(), &[&["watch", "p", "--contract", &contract][..], &remote].concat()).succeeded();
    wait_until("the project's tables reach the newest ledger", || {
        let answer = sql(&service, "select count(*) as n from p.events");
        match (answer.status, answer.as_of, answer.tables) {
            (200, Some(23), Some(23)) => Ok(()),
            other => Err(other),
        }
    });
    let both = sql(
        &service,
        "select (select count(*) from p.events) as a, (select count(*) from chain.events) as b",
    );
    assert_eq!((both.as_of, both.tables), (Some(23), Some(23)));
    let listed = run(scene.at(), &[&["tables"][..], &remote].concat());
    assert!(listed.succeeded().contains("chain.events"), "{}", listed.stdout);
    let refused =
        run(scene.at(), &[&["watch", "chain", "--contract", &contract][..], &remote].concat());
    refused.refuses(1, &["the schema of the tables of the chain"]);
    for (query, part) in [
        ("select nope from chain.events", "nope"),
        ("select * from chain.event", "did you mean 'chain.events'?"),
        ("select * from transactions", "chain.transactions"),
    ] {
        let answer = sql(&service, query);
        let said = answer.json()["error"].to_string();
        assert!(answer.status == 422 && said.contains(part), "{query}: {said}");
        assert!(!said.contains(scene.at().to_str().unwrap()), "{said}");
    }
    service.stop();
}

#[test]
fn without_a_local_export_sql_says_what_makes_the_tables() {
    let scene = Scene::new(24, 5, "");
    scene.close(2..=5);
    let service = scene.start(&[]);
    service.wait_until_stored(5);
    let answer = sql(&service, "select * from chain.events");
    let said = answer.json()["error"].to_string();
    assert!(answer.status == 422 && said.contains("export.to"), "{said}");
    assert_eq!(service.get("/rest/retroshade/tables"), json!([]));
    service.stop();
}

#[test]
fn a_directory_that_is_gone_makes_no_rows_vanish() {
    let scene = Scene::exporting(25, 33);
    scene.close(2..=33);
    let service = scene.start(&[]);
    service.wait_for_health("ledgers are exported", |health| {
        let detail = health["components"]["export"]["detail"].as_str();
        detail.is_some_and(|detail| detail.starts_with("28 ledgers exported"))
    });
    Scene::assert_same(&service);
    std::fs::rename(scene.at().join("x"), scene.at().join("unmounted")).unwrap();
    let answer = sql(&service, "select count(*) as n from chain.events");
    assert_eq!(answer.status, 503, "{}", answer.json());
    assert!(!answer.json().to_string().contains(scene.at().to_str().unwrap()));
    std::fs::rename(scene.at().join("unmounted"), scene.at().join("x")).unwrap();
    Scene::assert_same(&service);
    service.stop();
}

/// The operator finds in the log which file is damaged; the user is not told.
#[test]
fn a_damaged_file_is_named_in_the_log_alone() {
    let scene = Scene::exporting(26, 33);
    scene.close(2..=33);
    let service = scene.start(&[]);
    service.wait_for_health("ledgers are exported", |health| {
        let detail = health["components"]["export"]["detail"].as_str();
        detail.is_some_and(|detail| detail.starts_with("28 ledgers exported"))
    });
    let files = std::fs::read_dir(scene.at().join("x/data/events")).unwrap();
    let damaged = files.map(|file| file.unwrap().path()).min().unwrap();
    let mut bytes = std::fs::read(&damaged).unwrap();
    let half = bytes.len() / 2;
    bytes[4..half].fill(0xff);
    std::fs::write(&damaged, bytes).unwrap();
    let name = damaged.file_name().unwrap().to_str().unwrap();
    for _ in 0..3 {
        let answer = sql(&service, "select * from chain.events");
        let said = answer.json()["error"].to_string();
        assert!(answer.status == 503 && said.contains("tell the operator"), "{said}");
        assert!(!said.contains(name) && !said.contains('/'), "{said}");
    }
    // The export, which merges small files, tells of it, too.
    let is_told = |line: &str| line.contains("the tables of the chain") && line.contains(name);
    let lines = || service.log().iter().filter(|line| is_told(&line.to_string())).count();
    wait_until("the log names the file once", || match lines() {
        1 => Ok(()),
        lines => Err(lines),
    });
    service.stop();
}

#[test]
fn a_demo_has_them_to_the_newest_ledger() {
    let directory = tempfile::tempdir().unwrap();
    let (service, _) = Service::demo(directory.path(), &["--close-time", "200"]);
    wait_until("a portion is exported", || {
        let detail = service.health()["components"]["export"]["detail"].to_string();
        if detail.contains("ledgers exported") { Ok(()) } else { Err(detail) }
    });
    for _ in 0..3 {
        let stored = service.health()["service_latest_ledger"].as_u64().unwrap() as u32;
        let answer = sql(&service, "select max(ledger) as l, count(*) as n from chain.events");
        assert!(answer.as_of.unwrap() >= stored, "{:?} {stored}", answer.as_of);
        let rows = answer.json();
        let newest = rows[0]["l"].as_u64().unwrap() as u32;
        assert!(newest <= answer.as_of.unwrap() && newest + 5 > stored, "{rows} {stored}");
    }
    service.stop();
}
