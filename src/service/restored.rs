//! Data directories that are being restored from a backup: what is attested of their ledgers.

use std::ops::ControlFlow;

use super::{Node, ServiceError};
use crate::config::Config;
use crate::verify::{Events, Policy};

/// Number of ledgers of an attested range that are read during a restoration: validators that have signed
/// none of the newest ones are looked for no longer.
const ENOUGH_LEDGERS: u32 = 1000;

/// Recomputes the signatures of a data directory that is being restored from a backup. What the backup says
/// itself counts only for ledgers whose raw form it does not have, and these get a mark.
///
/// # Errors
/// When the directory cannot be opened, or a raw ledger in it is not what the network agreed on.
pub fn check_restored(config: &Config) -> Result<(), ServiceError> {
    let node = Node::open(config, None)?;
    let store = node.store();
    // The settings with which the ledgers were stored may have been others.
    let policy = Policy { events: Events::Report, ..Policy::default() };
    let found = match &node.trust().validators {
        Some(validators) => {
            let enough = Some(ENOUGH_LEDGERS);
            store.find_signatures(validators, policy, enough, |_| ControlFlow::Continue(()))?
        }
        None => None,
    };
    store.record_restored(&found.unwrap_or_default())?;
    Ok(store.flush()?)
}
