//! Turns a decoded ledger into the rows that will be written, except for row ids. Pure, so that any
//! number of ledgers can be prepared in parallel.

use std::collections::BTreeSet;
use std::sync::Arc;

use orrery_ledger::decode::{
    ChangedEntry, EntryKey, EntryKind, EventView, LedgerView, Placement, TransactionView,
    footprint_keys,
};
use orrery_ledger::domain::{
    CloseTime, CompressedLedger, ContractId, Digest, EventId, LedgerRange, LedgerSeq, LedgerSet,
    NodeId,
};
use orrery_ledger::verify::Link;
use orrery_runtime::beside::beside;

use crate::encoding::block::PreparedBlock;
use crate::encoding::compression::Content;
use crate::encoding::digest::LedgerHasher;
use crate::encoding::error::StoreError;
use crate::encoding::indexed_as::{IndexedAs, Settings};
use crate::encoding::ledgers::{LedgerCounts, LedgerRow};
use crate::encoding::positions::EVENTS_PER_BLOCK;
use crate::encoding::records::EventRecord;
use crate::encoding::settings::{LedgerConditions, SettingRow};
use crate::encoding::transaction_block::Packer;
use crate::encoding::{block, compression, evicted, raw_form};
use crate::indexes::index::IndexedTransaction;
use crate::indexes::registry::Indexes;
use crate::indexes::rows::Rows;
use crate::indexes::values::EventsOfTransaction;
use crate::state::contract_filters::ContractFilter;
use crate::state::coverage::Sums;
use crate::state::extracts::GatheredValues;
use crate::state::marks::Marks;
use crate::state::store::Store;

/// Number of events in a ledger above which its events are not cached when it is stored, because few
/// such ledgers would fill the cache.
const MAX_CACHED_EVENTS: usize = 1024;
/// Size in bytes from which a ledger is compressed, and consumers gather from it, beside the other work, on
/// another processor if one is idle: then it is stored sooner. That takes some milliseconds, and starting a
/// thread 50 µs.
const LARGE_LEDGER: usize = 2 << 20;

/// Options that select what of a ledger is indexed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IndexOptions {
    /// Whether the unified events of classic operations (CAP-67) are indexed.
    pub classic_events: bool,
    /// Whether the fee events of all transactions are indexed.
    pub fee_events: bool,
    /// Contracts to which events and transactions are restricted; `None` for all. A transaction
    /// must touch one of them, or change their data.
    pub contracts: Option<BTreeSet<ContractId>>,
    /// Whether the raw ledger is stored as well.
    pub raw_ledgers: bool,
}

impl IndexOptions {
    fn wants_event(&self, transaction: &TransactionView<'_>, event: &EventView<'_>) -> bool {
        let kind = match event.placement {
            // The effects of a failed transaction's operations are rolled back together with their
            // events: no network emits any.
            Placement::Operation { .. } => {
                transaction.successful && (transaction.smart_contract || self.classic_events)
            }
            _ => self.fee_events,
        };
        let contract = || match (&self.contracts, event.contract) {
            (None, _) => true,
            (Some(listed), Some(id)) => listed.contains(&ContractId(*id)),
            (Some(_), None) => false,
        };
        kind && contract()
    }

    fn wants_transaction(&self, transaction: &TransactionView<'_>) -> bool {
        let listed = || match &self.contracts {
            None => true,
            Some(listed) => {
                transaction.contracts.iter().any(|id| listed.contains(id))
                    || changes_data(transaction, listed)
            }
        };
        transaction.smart_contract && listed()
    }
}

impl From<&IndexOptions> for IndexedAs {
    fn from(options: &IndexOptions) -> Self {
        Self {
            classic_events: options.classic_events,
            fee_events: options.fee_events,
            listed_contracts: options.contracts.is_some(),
        }
    }
}

