//! A running service: starts store, pipeline, source, HTTP interface and control socket together,
//! and stops them together. Contains none of their logic.

mod attestation;
mod backfill;
mod consumers;
mod control_service;
mod disk_space;
mod error;
mod exporting;
mod following;
mod http;
mod ingest;
mod interfaces;
mod kept_records;
mod ledger_entries;
mod network_node;
mod node;
mod past_network;
mod recorded_storage;
mod rpc;
mod run;
mod running_programs;
mod signatures;
pub mod sources;
mod state_backfill;
mod status_messages;
mod supervisor;
mod tasks;
mod upkeep;
mod webhooks;

pub use attestation::validators_of;
pub use backfill::{BackfillError, BackfillSources, Backfills, ORDER_FILE, OpenSources, OrderFile};
pub use consumers::lost_ranges;
pub use disk_space::DiskSpace;
pub use error::ServiceError;
pub use exporting::{ExportRole, export_destination};
pub use following::Following;
pub use http::{ListeningSockets, SECRETS, check_free, listen, open_tokens, secrets, unusable};
pub use ingest::{Ended, Ingestion};
pub use ledger_entries::UpstreamEntries;
pub use network_node::{RunningCore, RunningSandbox};
pub use node::{Node, check_restored};
pub use past_network::PastNetwork;
pub use run::{Service, check_files, run, run_opened};
pub use state_backfill::StateBackfills;
