//! Runs the built program while it follows sources and backfills older ledgers: lakes that grow,
//! are incomplete or contain wrong ledgers, services that are killed, and what is served
//! afterwards.

mod backfill;
mod chain_sql;
mod contradicted;
mod contradiction_histories;
mod disk;
mod durable;
mod embedded;
mod export;
mod export_histories;
mod export_refused;
mod forged;
mod held;
mod lake;
mod live;
mod live_chain;
mod lying;
mod marked;
mod resources;
mod soak;
mod upgrade;
