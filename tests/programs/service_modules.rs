//! Modules in a running service: what a module costs, does or fails to do does not affect other
//! programs, and nothing remains of modules that are not deployed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orrery::domain::{ContractId, Network, ProgramId};
use orrery::programs::storage;
use reqwest::blocking::RequestBuilder;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};
use stellar_xdr::ScVal;

use crate::network::{Chain, built, call};
use crate::service::{Owner, PASSPHRASE, Scene};
use orrery_testkit::binary::Service;
use orrery_testkit::client::HTTP;
use orrery_testkit::costly::{FUNCTION, joins, shapes};
use orrery_testkit::engine_world::module;
use orrery_testkit::process::open_released;
use orrery_testkit::size;

/// Bytes by which the service's memory may grow, whatever modules it receives.
const GROWTH: u64 = 256 << 20;

fn wanted(code: &[u8], project: &str, contract: ContractId) -> Value {
    let code = STANDARD.encode(code);
    json!({ "code": code, "project_name": project, "contracts": [contract.to_string()] })
}

fn trial(code: &[u8], contract: ContractId) -> Value {
    let mut body = wanted(code, "tried", contract);
    body["last"] = json!(100);
    body
}

/// Appends an empty custom section named `text` to the module, which changes its hash only.
fn with_section(code: &[u8], text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).unwrap();
    let section = [&[0, length + 1, length][..], text.as_bytes()].concat();
    [code, &section].concat()
}

fn compiled(scene: &Scene) -> Vec<PathBuf> {
    let directory = scene.path().join("compiled");
    fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect()
}

fn is_up(service: &Service) {
    for path in ["live", "ready"] {
        let url = format!("{}/rest/health/{path}", service.base);
        assert_eq!(HTTP.get(url).send().unwrap().status(), 200, "{path}");
    }
}

#[test]
fn expensive_modules_do_not_burden_the_service() {
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let owner = scene.owner(&service, "ana");
    let contract = ContractId([1; 32]);
    let before = service.memory("VmRSS");
    for functions in [1, 2, 5, 15] {
        let code = joins(functions, 4_096, FUNCTION);
        for (path, body) in
            [("deploy", wanted(&code, "bomb", contract)), ("try", trial(&code, contract))]
        {
            let (status, answer) = owner.ask("POST", path, Some(&body));
            assert_eq!((status, &answer["code"]), (422, &json!("module_refused")), "{answer}");
            let sentence = answer["error"].as_str().unwrap();
            assert!(sentence.contains("too many"), "{sentence}");
        }
    }
    let (functions, bytes) = (
        size::choose(1, 15) as usize,
        size::choose(FUNCTION as u64 / 16, FUNCTION as u64) as usize,
    );
    for (name, code) in shapes(functions, bytes) {
        let (status, answer) = owner.ask("POST", "try", Some(&trial(&code, contract)));
        match status {
            200 => assert_eq!(answer["transactions"], json!([]), "{name}"),
            422 => assert_eq!(answer["code"], "module_refused", "{name}: {answer}"),
            _ => panic!("{name}: {status} {answer}; the log: {:?}", service.log()),
        }
    }
    is_up(&service);
    let grown = service.memory("VmHWM").saturating_sub(before);
    println!("the service's memory grew by {} MiB", grown >> 20);
    assert!(grown < GROWTH, "{} MiB", grown >> 20);
}

#[test]
fn trials_and_failed_deploys_leave_no_compiled_modules() {
    let scene = Scene::new();
    let (code, contract) = (built("counter_program"), ContractId([1; 32]));
    {
        let service = Service::start(scene.path());
        let owner = scene.owner(&service, "ana");
        for number in 0..6 {
            let code = with_section(&code, &format!("number {number}"));
            owner.post("try", &trial(&code, contract));
        }
        assert_eq!(compiled(&scene), Vec::<PathBuf>::new());
        owner.post("deploy", &wanted(&code, "counter", contract));
        let deployed = compiled(&scene);
        assert_eq!(deployed.len(), 1);
        let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            (mode(scene.path().join("compiled")), mode(deployed[0].clone())),
            (0o700, 0o600)
        );
        let again = wanted(&with_section(&code, "other"), "counter", contract);
        assert_eq!(owner.ask("POST", "deploy", Some(&again)).0, 409);
        assert_eq!(compiled(&scene), deployed);
    }
    let orphan = scene.path().join("compiled").join(format!("{}.compiled", "ab".repeat(32)));
    fs::write(&orphan, b"of a program that is gone").unwrap();
    let service = Service::start(scene.path());
    let owner = scene.owner(&service, "ana");
    owner.wait("unused modules are removed", |_| !orphan.exists());
    assert_eq!(compiled(&scene).len(), 1);
    assert_eq!(owner.ask("DELETE", "1", None).0, 200);
    // A thread may be loading it at that moment.
    owner.wait("its compiled code is removed", |_| compiled(&scene).is_empty());
}

