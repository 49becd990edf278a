//! Tables of projects that are laid out anew, as a client sees them meanwhile: older ledgers, code that
//! becomes known, further contracts, columns of other types, shapes that get into other tables. The rows
//! never become fewer, all tables together are always all events, what the status says of them is true,
//! and in the end they are those of a project that is made anew.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};
use stellar_xdr::ScVal;

use crate::network::{Chain, call};
use crate::service::{Owner, Scene};
use crate::service_projects::{
    content, count, difference, emitting, tables, wait_for_events, watch,
};
use orrery_testkit::binary::Service;
use orrery_testkit::size;
use orrery_testkit::upgraded::Upgraded;
use orrery_testkit::values::{list, string, symbol};
use orrery_testkit::wait::wait_until;

static UPGRADED: LazyLock<Upgraded> = LazyLock::new(Upgraded::made);

/// What a client sees of one project.
struct Reader<'a> {
    owner: &'a Owner,
    id: u32,
    project: &'a str,
    /// Number of events that the view of all events had last.
    least: u64,
    /// Number of answers with all of the project's tables.
    whole: u32,
}

impl Reader<'_> {
    /// Asks once for everything.
    fn look(&mut self) {
        let status = self.owner.get(&format!("{}/status", self.id));
        let Some(events) = self.ask(&format!("select count(*) n from {}.events", self.project))
        else {
            return;
        };
        let now = events["n"].as_u64().unwrap();
        assert!(now >= self.least, "{now} events, after {}", self.least);
        self.least = now;
        if status["rows_in_tables"] == true {
            let said = status["events"].as_u64().unwrap();
            assert!(now >= said, "{now} events in the tables: {status}");
        }
        self.look_at_all_tables();
    }

    /// All tables of the list together have the events of the view, in one answer.
    fn look_at_all_tables(&mut self) {
        let listed = self.listed();
        let counts = listed.iter().map(|table| format!("(select count(*) from {table})"));
        let counts = counts.collect::<Vec<_>>().join(" + ");
        let sql = format!("select {counts} n, (select count(*) from {}.events) e", self.project);
        let (status, body) = self.owner.ask("POST", "query", Some(&json!({ "query": sql })));
        match status {
            200 => {
                // The tables may be others than those of the list by now.
                if self.listed() == listed {
                    assert_eq!(body[0]["n"], body[0]["e"], "{sql}");
                    self.whole += 1;
                }
            }
            503 => {}
            _ if self.listed() != listed => {}
            _ => {
                let (again, body) = self.owner.ask("POST", "query", Some(&json!({ "query": sql })));
                let is_same = self.listed() == listed;
                assert!(again != 422 || !is_same, "a table of the list is unknown: {body}");
            }
        }
    }

    fn listed(&self) -> Vec<String> {
        let prefix = format!("program_{}_", self.id);
        let list = self.owner.get("tables");
        let names = list.as_array().unwrap().iter().map(|it| it["table_name"].as_str().unwrap());
        names.filter(|it| it.starts_with(&prefix)).map(str::to_owned).collect()
    }

    /// The first row of an answer; `None` while the tables are not answered for.
    fn ask(&self, sql: &str) -> Option<Value> {
        let (status, body) = self.owner.ask("POST", "query", Some(&json!({ "query": sql })));
        match status {
            200 => Some(body[0].clone()),
            503 => None,
            _ => panic!("{sql}: {status} {body}"),
        }
    }
}

/// Does something, and looks at a project until it is over.
fn looking<T>(owner: &Owner, id: u32, project: &str, work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reader = Reader { owner, id, project, least: 0, whole: 0 };
            while !over.load(Ordering::Acquire) {
                reader.look();
            }
            reader.look();
            reader.whole
        });
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        over.store(true, Ordering::Release);
        assert!(reader.join().unwrap() > 0, "it has seen all tables at least once");
        worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Waits until a project has the tables of one that is made anew.
