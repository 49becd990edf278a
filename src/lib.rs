//! Orrery follows a Stellar network, stores every contract event and smart-contract transaction,
//! and serves them over HTTP.
//!
//! Data flows in one direction: a [`source`] yields the bytes of closed ledgers, [`decode`] turns
//! them into one borrowed view, [`pipeline`] writes the decoded ledgers to the [`store`], and
//! [`api`] answers requests from the store. `ARCHITECTURE.md` has the overview and the invariants.

pub use orrery_ledger::{certificate, decode, domain, validators, verify};
pub use orrery_pipeline::attestation;
pub use orrery_runtime::{
    account, budget, confinement, durable, observe, priority, process, stall, steady, supervision,
};
pub use {
    orrery_accounts as accounts, orrery_api as api, orrery_auth as auth,
    orrery_checkpoint as checkpoint, orrery_conditions as conditions,
    orrery_contract_data as contract_data, orrery_executables as executables,
    orrery_export as export, orrery_iceberg as iceberg, orrery_interfaces as interfaces,
    orrery_membership as membership, orrery_net as net, orrery_pipeline as pipeline,
    orrery_postgres as postgres, orrery_programs as programs, orrery_rpc as rpc,
    orrery_sandbox as sandbox, orrery_settings as settings, orrery_sinks as sinks,
    orrery_site as site, orrery_source as source, orrery_store as store, orrery_tables as tables,
    orrery_webhooks as webhooks,
};

pub mod backup;
pub mod config;
pub mod control;
pub mod notify;
pub mod service;
