//! Data that a consumer gathers from whole ledgers is the same whether it was cached or is read
//! from the raw form, and a ledger that has just been stored is not decoded a second time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use orrery_ledger::decode::{LedgerView, decode};
use orrery_ledger::domain::LedgerSeq;
use orrery_store::{
    ConsumerEffects, ConsumerSpec, Durability, Extensions, FedLedger, Gathers, IndexOptions,
    LedgerConsumer, Needs, PreparedLedger, Retention, RowBounds, RowsMut, StartPosition, Store,
    StoreError,
};

use orrery_testkit::sandbox::local;
use orrery_testkit::scratch::scratch;
use orrery_testkit::witness::{CHAIN, FIRST, LEDGERS};

const HASHES: &str = "hashes";
const GATHERS: Gathers = Gathers { consumer: "gatherer", from: hashes };
const RAW_KEPT: IndexOptions =
    IndexOptions { raw_ledgers: true, classic_events: false, fee_events: false, contracts: None };

static WALKS: AtomicUsize = AtomicUsize::new(0);

fn hashes(ledger: &LedgerView<'_>) -> Vec<u8> {
    WALKS.fetch_add(1, Ordering::Relaxed);
    ledger.transactions.iter().flat_map(|it| *it.hash.as_bytes()).collect()
}

/// Records the hashes of all transactions of each ledger.
struct Gatherer;

impl LedgerConsumer for Gatherer {
    fn spec(&self) -> ConsumerSpec {
        ConsumerSpec {
            name: GATHERS.consumer,
            families: &[HASHES],
            needs: Needs::default(),
            start: StartPosition::FirstLedger,
        }
    }

    fn gathers(&self) -> Option<Gathers> {
        Some(GATHERS)
    }

    fn process_ledger(
        &self,
        store: &Store,
        ledger: &FedLedger,
        effects: &mut ConsumerEffects<'_>,
    ) -> Result<(), StoreError> {
        let Some(hashes) = store.gathered(&GATHERS, ledger.ledger)? else { return Ok(()) };
        effects.put(HASHES, ledger.ledger.0.to_be_bytes().to_vec(), hashes)
    }
}

fn open(directory: &std::path::Path) -> Store {
    let extensions = Extensions::for_consumers(&[Arc::new(Gatherer)]);
    Store::open_with(directory, Some(&local()), extensions).unwrap()
}

/// Returns the ledgers that the consumer has recorded, and asserts that the recorded hashes are
/// correct.
fn written(store: &Store) -> Vec<u32> {
    let mut ledgers = Vec::new();
    let view = store.consumer_view(GATHERS.consumer, RowBounds::none()).unwrap();
    view.scan(HASHES, |key, value| {
        let ledger = u32::from_be_bytes(key.try_into().unwrap());
        let raw = &CHAIN[(ledger - FIRST) as usize];
        let expected = decode(raw, local().id()).unwrap().transactions;
        let expected: Vec<_> = expected.iter().flat_map(|it| *it.hash.as_bytes()).collect();
        assert_eq!(value, expected, "ledger {ledger}");
        ledgers.push(ledger);
    })
    .unwrap();
    ledgers
}

#[test]
fn only_a_late_consumer_decodes_a_ledger_again() {
    let directory = scratch();
    let add = |store: &Store, ledger: u32, options: &IndexOptions| {
        let view = decode(&CHAIN[(ledger - FIRST) as usize], local().id()).unwrap();
        let prepared = store.prepare(&view, None, options).unwrap();
        store.commit(prepared, Durability::Synced).unwrap();
    };
    let follow = |store: &Store| while store.step(&Gatherer).unwrap() {};
    let walks = || WALKS.load(Ordering::Relaxed);
    let last = FIRST + LEDGERS - 1;
    let (begun, store) = (walks(), open(directory.path()));
    // One at a time, and then many at once.
    for ledger in FIRST..FIRST + 10 {
        add(&store, ledger, &RAW_KEPT);
        follow(&store);
    }
    (FIRST + 10..FIRST + 30).for_each(|ledger| add(&store, ledger, &RAW_KEPT));
    follow(&store);
    assert_eq!(written(&store), Vec::from_iter(FIRST..FIRST + 30));
    assert_eq!(walks() - begun, 30);
    // Storing the same ledger again changes nothing and caches nothing: one more walk while it is
    // prepared, and one while its value is read.
    add(&store, FIRST + 29, &RAW_KEPT);
    assert_eq!(
        store.gathered(&GATHERS, LedgerSeq(FIRST + 29)).unwrap().map(|_| walks()),
        Some(begun + 32)
    );
    // The cache is empty after a restart.
    (FIRST + 30..FIRST + 40).for_each(|ledger| add(&store, ledger, &RAW_KEPT));
    drop(store);
    let (begun, store) = (walks(), open(directory.path()));
    follow(&store);
    assert_eq!(written(&store), Vec::from_iter(FIRST..FIRST + 40));
    assert_eq!(walks() - begun, 10);
    // A ledger that was not prepared by this store is gathered from its raw form.
    let view = decode(&CHAIN[40], local().id()).unwrap();
    store.commit(PreparedLedger::new(&view, &RAW_KEPT).unwrap(), Durability::Synced).unwrap();
    follow(&store);
    assert_eq!(walks() - begun, 11);
    // Without raw ledgers there is nothing to gather from.
    let no_raw = IndexOptions { raw_ledgers: false, ..RAW_KEPT };
    (FIRST + 41..=last).for_each(|ledger| add(&store, ledger, &no_raw));
    follow(&store);
    assert_eq!(written(&store), Vec::from_iter(FIRST..=FIRST + 40));
    assert_eq!(walks() - begun, 11);
}

#[test]
fn unused_extracts_are_evicted_at_the_cache_limit() {
    const BYTES: usize = 200 << 10;
    const ROOM: usize = 8 << 20;
    static WALKS: AtomicUsize = AtomicUsize::new(0);
    const MUCH: Gathers = Gathers {
        consumer: GATHERS.consumer,
        from: |ledger| {
            WALKS.fetch_add(1, Ordering::Relaxed);
            vec![ledger.header.sequence.0 as u8; BYTES]
        },
    };
    let directory = scratch();
    let consumers = vec![Gatherer.spec()];
    let extensions = Extensions { consumers, gathers: vec![MUCH], ..Extensions::default() };
    let store = Store::open_with(directory.path(), Some(&local()), extensions).unwrap();
    for xdr in CHAIN.iter() {
        let view = decode(xdr, local().id()).unwrap();
        let prepared = store.prepare(&view, None, &RAW_KEPT).unwrap();
        store.commit(prepared, Durability::Deferred).unwrap();
    }
    let before = WALKS.load(Ordering::Relaxed);
    assert_eq!(before, LEDGERS as usize);
    // All values are correct. Ledgers that are not decoded again were in the cache.
    for ledger in (FIRST..FIRST + LEDGERS).map(LedgerSeq) {
        let gathered = store.gathered(&MUCH, ledger).unwrap();
        assert!(gathered == Some(vec![ledger.0 as u8; BYTES]), "ledger {ledger}");
    }
    let kept = 2 * LEDGERS as usize - WALKS.load(Ordering::Relaxed);
    assert!((ROOM / BYTES / 2..=ROOM / BYTES).contains(&kept), "{kept} were kept");
    let retention = Retention { raw_ledgers: Some(1), ..Retention::default() };
    while !store.prune(&retention).unwrap().is_nothing() {}
    assert_eq!(store.gathered(&MUCH, LedgerSeq(FIRST)).unwrap(), None);
}
