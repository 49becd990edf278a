//! A plain in-memory model of the store, and random ledgers to fill both with.

use std::collections::BTreeMap;

use orrery_ledger::decode::{
    EventType, EventView, HeaderView, LedgerView, MuxedAccountView, Placement, TransactionView,
    changed_entries,
};
use orrery_ledger::domain::{
    CloseTime, ContractId, Direction, EventId, LedgerHash, LedgerRange, LedgerSeq, RpcEventId,
    TxHash,
};
use orrery_store::{
    EventQuery, EventRecord, IndexOptions, PreparedLedger, TransactionPosition, TransactionQuery,
    TransactionRecord,
};
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};
use stellar_xdr as x;

/// A ledger as plain values.
#[derive(Debug, Clone)]
pub struct Ledger {
    pub sequence: u32,
    pub hash: [u8; 32],
    pub previous_hash: [u8; 32],
    pub close_time: CloseTime,
    pub raw: Vec<u8>,
    pub transactions: Vec<Transaction>,
    pub events: Vec<Event>,
}

#[derive(Debug, Clone)]
pub struct Transaction {
    pub hash: [u8; 32],
    pub inner_hash: Option<[u8; 32]>,
    pub smart_contract: bool,
    pub successful: bool,
    pub account: [u8; 32],
    pub contracts: Vec<ContractId>,
    pub parts: [Vec<u8>; 3],
}

#[derive(Debug, Clone)]
pub struct Event {
    pub transaction: usize,
    pub placement: Placement,
    pub contract: Option<[u8; 32]>,
    pub event_type: EventType,
    pub topics: Vec<Vec<u8>>,
    pub data: Vec<u8>,
}

/// Number of contracts that share their first bytes with another.
const TWINS: usize = 3;

/// Few contracts and topics, so that they occur often. Some contracts share their first bytes, so
/// that the tags in the indexes collide.
pub struct Universe {
    pub contracts: Vec<ContractId>,
    pub topics: Vec<Vec<u8>>,
}

/// Four ledgers share each second, some with milliseconds and some without, and time also runs
/// backwards within a second and from one second to the next: no order may depend on close times.
fn close_time(sequence: u32) -> CloseTime {
    let sequence = u64::from(sequence);
    let seconds = 1_700_000_000 + ((sequence / 4) ^ 1);
    match sequence % 7 {
        0..3 => CloseTime::Seconds(seconds),
        _ => CloseTime::Milliseconds(seconds * 1000 + (sequence * 677) % 1000),
    }
}

impl Universe {
    pub fn random(rng: &mut ChaCha8Rng) -> Self {
        let mut contracts: Vec<ContractId> = (0..12).map(|_| ContractId(rng.random())).collect();
        for _ in 0..TWINS {
            let mut twin = *contracts.choose(rng).unwrap();
            twin.0[31] ^= 1;
            contracts.push(twin);
        }
        let topics = (0..25)
            .map(|number| {
                let len = 4 * rng.random_range(1..10);
                // The XDR of an address begins like this.
                let kind: &[u8] = if number < 8 { &[0, 0, 0, 18] } else { &[] };
                kind.iter().copied().chain((0..len).map(|_| rng.random())).collect()
            })
            .collect();
        Self { contracts, topics }
    }

    /// Removes the contracts that share their first bytes with another.
    pub fn without_twins(&mut self) {
        self.contracts.truncate(self.contracts.len() - TWINS);
    }

