//! The interfaces by which events of projects are declared, with what their tables need of them.

use std::sync::Arc;

use quick_cache::sync::Cache;

use super::raw::DeclaredBy;
use crate::domain::Hash32;
use crate::executables::Interfaces;
use crate::interfaces::{Interface, Origin, asset_contract};
use crate::programs::{ProgramError, storage};
use crate::tables::event_tables::Declarations;

/// Maximum number of interfaces that are kept in memory.
const MOST_KEPT: usize = 512;

/// Interfaces of contracts, and those that users supply.
pub struct EventInterfaces {
    pub(super) interfaces: Arc<Interfaces>,
    known: Cache<DeclaredBy, Arc<KnownInterface>>,
}

/// An interface with its declarations as tables need them.
pub(super) struct KnownInterface {
    interface: Option<Arc<Interface>>,
    pub declarations: Declarations,
}

impl KnownInterface {
    /// Returns the interface.
    pub fn interface(&self) -> &Interface {
        self.interface.as_deref().unwrap_or_else(|| asset_contract())
    }
}

impl EventInterfaces {
    /// Creates the cache.
    pub fn new(interfaces: Arc<Interfaces>) -> Self {
        Self { interfaces, known: Cache::new(MOST_KEPT) }
    }

    /// Returns an interface; `None` when it is not stored any more, or cannot be read.
    pub(super) fn get(&self, by: DeclaredBy) -> Result<Option<Arc<KnownInterface>>, ProgramError> {
        if let Some(known) = self.known.get(&by) {
            return Ok(Some(known));
        }
        let interface = match by {
            DeclaredBy::Asset => None,
            DeclaredBy::Code(hash) => match self.interfaces.read_now(&hash)? {
                Some(interface) => Some(interface),
                None => return Ok(None),
            },
            DeclaredBy::Supplied(hash) => {
                let Some(content) =
                    self.interfaces.store().shared_row(&storage::module(hash.as_bytes()))?
                else {
                    return Ok(None);
                };
                let Ok(interface) = Interface::from_file(&content) else { return Ok(None) };
                Some(Arc::new(interface))
            }
        };
        Ok(Some(self.keep(by, interface)))
    }

    /// Returns an interface that was just read, with its declarations.
    pub(super) fn of(&self, hash: &Hash32, interface: &Arc<Interface>) -> Arc<KnownInterface> {
        let by = DeclaredBy::Code(*hash);
        self.known.get(&by).unwrap_or_else(|| self.keep(by, Some(Arc::clone(interface))))
    }

    fn keep(&self, by: DeclaredBy, interface: Option<Arc<Interface>>) -> Arc<KnownInterface> {
        let declarations = match (&interface, by) {
            (Some(interface), DeclaredBy::Code(hash)) => {
                Declarations::new(hash, Origin::Chain, interface)
            }
            (Some(interface), DeclaredBy::Supplied(hash)) => {
                Declarations::new(hash, Origin::Supplied, interface)
            }
            (None, _) | (_, DeclaredBy::Asset) => Declarations::of_asset_contract(),
        };
        let known = Arc::new(KnownInterface { interface, declarations });
        self.known.insert(by, Arc::clone(&known));
        known
    }
}
