//! What a database can do to rows while a service copies them: disks that fill up, time limits, questions that somebody
//! cancels; ledgers with very many rows; and orders that a restart must not forget.

use orrery::control::{Client, SINK_REPLACE};
use orrery::sinks::{SinkProjectRequest, SinkProjectState};
use orrery_testkit::postgres::{Database, Server, is_missing};
use orrery_testkit::values::{bytes, list, symbol};
use orrery_testkit::wait::wait_until;

use crate::network::{Chain, call};
use crate::service::Scene;
use crate::service_projects::{emitting_each, wait_for_events, watch};
use crate::sinking::{assert_equal, project, report, start, start_with, wait_for};

/// Schemas that the tests' projects need.
const SCHEMAS: [&str; 2] = ["orrery", "p"];

/// A contract that emits what it is told, and its ledgers.
struct Emitting {
    chain: Chain,
    contract: orrery::domain::ContractId,
    /// Number of events that a call emits.
    each: u64,
    events: u64,
}

impl Emitting {
    fn new() -> Self {
        Self::with(1)
    }

    fn with(each: u64) -> Self {
        let mut chain = Chain::new();
        let contract = chain.create_of(&emitting_each(each as usize), Vec::new());
        Self { chain, contract, each, events: 0 }
    }

    /// Imports a ledger with this many calls, at most one for each account, with events of this size in bytes.
    fn import(&mut self, scene: &Scene, calls: u64, size: usize) {
        let requests: Vec<_> = (0..calls)
            .map(|number| {
                let data = bytes(&vec![number as u8; size]);
                call(self.contract, "emit", vec![list([symbol("sent")]), data])
            })
            .collect();
        self.chain.close(&requests);
        self.events += calls * self.each;
        self.chain.import_into(scene);
    }
}

#[test]
fn a_full_disk_delays_rows_and_loses_none() {
    if is_missing() {
        return;
    }
    let Some(server) = Server::on_small_disk(96) else { return };
    let database = Database::on(&server, &SCHEMAS);
    let mut emitting = Emitting::new();
    let scene = Scene::new();
    let service = start(&scene, &database);
    let ana = scene.owner(&service, "ana");
    let id = watch(&ana, "p", &[emitting.contract]);
    emitting.import(&scene, 3, 10);
    wait_for_events(&ana, id, emitting.events);
    assert_equal(&scene, &database, &ana, id, "p");
    server.fill_disk(true);
    for _ in 0..12 {
        emitting.import(&scene, 10, 2_000);
    }
    let reason = wait_until("the sink says what is the matter", || {
        let report = report(&scene);
        let reason =
            report.reason.clone().filter(|it| it.contains("make room on the server's disk"));
        reason.ok_or_else(|| Box::new(report))
    });
    assert!(reason.contains("[53100]"), "{reason}");
    // Nothing else waits for it.
    wait_for_events(&ana, id, emitting.events);
    ana.wait("all events are in tables", |it| {
        it.query("select count(*) as n from p.sent")[0]["n"] == emitting.events
    });
    server.fill_disk(false);
    assert_equal(&scene, &database, &ana, id, "p");
    assert_eq!(database.sql("select count(*) from p.sent"), emitting.events.to_string());
}

#[test]
fn time_limits_and_cancelled_statements_lose_no_row() {
    if is_missing() {
        return;
    }
    let database = Database::new(&SCHEMAS);
    let mut emitting = Emitting::new();
    let scene = Scene::new();
    let service = start(&scene, &database);
    let ana = scene.owner(&service, "ana");
    let id = watch(&ana, "p", &[emitting.contract]);
    emitting.import(&scene, 3, 10);
    wait_for_events(&ana, id, emitting.events);
    assert_equal(&scene, &database, &ana, id, "p");
    let others =
        "from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";
    // Limits of the role, which hold for the next connection.
    let role = database.role();
    database.sql(&format!(
        "alter role {role} set statement_timeout = 200; alter role {role} set lock_timeout = 200; alter role {role} set \
         idle_in_transaction_session_timeout = 200; select count(pg_terminate_backend(pid)) {others}"
    ));
    for _ in 0..10 {
        emitting.import(&scene, 10, 500);
        database.sql(&format!("select count(pg_cancel_backend(pid)) {others}"));
    }
    wait_for_events(&ana, id, emitting.events);
    assert_equal(&scene, &database, &ana, id, "p");
    assert_eq!(database.sql("select count(*) from p.sent"), emitting.events.to_string());
}

