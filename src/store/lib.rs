//! The store on RocksDB; no other module uses RocksDB. A ledger is written in one atomic batch,
//! synced unless an import defers that; readers use the queries of [`read`] and see neither column
//! families nor keys.
//!
//! The store has floors, listed here from the lowest. A file uses only files of its own floor and of
//! the floors below. [`Store`] stands on the floor `state`; what it does is in the floors above.

mod db;
mod encoding;
mod feed;
mod indexes;
mod ingest;
mod read;
#[cfg(test)]
mod sample_ledgers;
mod state;
mod upkeep;

/// For tests that read a database directly.
#[doc(hidden)]
pub use rocksdb;

pub use db::acknowledged::FILE as ACKNOWLEDGED_FILE;
pub use db::directory::{RAW_DIRECTORY, holds_database};
pub use db::family_writes::FamilyWrites;
pub use db::faults::{Fault, Faults, WriteKind};
#[doc(hidden)]
pub use db::tuning::Tuning;
pub use encoding::columns::{SharedFamily, SharedRow};
pub use encoding::error::StoreError;
pub use encoding::evicted::Evicted;
pub use encoding::format_version::FormatVersion;
pub use encoding::indexed_as::IndexedAs;
pub use encoding::ledgers::{LedgerCounts, LedgerRow};
pub use encoding::records::{EventRecord, TransactionPosition, TransactionRecord};
pub use encoding::row_codec::{KeyPrefix, Mark, RowCodec};
pub use encoding::settings::LedgerConditions;
pub use feed::consume::Consumed;
pub use feed::kinds::{KindChanges, SharedRows};
pub use feed::rebuild::Losses;
pub use feed::retention_floor::{Retention, first_kept};
pub use feed::worker::LedgerConsumer;
pub use indexes::entries::Changed;
pub use indexes::index::{Index, Indexed, IndexedTransaction};
pub use indexes::registry::Indexes;
pub use indexes::values::{Tags, Values};
pub use ingest::commit::{Committed, Durability};
pub use ingest::prepare::{IndexOptions, PreparedLedger};
pub use read::contract_sizes::{ContractSize, ContractSizes, Sample};
pub use read::covered_ledgers::StoredLedgers;
pub use read::entries::EntryReader;
pub use read::generation_cache::GenerationCache;
pub use read::known_entries::KnownEntry;
pub use read::lost_events::LostEvents;
pub use read::query::{
    Bounds, EventQuery, Interrupted, QueryCost, TopicFilter, TransactionQuery, WalkOutcome,
};
pub use read::status::{StoreEnds, StoreStatus};
pub use state::consumers::rows::{
    ConsumerEffects, ConsumerView, RowBounds, RowFlow, Rows, RowsMut,
};
pub use state::consumers::spec::{
    ConsumerKind, ConsumerSpec, ConsumerStatus, Needs, RebuildProgress, StartPosition,
};
pub use state::consumers::table::Table;
pub use state::extracts::Gathers;
pub use state::generation::Generation;
pub use state::ingest_runs::{Arrival, FedLedger};
pub use state::keepers::Keeper;
pub use state::marks::Marks;
pub use state::removed::Removed;
pub use state::store::Store;
pub use state::totals::Totals;
pub use state::unrecorded::Unrecorded;
pub use upkeep::audit::problems::Problem;
pub use upkeep::audit::{Audit, AuditProgress, audit, audit_with};
pub use upkeep::backup::{Checkpoint, DirectoryContents, read_contents};
pub use upkeep::extensions::Extensions;
pub use upkeep::format::FORMAT;
pub use upkeep::retention::Pruned;
pub use upkeep::signatures::{FoundSignatures, SignatureSearch};
pub use upkeep::upgrade::{UpgradeObserver, UpgradeStep};

/// The example of the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct Readme;
