//! Interfaces of contracts at their transactions, for one request.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use stellar_xdr::{Limits, ReadXdr, ScVal};

use super::findings::Findings;
use super::interfaces::{Interfaces, Loaded, Wish};
use super::knowledge::Lacking;
use super::lookup::{Lookup, Ran, Side, Steady};
use super::value::code_key;
use orrery_interfaces::{Interface, asset_contract, is_asset_contract};
use orrery_ledger::domain::{ContractId, DEEPEST_VALUE, Hash32, LedgerSeq, NetworkId};
use orrery_store::{RowBounds, StoreError, TransactionPosition};

/// Number of modules whose interfaces a reader that reads them itself keeps from the cache: it may walk
/// through all that a contract has ever run.
const MOST_KEPT: usize = 64;
/// Number of contracts of which a reader remembers what they had.
const MOST_CONTRACTS: usize = 1_024;
/// Limits of a topic: more bytes than the events of a transaction may have.
const LIMITS: Limits = Limits { depth: DEEPEST_VALUE, len: 4 << 20 };
/// Discriminant of a string in the XDR of a value (SCV_STRING).
const STRING: [u8; 4] = 14_u32.to_be_bytes();
/// Number of changes of a contract whose interfaces count as those that it has had.
const MOST_CHANGES: usize = 64;

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

    /// Returns the interface with the hash of its module: zeros for that of the contract of an asset.
    pub(super) fn identified(&self) -> (Hash32, &Interface) {
        match self {
            Self::Asset => (Hash32::default(), asset_contract()),
            Self::Code(hash, interface) => (*hash, interface),
        }
    }
}

/// The interfaces to try for an event, in order.
pub type AllTried = Arc<[Tried]>;

/// The interface of a module, if it has one, and whether that is known.
type Taken = (Option<Arc<Interface>>, bool);

/// Interfaces of contracts for one request.
pub struct InterfaceReader<'a> {
    interfaces: &'a Interfaces,
    lookup: Lookup<'a>,
    /// The last ledger that was asked about, and whether the snapshot has its rows.
    ledger: Cell<(LedgerSeq, bool)>,
    /// Whether stored interfaces are read on this thread.
    may_load: bool,
    /// What was taken from the cache, so that one request has one answer for each module. Above
    /// [`MOST_KEPT`], only what was not known.
    loaded: RefCell<HashMap<Hash32, Taken>>,
    /// Whether another reader may find more although the store does not change.
    is_pending: Cell<bool>,
    /// What another reader will soon find.
    lacking: RefCell<Lacking>,
    /// Number of times that something lacked that is about to be there.
    lacked: Cell<u64>,
    failed: RefCell<Option<StoreError>>,
    /// What each contract had, and for which of its transactions that is found again.
    steady: RefCell<HashMap<ContractId, (Steady, AllTried)>>,
    /// An interface that declares events before others do.
    supplied: RefCell<Option<Tried>>,
    /// XDR of the topic that names the asset of a contract of an asset.
    assets: RefCell<HashMap<ContractId, Vec<u8>>>,
}

impl Interfaces {
    /// Returns a reader for one request, which reads no more of the index than `bounds` allow. It
    /// takes interfaces that are in memory, and never waits.
    ///
    /// # Errors
    /// [`StoreError`] when the index does not exist here, or the database fails.
    pub fn reader<'a>(&'a self, bounds: RowBounds<'a>) -> Result<InterfaceReader<'a>, StoreError> {
        Ok(InterfaceReader::new(self, Lookup::new(self.store(), bounds)?))
    }

    /// As [`Self::reader`], without bounds, and reads stored interfaces that are not in memory on
    /// this thread, which may take some milliseconds each: not for threads of requests.
    ///
    /// # Errors
    /// As [`Self::reader`].
    pub fn loading_reader(&self) -> Result<InterfaceReader<'_>, StoreError> {
        Ok(self.reader(RowBounds::none())?.loading())
    }
}

impl<'a> InterfaceReader<'a> {
    /// Creates a reader.
    fn new(interfaces: &'a Interfaces, lookup: Lookup<'a>) -> Self {
        Self {
            interfaces,
            lookup,
            ledger: Cell::new((LedgerSeq(0), false)),
            may_load: false,
            loaded: RefCell::default(),
            is_pending: Cell::new(false),
            lacking: RefCell::default(),
            lacked: Cell::new(0),
            failed: RefCell::default(),
            steady: RefCell::default(),
            supplied: RefCell::default(),
            assets: RefCell::default(),
        }
    }

