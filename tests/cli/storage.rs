//! `orrery storage` in a demo network: lists, one key, histories, and what is said of mistakes.

use orrery_testkit::binary::{Ran, Service, orrery_in};
use orrery_testkit::signal::Signal;
use orrery_testkit::terminal::on_terminal;
use orrery_testkit::wait::wait_until;
use serde_json::{Value, json};

/// A demo that was stopped, served without a source, so that its data does not change.
struct World {
    directory: tempfile::TempDir,
    service: Service,
    base: String,
    contract: String,
}

impl World {
    fn made() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (demo, told) = Service::demo(directory.path(), &["--close-time", "200"]);
        let contract = told["contract"].as_str().unwrap().to_owned();
        let token = told["token"].as_str().unwrap().to_owned();
        wait_until("the market has offers, and has changed an account", || {
            let path =
                format!("/rest/contracts/{contract}/storage/changes?name=Account&limit=1000");
            let (_, answer) = demo.ask(&path, Some(&token));
            let has_updates =
                answer["changes"].as_array()?.iter().any(|it| it["kind"] == "updated");
            has_updates.then_some(())
        });
        assert_eq!(demo.end_with(Signal::INT), Some(0));
        let service = Service::local(directory.path(), &["--no-source"]);
        let base = format!("{}/rest", service.base);
        let world = Self { directory, service, base, contract };
        wait_until("the types are known", || {
            let answer = world.asked(&["--name", "Account"]).json();
            let entries = answer["entries"].as_array()?;
            entries.iter().all(|it| it.get("names_pending").is_none()).then_some(())
        });
        world
    }

    fn settings(&self) -> [(&str, &str); 2] {
        [("ORRERY_BASE", &self.base), ("ORRERY_JWT", self.service.token())]
    }

    /// Runs the verb for the market.
    fn asked(&self, arguments: &[&str]) -> Ran {
        let mut command = orrery_in(self.directory.path());
        command.args(["storage", &self.contract]).args(arguments).envs(self.settings());
        command.output().unwrap().into()
    }

    fn route(&self, path: &str) -> Value {
        let path = format!("/rest/contracts/{}/storage{path}", self.contract);
        let (status, answer) = self.service.ask(&path, Some(self.service.token()));
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }
}

#[test]
fn what_a_contract_holds_is_listed() {
    let world = World::made();
    // To a pipe, the answer of the route, with the rows of all pages.
    let whole = world.route("?decoded=true&limit=1000");
    let listed = world.asked(&[]).json();
    assert_eq!(listed, whole);
    let entries = whole["entries"].as_array().unwrap();
    assert!(entries.len() > 5, "{whole}");
    let some = world.asked(&["--limit", "3"]);
    let answer = some.json();
    assert_eq!(answer["entries"].as_array().unwrap().len(), 3);
    let cursor = answer["cursor"].as_str().unwrap();
    assert!(some.stderr.contains(&format!("there are more: go on with --cursor {cursor}")));
    let rest = world.asked(&["--cursor", cursor]).json();
    assert_eq!(rest["entries"], json!(entries[3..]));
    assert_eq!((&rest["cursor"], &rest["instance"]), (&Value::Null, &Value::Null));

    // At an earlier ledger, and what is under a name and a key.
    let earlier = whole["ledger"].as_u64().unwrap() - 5;
    let at = world.asked(&["--at", &earlier.to_string(), "--name", "Account"]).json();
    assert_eq!(at, world.route(&format!("?decoded=true&limit=1000&at={earlier}&name=Account")));
    let offers = world.asked(&["--key", "offers"]).json();
    assert_eq!(offers["instance"]["storage"][0]["name"], "offers");
    assert_eq!((&offers["entries"], &offers["unknown"]), (&json!([]), &json!([])));

    let table = |arguments: &[&str]| {
        let arguments = [&["storage", &world.contract], arguments].concat();
        on_terminal(world.directory.path(), &arguments, &world.settings())
    };
    let Some((shown, code)) = table(&[]) else { return };
    assert_eq!(code, 0, "{shown}");
    let lines: Vec<&str> = shown.lines().collect();
    let head: Vec<&str> = lines[0].split_whitespace().collect();
    let columns = ["name", "key", "durability", "updated", "live_until", "key_hash", "value"];
    assert_eq!(head, columns, "{shown}");
    // The instance and its map, then the entries by name.
    let instance = whole["instance"]["key_hash"].as_str().unwrap();
    assert!(lines[1].contains(instance) && lines[1].contains("{\"wasm\":\""), "{shown}");
    assert!(lines[2].starts_with("offers ") && lines[2].contains(" instance "), "{shown}");
    let names: Vec<&str> =
        lines[3..3 + entries.len()].iter().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.is_sorted() && names.contains(&"Account") && names.contains(&"Offer"), "{shown}");
    let ledger = &whole["ledger"];
    let all = format!("this is all that it holds at the end of ledger {ledger}");
    assert!(shown.contains(&all), "{shown}");
    for (arguments, part) in [
        (["--name", "Nothing"], "the contract holds nothing under the name Nothing at the end of"),
        (["--key", "Nothing"], "the contract holds nothing under this key at the end of"),
        (["--limit", "2"], "this is a part of what it holds at the end of"),
    ] {
        let (shown, code) = table(&arguments).unwrap();
        assert!(code == 0 && shown.contains(part), "{shown}");
    }
}