/// Until the service restarts, its child processes run its own version of the binary.
#[test]
fn a_service_keeps_working_when_its_binary_is_replaced() {
    let scene = Scene::new();
    // Beside the original: a hard link cannot cross file systems.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = directory.path().join("orrery");
    fs::hard_link(env!("CARGO_BIN_EXE_orrery"), &program).unwrap();
    let service = Service::start_from(&program, scene.path());
    let owner = scene.owner(&service, "ana");
    fs::remove_file(&program).unwrap();
    fs::write(&program, "another version").unwrap();
    owner.post("deploy", &wanted(&built("counter_program"), "counter", ContractId([1; 32])));
    assert_eq!(owner.query("SELECT 1 AS one"), [json!({ "one": 1 })]);
}

/// A program with 8 MiB of memory.
fn large() -> Vec<u8> {
    module(
        "(import \"x\" \"9\" (func (param i64 i64) (result i64))) (memory (export \"memory\") 128)
         (func (export \"increment\") (param i64) (result i64) (i64.const 2))",
    )
}

#[test]
fn a_module_that_no_longer_loads_stops_only_its_program() {
    let mut chain = Chain::new();
    let counter = chain.create("counter", vec![ScVal::U32(5)]);
    let scene = Scene::new();
    {
        let service = Service::start(scene.path());
        let owner = scene.owner(&service, "ana");
        owner.post("deploy", &wanted(&large(), "large", counter));
        owner.post("deploy", &wanted(&built("counter_program"), "counter", counter));
    }
    let increment = |chain: &mut Chain| {
        chain.close(&[call(counter, "increment", vec![ScVal::U32(1)])]);
        chain.import_into(&scene);
    };
    let why = |owner: &Owner| owner.get("1/status")["last_error_message"].clone();
    let sentence = "its module can no longer be run: the module asks for 8388608 bytes or elements of \
                    memory at its start; a program may have 4194304";
    {
        let service = Service::start_with(scene.path(), &[("ORRERY_PROGRAMS_MEMORY_MIB", "4")]);
        let owner = scene.owner(&service, "ana");
        owner.wait("it stops", |it| it.get("1/status")["running"] == false);
        assert_eq!(why(&owner), sentence);
        is_up(&service);
        increment(&mut chain);
        // One row from the constructor, one from the call.
        owner.wait_for_rows("counter_count_changed", 2);
        // Resuming does not help while nothing else has changed.
        owner.post("1/resume", &json!({}));
        owner.wait("it stops again", |it| it.get("1/status")["running"] == false);
        assert_eq!(why(&owner), sentence);
        owner.post("1/backfill", &json!({ "from": 0, "to": chain.latest() }));
        owner.wait("the backfill stops", |it| it.get("1/backfill")["state"] == "stopped");
        assert_eq!(owner.get("1/backfill")["message"], sentence);
    }
    let service = Service::start(scene.path());
    let owner = scene.owner(&service, "ana");
    owner.post("1/resume", &json!({}));
    owner.wait("it is run again", |it| it.get("1/status")["total_executions"] == 1);
    assert_eq!(owner.get("1/status")["running"], true);
}

#[test]
fn altered_compiled_code_is_not_run() {
    let mut chain = Chain::new();
    let counter = chain.create("counter", vec![ScVal::U32(5)]);
    let scene = Scene::new();
    {
        let service = Service::start(scene.path());
        let owner = scene.owner(&service, "ana");
        owner.post("deploy", &wanted(&built("counter_program"), "counter", counter));
        owner.post("deploy", &wanted(&large(), "large", counter));
    }
    let files = compiled(&scene);
    assert_eq!(files.len(), 2);
    let contents: Vec<_> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    // The two files are exchanged, and one bit of one of them is flipped.
    fs::write(&files[0], &contents[1]).unwrap();
    let mut flipped = contents[1].clone();
    *flipped.last_mut().unwrap() ^= 1;
    fs::write(&files[1], &flipped).unwrap();
    let service = Service::start(scene.path());
    let owner = scene.owner(&service, "ana");
    chain.close(&[call(counter, "increment", vec![ScVal::U32(1)])]);
    chain.import_into(&scene);
    // One row from the constructor, one from the call.
    owner.wait_for_rows("counter_count_changed", 2);
    owner.wait("both are run", |it| it.get("2/status")["total_executions"] == 1);
    for (file, content) in files.iter().zip(contents) {
        assert_eq!(fs::read(file).unwrap(), content, "it was recompiled");
    }
}

/// Sends a request with a request id, and asserts the status and that the body is exactly `told`,
/// without internal details.
fn fails(owner: &Owner, id: &str, request: RequestBuilder, status: u16, expected: &Value) {
    let answer = request.bearer_auth(owner.token()).header("X-Request-Id", id).send().unwrap();
    assert_eq!(answer.headers()["x-request-id"], id);
    assert_eq!(
        (answer.status().as_u16(), answer.json::<Value>().unwrap()),
        (status, expected.clone())
    );
}

#[test]
fn causes_of_internal_errors_are_logged_and_not_sent_to_clients() {
    let scene = Scene::new();
    {
        let service = Service::start(scene.path());
        let owner = scene.owner(&service, "ana");
        owner.post("deploy", &wanted(&built("counter_program"), "counter", ContractId([1; 32])));
    }
    {
        let network = Network::from_passphrase(PASSPHRASE);
        let store = open_released(scene.path(), &network);
        storage::change(&store, |it| it.put(&storage::execution(ProgramId(1), 1), b"no record"))
            .unwrap();
    }
    let service = Service::start(scene.path());
    let owner = scene.owner(&service, "ana");
    let line_with = |name: &str, value: &str| {
        let is = |line: &&Value| line[name] == value;
        owner.wait("the log tells", |_| service.log().iter().any(|line| is(&line)));
        let log = service.log();
        let lines: Vec<_> = log.iter().filter(is).cloned().collect();
        <[Value; 1]>::try_from(lines).expect("one line for one request")
    };
    let inside = json!({
        "code": "internal",
        "error": "the service failed on this request: try again, and give the operator the request id \
                  when it persists",
    });
    for id in ["the-first", "the-second"] {
        let path = "/rest/retroshade/1/executions";
        fails(&owner, id, HTTP.get(owner.base(path)), 500, &inside);
        let [line] = line_with("id", id);
        assert_eq!((&line["level"], &line["path"]), (&json!("ERROR"), &json!(path)));
        assert!(line["cause"].as_str().unwrap().contains("the record of a run"), "{line}");
    }
    // When an owner's tables cannot be opened, the cause is logged under the owner instead of a
    // request id.
    let tables = scene.path().join("tables");
    let file = scene.path().join("file");
    fs::write(&file, "this is no directory").unwrap();
    // In one step: a worker may be writing to the directory or about to recreate it.
    renameat_with(CWD, &file, CWD, &tables, RenameFlags::EXCHANGE).unwrap();
    let cannot = json!({
        "code": "not_ready",
        "error": "the tables cannot be read right now; try again",
    });
    let bob = scene.owner(&service, "bob");
    let query = json!({ "query": "SELECT 1" });
    let query = HTTP.post(bob.base("/rest/retroshade/query")).json(&query);
    fails(&bob, "the-third", query, 503, &cannot);
    let [line] = line_with("owner", "bob");
    let (level, message) = (&line["level"], line["message"].as_str().unwrap());
    assert_eq!(level, "WARN");
    assert!(message.contains(tables.to_str().unwrap()), "{line}");
    assert!(message.contains("Not a directory"), "{line}");
}

#[test]
fn rows_returned_by_a_trial_are_limited() {
    let mut chain = Chain::new();
    let heavy = chain.create("heavy", Vec::new());
    let calls = 12;
    for _ in 0..calls {
        // Just under 1 MiB each, and twice as much as text.
        chain.call(heavy, "rows", vec![ScVal::U32(10), ScVal::U32(100_000)]);
    }
    let scene = Scene::new();
    let service = Service::start(scene.path());
    chain.import_into(&scene);
    let owner = scene.owner(&service, "ana");
    let mut wanted = trial(&built("heavy_program"), heavy);
    wanted["last"] = json!(calls);
    let tried = owner.post("try", &wanted);
    let tried: Vec<_> = tried["transactions"].as_array().unwrap().iter().collect();
    assert_eq!(tried.len(), calls);
    let shown: Vec<_> = tried.iter().take_while(|it| it["status"] == "success").collect();
    assert!(shown.iter().all(|it| it["rows"].as_array().unwrap().len() == 10));
    let bytes: usize = shown.iter().map(|it| it["rows"].to_string().len()).sum();
    assert!((8 << 20..=16 << 20).contains(&bytes), "{bytes} bytes of {} runs", shown.len());
    for left in &tried[shown.len()..] {
        assert_eq!((&left["status"], &left["rows"]), (&json!("skipped"), &json!([])));
        let why = "there was no room for it: a trial's rows take 16 MiB at the most";
        assert_eq!(left["error_message"], why);
    }
    assert!(shown.len() < calls);
}

/// A shell that holds a lock while it starts the service passes an open file on to it. The compiler
/// and the SQL worker refuse to run with a foreign file.
#[test]
fn inherited_descriptors_do_not_reach_child_processes() {
    let scene = Scene::new();
    let directory = tempfile::tempdir().unwrap();
    let (program, lock) = (directory.path().join("serve"), directory.path().join("lock"));
    let binary = env!("CARGO_BIN_EXE_orrery");
    let script = format!("#!/bin/sh\nexec 9>{}\nexec {binary} \"$@\"\n", lock.display());
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    let service = Service::start_from(&program, scene.path());
    let owner = scene.owner(&service, "ana");
    owner.post("deploy", &wanted(&built("counter_program"), "counter", ContractId([1; 32])));
    assert_eq!(owner.query("select 1 as one"), [json!({ "one": 1 })]);
}
