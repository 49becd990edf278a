//! The entries of a contract at the end of a ledger, page by page.

use std::ops::ControlFlow;

use orrery_ledger::domain::{ContractId, Direction, Hash32, LedgerRange, LedgerSeq};
use orrery_store::{RowFlow, StoreError};

use super::entry::Durability;
use super::lookup::{Entry, Held, Lookup};
use super::rows::{KEYS, KeyRow, KeyTag, NOWHERE};

/// Maximum number of keys of a contract of which the entries are listed in another order than that of
/// the keys' hashes.
pub const MOST_ORDERED: usize = 100_000;
/// Maximum number of those of them of which the newest change does not say where they stand in the order.
const MOST_LOOKED_UP: usize = 10_000;
/// Maximum number of keys that are looked up for one page, whether they are on it or not.
const MOST_LOOKUPS: usize = 4_096;
/// Size of the entries after which a page ends, in bytes.
const MOST_BYTES: usize = 8 << 20;

/// Which entries are wanted. Every condition that is given must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// Only entries of this durability.
    pub durability: Option<Durability>,
    /// Only entries whose key is this symbol, or a vector that begins with it.
    pub name: Option<Vec<u8>>,
    /// Only entries whose key is a vector that begins with a symbol.
    pub in_vector: bool,
    /// Only archived entries, or only live ones: one of which that is not known is neither.
    pub archived: Option<bool>,
    /// Whether the instance of the contract is left out.
    pub without_instance: bool,
}

/// Order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// By the hash of the key.
    KeyHash,
    /// By the ledger that created, updated or restored the entry last.
    Updated,
    /// By the ledger that wrote the entry last, also with the value that was there.
    Modified,
    /// By the last ledger in which the entry is live.
    LiveUntil,
    /// By the name of the durability.
    Durability,
}

/// The place of an entry in an order; entries for which it is not known come after all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// What the entry is ordered by, as a number; `u64::MAX` when that is not known.
    pub by: u64,
    /// The key.
    pub tag: KeyTag,
}

const UNKNOWN: u64 = u64::MAX;

/// An entry of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The SHA-256 of the key's XDR `LedgerKey`.
    pub key_hash: Hash32,
    /// The entry.
    pub entry: Entry,
    /// Its place in the order of the list.
    pub place: Place,
}

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The entries.
    pub entries: Vec<Listed>,
    /// The place after which the list goes on; `None` at its end. A page may end before it has as many
    /// entries as are wanted.
    pub next: Option<Place>,
}

/// Why there is no page.
#[derive(Debug)]
pub enum ListError {
    /// The contract has more than [`MOST_ORDERED`] keys: only the order of hashes is possible.
    TooManyKeys,
    /// More than 10,000 keys would have to be looked up to order them.
    TooManyLookups,
    /// No more may be read, and nothing was found so far.
    Cut,
    /// The store failed.
    Store(StoreError),
}

impl From<StoreError> for ListError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// What is wanted of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Which entries.
    pub filter: Filter,
    /// In which order.
    pub order: Order,
    /// Ascending or descending.
    pub direction: Direction,
    /// The place after which the page begins.
    pub after: Option<Place>,
    /// Maximum number of entries.
    pub limit: usize,
}

impl Lookup<'_> {
    /// Returns a page of the entries that are known of a contract.
    ///
    /// # Errors
    /// [`ListError`]
    pub fn page(&self, contract: &ContractId, wanted: &Wanted) -> Result<Page, ListError> {
        let Some(range) = self.range(contract)? else { return Ok(Page::default()) };
        let mut filling = Filling {
            lookup: self,
            contract,
            range,
            checked: self.checkpoints.of(&self.view, contract, range)?,
            wanted,
            page: Page::default(),
            last: None,
            work: 0,
            bytes: 0,
        };
        match wanted.order {
            Order::KeyHash => filling.by_hash()?,
            _ => filling.ordered()?,
        }
        Ok(filling.page)
    }
}