    /// Picks a value; values early in the list are far more frequent than late ones.
    fn skewed<'a, T>(values: &'a [T], rng: &mut ChaCha8Rng) -> &'a T {
        let x: f64 = rng.random();
        &values[((x * x * x) * values.len() as f64) as usize]
    }

    pub fn ledger(&self, rng: &mut ChaCha8Rng, sequence: u32, previous: [u8; 32]) -> Ledger {
        let transactions: Vec<Transaction> =
            (0..rng.random_range(0..12)).map(|_| self.transaction(rng)).collect();
        let mut events = Vec::new();
        if !transactions.is_empty() {
            self.fees(rng, &transactions, Placement::BeforeAllTransactions, &mut events);
            for index in 0..transactions.len() {
                // Occasionally more events than fit into one block.
                let many = rng.random_bool(0.05);
                let count = if many { 90 } else { rng.random_range(0..6) };
                self.operations(rng, index, count, &mut events);
            }
            self.fees(rng, &transactions, Placement::AfterAllTransactions, &mut events);
        }
        Self::close(rng, sequence, previous, transactions, events)
    }

    /// A ledger of many transactions with many events each.
    pub fn dense_ledger(&self, rng: &mut ChaCha8Rng, sequence: u32, previous: [u8; 32]) -> Ledger {
        let transactions: Vec<Transaction> = (0..40).map(|_| self.transaction(rng)).collect();
        let mut events = Vec::new();
        for index in 0..transactions.len() {
            self.operations(rng, index, 50, &mut events);
        }
        Self::close(rng, sequence, previous, transactions, events)
    }

    fn close(
        rng: &mut ChaCha8Rng,
        sequence: u32,
        previous: [u8; 32],
        transactions: Vec<Transaction>,
        events: Vec<Event>,
    ) -> Ledger {
        let mut ledger = Ledger {
            sequence,
            hash: Sha256::digest([&previous[..], &sequence.to_be_bytes()].concat()).into(),
            previous_hash: previous,
            close_time: close_time(sequence),
            raw: (0..200).map(|_| rng.random()).collect(),
            transactions,
            events,
        };
        for event in &ledger.events {
            let transaction = &mut ledger.transactions[event.transaction];
            if transaction.smart_contract
                && matches!(event.placement, Placement::Operation { .. })
                && let Some(id) = event.contract
            {
                transaction.contracts.push(ContractId(id));
            }
        }
        for transaction in &mut ledger.transactions {
            transaction.contracts.sort_unstable();
            transaction.contracts.dedup();
        }
        ledger
    }

    fn transaction(&self, rng: &mut ChaCha8Rng) -> Transaction {
        let smart_contract = rng.random_bool(0.7);
        let contracts = if smart_contract {
            (0..rng.random_range(0..3)).map(|_| *Self::skewed(&self.contracts, rng)).collect()
        } else {
            Vec::new()
        };
        let mut hash: [u8; 32] = rng.random();
        if rng.random_bool(0.2) {
            // Hashes with a common prefix collide in the index.
            hash[..8].fill(7);
        }
        Transaction {
            hash,
            inner_hash: rng.random_bool(0.3).then(|| rng.random()),
            smart_contract,
            successful: rng.random_bool(0.8),
            account: rng.random(),
            contracts,
            parts: [random_bytes(rng), random_bytes(rng), meta(rng)],
        }
    }

    fn fees(
        &self,
        rng: &mut ChaCha8Rng,
        transactions: &[Transaction],
        placement: Placement,
        events: &mut Vec<Event>,
    ) {
        for transaction in 0..transactions.len() {
            if rng.random_bool(0.5) {
                events.push(self.event(rng, transaction, placement));
            }
        }
    }

    fn operations(
        &self,
        rng: &mut ChaCha8Rng,
        transaction: usize,
        count: u32,
        events: &mut Vec<Event>,
    ) {
        for event_index in 0..count {
            let placement = Placement::Operation { operation: event_index / 3, event_index };
            events.push(self.event(rng, transaction, placement));
        }
        if rng.random_bool(0.1) {
            events.push(self.event(rng, transaction, Placement::AfterTransaction));
        }
    }

    fn event(&self, rng: &mut ChaCha8Rng, transaction: usize, placement: Placement) -> Event {
        let topics = if rng.random_bool(0.05) { 13 } else { rng.random_range(0..5) };
        Event {
            transaction,
            placement,
            contract: rng.random_bool(0.97).then(|| Self::skewed(&self.contracts, rng).0),
            event_type: if rng.random_bool(0.1) { EventType::System } else { EventType::Contract },
            topics: (0..topics).map(|_| Self::skewed(&self.topics, rng).clone()).collect(),
            data: (0..rng.random_range(0..50)).map(|_| rng.random()).collect(),
        }
    }
}