/// Whether a transaction changed data of these contracts, or how long it lives. To extend or restore data,
/// no contract is invoked, and only the footprint names the keys.
fn changes_data(transaction: &TransactionView<'_>, of: &BTreeSet<ContractId>) -> bool {
    let is_of = |key: &EntryKey<'_>| key.contract().is_some_and(|contract| of.contains(&contract));
    let changed =
        || transaction.changed_entries.iter().map(|changed: &ChangedEntry<'_>| changed.key);
    if changed().any(|key| is_of(&key)) {
        return true;
    }
    if !changed().any(|key| key.kind == EntryKind::Ttl) {
        return false;
    }
    let is_listed = |key: &[u8]| EntryKey::from_ledger_key(key).is_some_and(|key| is_of(&key));
    // An envelope that was decoded has a footprint that can be read.
    footprint_keys(transaction.envelope).is_ok_and(|keys| keys.into_iter().any(is_listed))
}

/// A ledger ready to be written.
#[derive(Debug)]
pub struct PreparedLedger {
    pub(crate) sequence: LedgerSeq,
    /// The ledger's permanent row, without the id of its first event.
    pub(crate) row: LedgerRow,
    /// Contracts to which indexing was restricted.
    pub(crate) filter: ContractFilter,
    pub(crate) raw: Option<Vec<u8>>,
    pub(crate) blocks: Vec<PreparedBlock>,
    /// Smart-contract transactions: application order and row.
    pub(crate) transactions: Vec<(u32, Vec<u8>)>,
    pub(crate) rows: Rows,
    /// Its row in `evicted`.
    pub(crate) evicted: Vec<u8>,
    /// Its row in `conditions`.
    pub(crate) conditions: LedgerConditions,
    /// Its rows in `settings`, by the number of the setting.
    pub(crate) settings: Vec<(u32, Vec<u8>)>,
    /// What consumers gather from the whole ledger; empty when its raw form is not stored.
    pub(crate) gathered: GatheredValues,
    /// The trusted validator that has signed it.
    pub(crate) signer: Option<NodeId>,
    /// Whether it is not as its header says; see [`Marks`].
    pub(crate) reported: bool,
    /// Whether it has rewritten events that are not proven.
    pub(crate) unproven: bool,
}

impl PreparedLedger {
    /// Packs and indexes what `options` select of a ledger, for a store with only the built-in
    /// indexes.
    pub fn new(ledger: &LedgerView<'_>, options: &IndexOptions) -> Result<Self, StoreError> {
        Self::of(ledger, None, options, &Indexes::default(), GatheredValues::new)
    }

    /// See [`Store::prepare`]. `gather` returns what consumers gather from the ledger.
    fn of(
        ledger: &LedgerView<'_>,
        at_source: Option<&CompressedLedger>,
        options: &IndexOptions,
        indexes: &Indexes,
        gather: impl FnOnce() -> GatheredValues + Send,
    ) -> Result<Self, StoreError> {
        if !options.raw_ledgers {
            return Self::from_records(ledger, options, indexes);
        }
        let from_whole = || (raw_form::pack(ledger.raw, at_source), gather());
        let from_records = || Self::from_records(ledger, options, indexes);
        let ((raw, gathered), prepared) = match ledger.raw.len() >= LARGE_LEDGER {
            true => beside(from_whole, from_records),
            false => (from_whole(), from_records()),
        };
        Ok(Self { raw: Some(raw?), gathered, ..prepared? })
    }

    /// Prepares everything but the raw form and what consumers gather.
    fn from_records(
        ledger: &LedgerView<'_>,
        options: &IndexOptions,
        indexes: &Indexes,
    ) -> Result<Self, StoreError> {
        let header = &ledger.header;
        let wanted = wanted(ledger, options);
        let mut of_transaction = vec![EventsOfTransaction::default(); ledger.transactions.len()];
        let mut rows = Rows::with_capacity(indexes, wanted.len());
        for (number, event) in wanted.iter().enumerate() {
            let by_operation = matches!(event.placement, Placement::Operation { .. });
            of_transaction[event.transaction].add(number as u64, by_operation);
            rows.add_event(number as u32, &as_record(ledger, event));
        }
        let transactions = pack_transactions(ledger, of_transaction, options, &mut rows)?;
        let mut counts = count(ledger, &wanted);
        counts.stored_transactions += transactions.len() as u32;
        rows.close();
        let blocks = pack_events(ledger, &wanted)?;
        Ok(Self {
            sequence: header.sequence,
            row: LedgerRow {
                hash: header.hash,
                previous_hash: header.previous_hash,
                close_time: header.closed_at(),
                protocol: header.protocol,
                first_event: EventId(0),
                counts,
                indexed_as: IndexedAs::from(options),
                digest: digest(ledger, &wanted),
            },
            filter: options.contracts.clone().map(Arc::new),
            raw: None,
            blocks,
            transactions,
            rows,
            evicted: evicted::encode(&ledger.evicted),
            conditions: LedgerConditions::of(&ledger.conditions),
            settings: settings(ledger),
            gathered: GatheredValues::new(),
            signer: None,
            reported: false,
            unproven: false,
        })
    }

    /// Returns the ledger with the trusted validator whose valid signature it carries.
    pub fn signed_by(self, signer: Option<NodeId>) -> Self {
        Self { signer, ..self }
    }

    /// Returns the ledger with the marks that it gets when it is stored: whether it is not as its header
    /// says, and whether it has rewritten events that are not proven.
    pub fn marked(self, reported: bool, unproven: bool) -> Self {
        Self { reported, unproven, ..self }
    }

    /// Returns its marks.
    pub(crate) fn marks(&self) -> Marks {
        let only = |is_marked: bool| match is_marked {
            true => LedgerRange::only(self.sequence).into(),
            false => LedgerSet::default(),
        };
        let (reported, unproven) = (only(self.reported), only(self.unproven));
        Marks { reported, unproven, from_backup: LedgerSet::default() }
    }

    /// Returns when it closed.
    pub fn close_time(&self) -> CloseTime {
        self.row.close_time
    }

    /// Returns the trusted validator whose valid signature it carries.
    pub fn signer(&self) -> Option<NodeId> {
        self.signer
    }

    /// Returns what the ledger adds to the sums of its covered range.
    pub(crate) fn sums(&self) -> Sums {
        let LedgerRow { counts, indexed_as, digest, .. } = &self.row;
        let settings = Settings::from(*indexed_as);
        Sums { events: counts.events(), digest: *digest, settings }
    }

    /// Returns the approximate size of its rows in bytes.
    pub fn bytes(&self) -> usize {
        const PER_ROW: usize = 32;
        let raw = self.raw.as_ref().map_or(0, Vec::len);
        let blocks = self.blocks.iter().map(|block| PER_ROW + block.compressed.len());
        let transactions = self.transactions.iter().map(|(_, row)| PER_ROW + row.len());
        let settings = self.settings.iter().map(|(_, row)| PER_ROW + row.len()).sum::<usize>();
        let derived = self.rows.bytes() + self.evicted.len() + settings;
        raw + blocks.chain(transactions).sum::<usize>() + derived + 1024
    }

    /// Returns the approximate memory that it takes in bytes: its rows, and what is kept beside them
    /// for readers and consumers of the newest ledgers.
    pub fn memory(&self) -> usize {
        let decompressed = self.blocks.iter().filter_map(|block| block.encoded.as_ref());
        let gathered = self.gathered.iter().map(|(_, value)| value.len());
        self.bytes() + decompressed.map(Vec::len).chain(gathered).sum::<usize>()
    }

    /// Drops the events that would be kept in memory for readers of the newest ledgers, which an
    /// import does not have.
    pub fn drop_decompressed(&mut self) {
        self.blocks.iter_mut().for_each(|block| block.encoded = None);
    }

    /// Returns its position and hashes in the chain.
    pub fn link(&self) -> Link {
        let LedgerRow { hash, previous_hash, .. } = self.row;
        Link { sequence: self.sequence, hash, previous_hash }
    }

    /// Returns its sequence number.
    pub fn sequence(&self) -> LedgerSeq {
        self.sequence
    }

    /// Returns the counts of what it holds and of what will be stored of it.
    pub fn counts(&self) -> &LedgerCounts {
        &self.row.counts
    }
}

impl Store {
    /// Packs and indexes what `options` select of a ledger. The compressed form of the ledger's
    /// source may be stored as it is.
    pub fn prepare(
        &self,
        ledger: &LedgerView<'_>,
        at_source: Option<&CompressedLedger>,
        options: &IndexOptions,
    ) -> Result<PreparedLedger, StoreError> {
        let gather = || self.gathered.gather(ledger);
        PreparedLedger::of(ledger, at_source, options, &self.indexes, gather)
    }
}

/// Returns the events of a ledger that `options` select.
pub(crate) fn wanted<'v>(
    ledger: &'v LedgerView<'v>,
    options: &IndexOptions,
) -> Vec<&'v EventView<'v>> {
    let of = |event: &EventView<'_>| &ledger.transactions[event.transaction];
    ledger.events.iter().filter(|event| options.wants_event(of(event), event)).collect()
}

