//! An interface as projects of events know it: with what their tables need of its declarations.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use orrery_interfaces::{Interface, Origin, ReadError, asset_contract};
use orrery_ledger::domain::Hash32;
use orrery_tables::event_tables::Declarations;

/// Memory of an entry besides, in bytes.
const OF_ENTRY: usize = 256;

/// An interface with its declarations as tables need them.
pub struct KnownInterface {
    /// Its module or file.
    pub(super) hash: Hash32,
    interface: Option<Arc<Interface>>,
    pub(super) declarations: Declarations,
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
        Self { hash, interface: Some(interface), declarations }
    }

    /// The interface of the contract of an asset.
    pub(super) fn of_assets() -> Self {
        let declarations = Declarations::of_asset_contract();
        Self { hash: Hash32::default(), interface: None, declarations }
    }

    /// Returns the interface.
    pub(super) fn interface(&self) -> &Interface {
        self.interface.as_deref().unwrap_or_else(|| asset_contract())
    }

    /// Memory that it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let interface = self.interface.as_ref().map_or(0, |interface| interface.bytes());
        OF_ENTRY + interface + self.declarations.bytes()
    }
}