fn random_bytes(rng: &mut ChaCha8Rng) -> Vec<u8> {
    (0..rng.random_range(1..40)).map(|_| rng.random()).collect()
}

/// Metadata that changes some of a small set of entries and times to live.
fn meta(rng: &mut ChaCha8Rng) -> Vec<u8> {
    use x::{LedgerEntryChange as Change, LedgerEntryData as Data, WriteXdr};

    let mut changes = Vec::new();
    for _ in 0..rng.random_range(0..5) {
        let hash = x::Hash([rng.random_range(0..6); 32]);
        let key = x::LedgerKey::ContractCode(x::LedgerKeyContractCode { hash: hash.clone() });
        let key_hash = Sha256::digest(key.to_xdr(x::Limits::none()).unwrap());
        let data = match rng.random_range(0..3) {
            0 => Data::Ttl(x::TtlEntry {
                key_hash: x::Hash(key_hash.into()),
                live_until_ledger_seq: rng.random(),
            }),
            1 => Data::Account(x::AccountEntry {
                account_id: x::AccountId(x::PublicKey::PublicKeyTypeEd25519(x::Uint256(hash.0))),
                ..Default::default()
            }),
            _ => Data::ContractCode(x::ContractCodeEntry { hash, ..Default::default() }),
        };
        let entry = x::LedgerEntry { data, ..Default::default() };
        match rng.random_range(0..4) {
            0 => changes.push(Change::Created(entry)),
            1 => changes.push(Change::Restored(entry)),
            2 => changes.extend([Change::State(entry.clone()), Change::Updated(entry)]),
            _ => changes.extend([Change::State(entry.clone()), Change::Removed(entry.to_key())]),
        }
    }
    let changes = x::LedgerEntryChanges(changes.try_into().unwrap());
    let operation = x::OperationMetaV2 { changes, ..Default::default() };
    let meta = x::TransactionMetaV4 {
        operations: vec![operation].try_into().unwrap(),
        ..Default::default()
    };
    x::TransactionMeta::V4(meta).to_xdr(x::Limits::none()).unwrap()
}

impl Ledger {
    /// The ledger as the decoder would return it.
    pub fn view(&self) -> LedgerView<'_> {
        let mut topics = Vec::new();
        let events = self
            .events
            .iter()
            .map(|event| {
                let first = topics.len();
                topics.extend(event.topics.iter().map(Vec::as_slice));
                EventView {
                    transaction: event.transaction,
                    placement: event.placement,
                    contract: event.contract.as_ref(),
                    event_type: event.event_type,
                    topics: first..topics.len(),
                    data: &event.data,
                    xdr: &event.data,
                    rpc_id: RpcEventId { toid: 0, index: 0 },
                }
            })
            .collect();
        LedgerView {
            raw: &self.raw,
            version: 2,
            header: HeaderView {
                xdr: &[],
                hash: LedgerHash::from(self.hash),
                previous_hash: LedgerHash::from(self.previous_hash),
                sequence: LedgerSeq(self.sequence),
                protocol: 26,
                close_time: self.close_time.seconds(),
                close_time_ms: self.close_time.milliseconds(),
            },
            transaction_set: &[],
            transactions: self
                .transactions
                .iter()
                .enumerate()
                .map(|(index, transaction)| transaction.view(index))
                .collect(),
            events,
            topics,
            evicted: Vec::new(),
            conditions: Default::default(),
        }
    }

    /// The ledger ready to be stored.
    pub fn prepare(&self, options: &IndexOptions) -> PreparedLedger {
        PreparedLedger::new(&self.view(), options).unwrap()
    }
}

