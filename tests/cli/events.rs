//! `orrery events --follow` and `orrery webhooks try` in a demo network: the events that meet a condition,
//! and none else.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use orrery_testkit::binary::{Ran, Service, orrery_in};
use orrery_testkit::wait::wait_until;
use serde_json::Value;

#[test]
fn events_are_followed_and_previewed_by_condition() {
    let directory = tempfile::tempdir().unwrap();
    let (demo, told) = Service::demo(directory.path(), &["--close-time", "200"]);
    let contract = told["contract"].as_str().unwrap().to_owned();
    let token = told["token"].as_str().unwrap().to_owned();
    let base = format!("{}/rest", demo.base);
    let all = |path: &str| demo.ask(path, Some(&token)).1;
    let path = format!("/rest/events/by-contract/{contract}?limit=1000&order=asc&decoded=true");
    let is_filled = |event: &&Value| event["decoded"]["name"] == "filled";
    wait_until("the market has filled offers with names", || {
        let events = all(&path);
        let filled = events.as_array()?.iter().filter(is_filled).count();
        (filled >= 3).then_some(())
    });
    let asked = |arguments: &[&str]| {
        let mut command = orrery_in(directory.path());
        command.args(arguments).env("ORRERY_BASE", &base).env("ORRERY_JWT", &token);
        command
    };
    let follow = ["events", "--follow", "--contract", &contract, "--after", "0"];
    let condition = "name = 'filled' and amount > 0 and id is not null";
    let mut command = asked(&[&follow[..], &["--where", condition]].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().take(3);
    let found: Vec<Value> =
        lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    let listed = all(&path);
    let listed: Vec<_> = listed.as_array().unwrap().iter().filter(is_filled).take(3).collect();
    let ids = |events: &[&Value]| events.iter().map(|it| it["id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&found.iter().collect::<Vec<_>>()), ids(&listed));
    // What can match nothing is refused with what is meant.
    for (condition, why) in [
        ("amuont > 0", "no event that the contracts declare has 'amuont': is 'amount' meant?"),
        ("amount == 0", "'==' is not known: write '=' for equal (at character 8)"),
    ] {
        let ran: Ran =
            asked(&[&follow[..], &["--where", condition]].concat()).output().unwrap().into();
        assert!(ran.stderr.contains(why), "{}", ran.stderr);
    }
    let of = ["--contract", &contract, "--endpoint", "https://example.com/"];
    let tried = |condition: &str| {
        let arguments = [&["webhooks", "try"][..], &of, &["--where", condition]].concat();
        let ran: Ran = asked(&arguments).output().unwrap().into();
        ran.json()
    };
    let some = tried("name = 'filled'");
    assert!(some["matched"].as_u64().unwrap() >= 3 && some["ledgers"].as_u64().unwrap() > 3);
    let first = some["first"].as_array().unwrap();
    let names: Vec<_> = first.iter().map(|body| &body["event"]["name"]).collect();
    assert_eq!(names, ["filled", "filled", "filled"]);
    let none = tried("ledger < 0");
    assert_eq!((&none["matched"], &none["first"]), (&0.into(), &Value::Array(Vec::new())));
}
