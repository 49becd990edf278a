//! The sandbox network as a source.

use std::sync::Arc;

use super::{Context, SourcesError};
use crate::domain::LedgerSource;
use crate::sandbox::source;
use crate::service::unix_now_ms;

/// Opens the network of a data directory, or begins one.
pub(super) fn open(context: &Context<'_>) -> Result<Box<dyn LedgerSource>, SourcesError> {
    let store = context.store;
    let stored = store.status().latest();
    Ok(Box::new(source::open(store.directory(), store.network(), stored, opening())?.source))
}

/// Returns the parameters of a new network.
pub(super) fn opening() -> source::Opening {
    source::Opening {
        seed: rand::random(),
        close_time: source::CLOSE_TIME,
        clock: Arc::new(unix_now_ms),
    }
}
