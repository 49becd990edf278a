//! The interfaces of modules, read on a thread of their own and kept in memory. Requests take what is
//! there and never wait: what is missing is read, and asked of another server, for those that come
//! later. The interfaces of contracts that emit events now are read in advance.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use stellar_xdr::LedgerEntryData;

use super::consumer::CONSUMER;
use super::lookup::{Lookup, Ran, Side};
use super::rows::{self, CodeInterface};
use super::value::{self, Executable, code_key};
use crate::domain::{ContractId, Hash32, LedgerRange, LedgerSeq};
use crate::interfaces::{Interface, asset_contract, sections};
use crate::store::{EventQuery, RowBounds, Store, StoreError, TransactionPosition};

/// Capacity of the cache, in bytes.
const CAPACITY: u64 = 64 << 20;
/// Memory that an interface takes, in multiples of its stored size, and in addition to that.
const WEIGHT_PER_BYTE: u64 = 8;
const WEIGHT: u64 = 512;
/// Typical stored size of an interface, in bytes; only used to size the table.
const TYPICAL_BYTES: u64 = 4 << 10;
/// Maximum number of wishes that wait; further ones are dropped, and come again with the next
/// request.
const MAX_WISHES: usize = 4096;
/// Maximum number of entries that are asked for at once.
const MAX_ASKED_AT_ONCE: usize = 50;
/// Minimum time between two questions to the other server.
const ASK_INTERVAL: Duration = Duration::from_millis(500);
/// Time after which something that the other server did not have is asked for again.
const ASK_AGAIN: Duration = Duration::from_secs(600);
/// Time after which the other server is asked again when it did not answer.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// Maximum number of remembered questions.
const MAX_REMEMBERED: usize = 1 << 16;
/// Number of ledgers by which the index is too far behind for a wait.
const FAR_BEHIND: u64 = 16;
/// How often new ledgers are looked through for contracts, at most.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Number of newest ledgers that are looked through after the start, and the number of contracts
/// after which that ends.
const LEDGERS_AT_START: u32 = 64;
const CONTRACTS_AT_START: usize = 512;
/// Maximum number of contracts whose interfaces are read in advance per look.
const MAX_CONTRACTS_PER_LOOK: usize = 1024;

/// Another server that is asked for entries of the ledger.
pub trait EntrySource: Send + Sync {
    /// Asks for the entries under these keys, each an XDR `LedgerKey`, and stores the answers among
    /// the store's known entries. The error is one sentence.
    ///
    /// # Errors
    /// When the server does not answer.
    fn ask(&self, keys: &[Vec<u8>]) -> Result<(), String>;
}

/// An interface that may declare an event.
#[derive(Debug, Clone)]
pub enum Tried {
    /// That of the contract of an asset.
    Asset,
    /// That of the module with this hash.
    Code(Hash32, Arc<Interface>),
}

impl Tried {
    /// Returns the interface.
    pub fn interface(&self) -> &Interface {
        match self {
            Self::Asset => asset_contract(),
            Self::Code(_, interface) => interface,
        }
    }
}

/// What is known of a module's interface.
#[derive(Debug, Clone)]
enum Loaded {
    Interface(Arc<Interface>, u64),
    /// It has none, for this reason.
    None(Arc<str>),
}

#[derive(Clone)]
struct Weight;

impl Weighter<Hash32, Loaded> for Weight {
    fn weight(&self, _: &Hash32, loaded: &Loaded) -> u64 {
        match loaded {
            Loaded::Interface(_, size) => WEIGHT + WEIGHT_PER_BYTE * size,
            Loaded::None(reason) => WEIGHT + reason.len() as u64,
        }
    }
}

/// Something that a request could not find.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Wish {
    /// The interface of a module.
    Code(Hash32),
    /// An entry that says what a contract runs: its XDR `LedgerKey`.
    Entry(Vec<u8>),
}

#[derive(Default)]
struct Wishes {
    queue: VecDeque<Wish>,
    waiting: HashSet<Wish>,
    stopped: bool,
}

