//! The interfaces of modules, read on a thread of their own and kept in memory. Requests take what is
//! there and never wait: what is missing is read, and asked of another server, for those that come
//! later. The interfaces of contracts that emit events now are read in advance.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use stellar_xdr::LedgerEntryData;

use super::asking::{AskEntries, Asking, RETRY_DELAY};
use super::code_events::CODE_EVENTS;
use super::consumer::CONSUMER;
use super::findings::Findings;
use super::knowledge::{Knowledge, Lacking, News};
use super::listing::{Listing, Listings};
use super::rows::{CODE, CodeInterface};
use super::value::{self, Executable, code_key};
use orrery_interfaces::{Interface, sections};
use orrery_ledger::domain::{ContractId, Hash32, LedgerRange, LedgerSeq};
use orrery_store::{EventQuery, RowBounds, Store, StoreError, TransactionPosition};

/// Capacity of the cache, in bytes.
const CAPACITY: u64 = 64 << 20;
/// Number of parts of the cache, whatever the number of processors. An interface has to fit into one.
const SHARDS: usize = 4;
/// Memory that an entry takes besides its interface, in bytes.
const WEIGHT: u64 = 512;
/// Typical memory of an interface, in bytes; only used to size the table.
const TYPICAL_BYTES: u64 = 32 << 10;
/// Maximum number of wishes that wait; further ones are dropped, and come again with the next
/// request.
const MAX_WISHES: usize = 4096;
/// Number of wishes that are fulfilled before new ledgers are looked through again.
const WISHES_AT_ONCE: usize = 50;
/// How often new ledgers are looked through for contracts, at most.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Number of newest ledgers that are looked through after the start, and the number of contracts
/// after which that ends.
const LEDGERS_AT_START: u32 = 64;
const CONTRACTS_AT_START: usize = 512;
/// Maximum number of contracts whose interfaces are read in advance per look.
const MAX_CONTRACTS_PER_LOOK: usize = 1024;

/// What is known of a module's interface.
#[derive(Debug, Clone)]
pub(super) enum Loaded {
    Interface(Arc<Interface>),
    /// It has none, for this reason.
    None(Arc<str>),
}

#[derive(Clone)]
struct Weight;

impl Weighter<Hash32, Loaded> for Weight {
    fn weight(&self, _: &Hash32, loaded: &Loaded) -> u64 {
        match loaded {
            Loaded::Interface(interface) => WEIGHT + interface.bytes() as u64,
            Loaded::None(reason) => WEIGHT + reason.len() as u64,
        }
    }
}

/// Something that a request could not find.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Wish {
    /// The interface of a module.
    Code(Hash32),
    /// All entries of the interface of a module.
    Listing(Hash32),
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
    cache: Cache<Hash32, Loaded, Weight>,
    listings: Listings,
    findings: Findings,
    wishes: Mutex<Wishes>,
    changed: Condvar,
    /// Whether a thread fulfils wishes.
    is_working: AtomicBool,
    pub(super) most_waited: Duration,
    /// What is to be asked of the other server.
    pub(super) asking: Asking,
    pub(super) knowledge: Knowledge,
}

impl Interfaces {
    /// Creates the cache. Without another server to `ask`, only what is stored is known.
    pub fn new(store: Arc<Store>, ask: Option<AskEntries>) -> Arc<Self> {
        Self::patient(store, ask, Self::MOST_WAITED)
    }

    /// Like [`Self::new`], with another limit for [`Self::most_waited`].
    pub fn patient(store: Arc<Store>, ask: Option<AskEntries>, most_waited: Duration) -> Arc<Self> {
        let options = OptionsBuilder::new()
            .estimated_items_capacity((CAPACITY / TYPICAL_BYTES) as usize)
            .weight_capacity(CAPACITY)
            .shards(SHARDS)
            .build();
        let cache = Cache::with_options(
            options.expect("the capacities are set"),
            Weight,
            DefaultHashBuilder::default(),
            DefaultLifecycle::default(),
        );
        let interfaces = Arc::new(Self {
            store,
            cache,
            listings: Listings::default(),
            findings: Findings::default(),
            wishes: Mutex::default(),
            changed: Condvar::new(),
            is_working: AtomicBool::new(false),
            most_waited,
            asking: Asking::new(ask),
            knowledge: Knowledge::default(),
        });
        let weak = Arc::downgrade(&interfaces);
        interfaces.store.listen_to_consumers(move || {
            weak.upgrade().inspect(|interfaces| interfaces.notice_progress()).is_some()
        });
        interfaces
    }

