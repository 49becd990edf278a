//! The complete content of a store, read back, and the content that it should have according to an
//! independent decoding of the raw ledgers.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use orrery_ledger::decode::{MuxedAccountView, Placement};
use orrery_ledger::domain::{
    CloseTime, ContractId, Direction, EventId, LedgerSeq, LedgerSet, Network, Page, TxHash,
};
use orrery_store::{
    EventQuery, EventRecord, IndexedAs, LedgerCounts, LedgerRow, Store, StoreStatus, TopicFilter,
    TransactionPosition, TransactionQuery, TransactionRecord,
};

use super::full;

/// Rows per page.
const PAGE: usize = 1000;
/// Number of contracts, topics and hashes that are looked up through their indexes.
const LOOKUPS: usize = 8;

/// Everything in a store. Long values are kept as hashes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Contents {
    ledgers: BTreeMap<LedgerSeq, LedgerRow>,
    raw: BTreeMap<LedgerSeq, u64>,
    events: BTreeMap<EventId, Event>,
    transactions: BTreeMap<TransactionPosition, Transaction>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Event {
    ledger: LedgerSeq,
    contract: Option<ContractId>,
    topics: Vec<Vec<u8>>,
    tx: TxHash,
    everything: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Transaction {
    tx: TxHash,
    everything: u64,
}

impl Contents {
    /// Reads everything that is stored, page by page, and checks that the indexes agree with it.
    pub fn of(store: &Store) -> Self {
        let mut contents = Self::default();
        let status = store.status();
        for range in &status.ranges {
            for sequence in (range.first.0..=range.last.0).map(LedgerSeq) {
                let row = store.ledger(sequence).unwrap().expect("a covered ledger has a row");
                contents.ledgers.insert(sequence, row);
                if let Some(raw) = store.raw_ledger(sequence).unwrap() {
                    contents.raw.insert(sequence, digest(&raw));
                }
            }
        }
        contents.read_events(store);
        contents.read_transactions(store);
        contents.check_indexes(store, &status.removed.events);
        contents.check_status(&status);
        contents
    }

    /// Adds a ledger as an uninterrupted run would store it after the earlier ones.
    pub fn add(&mut self, xdr: &[u8], network: &Network) {
        let ledger = full::decode(xdr, network.id()).unwrap();
        let first_event = EventId(self.events.len() as u64 + 1);
        self.raw.insert(ledger.sequence, digest(xdr));
        self.ledgers.insert(ledger.sequence, row(&ledger, first_event));
        for (number, event) in ledger.events.iter().enumerate() {
            self.add_event(&ledger, event, EventId(first_event.0 + number as u64));
        }
        for (index, transaction) in ledger.transactions.iter().enumerate() {
            if transaction.smart_contract {
                self.add_transaction(&ledger, index, transaction);
            }
        }
    }

    /// First and last ledger.
    pub fn range(&self) -> Option<(LedgerSeq, LedgerSeq)> {
        Some((*self.ledgers.first_key_value()?.0, *self.ledgers.last_key_value()?.0))
    }

    /// The newest ledger.
    pub fn latest(&self) -> Option<LedgerSeq> {
        self.range().map(|(_, last)| last)
    }

    /// Number of ledgers.
    pub fn count(&self) -> usize {
        self.ledgers.len()
    }

    /// Asserts that this is what an uninterrupted run holds up to the same ledger, except for
    /// records that pruning may have removed: the oldest ones of ledgers before `kept_from`.
    pub fn assert_beginning_of(&self, whole: &Self, kept_from: LedgerSeq) {
        self.with_dense_ids().assert_equals_beginning_of(whole, kept_from);
    }

    /// Returns the same with the ids that an uninterrupted run gives: a crash during an import skips some
    /// before the events of a ledger.
    fn with_dense_ids(&self) -> Self {
        let mut dense = Self {
            ledgers: self.ledgers.clone(),
            raw: self.raw.clone(),
            events: BTreeMap::new(),
            transactions: self.transactions.clone(),
        };
        let (mut next, mut end) = (EventId(1), EventId(1));
        let mut firsts = BTreeMap::new();
        for (ledger, row) in &mut dense.ledgers {
            assert!(row.first_event >= end, "ids of {ledger} are given twice");
            end = EventId(row.first_event.0 + row.counts.events());
            firsts.insert(*ledger, (row.first_event, next));
            row.first_event = next;
            next.0 += row.counts.events();
        }
        for (id, event) in &self.events {
            let (stored, first) = firsts[&event.ledger];
            dense.events.insert(EventId(first.0 + id.0 - stored.0), event.clone());
        }
        dense
    }

    fn assert_equals_beginning_of(&self, whole: &Self, kept_from: LedgerSeq) {
        let Some((first, last)) = self.range() else { return };
        assert_eq!(self.count() as u32, last.0 - first.0 + 1, "the covered range has a gap");
        let expected = whole.ledgers.range(..=last);
        assert_same("ledger", &self.ledgers, expected);
        let oldest = self.raw.first_key_value().map_or(last, |(oldest, _)| *oldest);
        assert!(oldest <= kept_from.max(first), "raw ledger {kept_from} is missing");
        assert_same("raw ledger", &self.raw, whole.raw.range(oldest..=last));

        let kept = |event: &Event| event.ledger >= kept_from;
        let expected = whole.events.iter().filter(|(_, event)| event.ledger <= last);
        let oldest = self.events.first_key_value().map_or(EventId(u64::MAX), |(id, _)| *id);
        let expected = expected.filter(|(id, event)| **id >= oldest || kept(event));
        assert_same("event", &self.events, expected);

        let expected = whole.transactions.iter().filter(|(position, _)| position.ledger <= last);
        let oldest = self.transactions.first_key_value().map(|(position, _)| *position);
        let kept = |position: &TransactionPosition| {
            position.ledger >= kept_from || oldest.is_some_and(|oldest| *position >= oldest)
        };
        let expected = expected.filter(|(position, _)| kept(position));
        assert_same("transaction", &self.transactions, expected);
    }

    fn read_events(&mut self, store: &Store) {
        let mut query = all_events();
        loop {
            let before = self.events.len();
            store
                .events(&query, |record| {
                    insert_event(&mut self.events, record);
                })
                .unwrap();
            if self.events.len() == before {
                return;
            }
            query.page.cursor = self.events.last_key_value().map(|(id, _)| *id);
        }
    }

    fn read_transactions(&mut self, store: &Store) {
        let page = Page { direction: Direction::OldestFirst, ..Page::first(PAGE) };
        let mut query = TransactionQuery { ledgers: None, contracts: Vec::new(), page };
        loop {
            let before = self.transactions.len();
            store
                .transactions(&query, |record| {
                    self.transactions.insert(record.position, Transaction::from(record));
                })
                .unwrap();
            if self.transactions.len() == before {
                return;
            }
            query.page.cursor = self.transactions.last_key_value().map(|(position, _)| *position);
        }
    }

    /// Checks that contracts, topics and hashes lead to exactly the stored events and transactions.
    /// Events of ledgers below `pruned_to` are being removed and need not be found.
    fn check_indexes(&self, store: &Store, removed: &LedgerSet) {
        let step = self.events.len() / LOOKUPS + 1;
        for event in self.events.values().rev().step_by(step) {
            if removed.contains(event.ledger) {
                continue;
            }
            let whole = EventQuery { page: page(usize::MAX), ..all_events() };
            let contracts: Vec<_> = event.contract.into_iter().collect();
            let expected =
                self.ids(|other| contracts.is_empty() || other.contract == event.contract);
            let query = EventQuery { contracts, ..whole.clone() };
            assert_eq!(ids(store, &query), expected, "events of {:?}", event.contract);

            let Some(topic) = event.topics.last() else { continue };
            let anywhere = vec![topic.clone()];
            let topics = TopicFilter { anywhere, ..TopicFilter::default() };
            let expected = self.ids(|other| other.topics.contains(topic));
            assert_eq!(ids(store, &EventQuery { topics, ..whole }), expected, "events by topic");

            let mut found = Vec::new();
            store.events_of_transaction(&event.tx, |record| found.push(record.id)).unwrap();
            assert_eq!(found, self.ids(|other| other.tx == event.tx), "events of {}", event.tx);
        }
        let step = self.transactions.len() / LOOKUPS + 1;
        for (position, transaction) in self.transactions.iter().step_by(step) {
            let mut found = None;
            let found_one = |record: &TransactionRecord<'_>| {
                found = Some((record.position, Transaction::from(record)));
            };
            store.transaction(&transaction.tx, found_one).unwrap();
            assert_eq!(found, Some((*position, transaction.clone())), "{}", transaction.tx);
        }
    }

    fn check_status(&self, status: &StoreStatus) {
        assert!(status.ranges.len() <= 1, "there is a gap: {:?}", status.ranges);
        assert_eq!(status.totals.events, self.events.len() as u64);
        assert_eq!(status.totals.transactions, self.transactions.len() as u64);
        let newest = self.ledgers.last_key_value().map(|(_, row)| row.close_time.seconds());
        assert_eq!(status.latest_close_time, newest);
        if let Some((newest, _)) = self.events.last_key_value() {
            // A crash during an import skips ids.
            assert!(status.last_event_id >= *newest);
        }
    }

    fn ids(&self, wanted: impl Fn(&Event) -> bool) -> Vec<EventId> {
        self.events.iter().filter(|(_, event)| wanted(event)).map(|(id, _)| *id).collect()
    }

    fn add_event(&mut self, ledger: &full::Ledger, event: &full::Event, id: EventId) {
        let transaction = &ledger.transactions[event.transaction];
        let topics: Vec<&[u8]> = event.topics.iter().map(Vec::as_slice).collect();
        let record = EventRecord {
            id,
            ledger: ledger.sequence,
            closed_at: closed_at(ledger),
            tx: transaction.hash.as_bytes(),
            application_order: transaction.application_order,
            placement: event.placement,
            operation_begins: None,
            contract: event.contract.as_ref(),
            event_type: event.event_type,
            successful: None,
            topics: &topics,
            data: &event.data,
        };
        insert_event(&mut self.events, &record);
    }

    fn add_transaction(&mut self, ledger: &full::Ledger, index: usize, one: &full::Transaction) {
        let events = ledger.events.iter().filter(|event| event.transaction == index).count();
        let strkey = |account: &full::Account| {
            MuxedAccountView { ed25519: &account.ed25519, id: account.id }.to_string()
        };
        let record = TransactionRecord {
            tx: one.hash.as_bytes(),
            inner_tx: one.inner_hash.as_ref().map(TxHash::as_bytes),
            position: TransactionPosition {
                ledger: ledger.sequence,
                application_order: one.application_order,
            },
            closed_at: closed_at(ledger),
            successful: one.successful,
            source_account: &strkey(&one.source_account),
            fee_account: &strkey(&one.fee_account),
            fee_charged: one.fee_charged,
            contracts: &one.contracts,
            event_count: events as u32,
            envelope: &one.envelope,
            result: &one.result,
            meta: &one.meta,
        };
        self.transactions.insert(record.position, Transaction::from(&record));
    }
}

