//! Progress of consumers that is reported while the progress of the same consumers is written: both
//! reach the row.

use std::sync::{Arc, Mutex};

use orrery_ledger::domain::{LedgerRange, LedgerSet};
use orrery_store::{ConsumerSpec, Durability, Needs, StartPosition};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use orrery_testkit::histories;
use orrery_testkit::scratch::scratch;
use orrery_testkit::witness::{FIRST, add, open};

const LAST: u32 = FIRST + 19;
const NAME: &str = "reports";
const SPEC: ConsumerSpec = ConsumerSpec {
    name: NAME,
    families: &["seen"],
    needs: Needs { events: true, raw_ledgers: false, transactions: false },
    start: StartPosition::FirstLedger,
};

fn some_ledgers(rng: &mut ChaCha8Rng) -> LedgerSet {
    (FIRST..=LAST).filter(|_| rng.random_bool(0.2)).map(LedgerRange::only).collect()
}

#[test]
fn what_is_reported_during_a_write_is_kept() {
    histories::run(20, 2_000, |seed| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let directory = scratch();
        let store = Arc::new(open(directory.path(), &[SPEC]));
        add(&store, FIRST..=LAST, Durability::Synced);
        let mut lost = LedgerSet::default();
        for place in 1..=6 {
            let (before, during) = (some_ledgers(&mut rng), some_ledgers(&mut rng));
            lost.insert_all(&before);
            lost.insert_all(&during);
            store.mark_passed(NAME, place * 2, &before);
            let (reporter, reports) = (Arc::clone(&store), Arc::new(Mutex::new(0)));
            let count = Arc::clone(&reports);
            store.faults().after_writes(move |_| {
                reporter.mark_passed(NAME, place * 2 + 1, &during);
                *count.lock().unwrap() += 1;
            });
            store.write_cursors().unwrap();
            store.faults().clear();
            assert_eq!(*reports.lock().unwrap(), 1);
            let status = store.consumers().into_iter().find(|it| it.name == NAME).unwrap();
            assert_eq!((status.place, &status.lost), (place * 2 + 1, &lost));
        }
        store.write_cursors().unwrap();
        let before = store.consumers();
        drop(Arc::into_inner(store).unwrap());
        assert_eq!(open(directory.path(), &[SPEC]).consumers(), before);
    });
}