fn assert_as_made_anew(
    owner: &Owner,
    id: u32,
    contracts: &[orrery::domain::ContractId],
    events: u64,
) {
    let fresh = watch(owner, "fresh", contracts);
    wait_for_events(owner, fresh, events);
    wait_until("the tables are those of a new project", || {
        let (found, expected) = (content(owner, id), content(owner, fresh));
        let count: usize = found.values().map(|(_, rows)| rows.len()).sum();
        let is_whole = count as u64 == events;
        if found == expected && is_whole { Ok(()) } else { Err(difference(&found, &expected)) }
    });
    owner.ask("DELETE", &fresh.to_string(), None);
}

fn settled(owner: &Owner, id: u32, events: u64) {
    owner.wait("all events are in the tables", |it| {
        let status = it.get(&format!("{id}/status"));
        status["events"] == events
            && status["rows_in_tables"] == true
            && status["backfill"] != "running"
    });
}

#[test]
fn tables_stay_whole_while_ledgers_code_and_contracts_arrive() {
    let all = &*UPGRADED;
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    let own = &all.contracts[..1];
    let id = watch(&ana, "said", own);
    // The newest first: each part has the code of what is known already, or events that come first.
    let parts: Vec<_> =
        all.ledgers.chunks(all.ledgers.len().div_ceil(size::choose(4, 12) as usize)).collect();
    looking(&ana, id, "said", || {
        for part in parts.iter().rev() {
            scene.import_ledgers(*part);
        }
        settled(&ana, id, count(&all.ledgers, own));
    });
    looking(&ana, id, "said", || {
        let others: Vec<_> = all.contracts[1..].iter().map(ToString::to_string).collect();
        ana.post("append-contracts", &json!({ "program_id": id, "contracts": others }));
        settled(&ana, id, count(&all.ledgers, &all.contracts));
    });
    assert_as_made_anew(&ana, id, &all.contracts, count(&all.ledgers, &all.contracts));
    // A new project, whose tables change with nearly every ledger that it reads.
    let id = watch(&ana, "later", &all.contracts);
    looking(&ana, id, "later", || settled(&ana, id, count(&all.ledgers, &all.contracts)));
}

/// Calls that emit events under one name: with values of other types, of other shapes, and with names
/// that displace others.
fn calls(ledger: u32) -> Vec<(ScVal, ScVal)> {
    let value = match ledger % 5 {
        0 => ScVal::U32(ledger),
        1 => ScVal::I64(-1),
        2 => symbol("word"),
        3 => string("text"),
        _ => list([ScVal::U32(1), symbol("mixed")]),
    };
    vec![
        (list([symbol("mixed")]), value.clone()),
        (list([symbol("mixed"), ScVal::U32(ledger)]), value.clone()),
        (list([symbol("Mixed_2")]), value.clone()),
        (list([symbol(&format!("name_{}", ledger % 7))]), value),
    ]
}

#[test]
fn tables_stay_whole_while_columns_and_tables_change() {
    let mut chain = Chain::new();
    let contract = chain.create_of(&emitting(), Vec::new());
    let ledgers = size::choose(20, 200) as u32;
    for ledger in 0..ledgers {
        let calls = calls(ledger).into_iter().flat_map(|(topics, data)| {
            (0..4).map(move |_| call(contract, "emit", vec![topics.clone(), data.clone()]))
        });
        chain.close(&calls.collect::<Vec<_>>());
    }
    let raw = chain.take_unsaved();
    let events = count(&raw, &[contract]);
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    let id = watch(&ana, "mixed", &[contract]);
    looking(&ana, id, "mixed", || {
        for part in raw.chunks(raw.len().div_ceil(8)).rev() {
            scene.import_ledgers(part);
        }
        settled(&ana, id, events);
    });
    assert!(tables(&ana, id).len() > 8);
    assert_as_made_anew(&ana, id, &[contract], events);
}