    /// Tells listeners when the index has advanced, or what events say of ledgers that are lost to it; any consumer may
    /// have.
    fn notice_progress(&self) {
        let Some(index) = self.store.consumer(CONSUMER) else { return };
        let events = match index.lost.is_empty() {
            true => None,
            false => self.store.consumer(CODE_EVENTS),
        };
        if self.knowledge.advanced_to(index.place + events.map_or(0, |events| events.place)) {
            self.knowledge.tell(News::Stored);
        }
    }

    /// Returns the interface of a module if it has one and is stored, reading it on this thread if it
    /// is not in memory.
    pub fn read_now(&self, code: &Hash32) -> Result<Option<Arc<Interface>>, StoreError> {
        if self.cache.get(code).is_none() && !self.load(code)? {
            return Ok(None);
        }
        Ok(match self.cache.get(code) {
            Some(Loaded::Interface(interface)) => Some(interface),
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

    /// Returns the declarations that were found for events.
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// Registers `listener` to be called whenever more is known, until it returns false. It must return
    /// quickly. What it is told is visible to readers that begin afterwards.
    pub fn listen(&self, listener: impl Fn(News) -> bool + Send + Sync + 'static) {
        self.knowledge.listen(listener);
    }

    /// Returns a number that is another one once more is stored.
    pub fn generation(&self) -> u64 {
        self.knowledge.generation()
    }

    /// Whether a reader that begins now has what another one lacked, or nobody will have it soon.
    pub fn has(&self, lacking: &Lacking) -> bool {
        let is_read = |code| self.loaded(code).is_some() || self.knowledge.is_absent(code);
        let is_listed = |code| self.has_listing(code) || self.knowledge.is_absent(code);
        lacking.place.is_none_or(|place| self.has_indexed(place))
            && lacking.codes.iter().all(is_read)
            && lacking.listings.iter().all(is_listed)
    }

    /// Waits until a reader has what another one lacked, at most this long. Returns whether it has.
    pub fn wait_until_has(&self, lacking: &Lacking, most: Duration) -> bool {
        self.knowledge.wait_until(|| self.has(lacking), most)
    }

    /// Returns the entries of a module's interface, if they are in memory. Otherwise they are read on
    /// the thread that reads interfaces, or on this one if there is none, and what lacks until then is
    /// returned; nothing lacks when the module is not stored. It is asked for then.
    pub fn listing(&self, code: &Hash32) -> Result<(Option<Listing>, Lacking), StoreError> {
        let mut lacking = Lacking::default();
        if !self.is_working() && !self.has_listing(code) {
            self.load_listing(code)?;
        }
        let listing = self.listings.get(code);
        if listing.is_none() {
            self.wish(Wish::Listing(*code));
            if self.is_working() && !self.knowledge.is_absent(code) {
                lacking.listings.insert(*code);
            }
        }
        Ok((listing, lacking))
    }

    /// Whether the entries of a module's interface are in memory.
    fn has_listing(&self, code: &Hash32) -> bool {
        self.listings.get(code).is_some()
    }

    /// Reads the entries of a module's interface from what is stored. Returns whether the module is.
    fn load_listing(&self, code: &Hash32) -> Result<bool, StoreError> {
        let Some(stored) = self.stored(code)? else { return Ok(false) };
        self.listings.keep(*code, stored);
        Ok(true)
    }

    /// Ends [`Self::work`].
    pub fn stop(&self) {
        self.wishes.lock().stopped = true;
        self.changed.notify_all();
        self.asking.wake();
    }

    /// Whether [`Self::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        self.wishes.lock().stopped
    }

    /// Whether a thread fulfils wishes.
    pub(super) fn is_working(&self) -> bool {
        self.is_working.load(Ordering::Relaxed)
    }

    /// Returns what is known of a module's interface in memory.
    pub(super) fn loaded(&self, hash: &Hash32) -> Option<Loaded> {
        self.cache.get(hash)
    }

    /// Returns the store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Whether there is another server to ask.
    pub fn has_source(&self) -> bool {
        self.asking.has_source()
    }

    pub(super) fn wish(&self, wish: Wish) {
        let mut wishes = self.wishes.lock();
        if wishes.queue.len() < MAX_WISHES && wishes.waiting.insert(wish.clone()) {
            wishes.queue.push_back(wish);
            self.changed.notify_all();
        }
    }

    /// Fulfils wishes, and reads the interfaces of contracts that emit events now, until stopped.
    pub fn work(&self) {
        self.is_working.store(true, Ordering::Relaxed);
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
                let count = wishes.queue.len().min(WISHES_AT_ONCE);
                let taken: Vec<_> = wishes.queue.drain(..count).collect();
                wishes.waiting.retain(|wish| !taken.contains(wish));
                taken
            };
            let done = taken.into_iter().try_for_each(|wish| self.fulfil(wish));
            if let Err(error) = done.and_then(|()| self.look_at_new_ledgers(&mut looked)) {
                tracing::error!("interfaces of contracts cannot be read: {error}");
                let mut wishes = self.wishes.lock();
                if !wishes.stopped {
                    self.changed.wait_for(&mut wishes, RETRY_DELAY);
                }
            }
        }
    }