/// The interfaces of modules.
pub struct Interfaces {
    store: Arc<Store>,
    source: Option<Box<dyn EntrySource>>,
    cache: Cache<Hash32, Loaded, Weight>,
    wishes: Mutex<Wishes>,
    changed: Condvar,
    /// Notified with the progress of consumers.
    indexed: Condvar,
    steps: Mutex<()>,
}

impl Interfaces {
    /// How long something that needs no answer at once waits for names.
    pub const MOST_WAITED: Duration = Duration::from_secs(1);

    /// Creates the cache. Without a `source`, only what is stored is known.
    pub fn new(store: Arc<Store>, source: Option<Box<dyn EntrySource>>) -> Arc<Self> {
        let typical = (CAPACITY / (WEIGHT_PER_BYTE * TYPICAL_BYTES)) as usize;
        let cache = Cache::with_weighter(typical, CAPACITY, Weight);
        let interfaces = Arc::new(Self {
            store,
            source,
            cache,
            wishes: Mutex::default(),
            changed: Condvar::new(),
            indexed: Condvar::new(),
            steps: Mutex::default(),
        });
        let weak = Arc::downgrade(&interfaces);
        interfaces.store.listen_to_consumers(move || {
            let interfaces = weak.upgrade();
            interfaces
                .inspect(|interfaces| {
                    drop(interfaces.steps.lock());
                    interfaces.indexed.notify_all();
                })
                .is_some()
        });
        interfaces
    }

    /// Returns a reader for one request, which reads no more of the index than `bounds` allow. It
    /// takes interfaces that are in memory, and never waits.
    ///
    /// # Errors
    /// [`StoreError`] when the index does not exist here, or the database fails.
    pub fn reader<'a>(&'a self, bounds: RowBounds<'a>) -> Result<InterfaceReader<'a>, StoreError> {
        let unknown = || StoreError::UnknownConsumer(CONSUMER.to_owned());
        // Read before the snapshot, which then has the rows of all ledgers up to this place.
        let place = self.store.consumer(CONSUMER).ok_or_else(unknown)?.place;
        Ok(InterfaceReader {
            interfaces: self,
            lookup: Lookup::new(&self.store, bounds)?,
            place,
            ledger: Cell::new((LedgerSeq(0), false)),
            may_load: false,
            loaded: RefCell::default(),
            is_pending: Cell::new(false),
            failed: RefCell::default(),
        })
    }

