//! `[index] storage`: of which contracts it is recorded what they hold, as a demo network's data directory
//! shows it that is served with one value after the other.

use std::fs;
use std::path::Path;

use orrery::contract_data::{Scope, scope, watched};
use orrery::domain::ContractId;
use orrery::store::{Extensions, Store};
use orrery_testkit::archive::framed;
use orrery_testkit::binary::{Service, configure, orrery_in, run};
use orrery_testkit::sandbox::{local, sandbox};
use orrery_testkit::signal::Signal;
use orrery_testkit::storage::StorageModel;
use orrery_testkit::wait::wait_until;
use serde_json::{Value, json};

const OFF: &str = "[index]\nstorage = \"off\"\n";
const WATCHED: &str = "[index]\nstorage = \"watched\"\n";
const ALL: &str = "[index]\nstorage = \"all\"\n";

/// A contract that does not exist, and that no project names.
const OTHER: &str = "CAAQCAIBAEAQCAIBAEAQCAIBAEAQCAIBAEAQCAIBAEAQCAIBAEAQC526";

fn serve(directory: &std::path::Path, settings: &str) -> Service {
    let config = configure(directory, settings);
    Service::local(directory, &[config[0], config[1], "--no-source"])
}

fn ask(service: &Service, path: &str) -> (u16, Value) {
    service.ask(path, Some(service.token()))
}

/// The list of a contract once the types are known.
fn list(service: &Service, contract: &str) -> Value {
    let path = format!("/rest/contracts/{contract}/storage?decoded=true&limit=1000");
    wait_until("what the contract holds is known", || {
        let (status, answer) = ask(service, &path);
        assert_eq!(status, 200, "{answer}");
        let entries = answer["entries"].as_array()?;
        let is_named = entries.iter().all(|it| it.get("names_pending").is_none());
        (answer["complete"] == true && is_named).then(|| answer.clone())
    })
}

fn storage_in_completeness(service: &Service) -> Value {
    ask(service, "/rest/completeness").1["ranges"][0]["storage"].clone()
}

#[test]
fn only_watched_contracts_or_none_are_recorded_if_the_operator_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let (demo, told) = Service::demo(directory, &["--close-time", "200"]);
    let contract = told["contract"].as_str().unwrap().to_owned();
    let demo_token = told["token"].as_str().unwrap().to_owned();
    wait_until("the market has offers, and has changed an account", || {
        let path = format!("/rest/contracts/{contract}/storage/changes?name=Account&limit=1000");
        let (_, answer) = demo.ask(&path, Some(&demo_token));
        let changes = answer["changes"].as_array()?;
        changes.iter().any(|it| it["kind"] == "updated").then_some(())
    });
    assert_eq!(demo.end_with(Signal::INT), Some(0));

    let service = serve(directory, ALL);
    let (market, other) = (list(&service, &contract), list(&service, OTHER));
    assert_eq!(other["entries"], json!([]));
    assert_eq!(storage_in_completeness(&service), "unbound");
    assert_eq!(service.end_with(Signal::INT), Some(0));

    // A project records what its contract holds.
    let config = configure(directory, OFF);
    let serve_off = ["serve", "--network", "local", "--no-source", "--data-dir", "d"];
    let refused = run(directory, &[&serve_off[..], &config[..]].concat());
    refused.refuses(1, &["index.storage is off", "set it to watched"]);

    let service = serve(directory, WATCHED);
    assert_eq!(list(&service, &contract), market);
    let (_, answer) = ask(&service, &format!("/rest/contracts/{OTHER}/storage"));
    assert_eq!((&answer["complete"], &answer["known_since"]), (&json!(false), &Value::Null));
    assert_eq!(answer["entries"], json!([]));
    assert_eq!(storage_in_completeness(&service), "watched");
    // The contract of a new project follows, and leaves with it.
    command(directory, &service, &["watch", "other", "--contract", OTHER]);
    assert_eq!(list(&service, OTHER), other);
    command(directory, &service, &["delete", "other", "--yes"]);
    wait_until("nothing is known of what nobody watches", || {
        let (_, answer) = ask(&service, &format!("/rest/contracts/{OTHER}/storage"));
        (answer["complete"] == false && answer["known_since"].is_null()).then_some(())
    });
    command(directory, &service, &["watch", "other", "--contract", OTHER]);
    assert_eq!(list(&service, OTHER), other);
    assert_eq!(list(&service, &contract), market);
    assert_eq!(service.end_with(Signal::INT), Some(0));

    let service = serve(directory, ALL);
    assert_eq!(list(&service, &contract), market);
    assert_eq!(list(&service, OTHER), other);
    assert_eq!(service.end_with(Signal::INT), Some(0));
}