#[test]
fn histories_are_found_by_hash_and_by_key() {
    let world = World::made();
    let accounts = world.route("/changes?name=Account&limit=1000&decoded=true");
    let changes = accounts["changes"].as_array().unwrap();
    let updated = changes.iter().find(|it| it["kind"] == "updated").unwrap();
    let hash = updated["key_hash"].as_str().unwrap();
    let expected = world.route(&format!("/{hash}/history?decoded=true&limit=1000"));
    assert_eq!(world.asked(&["--history", &hash.to_uppercase()]).json(), expected);
    // By the key itself: an entry, and an item of the instance.
    let key = changes.iter().position(|it| it["key_hash"] == hash).unwrap();
    let xdr = world.route("/changes?name=Account&limit=1000")["changes"][key]["key"].clone();
    assert_eq!(world.asked(&["--history", xdr.as_str().unwrap()]).json(), expected);
    let offers = world.asked(&["--history", "offers"]).json();
    assert!(offers["changes"].as_array().unwrap().len() > 2, "{offers}");
    assert!(offers["changes"].as_array().unwrap().iter().all(|it| it["durability"] == "instance"));
    let instance = world.asked(&["--history", "instance"]).json();
    assert_eq!(instance["key_hash"], offers["key_hash"]);
    assert!(instance["changes"][0]["value"]["executable"]["wasm"].is_string(), "{instance}");

    let some = world.asked(&["--history", hash, "--limit", "1"]);
    let (answer, note) = (some.json(), &some.stderr);
    assert_eq!(answer["changes"], json!([expected["changes"][0]]));
    let cursor = answer["cursor"].as_str().unwrap();
    assert!(
        note.contains(&format!("there are older ones: go on with --cursor {cursor}")),
        "{note}"
    );
    let rest = world.asked(&["--history", hash, "--cursor", cursor]).json();
    assert_eq!(rest["changes"], json!(expected["changes"].as_array().unwrap()[1..]));

    let nothing = world.asked(&["--history", "Nothing"]);
    assert_eq!(nothing.json()["changes"], json!([]));
    assert!(nothing.stderr.contains("has nothing under this key"), "{}", nothing.stderr);
    let nothing = world.asked(&["--history", &"a".repeat(64)]);
    let unknown = "is not known from the stored ledgers: ask with --key in place of the hash";
    assert!(nothing.stderr.contains(unknown), "{}", nothing.stderr);

    let arguments = ["storage", &world.contract, "--history", hash];
    let shown = on_terminal(world.directory.path(), &arguments, &world.settings());
    let Some((shown, code)) = shown else { return };
    assert_eq!(code, 0, "{shown}");
    let head: Vec<&str> = shown.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head[..3], ["ledger", "closed", "change"], "{shown}");
    assert!(shown.contains(" updated ") && shown.contains(" created "), "{shown}");
    assert!(shown.contains("no change is missing"), "{shown}");
}

#[test]
fn mistakes_are_told_in_one_sentence() {
    let world = World::made();
    let newest = world.route("")["ledger"].as_u64().unwrap();
    for ledger in [newest + 1_000, 1] {
        world.asked(&["--at", &ledger.to_string()]).refuses(
            1,
            &[
                &format!("ledger {ledger} is not stored"),
                "give a ledger of the nearest stored range",
            ],
        );
    }
    world.asked(&["--name", "a b"]).refuses(1, &["--name is 'a b': give a symbol"]);
    world.asked(&["--key", "a b"]).refuses(2, &["--key holds 'a b'", "give type:value"]);
    world.asked(&["--history", "a b"]).refuses(2, &["--history holds 'a b'", "give type:value"]);
    let short = "a".repeat(63);
    world.asked(&["--history", &short]).refuses(2, &["has 63 digits", "the hash of a key has 64"]);
    world.asked(&["--cursor", "x"]).refuses(1, &["--cursor is not one"]);
    let both = world.asked(&["--history", "x", "--at", "3"]);
    assert!(both.code == 2 && both.stderr.contains("cannot be used with"), "{}", both.stderr);

    let at = |arguments: &[&str], jwt: Option<&str>| -> Ran {
        let mut command = orrery_in(world.directory.path());
        command.arg("storage").args(arguments).env("ORRERY_BASE", &world.base);
        command.envs(jwt.map(|jwt| ("ORRERY_JWT", jwt))).output().unwrap().into()
    };
    at(&[&world.contract], None).refuses(2, &["a token is needed: give --jwt"]);
    at(&[&world.contract], Some("a.b.c")).refuses(1, &["was asked, and a token is valid for"]);
    for (wrong, part) in [
        ("CDYCP4", "is not a contract ID"),
        (&world.contract.replacen('4', "5", 1), "is mistyped"),
        ("GA7QYNF7SOWQ3GLR2BGMZEHXAVIRZA4KVWLTJJFC7MGXUA74P7UJVSGZ", "is not a contract ID"),
    ] {
        let ran = at(&[wrong], Some(world.service.token()));
        assert!(ran.code == 2 && ran.stderr.contains(part), "{wrong}: {}", ran.stderr);
    }
    // Of a contract that does not exist, a network that is known from its beginning tells that.
    let other = "CAS3J7GYLGXMF6TDJBBYYSE3HQ6BBSMLNUQ34T6TZMYMW2EVH34XOWMA";
    let none = at(&[other], Some(world.service.token())).json();
    assert_eq!((&none["complete"], &none["instance"]), (&json!(true), &Value::Null), "{none}");
}
