//! `orrery mcp` beside a demo network: a client that starts it can use every tool, and gets the same
//! answers as over HTTP.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use orrery_testkit::binary::{Ran, Service, orrery_in, token};
use orrery_testkit::client::HTTP;
use orrery_testkit::provider::{Provider, Reply};
use orrery_testkit::signal::Signal;
use orrery_testkit::wait::wait_until;
use serde_json::{Value, json};

/// A client that has started `orrery mcp`.
struct Client {
    server: Child,
    to: Option<ChildStdin>,
    from: Lines<BufReader<ChildStdout>>,
}

impl Client {
    fn start(at: &Path, base: &str, token: &str) -> Self {
        let mut command = orrery_in(at);
        command.arg("mcp").env("ORRERY_BASE", base).env("ORRERY_JWT", token);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut server = piped.spawn().unwrap();
        let from = BufReader::new(server.stdout.take().unwrap()).lines();
        Self { to: server.stdin.take(), from, server }
    }

    fn send(&mut self, line: &str) {
        writeln!(self.to.as_mut().unwrap(), "{line}").unwrap();
    }

    fn receive(&mut self) -> Value {
        serde_json::from_str(&self.from.next().unwrap().unwrap()).unwrap()
    }

    fn ask(&mut self, message: &Value) -> Value {
        self.send(&message.to_string());
        let answer = self.receive();
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &message["id"]));
        answer
    }

    /// The result of a tool.
    fn tool(&mut self, name: &str, arguments: Value) -> Value {
        self.ask(&call(name, arguments))["result"].clone()
    }

    /// The value that a tool answers.
    fn found(&mut self, name: &str, arguments: Value) -> Value {
        let result = self.tool(name, arguments);
        assert_eq!(result["isError"], false, "{name}: {result}");
        result["structuredContent"].clone()
    }

    /// Ends the input; returns the exit code and what was written besides answers.
    fn end(mut self) -> Ran {
        drop(self.to.take());
        assert!(self.from.next().is_none(), "there is an answer more than messages");
        self.server.wait_with_output().unwrap().into()
    }
}

fn call(name: &str, arguments: Value) -> Value {
    let params = json!({ "name": name, "arguments": arguments });
    json!({ "jsonrpc": "2.0", "id": name, "method": "tools/call", "params": params })
}

#[test]
fn every_tool_answers_a_client_that_starts_the_program() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (demo, _) = Service::demo(at, &["--close-time", "200"]);
    let token = token(&at.join("d"), "demo");
    let mut client = Client::start(at, &format!("{}/rest", demo.base), &token);
    let begin = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    assert_eq!(client.ask(&begin)["result"]["protocolVersion"], "2025-06-18");
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
    client.send("  ");
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let listed = client.ask(&list);
    assert_eq!(listed["result"]["tools"].as_array().map(Vec::len), Some(6));

    wait_until("there are trades in a table", || {
        let rows = client.tool("query", json!({ "sql": "select maker from market.trade" }));
        rows["structuredContent"]["rows"].as_array().is_some_and(|rows| !rows.is_empty())
    });
    let tables = client.found("list_tables", json!({ "project": "market" }));
    assert_eq!(tables["tables"][0]["table"], "market.trade", "{tables}");
    assert!(tables["tables"][0]["columns"].to_string().contains("\"maker\""), "{tables}");
    assert_eq!(tables["cursor"], Value::Null);
    let all = client.found("list_tables", json!({}));
    let names: Vec<_> = all["tables"].as_array().unwrap().iter().map(|it| &it["table"]).collect();
    assert!(names.contains(&&json!("market.trade")) && names.len() > 2, "{names:?}");
    let later = client.found("list_tables", json!({ "cursor": names[0] }));
    assert!(later["tables"][0]["table"].as_str() > names[0].as_str(), "{later}");
    for table in ["market.trade", "market_trade"] {
        let described = client.found("describe_table", json!({ "table": table }));
        let has = described["columns"].as_array().unwrap().iter();
        let has = has.map(|column| (&column["name"], &column["type"])).collect::<Vec<_>>();
        assert!(has.contains(&(&json!("_ledger"), &json!("BIGINT"))), "{table}: {has:?}");
    }
    let sql = json!({ "sql": "select ?::int + 1 as n, ? as word", "params": [1, "it's"] });
    assert_eq!(client.found("query", sql)["rows"], json!([{ "n": 2, "word": "it's" }]));

    let project = client.found("find_contract", json!({ "contract": "market" }));
    let contract = &project["contracts"][0];
    let known = client.found("find_contract", json!({ "contract": contract }));
    assert!(known["projects"].as_array().unwrap().contains(&json!("market")), "{known}");
    assert!(known["events"].to_string().contains("Filled"), "{known}");
    // By what it is called, in any case.
    let named = wait_until("an asset is found by its code", || {
        let named = client.found("find_contract", json!({ "contract": "xlm" }));
        named["named"].as_array().is_some_and(|all| !all.is_empty()).then_some(named)
    });
    let label = &named["named"][0];
    assert_eq!((&label["name"], &label["kind"]), (&json!("XLM"), &json!("asset")), "{named}");
    let native = client.found("find_contract", json!({ "contract": label["address"] }));
    assert_eq!(native["executable"], json!({ "stellar_asset": true }), "{native}");
    let events =
        client.found("events", json!({ "contract": contract, "name": "filled", "limit": 1 }));
    let event = &events["events"][0];
    assert!(event["name"] == "filled" && event["params"]["maker"].is_string(), "{events}");
    assert_eq!(events["cursor"], event["id"]);
    let transaction = client.found("transaction", json!({ "hash": event["tx"] }));
    assert_eq!(transaction["call"]["function"], "fill", "{transaction}");

    // Both transports answer alike.
    let question = call("transaction", json!({ "hash": event["tx"] }));
    let request = HTTP.post(format!("{}/mcp", demo.base)).bearer_auth(&token).json(&question);
    assert_eq!(request.send().unwrap().json::<Value>().unwrap(), client.ask(&question));
    assert!(client.end().stderr.is_empty());
    assert_eq!(demo.end_with(Signal::INT), Some(0));
}

