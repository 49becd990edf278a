//! JSON-RPC: responses of the methods, compared with direct implementations of their rules over
//! fully decoded ledgers.

mod clients;
mod events;
mod fee_stats;
mod hashes;
mod info;
mod ledger_entries;
mod ledgers;
mod naive;
mod node;
mod refusals;
mod result_cache;
mod simulation;
mod transactions;
mod transport;
mod world;