impl From<&EventRecord<'_>> for Event {
    fn from(record: &EventRecord<'_>) -> Self {
        let place = (record.application_order, record.op_index(), record.event_index());
        let content = (record.contract, record.event_type, record.topics, record.data);
        Self {
            ledger: record.ledger,
            contract: record.contract.copied().map(ContractId),
            topics: record.topics.iter().map(|topic| topic.to_vec()).collect(),
            tx: TxHash::from(*record.tx),
            everything: digest(&(record.closed_at, record.tx, place, content)),
        }
    }
}

impl From<&TransactionRecord<'_>> for Transaction {
    fn from(record: &TransactionRecord<'_>) -> Self {
        let fee = (record.source_account, record.fee_account, record.fee_charged);
        let outcome = (record.successful, record.contracts, record.event_count);
        let xdr = (record.envelope, record.result, record.meta);
        Self {
            tx: TxHash::from(*record.tx),
            everything: digest(&(record.closed_at, record.inner_tx, fee, outcome, xdr)),
        }
    }
}

fn insert_event(events: &mut BTreeMap<EventId, Event>, record: &EventRecord<'_>) {
    let twice = events.insert(record.id, Event::from(record));
    assert!(twice.is_none(), "event {:?} is there twice", record.id);
}

fn closed_at(ledger: &full::Ledger) -> CloseTime {
    ledger.close_time_ms.map_or(CloseTime::Seconds(ledger.close_time), CloseTime::Milliseconds)
}