#[test]
fn nothing_is_recorded_where_it_is_off() {
    let directory = tempfile::tempdir().unwrap();
    let service = serve(directory.path(), OFF);
    for path in ["storage", "storage/changes", &format!("storage/{}", "0".repeat(64))] {
        let (status, answer) = ask(&service, &format!("/rest/contracts/{OTHER}/{path}"));
        assert_eq!((status, &answer["code"]), (409, &json!("storage_off")), "{answer}");
    }
    let mut watch = orrery_in(directory.path());
    watch.args(["watch", "other", "--contract", OTHER, "--storage"]);
    watch.env("ORRERY_BASE", format!("{}/rest", service.base)).env("ORRERY_JWT", service.token());
    let output = watch.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && told.contains("not recorded here"), "{told}");
}

/// Runs a command against a service.
fn command(directory: &Path, service: &Service, arguments: &[&str]) {
    let mut command = orrery_in(directory);
    command.args(arguments);
    command.env("ORRERY_BASE", format!("{}/rest", service.base)).env("ORRERY_JWT", service.token());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Number of ledgers, and of those that are stored before the first service runs.
const LAST: usize = 60;
const FIRST_PART: usize = 40;

/// Commands that open the directory of a service without its configuration change nothing in what it
/// records.
#[test]
fn a_command_without_the_configuration_leaves_what_is_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut network = sandbox(8, 0..=6);
    let ledgers: Vec<_> = (0..LAST).map(|_| network.next_ledger().unwrap()).collect();
    let mut model = StorageModel::new(local().passphrase());
    for ledger in &ledgers {
        model.add(ledger);
    }
    let most = |contract: &[u8; 32]| model.changes(contract, 0, u32::MAX).len();
    let contract = model.contracts().into_iter().max_by_key(most).unwrap();
    let watched_one = ContractId(contract);
    let write = |name: &str, ledgers: &[Vec<u8>]| {
        let all: Vec<u8> = ledgers.iter().flat_map(|ledger| framed(ledger)).collect();
        fs::write(at.join(name), all).unwrap();
    };
    write("first.xdr", &ledgers[..FIRST_PART]);
    write("all.xdr", &ledgers);
    let passphrase = local();
    let of_network = ["--network-passphrase", passphrase.passphrase()];
    let import = |file: &str, variables: &[(&str, &str)]| {
        let mut import = orrery_in(at);
        import.args(["import", "--json", "--data-dir", "d"]).args(of_network).arg(file);
        let output = import.envs(variables.iter().copied()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let changes = |service: &Service| {
        let path = format!("/rest/contracts/{watched_one}/storage/changes?limit=1000");
        ask(service, &path).1["changes"].as_array().map(Vec::len)
    };
    import("first.xdr", &[]);
    let service = serve(at, WATCHED);
    let contract_text = watched_one.to_string();
    command(at, &service, &["watch", "it", "--contract", &contract_text]);
    list(&service, &contract_text);
    assert_eq!(service.end_with(Signal::INT), Some(0));

    import("all.xdr", &[]);
    import("all.xdr", &[("ORRERY_INDEX_STORAGE", "off")]);
    {
        let store = Store::open_read_only(&at.join("d"), Extensions::default()).unwrap();
        assert_eq!(scope(&store).unwrap(), Scope::Watched);
        assert!(watched(&store).unwrap().contains(&watched_one));
    }
    let service = serve(at, WATCHED);
    // From the first answer on, although the new ledgers may not be processed yet.
    let (status, first) = ask(&service, &format!("/rest/contracts/{watched_one}/storage?at=30"));
    assert_eq!((status, &first["complete"]), (200, &json!(true)), "{first}");
    wait_until("the new ledgers are processed", || {
        (changes(&service) == Some(most(&contract).min(1000))).then_some(())
    });
    let anew = |line: &Value| line["message"].as_str().is_some_and(|it| it.contains("anew"));
    assert!(!service.log().iter().any(anew));
    assert_eq!(service.end_with(Signal::INT), Some(0));
}
