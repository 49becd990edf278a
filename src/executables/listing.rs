//! Whole interfaces of modules, as requests list them. They are read on the thread that reads interfaces,
//! and kept in memory for those who ask again.

use std::sync::Arc;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use stellar_xdr::ScSpecEntry;

use super::interfaces::{Interfaces, Wish};
use super::knowledge::Lacking;
use super::rows::CodeInterface;
use crate::domain::Hash32;
use crate::interfaces::entries_of;
use crate::store::StoreError;

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

impl Interfaces {
    /// Returns the entries of a module's interface, if they are in memory. Otherwise they are read on
    /// the thread that reads interfaces, or on this one if there is none, and what lacks until then is
    /// returned; nothing lacks when the module is not stored. It is asked for then.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails.
    pub fn listing(&self, code: &Hash32) -> Result<(Option<Listing>, Lacking), StoreError> {
        let mut lacking = Lacking::default();
        if !self.is_working() && !self.has_listing(code) {
            self.load_listing(code)?;
        }
        let listing = self.listings.0.get(code);
        if listing.is_none() {
            self.wish(Wish::Listing(*code));
            if self.is_working() && !self.knowledge.is_absent(code) {
                lacking.listings.insert(*code);
            }
        }
        Ok((listing, lacking))
    }

    /// Whether the entries of a module's interface are in memory.
    pub(super) fn has_listing(&self, code: &Hash32) -> bool {
        self.listings.0.get(code).is_some()
    }

    /// Reads the entries of a module's interface from what is stored. Returns whether the module is.
    pub(super) fn load_listing(&self, code: &Hash32) -> Result<bool, StoreError> {
        let Some(stored) = self.stored(code)? else { return Ok(false) };
        self.listings.0.insert(*code, Listing::read(stored));
        Ok(true)
    }
}
