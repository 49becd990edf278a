//! A consumer of the feed that records what it was given, the witness, and ledgers to give it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::LazyLock;

use orrery_ledger::decode::decode;
use orrery_store::{
    Arrival, ConsumerEffects, ConsumerSpec, Durability, Extensions, FedLedger, IndexOptions,
    LedgerConsumer, Needs, PreparedLedger, RowBounds, Rows, RowsMut, StartPosition, Store,
    StoreError,
};

use super::sandbox::{ledgers, local, sandbox};

/// First ledger of [`CHAIN`].
pub const FIRST: u32 = 2;
/// Number of ledgers of [`CHAIN`].
pub const LEDGERS: u32 = 60;

/// Records which ledgers it was given, in which order and how often.
pub const WITNESS: ConsumerSpec = ConsumerSpec {
    name: "witness",
    families: &["times", "order"],
    needs: Needs { raw_ledgers: false, events: true, transactions: false },
    start: StartPosition::FirstLedger,
};

/// Ledgers of a sandbox.
pub static CHAIN: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| ledgers(sandbox(11, 1..=2), LEDGERS));

/// A ledger with all that can be indexed.
pub fn prepared(xdr: &[u8]) -> PreparedLedger {
    let view = decode(xdr, local().id()).unwrap();
    let options = IndexOptions { fee_events: true, raw_ledgers: true, ..IndexOptions::default() };
    PreparedLedger::new(&view, &options).unwrap()
}

/// Stores ledgers of [`CHAIN`].
pub fn add(store: &Store, ledgers: RangeInclusive<u32>, durability: Durability) {
    for ledger in ledgers {
        store.commit(prepared(&CHAIN[(ledger - FIRST) as usize]), durability).unwrap();
    }
}

/// Opens a store with these consumers.
pub fn open(directory: &Path, consumers: &[ConsumerSpec]) -> Store {
    let consumers = consumers.to_vec();
    let extensions = Extensions { consumers, ..Extensions::default() };
    Store::open_with(directory, Some(&local()), extensions).unwrap()
}

/// Work of the witness for a ledger: counts it in `times` and records its place in `order`.
pub fn witness(fed: &FedLedger, effects: &mut ConsumerEffects<'_>) -> Result<(), StoreError> {
    let key = fed.ledger.0.to_be_bytes();
    let times = effects.get("times", &key)?.map_or(0, |value| value[0]);
    effects.put("times", key.to_vec(), vec![times + 1, u8::from(fed.arrival == Arrival::Live)])?;
    effects.put("order", fed.place.to_be_bytes().to_vec(), key.to_vec())
}

/// Ledgers that the witness was given: by place, and by ledger how often and whether it arrived
/// live.
pub struct Witnessed {
    pub order: BTreeMap<u64, u32>,
    pub times: BTreeMap<u32, (u8, bool)>,
}

/// Reads back what the witness has recorded.
pub fn witnessed(store: &Store) -> Witnessed {
    let view = store.consumer_view(WITNESS.name, RowBounds::none()).unwrap();
    let mut order = BTreeMap::new();
    view.scan("order", |key, value| {
        let place = u64::from_be_bytes(key.try_into().unwrap());
        order.insert(place, u32::from_be_bytes(value.try_into().unwrap()));
    })
    .unwrap();
    let mut times = BTreeMap::new();
    view.scan("times", |key, value| {
        let ledger = u32::from_be_bytes(key.try_into().unwrap());
        times.insert(ledger, (value[0], value[1] != 0));
    })
    .unwrap();
    Witnessed { order, times }
}

/// Asserts that every ingested ledger was given exactly once, with its place and with the correct
/// arrival.
pub fn assert_all_once(store: &Store) {
    let Witnessed { order, times } = witnessed(store);
    let fed = store.fed_after(0, usize::MAX);
    assert!(order.into_iter().eq(fed.iter().map(|fed| (fed.place, fed.ledger.0))));
    let expected = fed.iter().map(|fed| (fed.ledger.0, (1, fed.arrival == Arrival::Live)));
    assert_eq!(times, expected.collect());
}

/// The witness as a consumer of a running service.
pub struct Witness;

impl LedgerConsumer for Witness {
    fn spec(&self) -> ConsumerSpec {
        WITNESS
    }

    fn process_ledger(
        &self,
        _: &Store,
        ledger: &FedLedger,
        effects: &mut ConsumerEffects<'_>,
    ) -> Result<(), StoreError> {
        witness(ledger, effects)
    }
}