    /// Returns the lookups on the index.
    pub(super) fn lookup(&self) -> &Lookup<'a> {
        &self.lookup
    }

    /// Returns the declarations that were found for events.
    pub(super) fn findings(&self) -> &'a Findings {
        self.interfaces.findings()
    }

    /// Sets an interface that declares the events of every contract before others do, or none.
    pub fn supply(&self, supplied: Option<Tried>) {
        *self.supplied.borrow_mut() = supplied;
    }

    /// Returns interfaces with the supplied one before them.
    pub(super) fn with_supplied(&self, tried: AllTried) -> AllTried {
        match &*self.supplied.borrow() {
            None => tried,
            Some(supplied) => [supplied].into_iter().chain(tried.iter()).cloned().collect(),
        }
    }

    /// Reads stored interfaces that are not in memory on this thread.
    fn loading(self) -> Self {
        Self { may_load: true, ..self }
    }

    /// Returns the interfaces that a contract had at a transaction: that before it, then that after it. Those that
    /// are not known are left out; a failure is kept for [`Self::finish`].
    pub fn tried(&self, contract: &ContractId, at: TransactionPosition) -> AllTried {
        self.tried_if(contract, at, false).0
    }

    /// Returns the interfaces to try for the events that a contract emitted in a transaction, and for what it holds
    /// after it, as [`Self::tried`]; also returns whether that is all, so that it will never change.
    pub fn tried_surely(&self, contract: &ContractId, at: TransactionPosition) -> (AllTried, bool) {
        self.tried_if(contract, at, true)
    }

    fn tried_if(
        &self,
        contract: &ContractId,
        at: TransactionPosition,
        is_there: bool,
    ) -> (AllTried, bool) {
        if !self.is_indexed(at.ledger) {
            return (AllTried::default(), false);
        }
        if let Some((_, known)) =
            self.steady.borrow().get(contract).filter(|(steady, _)| steady.has(at))
        {
            return (Arc::clone(known), true);
        }
        let (tried, is_sure) = self.look_up(contract, at, is_there);
        let tried = AllTried::from(tried);
        if is_sure && let Some(steady) = self.lookup.steady(contract, at) {
            let mut known = self.steady.borrow_mut();
            if known.len() >= MOST_CONTRACTS {
                known.clear();
            }
            known.insert(*contract, (steady, Arc::clone(&tried)));
        }
        (tried, is_sure)
    }

    fn look_up(
        &self,
        contract: &ContractId,
        at: TransactionPosition,
        is_there: bool,
    ) -> (Vec<Tried>, bool) {
        let (mut tried, mut is_sure) = (Vec::new(), true);
        let mut last = None;
        for side in [Side::Before, Side::After] {
            let ran = match is_there {
                true => self.lookup.ran_there(contract, at, side),
                false => self.lookup.ran(contract, at, side),
            };
            let ran = match ran {
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

    /// Whether a contract is that of the asset that a topic names, the last one of an event that the
    /// contract has emitted. Takes the topic's XDR.
    pub fn is_of_asset(&self, network: &NetworkId, contract: &ContractId, topic: &[u8]) -> bool {
        if !topic.starts_with(&STRING) {
            return false;
        }
        if self.assets.borrow().get(contract).is_some_and(|named| named == topic) {
            return true;
        }
        let named = ScVal::from_xdr(topic, LIMITS);
        let is_of = named.is_ok_and(|it| is_asset_contract(&[it], network, contract));
        if is_of {
            let mut known = self.assets.borrow_mut();
            if known.len() >= MOST_CONTRACTS {
                known.clear();
            }
            known.insert(*contract, topic.to_vec());
        }
        is_of
    }

    /// Returns the interfaces that a contract is known to have had, the latest first, from as many of its
    /// changes as [`MOST_CHANGES`], without those of modules that are not `wanted`; and whether its present
    /// one is known. What is not known is asked for; a failure is kept for [`Self::finish`].
    pub fn had(
        &self,
        contract: &ContractId,
        wanted: impl Fn(&Hash32) -> bool,
    ) -> (Vec<Tried>, bool) {
        let Some(latest) = self.interfaces.store().ends().latest else {
            return (Vec::new(), true);
        };
        let last = TransactionPosition { ledger: latest, application_order: u32::MAX };
        let ran = match self.lookup.ran_ever(contract, last, MOST_CHANGES) {
            Ok(ran) => ran,
            Err(error) => {
                self.failed.borrow_mut().get_or_insert(error);
                return (Vec::new(), false);
            }
        };
        let (mut had, mut is_present) = (Vec::new(), self.is_indexed(latest));
        for ran in ran {
            match ran {
                Ran::Asset => had.push(Tried::Asset),
                Ran::Code(hash) if !wanted(&hash) => {}
                Ran::Code(hash) => {
                    let (interface, is_known) = self.interface(&hash);
                    is_present &= is_known;
                    had.extend(interface.map(|it| Tried::Code(hash, it)));
                }
                Ran::Nothing => {}
                Ran::Unknown(key) => {
                    is_present = false;
                    self.want(Wish::Entry(key));
                }
            }
        }
        (had, is_present)
    }

    /// Returns the modules that a contract is known to have run up to `last`, the latest first, from as many of its
    /// changes as [`MOST_CHANGES`].
    pub fn codes(
        &self,
        contract: &ContractId,
        last: TransactionPosition,
    ) -> Result<Vec<Hash32>, StoreError> {
        let ran = self.lookup.ran_ever(contract, last, MOST_CHANGES)?;
        let code = |ran: Ran| if let Ran::Code(hash) = ran { Some(hash) } else { None };
        Ok(ran.into_iter().filter_map(code).collect())
    }

    /// Returns whether whatever becomes known of a contract is the same for all its transactions after
    /// one and up to another; see [`Lookup::is_same_between`].
    pub fn is_same_between(
        &self,
        contract: &ContractId,
        from: TransactionPosition,
        to: TransactionPosition,
    ) -> Result<bool, StoreError> {
        self.lookup.is_same_between(contract, from, to)
    }

    /// Returns what a module declares, also where that is nothing; `None` while it is not known, and asked for.
    pub fn declared_by(&self, hash: &Hash32) -> Option<Arc<Interface>> {
        let (interface, is_known) = self.interface(hash);
        is_known.then(|| interface.unwrap_or_default())
    }

    /// Returns what a contract runs after a transaction; `None` while the index has not processed its
    /// ledger. What is not known is asked for.
    pub fn ran_after(
        &self,
        contract: &ContractId,
        at: TransactionPosition,
    ) -> Result<Option<Ran>, StoreError> {
        if !self.is_indexed(at.ledger) {
            return Ok(None);
        }
        let ran = self.lookup.ran(contract, at, Side::After)?;
        if let Ran::Unknown(key) = &ran {
            self.want(Wish::Entry(key.clone()));
        }
        Ok(Some(ran))
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

    /// Returns how often so far something lacked that is about to be there: a ledger that the index has
    /// not processed, a stored interface that is not in memory, an answer of another server.
    pub fn lacked(&self) -> u64 {
        self.lacked.get()
    }

    /// Returns what is stored and lacked so far.
    pub fn lacking(&self) -> Lacking {
        self.lacking.borrow().clone()
    }

    /// Notes that something lacks that is about to be there.
    fn lack(&self) {
        self.is_pending.set(true);
        self.lacked.set(self.lacked.get() + 1);
    }

    /// Returns the interface of a module, if it has one, and whether that is known.
    fn interface(&self, hash: &Hash32) -> Taken {
        if let Some(loaded) = self.loaded.borrow().get(hash) {
            if !loaded.1 {
                self.miss(hash);
            }
            return loaded.clone();
        }
        let found = match self.interfaces.loaded(hash) {
            Some(Loaded::Interface(interface)) => (Some(interface), true),
            Some(Loaded::None(_)) => (None, true),
            None if self.may_load && self.load(hash) => match self.interfaces.loaded(hash) {
                Some(Loaded::Interface(interface)) => (Some(interface), true),
                _ => (None, true),
            },
            None => {
                self.interfaces.wish(Wish::Code(*hash));
                self.miss(hash);
                (None, false)
            }
        };
        let mut loaded = self.loaded.borrow_mut();
        // Read again, a module says the same.
        if self.may_load && loaded.len() >= MOST_KEPT {
            loaded.retain(|_, (_, is_known)| !*is_known);
        }
        loaded.insert(*hash, found.clone());
        found
    }

    /// Notes that the interface of a module is not in memory, although it may be stored, or another
    /// server may have it.
    fn miss(&self, hash: &Hash32) {
        self.is_pending.set(true);
        if !self.may_load && !self.interfaces.knowledge.is_absent(hash) {
            if self.interfaces.is_working() {
                self.lacking.borrow_mut().codes.insert(*hash);
            }
            self.lack();
        } else if code_key(hash).is_some_and(|key| self.interfaces.asking.is_being_asked(&key)) {
            self.lack();
        }
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
        if last == ledger && is_indexed {
            return true;
        }
        let place = self.interfaces.store().place_of(ledger);
        let is_indexed = place.is_some_and(|place| place <= self.lookup.place());
        self.ledger.set((ledger, is_indexed));
        if !is_indexed {
            self.is_pending.set(true);
        }
        if !is_indexed && place.is_some() {
            let mut lacking = self.lacking.borrow_mut();
            lacking.place = lacking.place.max(place);
            self.lack();
        }
        is_indexed
    }

    /// Wishes for an entry of another server, if there is one.
    fn want(&self, wish: Wish) {
        if !self.interfaces.has_source() {
            return;
        }
        self.is_pending.set(true);
        if let Wish::Entry(key) = &wish
            && self.interfaces.asking.is_being_asked(key)
        {
            self.lack();
        }
        self.interfaces.wish(wish);
    }
}
