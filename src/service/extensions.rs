//! The parts with which the service opens its store.

use std::sync::Arc;

use super::upgrade_progress::report_upgrade;
use crate::config::Config;
use crate::export;
use crate::programs::storage;
use crate::store::{Extensions, LedgerConsumer};

/// Returns the parts with which the store is opened: these consumers, programs and the exports, and
/// reports of an upgrade to the supervisor.
pub(super) fn extensions(config: &Config, consumers: &[Arc<dyn LedgerConsumer>]) -> Extensions {
    let mut extensions = Extensions::for_consumers(consumers).with_kind(storage::KIND);
    extensions.consumers.extend(config.export.destination().map(|_| export::consumer()));
    extensions.upgrade_observer = Some(Box::new(report_upgrade));
    extensions
}
