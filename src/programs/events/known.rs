//! An interface as projects of events know it: with what their tables need of its declarations.

use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};

use orrery_interfaces::{Interface, Origin, ReadError, StorageKeys, asset_contract};
use orrery_ledger::domain::Hash32;
use orrery_tables::event_tables::Declarations;

/// Memory of an entry besides, in bytes.
const OF_ENTRY: usize = 256;
/// Memory of the type of a key, in bytes.
const OF_CASE: usize = 256;

/// An interface with its declarations as tables need them.
pub struct KnownInterface {
    /// Its module or file.
    pub(super) hash: Hash32,
    interface: Option<Arc<Interface>>,
    pub(super) declarations: Declarations,
    /// Types of what its contract holds, once they are needed.
    storage_keys: OnceLock<StorageKeys>,
}

impl KnownInterface {
    /// Reads the interface in a file that a user supplied.
    ///
    /// # Errors
    /// [`ReadError`] when it cannot be read.
    pub fn supplied(content: &[u8]) -> Result<Self, ReadError> {
        let hash = Hash32(Sha256::digest(content).into());
        let interface = Interface::of_events_from_file(content)?;
        Ok(Self::new(hash, Origin::Supplied, Arc::new(interface)))
    }

    /// An interface that was just read, from the module or file with this hash.
    pub(super) fn new(hash: Hash32, origin: Origin, interface: Arc<Interface>) -> Self {
        let declarations = Declarations::new(hash, origin, &interface);
        Self { hash, interface: Some(interface), declarations, storage_keys: OnceLock::new() }
    }

    /// The interface of the contract of an asset.
    pub(super) fn of_assets() -> Self {
        let declarations = Declarations::of_asset_contract();
        let (hash, storage_keys) = (Hash32::default(), OnceLock::new());
        Self { hash, interface: None, declarations, storage_keys }
    }

    /// Returns the interface.
    pub(super) fn interface(&self) -> &Interface {
        self.interface.as_deref().unwrap_or_else(|| asset_contract())
    }

    /// Returns the interface itself; `None` for that of the contract of an asset.
    pub(super) fn shared(&self) -> Option<Arc<Interface>> {
        self.interface.clone()
    }

    /// Returns the types of what its contract holds.
    pub(super) fn storage_keys(&self) -> &StorageKeys {
        self.storage_keys.get_or_init(|| StorageKeys::of(self.interface()))
    }

    /// Memory that it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let interface = self.interface.as_deref();
        let cases = interface.map_or(0, |it| {
            it.types().unions().iter().map(|(_, it)| it.iter().count()).sum::<usize>()
        });
        let interface = interface.map_or(0, Interface::bytes);
        OF_ENTRY + interface + self.declarations.bytes() + OF_CASE * cases
    }
}
