//! `orrery verify` on a data directory with wrong totals.

use orrery::domain::Network;
use orrery::store::Store;
use rocksdb::{DB, Options};

use orrery_testkit::binary::run;

#[test]
fn totals_that_differ_from_what_is_stored_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let network = Network::from_name_or_passphrase("testnet");
    drop(Store::open(&at.join("d"), Some(&network)).unwrap());
    let sound = run(at, &["verify", "--data-dir", "d"]);
    assert_eq!((sound.code, sound.stderr.as_str()), (0, ""), "{}", sound.stdout);
    let (options, raw) = (Options::default(), at.join("d/raw"));
    let database = DB::open_cf(&options, &raw, DB::list_cf(&options, &raw).unwrap()).unwrap();
    let meta = database.cf_handle("meta").unwrap();
    // Totals row: events, transactions and latest close time (u64 each), then the pruning floors of
    // events and transactions (u32 each).
    let totals = [&7u64.to_be_bytes()[..], &[0; 16], &[0; 8]].concat();
    database.put_cf(meta, "totals", totals).unwrap();
    drop(database);
    let verified = run(at, &["verify", "--data-dir", "d"]);
    assert_eq!(verified.code, 1, "{}", verified.stdout);
    let told: Vec<&str> = verified.stderr.lines().collect();
    assert_eq!(told[0], "meta 'totals': it counts 7 events, and 0 are there");
    assert!(told[1].contains("1 problem was found in d: restore a backup"), "{told:?}");
}
