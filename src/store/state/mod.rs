//! Fourth floor: what an open store holds in memory, each part with its rows, and the store itself,
//! which the floors above extend. May use `encoding`, `indexes` and `db`.

pub(crate) mod consumers;
pub(crate) mod contract_filters;
pub(crate) mod coverage;
pub(crate) mod extracts;
pub(crate) mod generation;
pub(crate) mod ingest_runs;
pub(crate) mod keepers;
pub(crate) mod marks;
pub(crate) mod removed;
pub(crate) mod store;
pub(crate) mod totals;
pub(crate) mod unrecorded;
pub(crate) mod unused_ids;
