//! Orrery follows a Stellar network, stores every contract event and smart-contract transaction,
//! and serves them over HTTP.
//!
//! Data flows in one direction: a [`source`] yields the bytes of closed ledgers, [`decode`] turns
//! them into one borrowed view, [`pipeline`] writes the decoded ledgers to the [`store`], and
//! [`api`] answers requests from the store. `ARCHITECTURE.md` has the overview and the invariants.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod accounts;
pub mod api;
pub mod auth;
pub mod backup;
pub mod budget;
pub mod config;
pub mod confinement;
pub mod control;
pub mod decode;
pub mod domain;
pub mod durable;
pub mod export;
pub mod notify;
pub mod observe;
pub mod pipeline;
pub mod priority;
pub mod programs;
pub mod rpc;
pub mod service;
pub mod source;
pub mod store;
pub mod tables;
pub mod unsafe_code;
pub mod verify;
pub mod webhooks;

#[cfg(test)]
#[path = "../tests/common/histories.rs"]
mod histories;
#[cfg(test)]
#[path = "../tests/common/size.rs"]
mod size;