    /// As [`Self::reader`], without bounds, and reads stored interfaces that are not in memory on
    /// this thread, which may take some milliseconds each: not for threads of requests.
    ///
    /// # Errors
    /// As [`Self::reader`].
    pub fn loading_reader(&self) -> Result<InterfaceReader<'_>, StoreError> {
        Ok(InterfaceReader { may_load: true, ..self.reader(RowBounds::none())? })
    }

    /// Waits until the index has processed the ledgers up to a place in the feed, for a second at most,
    /// and not at all while it is far behind. Without it, names are missing.
    pub fn wait_until_indexed(&self, place: u64) {
        let until = Instant::now() + Self::MOST_WAITED;
        let mut steps = self.steps.lock();
        while self.will_soon_index(place) && !self.indexed.wait_until(&mut steps, until).timed_out()
        {
        }
    }

    /// Whether the index has not processed all ledgers up to a place, and is about to.
    pub fn will_soon_index(&self, place: u64) -> bool {
        let index = self.store.consumer(CONSUMER);
        index.is_some_and(|it| it.place < place && it.place + FAR_BEHIND > place)
    }

    /// Returns the interface of a module if it has one and is stored, reading it on this thread if it
    /// is not in memory.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails.
    pub fn read_now(&self, code: &Hash32) -> Result<Option<Arc<Interface>>, StoreError> {
        if self.cache.get(code).is_none() && !self.load(code)? {
            return Ok(None);
        }
        Ok(match self.cache.get(code) {
            Some(Loaded::Interface(interface, _)) => Some(interface),
            _ => None,
        })
    }

    /// Returns why a module has no interface, if that is known.
    pub fn reason(&self, code: &Hash32) -> Option<String> {
        match self.cache.get(code)? {
            Loaded::None(reason) => Some(reason.to_string()),
            Loaded::Interface(..) => None,
        }
    }

    /// Ends [`Self::work`].
    pub fn stop(&self) {
        self.wishes.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Whether [`Self::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        self.wishes.lock().stopped
    }

    fn wish(&self, wish: Wish) {
        let mut wishes = self.wishes.lock();
        if wishes.queue.len() < MAX_WISHES && wishes.waiting.insert(wish.clone()) {
            wishes.queue.push_back(wish);
            self.changed.notify_all();
        }
    }

    /// Fulfils wishes, and reads the interfaces of contracts that emit events now, until stopped.
    pub fn work(&self) {
        let mut asking = Asking::default();
        let mut looked = None;
        loop {
            let taken: Vec<Wish> = {
                let mut wishes = self.wishes.lock();
                if wishes.queue.is_empty() && !wishes.stopped {
                    self.changed.wait_for(&mut wishes, LOOK_INTERVAL);
                }
                if wishes.stopped {
                    return;
                }
                let count = wishes.queue.len().min(MAX_ASKED_AT_ONCE);
                let taken: Vec<_> = wishes.queue.drain(..count).collect();
                wishes.waiting.retain(|wish| !taken.contains(wish));
                taken
            };
            let done = taken.into_iter().try_for_each(|wish| self.fulfil(wish, &mut asking));
            let done = done.and_then(|()| self.ask(&mut asking));
            if let Err(error) = done.and_then(|()| self.look_at_new_ledgers(&mut looked)) {
                tracing::error!("interfaces of contracts cannot be read: {error}");
                let mut wishes = self.wishes.lock();
                if !wishes.stopped {
                    self.changed.wait_for(&mut wishes, RETRY_DELAY);
                }
            }
        }
    }

    /// Loads what is stored, and notes the rest to be asked for.
    fn fulfil(&self, wish: Wish, asking: &mut Asking) -> Result<(), StoreError> {
        let key = match wish {
            Wish::Entry(key) => Some(key),
            Wish::Code(hash) if self.cache.get(&hash).is_some() || self.load(&hash)? => None,
            Wish::Code(hash) => code_key(&hash),
        };
        if let Some(key) = key.filter(|_| self.source.is_some()) {
            asking.note(key);
        }
        Ok(())
    }

    /// Reads a module's interface from what is stored. Returns whether the module is.
    fn load(&self, hash: &Hash32) -> Result<bool, StoreError> {
        let view = self.store.consumer_view(CONSUMER, RowBounds::none())?;
        let stored = match rows::code_interface(&view, hash)? {
            Some(stored) => Some(stored),
            None => self.known_code(hash)?,
        };
        let Some(stored) = stored else { return Ok(false) };
        let read = match stored {
            CodeInterface::Sections(sections) => Interface::from_sections(&sections)
                .map(|interface| (interface, sections.len() as u64))
                .map_err(|error| error.to_string()),
            CodeInterface::None(reason) => Err(reason),
        };
        let loaded = match read {
            Ok((interface, size)) => Loaded::Interface(Arc::new(interface), size),
            Err(reason) => Loaded::None(reason.into()),
        };
        self.cache.insert(*hash, loaded);
        Ok(true)
    }

    /// Reads a module's interface from another server's answer.
    fn known_code(&self, hash: &Hash32) -> Result<Option<CodeInterface>, StoreError> {
        let Some(key) = code_key(hash) else { return Ok(None) };
        let known = self.store.known_entries(&key)?;
        let code = known.into_iter().find_map(|known| match value::entry(&known.entry?)?.data {
            LedgerEntryData::ContractCode(code) => Some(code.code),
            _ => None,
        });
        Ok(code.map(|code| match sections(&code) {
            Ok(sections) => CodeInterface::Sections(sections),
            Err(error) => CodeInterface::None(error.to_string()),
        }))
    }

    /// Asks the other server for what is noted, and loads what follows from its answers.
    fn ask(&self, asking: &mut Asking) -> Result<(), StoreError> {
        let Some(source) = &self.source else { return Ok(()) };
        let keys = asking.next(Instant::now());
        if keys.is_empty() {
            return Ok(());
        }
        if let Err(reason) = source.ask(&keys) {
            tracing::debug!("entries of contracts cannot be looked up now: {reason}");
            asking.failed(keys);
            return Ok(());
        }
        for key in keys {
            let known = self.store.known_entries(&key)?;
            let entries = known.into_iter().filter_map(|known| value::entry(&known.entry?));
            for entry in entries {
                match (Executable::in_entry(&entry), &entry.data) {
                    (Some(Executable::Code(hash)), _) => self.wish(Wish::Code(hash)),
                    (Some(Executable::Reference(named)), _) => self.wish(Wish::Entry(named)),
                    (_, LedgerEntryData::ContractCode(code)) => {
                        self.wish(Wish::Code(Hash32(code.hash.0)));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Wishes for the interfaces of the contracts that emitted events in the newest ledger, if that
    /// was not looked at before; after the start, in several of the newest.
    fn look_at_new_ledgers(
        &self,
        looked: &mut Option<(LedgerSeq, Instant)>,
    ) -> Result<(), StoreError> {
        let Some(latest) = self.store.ends().latest else { return Ok(()) };
        let first = match looked {
            Some((seen, at)) if *seen == latest || at.elapsed() < LOOK_INTERVAL => return Ok(()),
            Some(_) => latest.0,
            None => latest.0.saturating_sub(LEDGERS_AT_START),
        };
        let most = if looked.is_some() { MAX_CONTRACTS_PER_LOOK } else { CONTRACTS_AT_START };
        *looked = Some((latest, Instant::now()));
        let mut seen: HashMap<ContractId, TransactionPosition> = HashMap::new();
        for ledger in (first..=latest.0).rev().map(LedgerSeq) {
            let query = EventQuery::of_ledgers(LedgerRange::only(ledger));
            self.store.events(&query, |event| {
                if let Some(contract) = event.contract.filter(|_| seen.len() < most) {
                    let application_order = event.application_order;
                    let at = TransactionPosition { ledger: event.ledger, application_order };
                    seen.entry(ContractId(*contract)).or_insert(at);
                }
            })?;
            if seen.len() >= most || self.wishes.lock().stopped {
                break;
            }
        }
        let reader = self.reader(RowBounds::none())?;
        for (contract, at) in seen {
            reader.tried(&contract, at);
        }
        reader.finish().map(drop)
    }
}

/// Questions to the other server.
#[derive(Default)]
struct Asking {
    noted: Vec<Vec<u8>>,
    /// When each key was asked for.
    asked: HashMap<Vec<u8>, Instant>,
    not_before: Option<Instant>,
}

impl Asking {
    fn note(&mut self, key: Vec<u8>) {
        let is_due = self.asked.get(&key).is_none_or(|at| at.elapsed() > ASK_AGAIN);
        if is_due && self.noted.len() < MAX_WISHES && !self.noted.contains(&key) {
            self.noted.push(key);
        }
    }

    /// Takes the keys that are asked for now.
    fn next(&mut self, now: Instant) -> Vec<Vec<u8>> {
        if self.noted.is_empty() || self.not_before.is_some_and(|at| now < at) {
            return Vec::new();
        }
        self.not_before = Some(now + ASK_INTERVAL);
        let count = self.noted.len().min(MAX_ASKED_AT_ONCE);
        let keys: Vec<_> = self.noted.drain(..count).collect();
        if self.asked.len() + keys.len() > MAX_REMEMBERED {
            self.asked.clear();
        }
        self.asked.extend(keys.iter().map(|key| (key.clone(), now)));
        keys
    }

    /// Notes keys again whose question was not answered.
    fn failed(&mut self, keys: Vec<Vec<u8>>) {
        self.not_before = Some(Instant::now() + RETRY_DELAY);
        for key in keys {
            self.asked.remove(&key);
            self.note(key);
        }
    }
}

/// The interface of a module, if it has one, and whether that is known.
type Taken = (Option<Arc<Interface>>, bool);

/// Interfaces of contracts for one request.
pub struct InterfaceReader<'a> {
    interfaces: &'a Interfaces,
    lookup: Lookup<'a>,
    /// Place in the feed up to which the snapshot has the rows of all ledgers.
    place: u64,
    /// The last ledger that was asked about, and whether the snapshot has its rows.
    ledger: Cell<(LedgerSeq, bool)>,
    /// Whether stored interfaces are read on this thread.
    may_load: bool,
    /// What was taken from the cache, so that one request has one answer for each module.
    loaded: RefCell<HashMap<Hash32, Taken>>,
    is_pending: Cell<bool>,
    failed: RefCell<Option<StoreError>>,
}

impl InterfaceReader<'_> {
    /// Returns the interfaces to try for the events that a contract emitted in a transaction: that
    /// before it, then that after it. Those that are not known are left out; a failure is kept for
    /// [`Self::finish`].
    pub fn tried(&self, contract: &ContractId, at: TransactionPosition) -> Vec<Tried> {
        self.tried_surely(contract, at).0
    }

    /// As [`Self::tried`]; also returns whether that is all, so that it will never change.
    pub fn tried_surely(
        &self,
        contract: &ContractId,
        at: TransactionPosition,
    ) -> (Vec<Tried>, bool) {
        let (mut tried, mut is_sure) = (Vec::new(), true);
        if !self.is_indexed(at.ledger) {
            self.is_pending.set(true);
            return (tried, false);
        }
        let mut last = None;
        for side in [Side::Before, Side::After] {
            let ran = match self.lookup.ran(contract, at, side) {
                Ok(ran) => ran,
                Err(error) => {
                    self.failed.borrow_mut().get_or_insert(error);
                    is_sure = false;
                    break;
                }
            };
            if last.as_ref() == Some(&ran) {
                continue;
            }
            match &ran {
                Ran::Asset => tried.push(Tried::Asset),
                Ran::Code(hash) => {
                    let (interface, is_known) = self.interface(hash);
                    is_sure &= is_known;
                    tried.extend(interface.map(|it| Tried::Code(*hash, it)));
                }
                Ran::Nothing => {}
                Ran::Unknown(key) => {
                    is_sure = false;
                    self.want(Wish::Entry(key.clone()));
                }
            }
            last = Some(ran);
        }
        (tried, is_sure)
    }

    /// Returns whether what was found is all that will be found as long as the store does not change.
    ///
    /// # Errors
    /// The first failure.
    pub fn finish(&self) -> Result<bool, StoreError> {
        match self.failed.borrow_mut().take() {
            Some(error) => Err(error),
            None => Ok(!self.is_pending.get() && !self.lookup.view().is_cut()),
        }
    }

    /// Returns the interface of a module, if it has one, and whether that is known.
    fn interface(&self, hash: &Hash32) -> Taken {
        if let Some(loaded) = self.loaded.borrow().get(hash) {
            return loaded.clone();
        }
        let found = match self.interfaces.cache.get(hash) {
            Some(Loaded::Interface(interface, _)) => (Some(interface), true),
            Some(Loaded::None(_)) => (None, true),
            None if self.may_load && self.load(hash) => match self.interfaces.cache.get(hash) {
                Some(Loaded::Interface(interface, _)) => (Some(interface), true),
                _ => (None, true),
            },
            None => {
                self.is_pending.set(true);
                self.interfaces.wish(Wish::Code(*hash));
                (None, false)
            }
        };
        self.loaded.borrow_mut().insert(*hash, found.clone());
        found
    }

    /// Reads a stored interface now; a failure is kept for [`Self::finish`].
    fn load(&self, hash: &Hash32) -> bool {
        self.interfaces.load(hash).unwrap_or_else(|error| {
            self.failed.borrow_mut().get_or_insert(error);
            false
        })
    }

    /// Whether the snapshot has what the transactions of a ledger say.
    fn is_indexed(&self, ledger: LedgerSeq) -> bool {
        let (last, is_indexed) = self.ledger.get();
        if last == ledger {
            return is_indexed;
        }
        let place = self.interfaces.store.place_of(ledger);
        let is_indexed = place.is_some_and(|place| place <= self.place);
        self.ledger.set((ledger, is_indexed));
        is_indexed
    }

    /// Wishes for an entry of another server, if there is one.
    fn want(&self, wish: Wish) {
        if self.interfaces.source.is_some() {
            self.is_pending.set(true);
            self.interfaces.wish(wish);
        }
    }
}