/// A page that is being filled.
struct Filling<'l, 's> {
    lookup: &'l Lookup<'s>,
    contract: &'l ContractId,
    range: LedgerRange,
    /// Checkpoints of the range that have the contract's state.
    checked: Vec<LedgerSeq>,
    wanted: &'l Wanted,
    page: Page,
    /// The last place that was visited.
    last: Option<Place>,
    /// Number of keys that were looked up.
    work: usize,
    /// Size of the entries.
    bytes: usize,
}

impl Filling<'_, '_> {
    fn by_hash(&mut self) -> Result<(), ListError> {
        let Self { lookup, contract, wanted, .. } = *self;
        let after = wanted.after.map(|place| place.tag);
        self.last = wanted.after;
        match wanted.direction {
            Direction::OldestFirst => {
                let from = after.map(|tag| (*contract, tag));
                KEYS.scan(&lookup.view, contract, from.as_ref(), |(_, tag), row| {
                    self.visit(tag, &row)
                })?;
            }
            Direction::NewestFirst => {
                let from = (*contract, after.unwrap_or(KeyTag([0xff; KeyTag::LEN])));
                KEYS.scan_back(&lookup.view, contract, &from, |(_, tag), row| {
                    self.visit(tag, &row)
                })?;
            }
        }
        // Where no more rows may be read, the page ends.
        if lookup.is_cut() && self.page.next.is_none() {
            if self.last == wanted.after {
                return Err(ListError::Cut);
            }
            self.page.next = self.last;
        }
        Ok(())
    }

    /// Adds the entry of a row, unless the page ends before it.
    fn visit(&mut self, tag: KeyTag, row: &KeyRow) -> RowFlow {
        if self.wanted.after.is_some_and(|after| after.tag == tag) {
            return Ok(ControlFlow::Continue(()));
        }
        if self.is_full() {
            self.page.next = self.last;
            return Ok(ControlFlow::Break(()));
        }
        let place = Place { by: 0, tag };
        if self.may_hold(row) && !self.add(place)? {
            return Ok(ControlFlow::Break(()));
        }
        self.last = Some(place);
        Ok(ControlFlow::Continue(()))
    }

    fn ordered(&mut self) -> Result<(), ListError> {
        let mut places = self.places()?;
        places.sort_unstable();
        if self.wanted.direction == Direction::NewestFirst {
            places.reverse();
        }
        let is_after = |place: &Place| match (self.wanted.after, self.wanted.direction) {
            (None, _) => true,
            (Some(after), Direction::OldestFirst) => *place > after,
            (Some(after), Direction::NewestFirst) => *place < after,
        };
        let first = places.iter().position(is_after).unwrap_or(places.len());
        let mut last = self.wanted.after;
        for place in &places[first..] {
            if self.is_full() {
                self.page.next = last;
                break;
            }
            if !self.add(*place)? {
                if last == self.wanted.after {
                    return Err(ListError::Cut);
                }
                self.page.next = last;
                break;
            }
            last = Some(*place);
        }
        Ok(())
    }