/// Returns the rows of a ledger in `settings`, by the number of the setting.
fn settings(ledger: &LedgerView<'_>) -> Vec<(u32, Vec<u8>)> {
    let changes = ledger.conditions.settings.iter();
    changes.map(|change| (change.id, SettingRow::of(change).encode())).collect()
}

/// Returns the digest of a ledger of which these events are stored.
pub(crate) fn digest(ledger: &LedgerView<'_>, events: &[&EventView<'_>]) -> Digest {
    let header = &ledger.header;
    let mut hasher = LedgerHasher::new(header.sequence, &header.hash, events.len() as u64);
    events.iter().for_each(|event| hasher.add_event(&as_record(ledger, event)));
    hasher.finish()
}

/// Packs the transactions that `options` select, each with its application order, and adds the index rows of
/// these, and those that find transactions with events.
fn pack_transactions(
    ledger: &LedgerView<'_>,
    events: Vec<EventsOfTransaction>,
    options: &IndexOptions,
    rows: &mut Rows,
) -> Result<Vec<(u32, Vec<u8>)>, StoreError> {
    let (mut stored, mut packer) = (Vec::new(), Packer::default());
    let (sequence, closed_at) = (ledger.header.sequence, ledger.header.closed_at());
    for (transaction, events) in ledger.transactions.iter().zip(events) {
        let application_order = transaction.application_order;
        let is_stored = options.wants_transaction(transaction);
        if is_stored {
            packer.add(transaction, closed_at, events.count() as u32)?;
            stored.push(application_order);
            rows.add_transaction(&IndexedTransaction::of_view(sequence, transaction));
        }
        if is_stored || events.count() > 0 {
            rows.locate(application_order, transaction.hash, transaction.inner_hash, events);
        }
    }
    Ok(stored.into_iter().zip(packer.finish()?).collect())
}

