//! The raw ledgers of another data directory as a source, so that ledgers that one store has need
//! not be fetched again for a second one.

use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::task::spawn_blocking;

use crate::domain::{
    Fetched, LedgerRange, LedgerSeq, LedgerSource, Network, Origin, RawLedger, SourceError,
};
use crate::programs::storage::extensions;
use crate::store::{RAW_DIRECTORY, Store, StoreError};

/// Number of ledgers that are read per fetch.
const LEDGERS_AT_ONCE: u32 = 32;

/// Yields the raw ledgers that another store keeps.
pub(super) struct StoreSource {
    store: Arc<Store>,
    name: Arc<str>,
}

impl StoreSource {
    /// Returns whether a directory holds a store. A file of the database has to be there too: a lake may
    /// have a directory of the same name.
    pub fn exists_in(directory: &Path) -> bool {
        directory.join(RAW_DIRECTORY).join("CURRENT").exists()
    }

    /// Opens the store in a directory; no other process may have it open.
    pub fn open(directory: &Path, network: &Network) -> Result<Self, StoreError> {
        let store = Arc::new(Store::open_with(directory, Some(network), extensions())?);
        let name = format!("the data directory {}", directory.display()).into();
        Ok(Self { store, name })
    }
}

impl LedgerSource for StoreSource {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn passphrase(&mut self) -> BoxFuture<'_, Result<Option<String>, SourceError>> {
        std::future::ready(Ok(Some(self.store.network().passphrase().to_owned()))).boxed()
    }

    /// Returns `None`: a store may have several ranges, and raw bytes for only some of their
    /// ledgers, so only a fetch shows whether a ledger is there.
    fn range(&mut self) -> BoxFuture<'_, Result<Option<LedgerRange>, SourceError>> {
        std::future::ready(Ok(None)).boxed()
    }

    fn fetch(&mut self, from: LedgerSeq) -> BoxFuture<'_, Result<Fetched, SourceError>> {
        let (store, name) = (Arc::clone(&self.store), Arc::clone(&self.name));
        async move {
            let read = spawn_blocking(move || read(&store, &name, from)).await;
            read.map_err(|error| SourceError::Retryable(error.to_string()))?
        }
        .boxed()
    }
}

fn read(store: &Store, name: &Arc<str>, from: LedgerSeq) -> Result<Fetched, SourceError> {
    let mut ledgers = Vec::new();
    let wanted = (from.0..=u32::MAX).take(LEDGERS_AT_ONCE as usize).map(LedgerSeq);
    for sequence in wanted {
        let raw = store.raw_ledger(sequence);
        let Some(xdr) = raw.map_err(|error| SourceError::Retryable(format!("{name}: {error}")))?
        else {
            break;
        };
        let origin = Origin { name: Arc::clone(name), position: None };
        ledgers.push(RawLedger { sequence, xdr, compressed: None, origin });
    }
    if ledgers.is_empty() {
        return Err(SourceError::Gone(format!("{name} does not keep the bytes of ledger {from}")));
    }
    Ok(Fetched::Ledgers(ledgers))
}
