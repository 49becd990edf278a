//! Data directories with wrong totals: repaired on request, or on opening when an earlier version
//! wrote them.

use std::path::Path;

use orrery::domain::Network;
use orrery::store::Store;
use rocksdb::{DB, Options};

use crate::harness::run;

/// Creates a data directory whose totals count 7 events that do not exist. With
/// `by_an_earlier_version`, the row that marks the totals as exact is missing.
fn drifted(at: &Path, by_an_earlier_version: bool) {
    let network = Network::from_name_or_passphrase("testnet");
    drop(Store::open(&at.join("d"), Some(&network)).unwrap());
    let (options, raw) = (Options::default(), at.join("d/raw"));
    let database = DB::open_cf(&options, &raw, DB::list_cf(&options, &raw).unwrap()).unwrap();
    let meta = database.cf_handle("meta").unwrap();
    // Totals row: events, transactions and latest close time (u64 each), then the pruning floors of
    // events and transactions (u32 each).
    let totals = [&7u64.to_be_bytes()[..], &[0; 16], &[0; 8]].concat();
    database.put_cf(meta, "totals", totals).unwrap();
    if by_an_earlier_version {
        database.delete_cf(meta, "totals_are_exact").unwrap();
    }
}

#[test]
fn drift_is_told_apart_from_damage_and_repaired_when_it_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    drifted(at, false);
    let verified = run(at, &["verify", "--data-dir", "d"]);
    assert_eq!((verified.code, verified.stderr.as_str()), (0, ""), "{}", verified.stdout);
    for part in ["it counts 7 events, and 0 are there", "nothing is lost", "verify --repair"] {
        assert!(verified.stdout.contains(part), "{}", verified.stdout);
    }
    assert!(!verified.stdout.contains("backup"), "{}", verified.stdout);
    assert_eq!(run(at, &["verify", "--data-dir", "d", "--repair", "--from", "2"]).code, 2);

    let repaired = run(at, &["verify", "--data-dir", "d", "--repair"]);
    assert!(repaired.code == 0 && repaired.stdout.contains("corrected"), "{}", repaired.stdout);
    let again = run(at, &["verify", "--data-dir", "d", "--repair"]).stdout;
    assert!(!again.contains("it counts"), "{again}");
}

#[test]
fn what_an_earlier_version_left_is_repaired_by_opening_it() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    drifted(at, true);
    assert_eq!(run(at, &["status", "--data-dir", "d", "--json"]).json()["events"], 0);
    assert!(!run(at, &["verify", "--data-dir", "d"]).stdout.contains("it counts"));
}