impl Transaction {
    fn view(&self, index: usize) -> TransactionView<'_> {
        let account = MuxedAccountView { ed25519: &self.account, id: None };
        TransactionView {
            application_order: index as u32 + 1,
            hash: TxHash::from(self.hash),
            inner_hash: self.inner_hash.map(TxHash::from),
            successful: self.successful,
            smart_contract: self.smart_contract,
            source_account: account,
            fee_account: account,
            fee_charged: 100,
            envelope: &self.parts[0],
            result: &self.parts[1],
            meta: &self.parts[2],
            contracts: self.contracts.clone(),
            changed_entries: match self.smart_contract && self.successful {
                true => changed_entries(&self.parts[2]).unwrap(),
                false => Vec::new(),
            },
            restored_entries: Vec::new(),
            has_new_contract: false,
            operation_events: 0..0,
            listed_events: 0,
            operations: 0,
            return_value: None,
        }
    }
}

/// An event as the store must return it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    pub id: u64,
    pub ledger: u32,
    pub closed_at: CloseTime,
    pub tx: [u8; 32],
    pub inner_tx: Option<[u8; 32]>,
    pub application_order: u32,
    pub op_index: Option<u32>,
    pub event_index: Option<u32>,
    pub contract: Option<[u8; 32]>,
    pub event_type: EventType,
    pub topics: Vec<Vec<u8>>,
    pub data: Vec<u8>,
}

impl EventRow {
    pub fn of(record: &EventRecord<'_>) -> Self {
        Self {
            id: record.id.0,
            ledger: record.ledger.0,
            closed_at: record.closed_at,
            tx: *record.tx,
            inner_tx: None,
            application_order: record.application_order,
            op_index: record.op_index(),
            event_index: record.event_index(),
            contract: record.contract.copied(),
            event_type: record.event_type,
            topics: record.topics.iter().map(|topic| topic.to_vec()).collect(),
            data: record.data.to_vec(),
        }
    }

    /// The row without the inner transaction hash, which the store does not return.
    fn given_back(&self) -> Self {
        Self { inner_tx: None, ..self.clone() }
    }
}

/// A transaction as the store must return it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionRow {
    pub position: TransactionPosition,
    pub tx: [u8; 32],
    pub inner_tx: Option<[u8; 32]>,
    pub successful: bool,
    pub contracts: Vec<ContractId>,
    pub event_count: u32,
    pub parts: [Vec<u8>; 3],
}

impl TransactionRow {
    pub fn of(record: &TransactionRecord<'_>) -> Self {
        Self {
            position: record.position,
            tx: *record.tx,
            inner_tx: record.inner_tx.copied(),
            successful: record.successful,
            contracts: record.contracts.to_vec(),
            event_count: record.event_count,
            parts: [record.envelope.to_vec(), record.result.to_vec(), record.meta.to_vec()],
        }
    }
}

/// The model: queries scan its lists from front to back.
#[derive(Debug, Default, Clone)]
pub struct Model {
    pub events: Vec<EventRow>,
    pub transactions: BTreeMap<TransactionPosition, TransactionRow>,
}

impl Model {
    pub fn add(&mut self, ledger: &Ledger, options: &IndexOptions) {
        let mut counts = vec![0u32; ledger.transactions.len()];
        let listed = |id: &ContractId| options.contracts.as_ref().is_none_or(|l| l.contains(id));
        for event in &ledger.events {
            let transaction = &ledger.transactions[event.transaction];
            let place = match event.placement {
                Placement::Operation { operation, event_index } => Some((operation, event_index)),
                _ => None,
            };
            let wanted = match place {
                Some(_) => {
                    transaction.successful && (transaction.smart_contract || options.classic_events)
                }
                None => options.fee_events,
            } && match event.contract {
                Some(id) => listed(&ContractId(id)),
                None => options.contracts.is_none(),
            };
            if !wanted {
                continue;
            }
            counts[event.transaction] += 1;
            self.events.push(EventRow {
                id: self.events.len() as u64 + 1,
                ledger: ledger.sequence,
                closed_at: ledger.close_time,
                tx: transaction.hash,
                inner_tx: transaction.inner_hash,
                application_order: event.transaction as u32 + 1,
                op_index: place.map(|p| p.0),
                event_index: place.map(|p| p.1),
                contract: event.contract,
                event_type: event.event_type,
                topics: event.topics.clone(),
                data: event.data.clone(),
            });
        }
        for (index, transaction) in ledger.transactions.iter().enumerate() {
            let touched = &transaction.contracts;
            if !transaction.smart_contract
                || options.contracts.is_some() && !touched.iter().any(listed)
            {
                continue;
            }
            let position = TransactionPosition {
                ledger: LedgerSeq(ledger.sequence),
                application_order: index as u32 + 1,
            };
            let row = TransactionRow {
                position,
                tx: transaction.hash,
                inner_tx: transaction.inner_hash,
                successful: transaction.successful,
                contracts: touched.clone(),
                event_count: counts[index],
                parts: transaction.parts.clone(),
            };
            self.transactions.insert(position, row);
        }
    }