/// An older service, and proxies that answer by themselves.
#[test]
fn an_address_without_tools_is_told_in_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    for (status, body) in
        [(404, "{\"error\":\"there is no route /mcp\"}"), (405, ""), (200, "<html>")]
    {
        let other = Provider::start(move |_| Reply::new(status, "text/html", body));
        let mut client = Client::start(directory.path(), &other.url("/rest"), "a.b.c");
        let answer = client.ask(&json!({ "jsonrpc": "2.0", "id": 7, "method": "ping" }));
        let expected = format!("{} does not take messages (status {status}): ", other.url("/mcp"));
        let said = answer["error"]["message"].as_str().unwrap();
        assert!(said.starts_with(&expected) && said.contains("an older version"), "{said}");
        client
            .send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
        let ended = client.end();
        assert!(ended.code == 0 && ended.stderr.contains(&expected), "{}", ended.stderr);
    }
}

#[test]
fn what_a_tool_may_do_and_say_is_limited() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (demo, _) = Service::demo(at, &["--close-time", "200"]);
    let token = token(&at.join("d"), "demo");
    let base = format!("{}/rest", demo.base);
    let mut client = Client::start(at, &base, &token);
    for (sql, part) in [
        ("drop table market.trade", "Only statements that read"),
        ("insert into market.trade select * from market.trade", "Only statements that read"),
        ("copy market.trade to '/tmp/x'", "Only statements that read"),
        ("select 1; select 2", "one statement"),
        ("select * from range(20000)", "more than 10000 rows"),
        ("select * from read_csv('/etc/passwd')", ""),
    ] {
        let result = client.tool("query", json!({ "sql": sql }));
        let sentence = result["content"][1]["text"].as_str().unwrap();
        assert!(result["isError"] == true && sentence.contains(part), "{sql}: {result}");
    }
    let sql = "select range as n, repeat('x', 90) as text from range(9000)";
    let line = call("query", json!({ "sql": sql })).to_string();
    client.send(&line);
    let line = client.from.next().unwrap().unwrap();
    assert!(line.len() < 120_000, "{} bytes", line.len());
    let cut: Value = serde_json::from_str(&line).unwrap();
    let cut = &cut["result"]["structuredContent"];
    let rows = cut["rows"].as_array().unwrap();
    assert!(rows.len() > 100 && rows.last().unwrap()["n"] == rows.len() - 1);
    let said = cut["cut"].as_str().unwrap();
    assert!(
        said.contains(&format!("the first {} of 9000", rows.len())) && said.contains("LIMIT"),
        "{said}"
    );

    // What is no message, or too long for one, is answered, and the next one is read.
    client.send("{");
    assert_eq!(client.receive()["error"]["code"], -32700);
    client.send(&format!("\"{}\"", "x".repeat(300_000)));
    assert_eq!(client.receive()["error"]["code"], -32600);
    let ping = json!({ "jsonrpc": "2.0", "id": "p", "method": "ping" });
    client.send(&format!("[{ping}]"));
    assert_eq!(client.receive()["error"]["code"], -32600);
    assert_eq!(client.ask(&ping)["result"], json!({}));

    let mut stranger = Client::start(at, &base, "not.a.token");
    let refused = stranger.ask(&ping);
    assert!(refused["error"]["message"].as_str().unwrap().contains("token"), "{refused}");
    stranger.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
    let ended = stranger.end();
    assert!(ended.code == 0 && ended.stderr.contains("token"), "{}", ended.stderr);
    assert_eq!(demo.end_with(Signal::INT), Some(0));
    // The service may come back: a client is told, and need not start the program again.
    let gone = client.ask(&ping);
    assert!(gone["error"]["message"].as_str().unwrap().contains("is a service running"), "{gone}");
    assert_eq!(client.end().code, 0);
    let without: Ran = orrery_in(at).arg("mcp").stdin(Stdio::null()).output().unwrap().into();
    without.refuses(2, &["a token is needed"]);
}