    /// Returns the places of all entries that may be wanted.
    fn places(&mut self) -> Result<Vec<Place>, ListError> {
        let mut rows = Vec::new();
        let mut read = 0;
        KEYS.scan(&self.lookup.view, self.contract, None, |(_, tag), row| {
            read += 1;
            if self.may_hold(&row) {
                rows.push((tag, row));
            }
            let is_over = read > MOST_ORDERED;
            Ok(if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        if read > MOST_ORDERED {
            return Err(ListError::TooManyKeys);
        }
        let mut places = Vec::with_capacity(rows.len());
        let mut looked_up = 0;
        for (tag, row) in rows {
            if let Some(by) = self.by_row(&row) {
                places.push(Place { by, tag });
                continue;
            }
            looked_up += 1;
            if looked_up > MOST_LOOKED_UP {
                return Err(ListError::TooManyLookups);
            }
            let held = self.lookup.held((*self.contract, tag))?;
            if self.lookup.is_cut() {
                return Err(ListError::Cut);
            }
            if let Held::Present(entry) = held {
                places.push(Place { by: by(&entry, self.wanted.order), tag });
            }
        }
        if self.lookup.is_cut() {
            return Err(ListError::Cut);
        }
        Ok(places)
    }

    /// Returns what an entry is ordered by, if its row says it.
    fn by_row(&self, row: &KeyRow) -> Option<u64> {
        let ledger = self.lookup.ledger;
        let is_newest = row.changed.ledger <= ledger && row.ttl.at.max(row.found.at) <= ledger;
        let ttl = if row.ttl.at >= row.found.at { row.ttl } else { row.found };
        let is_told = match ttl == row.ttl {
            true => self.range.contains(ttl.at),
            false => ttl.live_until.0 > 0 && self.checked.contains(&ttl.at),
        };
        match self.wanted.order {
            Order::Durability => Some(by_name(row.durability)),
            Order::Updated if is_newest && self.range.contains(row.changed.ledger) => {
                Some(u64::from(row.changed.ledger.0))
            }
            Order::LiveUntil if is_newest && is_told => Some(u64::from(ttl.live_until.0)),
            _ => None,
        }
    }

    fn is_full(&self) -> bool {
        self.page.entries.len() >= self.wanted.limit
            || self.work >= MOST_LOOKUPS
            || self.bytes >= MOST_BYTES
    }

    /// Whether a key may have an entry that is wanted, according to its row.
    fn may_hold(&self, row: &KeyRow) -> bool {
        let Filter { durability, name, in_vector, .. } = &self.wanted.filter;
        let ledger = self.lookup.ledger;
        let is_here = |at: LedgerSeq| at <= ledger && self.range.contains(at);
        let is_gone = row.is_gone && row.changed != NOWHERE && is_here(row.changed.ledger);
        let is_dead = row.durability == Durability::Temporary
            && is_here(row.changed.ledger)
            && ((is_here(row.ttl.at) && row.ttl.live_until < ledger)
                || (is_here(row.evicted) && row.evicted >= row.changed.ledger.max(row.ttl.at)));
        !(is_gone || is_dead)
            && durability.is_none_or(|durability| durability == row.durability)
            && name.as_ref().is_none_or(|name| *name == row.name)
            && (!*in_vector || row.leads)
    }

    /// Looks a key up, and adds its entry if that is wanted. Returns false when no more rows may be read:
    /// what was found then may lack some.
    fn add(&mut self, place: Place) -> Result<bool, StoreError> {
        self.work += 1;
        let held = self.lookup.held((*self.contract, place.tag))?;
        if self.lookup.is_cut() {
            return Ok(false);
        }
        let Held::Present(entry) = held else { return Ok(true) };
        let Filter { archived, without_instance, .. } = &self.wanted.filter;
        let is_wanted = archived.is_none_or(|archived| entry.archived == Some(archived))
            && !(*without_instance && entry.key.is_instance());
        if is_wanted {
            self.bytes += entry.entry.len();
            let key_hash = super::hash_of(&entry.key.entry_key());
            self.page.entries.push(Listed { key_hash, entry, place });
        }
        Ok(true)
    }
}

/// The place of a durability in the order of the names.
fn by_name(durability: Durability) -> u64 {
    match durability {
        Durability::Persistent => 0,
        Durability::Temporary => 1,
    }
}

fn by(entry: &Entry, order: Order) -> u64 {
    let ledger = |ledger: Option<LedgerSeq>| ledger.map_or(UNKNOWN, |it| u64::from(it.0));
    match order {
        Order::KeyHash => 0,
        Order::Updated => ledger(Some(entry.updated_ledger)),
        Order::Modified => ledger(Some(entry.modified)),
        Order::LiveUntil => ledger(entry.live_until),
        Order::Durability => by_name(entry.key.durability()),
    }
}
