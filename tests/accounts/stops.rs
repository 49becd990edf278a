//! A service is told to stop while many ledgers wait for the account indexes. It ends without
//! processing them, keeps what is done, and processes the others after the next start.
//!
//! Small: 2,000 ledgers; full: 20,000.

use std::path::Path;
use std::time::Instant;

use orrery::accounts::AccountIndex;
use orrery::accounts::smart::SmartAccounts;
use orrery::store::{Durability, IndexOptions};
use orrery_testkit::process::Program;
use orrery_testkit::scratch::scratch;
use orrery_testkit::signal::{Signal, send};
use orrery_testkit::size;

use crate::world::{growing, ledger, open};

/// Returns how many stored ledgers wait for the index while no service runs.
fn waiting(directory: &Path) -> u64 {
    open(directory).consumer(SmartAccounts::CONSUMER).unwrap().lag
}

#[test]
fn a_service_stops_at_once_while_many_ledgers_wait() {
    let ledgers = size::choose(2_000, 20_000);
    let directory = scratch();
    let at = directory.path();
    {
        let store = open(at);
        for sequence in 1..=u32::try_from(ledgers).unwrap() {
            let prepared = ledger(sequence, &[growing(sequence)]).prepare(&IndexOptions::default());
            store.commit(prepared, Durability::Deferred).unwrap();
        }
        store.flush().unwrap();
    }
    assert_eq!(waiting(at), ledgers);

    let arguments = ["serve", "--no-source", "--listen", "127.0.0.1:0"];
    let service = Program::start(at, arguments, &[]);
    let lag = |service: &Program| {
        let status = service.status()?;
        let of_index =
            status.consumers.into_iter().find(|it| it.name == SmartAccounts::CONSUMER)?;
        Some(of_index.lag)
    };
    service.wait_until("the index has begun", || lag(&service).is_some_and(|lag| lag < ledgers));
    let begun = Instant::now();
    assert!(send(service.id(), Signal::TERM));
    let ran = service.end();
    let (stopped, left) = (begun.elapsed(), waiting(at));
    println!("{left} of {ledgers} ledgers wait after {stopped:?}");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!((1..ledgers).contains(&left), "{left}: it did not wait for all, and kept some");

    let service = Program::start(at, arguments, &[]);
    service.wait_until("the index has all", || lag(&service) == Some(0));
    assert!(send(service.id(), Signal::TERM));
    assert_eq!(service.end().code, 0);
    assert_eq!(waiting(at), 0);
}
