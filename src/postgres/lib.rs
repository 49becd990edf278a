//! The sink of rows into a PostgreSQL database that the operator has: exactly once, whatever breaks.
//!
//! This crate knows PostgreSQL, and nothing of what Orrery stores: a feeder fills [`Project`]s and [`TableRows`]
//! from the log of a project's rows. In the database, the schema `orrery` has a cursor for each project, which is
//! written in the same transaction as the rows. It alone says what is there.
//!
//! A feeder goes on like this, for each project of a sink:
//!
//! 1. [`ServerUrl::connect`]; after a failure again, with the pauses of [`Backoff`].
//! 2. [`Writer::cursor`]. Without one, or with one of another writer, of another generation, or at a position that the
//!    log does not have: a [`Refill`] of the tables whose rows are others, then [`Refill::swap`].
//! 3. [`ensure`] the tables, whenever they may have grown, and [`apply`] one [`Batch`] after another; [`apply_all`] where a
//!    ledger has too many rows for one.
//! 4. After [`SinkError::Lost`] from 1, after [`SinkError::Moved`] from 2; [`SinkError::Busy`] is tried again after a
//!    pause; with the others, a sentence waits for somebody.

#![deny(unsafe_code)]

/// Schema with the tables of the sink itself.
pub const SCHEMA: &str = "orrery";

mod apply;
mod carried;
mod catalog;
mod check;
mod connect;
mod connection;
mod cursor;
mod dependents;
mod error;
mod json;
mod keys;
pub mod names;
mod objects;
mod places;
mod refill;
mod remove;
mod rows;
mod server;
mod swap;
mod tls;
pub mod types;
mod url;
mod views;
mod watch;

pub use apply::{Batch, EqualRows, MOST_BYTES, MOST_ROWS, More, Notify, apply, apply_all};
pub use catalog::{changed_tables, ensure, outgrown_tables};
pub use check::{CheckedTable, check, grouped_digests, ledger_digests};
pub use connect::Backoff;
pub use connection::Connection;
pub use cursor::{Cursor, Generation, Position, SILENCE_MINUTES, Writer, cursors};
pub use error::{Result, SinkError};
pub use places::Places;
pub use refill::Refill;
pub use remove::{drop_begun, release, remove};
pub use rows::{Misfit, RowsDigest, TableRows};
pub use server::{Examined, examine};
pub use swap::{OnBlocked, blocked_by};
pub use types::{Column, ColumnType, Project, RowKey, Shows, Table, Value, View};
pub use url::{Authorities, Host, Password, Protection, ServerUrl, UrlError};
pub use watch::{WrittenTable, watch};