/// A ledger with more rows than are in memory at once, live and filled in.
#[test]
fn a_ledger_with_very_many_rows_is_one_transaction() {
    if is_missing() {
        return;
    }
    let database = Database::new(&SCHEMAS);
    let mut emitting = Emitting::with(24);
    let scene = Scene::new();
    let service = start(&scene, &database);
    let ana = scene.owner(&service, "ana");
    let id = watch(&ana, "p", &[emitting.contract]);
    emitting.import(&scene, 1, 10);
    wait_for_events(&ana, id, emitting.events);
    assert_equal(&scene, &database, &ana, id, "p");
    // As much as fits into an answer of SQL, which the rows are compared with.
    emitting.import(&scene, 10, 28_000);
    let ledger = emitting.chain.latest();
    emitting.import(&scene, 2, 10);
    wait_for_events(&ana, id, emitting.events);
    assert_equal(&scene, &database, &ana, id, "p");
    let found =
        |what: &str| database.sql(&format!("select {what} from p.sent where _ledger = {ledger}"));
    let size: u64 = found("sum(length(value))").parse().unwrap();
    assert!(size > 6 << 20, "{size}");
    assert_eq!(found("count(*), count(distinct xmin::text)"), "240|1");
    // The rows behind the view are written with them.
    let writers = format!(
        "select count(distinct xmin) from (select xmin::text from p.sent where _ledger = {ledger} union all select \
         xmin::text from p.events where ledger = {ledger}) as t"
    );
    assert_eq!(database.sql(&writers), "1");
    // Also when all is filled in again.
    let request = SinkProjectRequest { sink: "main".to_owned(), project: "p".to_owned() };
    Client::connect(scene.path()).unwrap().unwrap().ask(SINK_REPLACE, &request).unwrap();
    assert_equal(&scene, &database, &ana, id, "p");
}

#[test]
fn an_order_to_replace_outlives_the_service() {
    if is_missing() {
        return;
    }
    let database = Database::new(&SCHEMAS);
    let mut emitting = Emitting::new();
    let scene = Scene::new();
    let service = start(&scene, &database);
    let ana = scene.owner(&service, "ana");
    let token = ana.token().to_owned();
    let id = watch(&ana, "p", &[emitting.contract]);
    emitting.import(&scene, 5, 10);
    wait_for_events(&ana, id, emitting.events);
    assert_equal(&scene, &database, &ana, id, "p");
    let table = || database.sql("select 'p.sent'::regclass::oid");
    let state = || database.sql("select state from orrery.cursor");
    let before = table();
    database.sql("truncate p.sent; create materialized view public.kept as select * from p.sent");
    // It cannot be done while somebody reads, who began before.
    let held = database.hold("begin isolation level repeatable read; select count(*) from p.sent");
    let request = SinkProjectRequest { sink: "main".to_owned(), project: "p".to_owned() };
    let ordered = Client::connect(scene.path()).unwrap().unwrap().ask(SINK_REPLACE, &request);
    assert_eq!(ordered.unwrap().state, SinkProjectState::Behind);
    assert_eq!(state(), "replacing");
    drop(service);
    drop(held);
    assert_eq!((table(), state()), (before.clone(), "replacing".to_owned()));

    let service = start_with(&scene, &database.url(), "*", &[]);
    let ana = crate::service::Owner::with_token(&service, &token);
    wait_until("it is done", || {
        (table() != before).then_some(()).ok_or_else(|| Box::new(project(&scene, "p")))
    });
    wait_for(&scene, "p", SinkProjectState::Live);
    assert_eq!(state(), "live");
    assert_equal(&scene, &database, &ana, id, "p");
    assert_eq!(database.sql("select count(*) from p.sent"), emitting.events.to_string());
    // What could not be kept was dropped, as was ordered.
    assert_eq!(database.sql("select count(*) from pg_matviews"), "0");
    // It was done once: nothing is left to do for another start.
    let now = table();
    drop(service);
    let _service = start_with(&scene, &database.url(), "*", &[]);
    wait_for(&scene, "p", SinkProjectState::Live);
    assert_eq!((table(), state()), (now.clone(), "live".to_owned()));
    // An order whose answer was lost is in the database alone: the next rows show it.
    database.sql("update orrery.cursor set state = 'replacing'");
    emitting.import(&scene, 1, 10);
    wait_until("it is done", || {
        (table() != now).then_some(()).ok_or_else(|| Box::new(project(&scene, "p")))
    });
    wait_for(&scene, "p", SinkProjectState::Live);
    assert_eq!(state(), "live");
}