    /// Asks the other server for what requests lacked, until stopped. Returns at once without one.
    pub fn ask(&self) {
        while self.has_source() && !self.is_stopped() {
            let keys = self.asking.next(|| self.is_stopped());
            if keys.is_empty() {
                continue;
            }
            if let Err(error) = self.ask_for(keys) {
                tracing::error!("answers about contracts cannot be read: {error}");
            }
        }
    }

    /// Puts one question, and wishes for what follows from the answers.
    fn ask_for(&self, keys: Vec<Vec<u8>>) -> Result<(), StoreError> {
        if !self.asking.put(&keys) {
            return Ok(());
        }
        // Answers are not stored while an import has ledgers that are not durable yet.
        let (mut entries, mut dropped) = (Vec::new(), Vec::new());
        for key in keys {
            let known = self.store.known_entries(&key);
            let known = known.inspect_err(|_| self.asking.answered(Vec::new()))?;
            if known.is_empty() {
                dropped.push(key);
            }
            entries.extend(known.into_iter().filter_map(|known| value::entry(&known.entry?)));
        }
        self.asking.answered(dropped);
        self.knowledge.tell(News::Stored);
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
        Ok(())
    }

    /// Loads what is stored, and notes the rest to be asked for.
    fn fulfil(&self, wish: Wish) -> Result<(), StoreError> {
        // What is stored while it is looked for is looked for again.
        let generation = self.knowledge.generation();
        let (hash, is_there) = match wish {
            Wish::Entry(key) => {
                self.asking.note(key);
                return Ok(());
            }
            Wish::Code(hash) => (hash, self.cache.get(&hash).is_some() || self.load(&hash)?),
            Wish::Listing(hash) => (hash, self.has_listing(&hash) || self.load_listing(&hash)?),
        };
        if !is_there {
            self.knowledge.note_absent(&hash, generation);
            code_key(&hash).into_iter().for_each(|key| self.asking.note(key));
        }
        self.knowledge.tell(News::Read);
        Ok(())
    }

    /// Reads a module's interface from what is stored. Returns whether the module is.
    pub(super) fn load(&self, hash: &Hash32) -> Result<bool, StoreError> {
        let Some(stored) = self.stored(hash)? else { return Ok(false) };
        let read = match stored {
            CodeInterface::Sections(sections) => {
                Interface::from_sections(&sections).map_err(|error| error.to_string())
            }
            CodeInterface::None(reason) => Err(reason),
        };
        let loaded = match read {
            Ok(interface) => Loaded::Interface(Arc::new(interface)),
            Err(reason) => Loaded::None(reason.into()),
        };
        self.cache.insert(*hash, loaded);
        Ok(true)
    }

    /// Returns the joined sections of a module's interface; `None` when the module is not stored, or has none.
    pub fn sections(&self, hash: &Hash32) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(match self.stored(hash)? {
            Some(CodeInterface::Sections(sections)) => Some(sections),
            Some(CodeInterface::None(_)) | None => None,
        })
    }

    /// Returns what is stored of a module's interface; `None` when the module is not.
    fn stored(&self, hash: &Hash32) -> Result<Option<CodeInterface>, StoreError> {
        let view = self.store.consumer_view(CONSUMER, RowBounds::none())?;
        match CODE.get(&view, hash)? {
            Some(stored) => Ok(Some(stored)),
            None => self.known_code(hash),
        }
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
