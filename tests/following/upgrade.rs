//! Data that one build of the program wrote is opened by another: a newer build upgrades the
//! directory and answers as if it had run from the first ledger; an older build refuses the
//! directory with one sentence, or serves it; and a backup from before the upgrade allows a
//! downgrade.
//!
//! The other builds are those that `ORRERY_OTHER_BUILDS` names, separated by colons. Without it,
//! this build opens its own data.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::Path;

use orrery::sandbox::network::{FIRST_MARKET_LEDGER, MARKET_PROGRAM, Sandbox};
use reqwest::Method;
use rocksdb::{DB, Options};
use serde_json::{Value, json};

use orrery_testkit::binary::{Service, command};
use orrery_testkit::client::HTTP;
use orrery_testkit::families::families;
use orrery_testkit::lake_files::{Chain, LakeFiles};
use orrery_testkit::program;
use orrery_testkit::wait::wait_until;

const OTHER_BUILDS: &str = "ORRERY_OTHER_BUILDS";
/// The first topic of a trade's event: the symbol `filled`.
const FILLED: &str = "AAAADwAAAAZmaWxsZWQAAA==";
/// Ledger at which the program is deployed.
const DEPLOYED: u32 = FIRST_MARKET_LEDGER.0;
/// Last ledger that the first build stores before it is killed.
const FIRST: u32 = 60;
/// Last ledger that the second build stores before it stops.
const SECOND: u32 = 90;
/// Last ledger at the end of the test.
const LAST: u32 = 110;

/// A service's data directory, and the lake that it follows.
struct Place {
    directory: tempfile::TempDir,
    lake: LakeFiles,
}