fn row(ledger: &full::Ledger, first_event: EventId) -> LedgerRow {
    let of_ledger = |wanted: &dyn Fn(&full::Transaction) -> bool| {
        ledger.transactions.iter().filter(|one| wanted(one)).count() as u32
    };
    let of_events = |wanted: &dyn Fn(bool, bool) -> bool| {
        let is_wanted = |event: &&full::Event| {
            let by_contract = ledger.transactions[event.transaction].smart_contract;
            wanted(matches!(event.placement, Placement::Operation { .. }), by_contract)
        };
        ledger.events.iter().filter(is_wanted).count() as u32
    };
    LedgerRow {
        hash: ledger.hash,
        previous_hash: ledger.previous_hash,
        close_time: closed_at(ledger),
        protocol: ledger.protocol,
        first_event,
        counts: LedgerCounts {
            transactions: of_ledger(&|_| true),
            failed: of_ledger(&|one| !one.successful),
            smart_contract: of_ledger(&|one| one.smart_contract),
            stored_transactions: of_ledger(&|one| one.smart_contract),
            contract_events: of_events(&|operation, by_contract| operation && by_contract),
            classic_events: of_events(&|operation, by_contract| operation && !by_contract),
            fee_events: of_events(&|operation, _| !operation),
        },
        indexed_as: IndexedAs { classic_events: true, fee_events: true, ..IndexedAs::default() },
        digest: super::digest::of(ledger, |_| true),
    }
}

fn page(limit: usize) -> Page<EventId> {
    Page { direction: Direction::OldestFirst, ..Page::first(limit) }
}

fn all_events() -> EventQuery {
    let topics = TopicFilter::default();
    EventQuery { ledgers: None, contracts: Vec::new(), topics, page: page(PAGE) }
}

fn ids(store: &Store, query: &EventQuery) -> Vec<EventId> {
    let mut ids = Vec::new();
    store.events(query, |record| ids.push(record.id)).unwrap();
    ids
}

/// Compares row by row, so that only the first difference is printed.
fn assert_same<'a, K: Ord + std::fmt::Debug + 'a, V: PartialEq + std::fmt::Debug + 'a>(
    what: &str,
    found: &BTreeMap<K, V>,
    expected: impl Iterator<Item = (&'a K, &'a V)>,
) {
    let mut found = found.iter();
    for expected in expected {
        assert_eq!(found.next(), Some(expected), "{what} differs from the uninterrupted run");
    }
    assert_eq!(found.next(), None, "{what} that the uninterrupted run does not have");
}

fn digest(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
