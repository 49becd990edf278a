//! Servers that are dead, hang or belong to another service: nothing of the service waits for them.

use std::net::TcpListener;

use orrery_testkit::postgres::{Database, Server, free_port, is_missing};
use orrery_testkit::wait::wait_until;

use super::{Demo, SCHEMAS, TABLES, sink, wait_for_rows_of};

/// The health of the sink `main`.
fn component(demo: &Demo) -> serde_json::Value {
    let health = demo.service.health();
    assert_eq!(health["service"], "up", "{health}");
    health["components"]["sink.main"].clone()
}

/// Waits until this many more ledgers are stored.
fn ledgers_go_on(demo: &Demo, more: u64) {
    let newest = || demo.service.health()["service_latest_ledger"].as_u64().unwrap();
    let from = newest();
    wait_until("ledgers go on", || newest() >= from + more);
}

#[test]
fn a_dead_server_delays_nobody_and_gets_all_rows_when_it_is_back() {
    if is_missing() {
        return;
    }
    let port = free_port();
    let url = format!("postgres://root@127.0.0.1:{port}/postgres?connect_timeout=2");
    let demo = Demo::sinking_into(&url);
    ledgers_go_on(&demo, 5);
    let told = wait_until("health says why", || {
        let component = component(&demo);
        component["reason"].is_string().then_some(component)
    });
    assert_eq!(told["status"], "up", "{told}");
    assert!(told["reason"].as_str().unwrap().contains("no connection to"), "{told}");
    let status = demo.status();
    assert_eq!(status["connected"], false, "{status}");
    let listed = demo.sink(&["list"]).json();
    assert!(listed[0]["reason"].as_str().unwrap().contains("no connection to"), "{listed}");
    demo.sink(&["test", "main"]).refuses(1, &["no connection to postgres://root@127.0.0.1"]);
    // SQL and the rest of the service answer meanwhile.
    let transfers = super::text(&demo.sql("select count(*) as n from demo.transfer")["n"]);
    assert!(transfers.parse::<u64>().unwrap() > 2, "{transfers}");

    let server = Server::start_on(port, &[]);
    let rows = |table: &str| {
        let counted = server.psql("postgres", &format!("select count(*) from {table}"));
        String::from_utf8(counted.stdout).unwrap().trim().parse::<u64>().unwrap_or(0)
    };
    for table in TABLES {
        wait_until("the rows are there", || rows(table) > 2);
    }
    let told = wait_until("health says that it is well", || {
        let component = component(&demo);
        if component["reason"].is_null() { Ok(component) } else { Err(component) }
    });
    assert_eq!(told["status"], "up", "{told}");
    demo.has_what_was_written(&["main"]);
}

#[test]
fn a_server_that_hangs_delays_nobody() {
    if is_missing() {
        return;
    }
    let server = Server::start(&[]);
    let database = Database::on(&server, &SCHEMAS);
    let demo = Demo::sinking_into(&database.at(server.port));
    demo.wait_for_rows(&database);
    server.hang(true);
    ledgers_go_on(&demo, 20);
    assert_eq!(component(&demo)["status"], "up");
    // How far it is behind is known without asking the server.
    let status = wait_until("the sink is behind", || {
        let status = demo.status();
        let lag = status["lag_ledgers"].as_u64();
        if lag > Some(2) { Ok(status) } else { Err(status) }
    });
    assert!(component(&demo)["lag_ledgers"].as_u64() > Some(2), "{status}");
    server.hang(false);
    // Projects may be behind the network themselves where the machine does much else.
    wait_until("no rows wait", || {
        let status = demo.status();
        let projects = status["projects"].as_array().unwrap();
        let has_all = projects.iter().all(|it| it["state"] == "live" && it["entries"] == it["of"]);
        if has_all { Ok(()) } else { Err(status) }
    });
    demo.has_equal_rows(&database, "demo.transfer", &["\"from\"", "amount"]);
    demo.has_what_was_written(&["main"]);
}

#[test]
fn something_else_that_answers_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answers = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let directory = tempfile::tempdir().unwrap();
    let settings = sink(&format!("postgres://me@127.0.0.1:{port}/d?connect_timeout=2"), "['*']");
    std::fs::write(directory.path().join("orrery.toml"), settings).unwrap();
    let arguments = ["sink", "test", "main", "--config", "orrery.toml", "--data-dir", "d"];
    let ran = orrery_testkit::binary::run(directory.path(), &arguments);
    ran.refuses(1, &[&format!("postgres://me@127.0.0.1:{port}/d")]);
    answers.join().unwrap();
}

#[test]
fn two_services_with_one_name_do_not_write_both() {
    if is_missing() {
        return;
    }
    let database = Database::new(&SCHEMAS);
    let settings = sink(&database.url(), "['market']");
    let first = Demo::with(&settings);
    wait_for_rows_of(&database, "market.trade");
    first.wait_for_project("market", "it is live", |it| it["state"] == "live");
    let writer = database.sql("select writer_name from orrery.cursor");
    assert!(writer.contains(first.at().to_str().unwrap()), "{writer}");

    let second = Demo::with(&settings);
    let refused = second.wait_for_project("market", "the other one is named", |it| {
        it["reason"].as_str().is_some_and(|reason| reason.contains(&writer))
    });
    let reason = refused["reason"].as_str().unwrap();
    assert!(reason.contains("stop it, or give this sink another name"), "{refused}");
    assert_eq!(component(&second)["status"], "up");
    ledgers_go_on(&second, 3);
    assert_eq!(database.sql("select writer_name from orrery.cursor"), writer);
    first.has_what_was_written(&["main"]);

    // Beside each other under two names, with schemas of their own.
    let beside = format!(
        "[sinks.second]\nurl = '{}'\nprojects = ['market']\nschema = 'mine'\n",
        database.url()
    );
    let second = second.again_with(&beside);
    wait_for_rows_of(&database, "mine.trade");
    let names = database.sql("select string_agg(sink, ' ' order by sink) from orrery.cursor");
    assert_eq!(names, "main second");
    second.has_what_was_written(&["second"]);
    first.has_what_was_written(&["main"]);
}
