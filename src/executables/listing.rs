//! Whole interfaces of modules, as requests list them. They are read on the thread that reads interfaces,
//! and kept in memory for those who ask again.

use std::sync::Arc;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use stellar_xdr::ScSpecEntry;

use super::rows::CodeInterface;
use orrery_interfaces::entries_of;
use orrery_ledger::domain::Hash32;

/// Capacity of the cache, in bytes.
const CAPACITY: u64 = 16 << 20;
/// Number of parts of the cache. A listing has to fit into one: the network limits code to 128 KiB.
const SHARDS: usize = 2;
/// Memory that entries take, in multiples of their XDR: an input of 12 bytes takes 64, and a list may
/// have room for twice as many.
const MEMORY_OF_XDR: u64 = 16;
/// Memory that a listing takes besides its entries, in bytes.
const WEIGHT: u64 = 512;
/// Typical memory of a listing, in bytes; only used to size the table.
const TYPICAL_BYTES: u64 = 256 << 10;

/// The entries of a module's interface in the order of their declaration, or why it has none.
#[derive(Debug, Clone)]
pub struct Listing {
    /// The entries, or the reason as one sentence.
    pub entries: Result<Arc<[ScSpecEntry]>, Arc<str>>,
    /// Memory that they take at most, in bytes.
    bytes: u64,
}

#[derive(Clone)]
pub(super) struct Weight;

impl Weighter<Hash32, Listing> for Weight {
    fn weight(&self, _: &Hash32, listing: &Listing) -> u64 {
        WEIGHT + listing.bytes
    }
}

/// Listings in memory.
pub(super) struct Listings(Cache<Hash32, Listing, Weight>);

impl Listings {
    /// Returns the listing of a module, if it is in memory.
    pub fn get(&self, code: &Hash32) -> Option<Listing> {
        self.0.get(code)
    }

    /// Keeps what is stored of the interface of a module.
    pub fn keep(&self, code: Hash32, stored: CodeInterface) {
        self.0.insert(code, Listing::read(stored));
    }
}

impl Default for Listings {
    fn default() -> Self {
        let options = OptionsBuilder::new()
            .estimated_items_capacity((CAPACITY / TYPICAL_BYTES) as usize)
            .weight_capacity(CAPACITY)
            .shards(SHARDS)
            .build();
        Self(Cache::with_options(
            options.expect("the capacities are set"),
            Weight,
            DefaultHashBuilder::default(),
            DefaultLifecycle::default(),
        ))
    }
}

impl Listing {
    fn read(stored: CodeInterface) -> Self {
        let (entries, bytes) = match stored {
            CodeInterface::Sections(sections) => {
                let entries = entries_of(&sections).map_err(|error| error.to_string());
                (entries, MEMORY_OF_XDR * sections.len() as u64)
            }
            CodeInterface::None(reason) => (Err(reason), 0),
        };
        Self { entries: entries.map(Arc::from).map_err(Arc::from), bytes }
    }
}
