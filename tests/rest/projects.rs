//! The stream of a project: the events of its contracts, with the names of an interface that was supplied with
//! it; and who may read it.
//!
//! Small: 6 projects; full: 200.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};

use orrery::auth::{IssueRequest, Plan};
use orrery_testkit::client::HTTP;
use orrery_testkit::histories;
use orrery_testkit::pubnet::store_of;
use orrery_testkit::sandbox::{ledgers, local, sandbox};
use orrery_testkit::server::Server;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

/// Asks for a change, and returns its status and its answer.
fn post(server: &Server, path: &str, body: &Value, token: &str) -> (u16, Value) {
    let url = format!("http://{}/rest/{path}", server.address);
    let answer = HTTP.post(url).bearer_auth(token).json(body).send().unwrap();
    (answer.status().as_u16(), answer.json().unwrap())
}

/// Opens a stream from the beginning, and returns its status and its lines.
fn stream(
    server: &Server,
    query: &str,
    token: &str,
) -> (u16, impl Iterator<Item = String> + use<>) {
    let url = format!("http://{}/rest/events/stream?{query}", server.address);
    let request = HTTP.get(url).bearer_auth(token).header("Last-Event-ID", "0");
    let answer = request.send().unwrap();
    let status = answer.status().as_u16();
    (status, BufReader::new(answer).lines().map(Result::unwrap))
}

#[test]
fn a_stream_has_the_events_of_its_project() {
    let chain = ledgers(sandbox(13, 4..=4), 12);
    let store = store_of(&local(), &chain);
    let server = Server::start(&store);
    let all = server.get("/rest/events/by-ledger?limit=500&order=asc").json();
    let all = all.as_array().unwrap().clone();
    let contracts: BTreeSet<String> =
        all.iter().filter_map(|event| event["contract_id"].as_str()).map(str::to_owned).collect();
    let contracts: Vec<String> = contracts.into_iter().filter(|it| !it.is_empty()).collect();
    assert!(contracts.len() > 1, "{contracts:?}");
    histories::run(6, 200, |seed| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut own = contracts.clone();
        own.shuffle(&mut rng);
        own.truncate(rng.random_range(1..=contracts.len()));
        // The last one, after which nothing is awaited.
        let is_own = |event: &&Value| own.iter().any(|it| event["contract_id"] == **it);
        let expected: Vec<&Value> = all.iter().filter(is_own).collect();
        let name = format!("p{seed}");
        let body = json!({ "project_name": name, "contracts": own });
        let token = server.tokens.issue(&IssueRequest::for_owner(&name)).unwrap().token;
        let (status, answer) = post(&server, "retroshade/watch", &body, &token);
        assert_eq!(status, 200, "{answer}");
        let (status, lines) = stream(&server, &format!("project={}", name.to_uppercase()), &token);
        assert_eq!(status, 200);
        let events = lines.filter_map(|line| {
            line.strip_prefix("data: ").map(|data| serde_json::from_str::<Value>(data).unwrap())
        });
        let streamed: Vec<Value> = events.take(expected.len()).collect();
        assert_eq!(streamed.iter().collect::<Vec<_>>(), expected, "{own:?}");
        let id = answer["id"].as_u64().unwrap();
        let url = format!("http://{}/rest/retroshade/{id}", server.address);
        assert!(HTTP.delete(url).bearer_auth(&token).send().unwrap().status().is_success());
    });
}

#[test]
fn a_project_is_streamed_to_those_who_read_it_until_they_do_not() {
    let chain = ledgers(sandbox(13, 4..=4), 12);
    let store = store_of(&local(), &chain);
    let server = Server::start(&store);
    let all = server.get("/rest/events/by-ledger?limit=500&order=asc").json();
    let contract = all[0]["contract_id"].as_str().unwrap().to_owned();
    let token_of =
        |owner: &str| server.tokens.issue(&IssueRequest::for_owner(owner)).unwrap().token;
    let (ana, ben) = (token_of("ana"), token_of("ben"));
    let body = json!({ "project_name": "pools", "contracts": [contract], "public": true });
    let (status, answer) = post(&server, "retroshade/watch", &body, &ana);
    assert_eq!(status, 200, "{answer}");
    let builder = IssueRequest { plan: Plan::Builder, ..IssueRequest::for_owner("ana") };
    let builder = server.tokens.issue(&builder).unwrap().token;
    let beside = format!("project=pools&contract_id={contract}");
    let status = |query: &str, token: &str| stream(&server, query, token).0;
    assert_eq!(status("project=pools", &ben), 404, "ben has not subscribed");
    assert_eq!(status("project=ponds", &ana), 404);
    assert_eq!(status("project=pools", &builder), 403);
    assert_eq!(status(&beside, &ana), 400);
    let webhook = json!({ "webhook_endpoint": "https://1.1.1.1/", "project": "pools" });
    for path in ["webhooks/new", "webhooks/try"] {
        assert_eq!(post(&server, path, &webhook, &ben).0, 404);
        assert_eq!(post(&server, path, &webhook, &builder).0, 403);
    }
    let project = json!({ "project": "pools" });
    assert_eq!(post(&server, "retroshade/subscribe", &project, &ben).0, 200);
    let (status, lines) = stream(&server, "project=pools", &ben);
    assert_eq!(status, 200);
    assert_eq!(post(&server, "retroshade/unsubscribe", &project, &ben).0, 200);
    let last = lines.filter(|line| line.starts_with(": ")).last();
    assert!(last.unwrap().contains("you do not read its project 'pools' any more"));
}
