//! Custom indexing programs: the registry of programs, their execution on the state before each
//! transaction, and the rows that they emit. Does not depend on HTTP or SQL.
//!
//! Each program is a consumer of the store's feed ([`orrery_store`]). Threads for new ledgers give
//! the programs turns ([`lanes`]) and run each on its next ledgers ([`runner`]); the results are
//! committed together with the program's progress. Other threads copy rows into the tables
//! ([`feeder`]), and others run programs on ledgers that were stored before the program was
//! deployed ([`backfills`]). A program that is to replace another takes its name when it has caught
//! up ([`replacing`]). None of them delays ingestion.

pub mod backfill;
mod backfill_table;
mod backfill_turn;
mod backfills;
mod concurrent_runs;
mod copying;
mod effects;
mod error;
pub mod events;
mod failures;
mod feed_batches;
mod feed_file;
mod feed_queue;
mod feed_report;
mod feed_served;
mod feeder;
mod fit;
mod incomplete_results;
mod lanes;
mod live;
pub mod manifest;
mod names;
mod projects;
mod reading;
pub mod records;
mod registry;
mod replacing;
mod row_listeners;
pub mod row_log;
mod rows;
mod runner;
mod running;
pub mod state;
mod status;
pub mod storage;
#[cfg(test)]
mod tests;
mod threads;
pub use orrery_executables::transaction;
mod trial;
mod upstream_limiter;
mod waiting;
mod writing;

pub use orrery_engine as engine;

pub use copying::{CopiedProgram, EndOfLog, RunsToCopy};
pub use error::ProgramError;
pub use events::{CreatorAddress, FactorySelector, RowPlace, Selectors, Within};
pub use names::check_project;
pub use reading::{Answered, ReadTable};
pub use registry::{Deploy, Replace, Watch};
pub use rows::LoggedRun;
pub use running::{ProgramDeps, Programs};
pub use status::ProgramStatus;
pub use trial::{Trial, TrialResult, TrialRun, TrialSelection, TrialTransaction};