    pub fn events(&self, query: &EventQuery) -> Vec<EventRow> {
        let page = &query.page;
        let matches = |row: &&EventRow| {
            let topics: Vec<&[u8]> = row.topics.iter().map(Vec::as_slice).collect();
            query.ledgers.is_none_or(|range| range.contains(LedgerSeq(row.ledger)))
                && (query.contracts.is_empty()
                    || row.contract.is_some_and(|id| query.contracts.contains(&ContractId(id))))
                && matches_topics(query, &topics)
                && page.cursor.is_none_or(|EventId(cursor)| match page.direction {
                    Direction::NewestFirst => row.id < cursor,
                    Direction::OldestFirst => row.id > cursor,
                })
        };
        let rows = self.events.iter().filter(matches).map(EventRow::given_back);
        cut(rows.collect(), page.direction, page.skip(), page.limit)
    }

    pub fn transactions(&self, query: &TransactionQuery) -> Vec<TransactionRow> {
        let page = &query.page;
        let matches = |row: &&TransactionRow| {
            query.ledgers.is_none_or(|range| range.contains(row.position.ledger))
                && (query.contracts.is_empty()
                    || row.contracts.iter().any(|id| query.contracts.contains(id)))
                && page.cursor.is_none_or(|cursor| match page.direction {
                    Direction::NewestFirst => row.position < cursor,
                    Direction::OldestFirst => row.position > cursor,
                })
        };
        let rows = self.transactions.values().filter(matches).cloned();
        cut(rows.collect(), page.direction, page.skip(), page.limit)
    }

    pub fn events_of_transaction(&self, hash: &TxHash) -> Vec<EventRow> {
        let of = |row: &&EventRow| row.tx == hash.0 || row.inner_tx == Some(hash.0);
        self.events.iter().filter(of).map(EventRow::given_back).collect()
    }

    pub fn transaction(&self, hash: &TxHash) -> Option<&TransactionRow> {
        self.transactions.values().find(|row| row.tx == hash.0 || row.inner_tx == Some(hash.0))
    }

    /// Removes the events of ledgers outside `events` and the transactions of ledgers outside
    /// `transactions`.
    pub fn prune(&mut self, events: LedgerRange, transactions: LedgerRange) {
        self.events.retain(|row| events.contains(LedgerSeq(row.ledger)));
        self.transactions.retain(|position, _| transactions.contains(position.ledger));
    }
}

fn matches_topics(query: &EventQuery, topics: &[&[u8]]) -> bool {
    let filter = &query.topics;
    let mut anywhere = filter.anywhere.iter().map(|value| topics.contains(&&value[..]));
    let anywhere = match (filter.anywhere.is_empty(), filter.all) {
        (true, _) => true,
        (false, true) => anywhere.all(|found| found),
        (false, false) => anywhere.any(|found| found),
    };
    anywhere
        && filter.address.as_ref().is_none_or(|address| topics.contains(&&address[..]))
        && (0..4).all(|i| match &filter.positional[i] {
            None => true,
            Some(value) => topics.get(i).is_some_and(|topic| topic == value),
        })
}

fn cut<T>(mut rows: Vec<T>, direction: Direction, skip: u64, limit: usize) -> Vec<T> {
    if direction == Direction::NewestFirst {
        rows.reverse();
    }
    rows.into_iter().skip(skip as usize).take(limit).collect()
}
