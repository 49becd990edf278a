//! Seventh floor: queries. Knows how stored events, transactions and entries are found and read. May
//! use all floors below: `encoding`, `indexes`, `db`, `state`, `ingest` and `feed`.

pub(crate) mod closed_before;
pub(crate) mod contract_filters;
pub(crate) mod contract_sizes;
pub(crate) mod covered_ledgers;
pub(crate) mod entries;
pub(crate) mod events;
pub(crate) mod evicted;
pub(crate) mod generation_cache;
pub(crate) mod id_intervals;
pub(crate) mod index_rows;
pub(crate) mod index_scan;
pub(crate) mod known_entries;
pub(crate) mod lost_events;
pub(crate) mod query;
pub(crate) mod settings;
pub(crate) mod status;
pub(crate) mod transaction_reader;
pub(crate) mod transactions;