/// Packs the events that are stored.
fn pack_events(
    ledger: &LedgerView<'_>,
    wanted: &[&EventView<'_>],
) -> Result<Vec<PreparedBlock>, StoreError> {
    let is_cached = wanted.len() <= MAX_CACHED_EVENTS;
    let block = |events: &[&EventView<'_>]| {
        let encoded = block::encode(ledger, events);
        let compressed = compression::compress(Content::Events, &encoded)?;
        let encoded = is_cached.then_some(encoded);
        Ok(PreparedBlock { events: events.len() as u64, encoded, compressed })
    };
    wanted.chunks(EVENTS_PER_BLOCK).map(block).collect()
}

fn count(ledger: &LedgerView<'_>, wanted: &[&EventView<'_>]) -> LedgerCounts {
    let transactions = &ledger.transactions;
    let mut counts = LedgerCounts {
        transactions: transactions.len() as u32,
        failed: transactions.iter().filter(|t| !t.successful).count() as u32,
        smart_contract: transactions.iter().filter(|t| t.smart_contract).count() as u32,
        ..LedgerCounts::default()
    };
    for event in wanted {
        let by_contract = transactions[event.transaction].smart_contract;
        match event.placement {
            Placement::Operation { .. } if by_contract => counts.contract_events += 1,
            Placement::Operation { .. } => counts.classic_events += 1,
            _ => counts.fee_events += 1,
        }
    }
    counts
}

/// Returns an event as the store returns it, except for its row id.
fn as_record<'a>(ledger: &'a LedgerView<'a>, event: &'a EventView<'a>) -> EventRecord<'a> {
    let transaction = &ledger.transactions[event.transaction];
    EventRecord {
        id: EventId(0),
        ledger: ledger.header.sequence,
        closed_at: ledger.header.closed_at(),
        tx: transaction.hash.as_bytes(),
        application_order: transaction.application_order,
        placement: event.placement,
        operation_begins: None,
        contract: event.contract,
        event_type: event.event_type,
        successful: Some(transaction.successful),
        topics: ledger.topics(event),
        data: event.data,
    }
}
