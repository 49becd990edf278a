//! The tables of an export for every engine that reads Iceberg: table metadata of version 2, with its
//! manifests, and the REST catalogue that lists the tables. All of it is a function from what the export's
//! manifest remembers to bytes; this crate does no I/O, and knows neither Parquet nor the store.
//!
//! A table is its [`Columns`] (which ids columns have), its [`DataFile`]s, and its [`TableState`] (what
//! commits have done): the export's manifest has them. [`commit`] makes the next commit of what has changed in
//! them; [`order`] says in which order it is written. [`catalog`] answers requests.
//!
//! The Avro writer is small and its own ([`avro`]): a library for it would bring a reader, schema
//! resolution, derive macros and a dozen crates, for the two fixed schemas that are written here.

mod avro;
pub mod catalog;
mod file;
mod groups;
pub mod layout;
mod manifest_file;
mod manifest_list;
mod manifests;
mod metadata;
pub mod order;
mod pace;
mod schema;
mod snapshot;
mod sql;
mod state;
mod types;

pub use file::{Bounds, DataFile, Place, merges};
pub use metadata::{Table, current_metadata};
pub use pace::{LEAST_MS, is_due};
pub use schema::{Column, Columns, Field, KnownColumn, Schema};
pub use snapshot::{
    Change, Commit, CommitError, METADATA_MS, SNAPSHOT_MS, Written, commit, is_needed, restore,
};
pub use state::{
    Amount, FORMAT, ManifestFile, MetadataFile, Operation, RemovedFile, Snapshot, TableState,
};
pub use types::Type;
