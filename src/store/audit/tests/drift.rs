//! Totals that differ from the stored data: reported separately from damage, and corrected.

use super::super::super::{TOTALS_ROW, recount};
use super::*;

/// Totals that earlier versions left too low are not damage: they are reported separately and
/// corrected.
#[test]
fn drifted_totals_are_no_damage_and_are_put_right() {
    let sound = stored(&everything());
    type Drift = fn(&mut Totals);
    let drifts: [(Drift, &str); 3] = [
        (|totals| totals.events += 1, "events, and"),
        (|totals| totals.transactions -= 1, "transactions, and"),
        (|totals| totals.latest_close_time = 7, "close time of the newest ledger"),
    ];
    for (drift, sentence) in drifts {
        for by_an_earlier_version in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            copy(sound.path(), directory.path());
            let database = Database::open(&directory.path().join(RAW_DIRECTORY)).unwrap();
            let mut batch = database.batch();
            let mut totals = Totals::load(&database).unwrap();
            let exact = totals;
            drift(&mut totals);
            batch.put_raw(Family::Meta, TOTALS_ROW, &totals.encode()).unwrap();
            if by_an_earlier_version {
                recount::forget_exactness(&mut batch).unwrap();
            }
            database.write_synced(batch).unwrap();
            drop(database);
            let audit = audited(directory.path(), None);
            assert_eq!(audit.problems, [], "drift is no damage");
            assert!(audit.drift.len() == 1 && audit.drift[0].what.contains(sentence), "{audit:?}");
            let part = audited(directory.path(), Some(LedgerRange::new(2, 9)));
            assert_sound(&part);

            let store = Store::open(directory.path(), None).unwrap();
            if !by_an_earlier_version {
                assert_eq!(store.status().totals, totals, "counting again is not for every start");
                let recount = store.recount().unwrap();
                assert_eq!((recount.before, recount.after), (totals, exact));
            }
            assert_eq!(store.status().totals, exact);
            drop(store);
            assert_sound(&audited(directory.path(), None));
        }
    }
}