impl Place {
    fn new(chain: &Chain) -> Self {
        Self { directory: tempfile::tempdir().unwrap(), lake: LakeFiles::new(&chain.network) }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn close(&self, chain: &Chain, ledgers: RangeInclusive<u32>) {
        ledgers.for_each(|sequence| self.lake.add(chain, sequence));
    }

    fn start(&self, build: &Path) -> Result<Service, String> {
        // A build that refuses the directory says so in one sentence, without a log.
        let network = ["--network", "local", "--data-dir", "d"];
        self.run(build, &[&["token", "issue", "--sub", "tests"][..], &network].concat())?;
        Service::local_from(build, self.path(), &["--source", &self.lake.text()])
    }

    /// Runs a command to its end; returns its stderr when it fails.
    fn run(&self, build: &Path, arguments: &[&str]) -> Result<(), String> {
        let output = command(build).current_dir(self.path()).args(arguments).output().unwrap();
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
}

fn market(chain: &Chain) -> String {
    Sandbox::market_contract(&chain.network).unwrap().to_string()
}

fn ask(service: &Service, token: &str, path: &str, body: &Value) -> Value {
    let url = format!("http://{}{path}", service.address);
    let answer = HTTP.request(Method::POST, url).bearer_auth(token).json(body).send().unwrap();
    let status = answer.status();
    let text = answer.text().unwrap();
    assert!(status.is_success(), "{path}: {status} {text}");
    serde_json::from_str(&text).unwrap()
}

/// Follows the lake to [`FIRST`], with a program deployed at [`DEPLOYED`]. Returns the service and
/// its token.
fn begin(build: &Path, place: &Place, chain: &Chain) -> (Service, String) {
    place.close(chain, 2..=DEPLOYED);
    let service = place.start(build).unwrap();
    service.wait_until_stored(DEPLOYED);
    let token = service.token().to_owned();
    let program =
        json!({ "code": MARKET_PROGRAM, "project_name": "kept", "contracts": [market(chain)] });
    ask(&service, &token, "/rest/retroshade/deploy", &program);
    place.close(chain, DEPLOYED + 1..=FIRST);
    service.wait_until_stored(FIRST);
    (service, token)
}

/// Returns the service's responses, by the name of the query.
fn answers(service: &Service, token: &str, chain: &Chain) -> BTreeMap<&'static str, Value> {
    let mut answers = BTreeMap::new();
    let pages = [
        ("events", "/rest/events/by-ledger?from=2&limit=1000".to_owned()),
        ("events of the market", format!("/rest/events/by-contract/{}?limit=1000", market(chain))),
    ];
    for (question, path) in pages {
        answers.insert(question, Value::Array(service.rows_without_ids(&path, "id")));
    }
    // Each trade is one event and one row of the program.
    let events = answers["events of the market"].as_array().unwrap().iter();
    let trades = events
        .filter(|event| event["ledger"].as_u64() > Some(DEPLOYED.into()))
        .filter(|event| event.to_string().contains(FILLED))
        .count();
    let query = json!({ "query": "select * from kept_trade order by _service_event_id" });
    let rows = wait_until("the program has its rows", || {
        let url = format!("http://{}/rest/retroshade/query", service.address);
        let answer = HTTP.post(url).bearer_auth(token).json(&query).send().unwrap();
        // After a start, tables are filled before they can be queried.
        let rows: Value = (answer.status() == 200).then(|| answer.json().unwrap())?;
        (rows.as_array().unwrap().len() == trades).then_some(rows)
    });
    answers.insert("rows of the program", rows);
    let path = format!("/rest/txs/by-contract/{}?limit=200", market(chain));
    answers.insert("transactions of the market", service.get(&path));
    answers.insert("completeness", service.get("/rest/completeness"));
    let mut hashes = BTreeSet::new();
    for event in answers["events"].as_array().unwrap() {
        hashes.insert(event["tx"].as_str().unwrap_or_else(|| panic!("{event}")).to_owned());
    }
    let found = |hash: &String| {
        let body = json!({
            "jsonrpc": "2.0", "id": 1, "method": "getTransaction", "params": { "hash": hash },
        });
        let mut result = ask(service, token, "/rpc", &body)["result"].take();
        assert_eq!(result["status"], "SUCCESS", "{hash}: {result}");
        for now in ["latestLedgerCloseTime", "oldestLedgerCloseTime"] {
            result.as_object_mut().unwrap().remove(now);
        }
        result
    };
    answers.insert("transactions by hash", hashes.iter().map(found).collect());
    answers
}

fn same(answers: &BTreeMap<&str, Value>, expected: &BTreeMap<&str, Value>, what: &str) {
    for (question, value) in expected {
        assert!(value.as_array().is_none_or(|rows| rows.len() > 20), "{question}: too few");
        assert_eq!(&answers[question], value, "{what}: {question}");
    }
}

#[test]
fn a_directory_of_another_build_is_upgraded_and_continued() {
    let chain = Chain::with_market(21, LAST);
    let ours = &program::orrery();
    let reference = Place::new(&chain);
    let (service, token) = begin(ours, &reference, &chain);
    reference.close(&chain, FIRST + 1..=SECOND);
    service.wait_until_stored(SECOND);
    let at_second = answers(&service, &token, &chain);
    reference.close(&chain, SECOND + 1..=LAST);
    service.wait_until_stored(LAST);
    let at_last = answers(&service, &token, &chain);
    service.stop();

    let others = std::env::var_os(OTHER_BUILDS).unwrap_or_else(|| program::orrery().into());
    for build in std::env::split_paths(&others) {
        println!("{}", build.display());
        check_upgrade_from(&build, &chain, &at_second, &at_last);
    }
}

fn check_upgrade_from(
    build: &Path,
    chain: &Chain,
    at_second: &BTreeMap<&str, Value>,
    at_last: &BTreeMap<&str, Value>,
) {
    let ours = &program::orrery();
    let place = Place::new(chain);
    let (service, token) = begin(build, &place, chain);
    let backup = place.run(build, &["backup", "--data-dir", "d", "backups"]);
    drop(service);

    // Upgrades the data that the other build left when it was killed.
    place.close(chain, FIRST + 1..=SECOND);
    let service = place.start(ours).unwrap();
    service.wait_until_stored(SECOND);
    same(&answers(&service, &token, chain), at_second, "upgraded");
    service.stop();
    place.run(ours, &["verify", "--data-dir", "d"]).unwrap();

    // Starts the other build again, on the data of this one.
    place.close(chain, SECOND + 1..=LAST);
    match place.start(build) {
        Ok(service) => {
            println!("it serves what this build wrote");
            service.wait_until_stored(LAST);
            service.stop();
        }
        Err(message) => {
            println!("it refuses what this build wrote: {message}");
            assert_ne!(build, ours, "{message}");
            assert_eq!(message.trim().lines().count(), 1, "{message}");
        }
    }
    let service = place.start(ours).unwrap();
    service.wait_until_stored(LAST);
    same(&answers(&service, &token, chain), at_last, "after the other build was started again");
    service.stop();
    place.run(ours, &["verify", "--data-dir", "d"]).unwrap();

    // Restores the same backup with the other build (downgrade) and with this one (upgrade).
    if let Err(message) = backup {
        assert_ne!(build, ours, "{message}");
        return println!("it makes no backups: {}", message.lines().next().unwrap_or_default());
    }
    for restorer in [build, ours] {
        let restored = Place::new(chain);
        let backups = place.path().join("backups");
        let arguments = ["restore", backups.to_str().unwrap(), "--data-dir", "d"];
        restored.run(restorer, &arguments).unwrap();
        restored.close(chain, 2..=LAST);
        let service = restored.start(restorer).unwrap();
        service.wait_until_stored(LAST);
        if restorer == ours {
            same(&answers(&service, &token, chain), at_last, "restored");
        }
        service.stop();
        restored.run(restorer, &["verify", "--data-dir", "d"]).unwrap();
    }
}

/// Changes a directory into one of a newer version: with the next format number, and with a column
/// family that this build does not have.
fn make_newer(raw: &Path) {
    let options = Options::default();
    let names = DB::list_cf(&options, raw).unwrap();
    let mut db = DB::open_cf(&options, raw, &names).unwrap();
    let mut format = db.get_cf(db.cf_handle("meta").unwrap(), "format").unwrap().unwrap();
    *format.last_mut().unwrap() += 1;
    db.put_cf(db.cf_handle("meta").unwrap(), "format", format).unwrap();
    db.create_cf("of_tomorrow", &options).unwrap();
}

#[test]
fn a_directory_of_a_newer_version_is_refused_and_left_unchanged() {
    let chain = Chain::with_market(21, LAST);
    let place = Place::new(&chain);
    let ours = &program::orrery();
    let (service, _) = begin(ours, &place, &chain);
    service.stop();
    place.run(ours, &["backup", "--data-dir", "d", "backups"]).unwrap();
    make_newer(&place.path().join("d/raw"));
    let before = families(&place.path().join("d"));

    let lake = place.lake.text();
    let verbs: [&[&str]; 8] = [
        &["serve", "--no-source", "--listen", "127.0.0.1:0"],
        &["import", &lake],
        &["backfill", "--source", &lake, "--from", "2", "--to", "9"],
        &["verify"],
        &["status"],
        &["backup", "again"],
        &["export", "--to-dir", "exported"],
        &["rebuild", "transaction_hashes"],
    ];
    for verb in verbs {
        let message = place.run(ours, &[verb, &["--data-dir", "d"]].concat()).unwrap_err();
        println!("{}: {message}", verb[0]);
        assert_eq!(message.trim().lines().count(), 1, "{}: {message}", verb[0]);
        assert!(message.contains("use the version that wrote it"), "{}: {message}", verb[0]);
    }
    assert_eq!(families(&place.path().join("d")), before);

    let restored = Place::new(&chain);
    let backups = place.path().join("backups");
    restored.run(ours, &["restore", backups.to_str().unwrap(), "--data-dir", "d"]).unwrap();
    restored.close(&chain, 2..=SECOND);
    let service = restored.start(ours).unwrap();
    service.wait_until_stored(SECOND);
    service.stop();
}
