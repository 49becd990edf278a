//! What a key held at the end of a ledger: exactly, or not known.
//!
//! What the last change left holds until the next one, if no ledger in between is missing; what the next
//! one found has held since the change before it. Times to live follow the same rule on their own. An
//! entry that nobody created since its contract was created does not exist.

use std::ops::ControlFlow;
use std::rc::Rc;

use orrery_ledger::domain::{ContractId, Direction, Hash32, LedgerRange, LedgerSeq, LedgerSet};
use orrery_store::{
    Changed, ConsumerView, EntryReader, RowBounds, RowFlow, Store, StoreError, TransactionPosition,
    Unrecorded,
};

use super::changes::Kind;
use super::disputed;
use super::entry::{DataKey, Durability, modified};
use super::found::{Around, Checkpoints};
use super::rows::{
    BEGINNINGS, CONSUMER, CREATED, EVICTED, Given, Inverted, KEPT, KEYS, Kept, Key, KeyRow, KeyTag,
    LAST_ORDER, NEVER_GIVEN, NOWHERE, end_of,
};
use super::scope::{self, Scope};
use super::seen::FIRST_PROTOCOL;
use super::transactions::{Change, Found, Transaction, Transactions, WrittenEntry};

/// The first ledger after genesis: a range from there on has every change.
const FIRST_LEDGER: LedgerSeq = LedgerSeq(2);
/// The first protocol whose metadata says that an archived entry was restored (CAP-66).
const TELLS_RESTORED: u32 = 23;

/// Maximum number of rows of the index of entries that one lookup visits in each direction, and one page
/// of a history. Beyond it, a lookup may not find the transaction that created, updated or restored an
/// entry last, nor a time to live that was given before or after as many writes.
pub(super) const MOST_VISITED: usize = 50_000;
/// Size that a row of the index of entries is counted with, in bytes.
const ROW_BYTES: usize = 32;

/// What a key held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// An entry, live or archived.
    Present(Entry),
    /// No entry.
    Absent,
    /// It is not known.
    Unknown {
        /// Last ledger in which the entry is live, if that is known.
        live_until: Option<LedgerSeq>,
    },
}

/// An entry at the end of a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: DataKey<'static>,
    /// XDR `LedgerEntry`.
    pub entry: Vec<u8>,
    /// Last ledger in which it is live; `None` when that is not known.
    pub live_until: Option<LedgerSeq>,
    /// Whether it is archived; `None` when that is not known.
    pub archived: Option<bool>,
    /// Whether the network has archived another value than this one, and has not yet put it right (CAP-76).
    pub disputed: bool,
    /// The ledger that created, updated or restored it last. Where no such ledger is known, the one that
    /// wrote it last.
    pub updated_ledger: LedgerSeq,
    /// The transaction that did it, if it is known.
    pub updated: Option<Updated>,
    /// The ledger that wrote it last, also with the value that was there (`lastModifiedLedgerSeq`).
    pub modified: LedgerSeq,
}

/// A transaction that changed an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Updated {
    /// Its ledger and application order.
    pub position: TransactionPosition,
    /// Its hash.
    pub tx: Hash32,
}

/// Lookups at the end of one ledger, on a snapshot.
pub struct Lookup<'s> {
    pub(super) store: &'s Store,
    pub(super) ledger: LedgerSeq,
    pub(super) reader: EntryReader<'s>,
    pub(super) view: ConsumerView<'s>,
    /// Whose rows there are.
    scope: Scope,
    /// Ledgers of which transactions that only extend or restore data are not stored.
    without_extensions: LedgerSet,
    /// Place in the feed up to which the view has the rows of all ledgers.
    place: u64,
    /// Whether the transactions that changed entries last are looked for.
    finds_updated: bool,
    pub(super) transactions: Transactions,
    /// Checkpoints whose state is recorded.
    pub(super) checkpoints: Checkpoints,
}

/// What transactions up to a position say of a key, each as of the newest one that says it.
#[derive(Debug, Default)]
pub(super) struct Past {
    pub(super) key: Option<DataKey<'static>>,
    /// The newest write, and the entry that it left.
    pub(super) written: Option<(TransactionPosition, Option<Vec<u8>>)>,
    updated: Option<Updated>,
    /// The newest time to live; until ledger 0 when the entry was removed.
    pub(super) ttl: Option<Given>,
    /// The newest ledger that says anything.
    pub(super) newest: Option<LedgerSeq>,
}

impl<'s> Lookup<'s> {
    /// Takes a snapshot for lookups at the end of a stored ledger. No more rows and transactions are read
    /// than `bounds` allow: beyond them, what is returned may lack what was not read, and
    /// [`Self::is_cut`] is true.
    ///
    /// # Errors
    /// [`StoreError`] when the index does not exist here, or the database fails.
    pub fn new(
        store: &'s Store,
        ledger: LedgerSeq,
        bounds: RowBounds<'s>,
    ) -> Result<Self, StoreError> {
        // Taken before the view: what retention removes in between is in the rows that are kept.
        let reader = store.entry_reader(ledger)?;
        let unknown = || StoreError::UnknownConsumer(CONSUMER.to_owned());
        let place = store.consumer(CONSUMER).ok_or_else(unknown)?.place;
        let view = store.consumer_view(CONSUMER, bounds)?;
        let without_extensions = store.unrecorded(Unrecorded::Extensions)?;
        let checkpoints = Checkpoints::load(&view)?;
        let scope = scope::scope_in(&view)?;
        let transactions = Transactions::default();
        let finds_updated = true;
        Ok(Self {
            store,
            ledger,
            reader,
            view,
            scope,
            without_extensions,
            place,
            finds_updated,
            transactions,
            checkpoints,
        })
    }

    /// Does not look for the transactions that created, updated or restored entries last, which may
    /// have come long before those that wrote them: [`Entry::updated`] may be `None` where one is known.
    #[must_use]
    pub fn without_updated(self) -> Self {
        Self { finds_updated: false, ..self }
    }

    /// Returns the ledger at whose end things are looked up.
    pub fn ledger(&self) -> LedgerSeq {
        self.ledger
    }

    /// Whether no more may be read: the last answer may be wrong then.
    pub fn is_cut(&self) -> bool {
        self.view.is_cut()
    }

    /// Returns the consecutive ledgers around this one that have every change of a contract's data;
    /// `None` when this one has not.
    ///
    /// # Errors
    /// Errors of the database, or that a row is damaged.
    pub fn range(&self, contract: &ContractId) -> Result<Option<LedgerRange>, StoreError> {
        let complete = self.store.complete_around(CONSUMER, contract, self.ledger);
        let Some(complete) = complete else { return Ok(None) };
        let mut known = LedgerSet::from(complete);
        known.remove_all(&self.without_extensions);
        if self.scope == Scope::Watched {
            scope::leave_out(&self.view, contract, &mut known)?;
        }
        Ok(known.ranges().iter().find(|range| range.contains(self.ledger)).copied())
    }

    /// Whether the rows are all those of a contract: they are not while they are being added or removed.
    pub(super) fn has_all_rows(&self, contract: &ContractId) -> Result<bool, StoreError> {
        Ok(self.scope == Scope::All || scope::is_filled(&self.view, contract)?)
    }

    /// Returns the ledger that created a contract, if that is one of these ledgers.
    ///
    /// # Errors
    /// Errors of the database, or that a row is damaged.
    pub fn created(
        &self,
        contract: &ContractId,
        range: LedgerRange,
    ) -> Result<Option<LedgerSeq>, StoreError> {
        let created = CREATED.get(&self.view, contract)?;
        Ok(created.map(|at| at.ledger).filter(|ledger| range.contains(*ledger)))
    }

    /// Whether a range of ledgers begins where no contract had data yet.
    ///
    /// # Errors
    /// Errors of the database, or that a row is damaged.
    pub fn begins_empty(&self, range: LedgerRange) -> Result<bool, StoreError> {
        if range.first <= FIRST_LEDGER {
            return Ok(true);
        }
        let is_before =
            self.store.ledger(range.first)?.is_some_and(|it| it.protocol < FIRST_PROTOCOL);
        Ok(is_before || BEGINNINGS.has(&self.view, &range.first)?)
    }

    /// Returns what a key held.
    ///
    /// # Errors
    /// Errors of the database, or that stored bytes are damaged.
    pub fn held(&self, of: Key) -> Result<Held, StoreError> {
        let Some(range) = self.range(&of.0)? else { return Ok(Held::Unknown { live_until: None }) };
        let state = self.state(of, range, end_of(self.ledger))?;
        let State { key, value, written, live_until, evicted, updated } = state;
        let (Value::Entry(entry), Some(key)) = (&value, key) else {
            return Ok(match value {
                Value::Absent => Held::Absent,
                _ => Held::Unknown { live_until },
            });
        };
        let is_over = live_until.map(|until| until < self.ledger);
        let archived = match key.durability() {
            Durability::Persistent if evicted.is_some() => Some(true),
            Durability::Persistent => is_over,
            Durability::Temporary => match is_over {
                Some(true) => return Ok(Held::Absent),
                Some(false) => Some(false),
                // It was written in this very ledger.
                None if written == Some(self.ledger) => None,
                None => return Ok(Held::Unknown { live_until }),
            },
        };
        let modified = LedgerSeq(modified(entry).unwrap_or(0));
        let updated_ledger = updated.map_or(modified, |it| it.position.ledger);
        let entry = entry.clone();
        let disputed = evicted.is_some() && archived == Some(true) && self.is_disputed(&of.1)?;
        Ok(Held::Present(Entry {
            key,
            entry,
            live_until,
            archived,
            disputed,
            updated_ledger,
            updated,
            modified,
        }))
    }

    /// Whether the network has archived another value than the last one of this entry, and has not yet put
    /// it right at the end of this ledger.
    pub(super) fn is_disputed(&self, tag: &KeyTag) -> Result<bool, StoreError> {
        if !disputed::is_disputed(self.store.network(), tag) {
            return Ok(false);
        }
        let ledger = self.store.ledger(self.ledger)?;
        Ok(ledger.is_none_or(|ledger| ledger.protocol == disputed::PROTOCOL))
    }

    /// Returns what is known of a key at a position in a range.
    pub(super) fn state(
        &self,
        of: Key,
        range: LedgerRange,
        at: TransactionPosition,
    ) -> Result<State, StoreError> {
        let mut past = self.past(of, range, at)?;
        let around = self.checkpoints.around(&self.view, of, range, at)?;
        let was_evicted = past.add_found(&around);
        let evicted = self.evicted(of, range, at, past.newest)?;
        if evicted == Some(Durability::Temporary) {
            return Ok(State { evicted, ..State::of(past.key, Value::Absent) });
        }
        let evicted = evicted.or(was_evicted.then_some(Durability::Persistent));
        let next = self.next(of, range, at, &past)?.or_later(&around, at.ledger);
        let live_until = past.live_until().or(next.live_until);
        if past.is_lacking(&around, live_until.is_some()) {
            return Ok(State::of(past.key, Value::Absent));
        }
        let written = past.written.as_ref().map(|(at, _)| at.ledger);
        let value = match (past.written, next.found) {
            (Some((_, Some(entry))), _) => Value::Entry(entry),
            (Some((_, None)), _) | (None, Found::Absent) => Value::Absent,
            (None, Found::Entry(entry)) => Value::Entry(entry),
            (None, Found::Unknown) => {
                let is_mentioned = past.newest.is_some() || live_until.is_some();
                match !is_mentioned && self.begins_without(&of.0, range)? {
                    true => Value::Absent,
                    false => Value::Unknown,
                }
            }
        };
        Ok(State {
            key: past.key.or(next.key),
            value,
            written,
            live_until: live_until.filter(|until| until.0 > 0),
            evicted,
            updated: past.updated,
        })
    }

    /// Whether a contract had no data when a range of ledgers began: it was created in one of them, or
    /// there were no contracts.
    pub fn begins_without(
        &self,
        contract: &ContractId,
        range: LedgerRange,
    ) -> Result<bool, StoreError> {
        Ok(self.created(contract, range)?.is_some() || self.begins_empty(range)?)
    }

    /// Returns what transactions of the range say of a key, up to a position.
    pub(super) fn past(
        &self,
        of: Key,
        range: LedgerRange,
        from: TransactionPosition,
    ) -> Result<Past, StoreError> {
        let mut past = Past::default();
        let mut ttl = LastTtl::default();
        let (given, changed_at) = self.newest(of, range, from)?;
        let changed_at = changed_at.filter(|_| self.finds_updated);
        let mut visited = 0;
        self.walk(&of.1.0, from, Direction::NewestFirst, |at, changed| {
            visited += 1;
            let wants_update = self.finds_updated && past.updated.is_none() && changed_at.is_none();
            let wants_ttl = given.is_none() && ttl.is_open(at.ledger);
            let is_over = past.written.is_some() && !wants_update && !wants_ttl;
            if at.ledger < range.first || is_over || visited > MOST_VISITED {
                return Ok(ControlFlow::Break(()));
            }
            let wants_value = past.written.is_none() && changed.entry;
            let wants_ttl = wants_ttl && changed.ttl;
            let wants_update = wants_update && self.may_update(at, changed)?;
            if (wants_value || wants_ttl || wants_update)
                && let Some(transaction) = self.transaction(at)?
                // Otherwise another key shares the first bytes of the hash.
                && let Some(change) = transaction.changes.get(&of)
            {
                past.add(&transaction, change);
                if wants_ttl {
                    ttl.add(at.ledger, change);
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        past.ttl = given.or(ttl.given());
        past.newest = past.newest.max(given.map(|given| given.at));
        if let Some(position) = changed_at
            && let Some(transaction) = self.transaction(position)?
        {
            past.updated = Some(Updated { position, tx: transaction.hash });
        }
        if let Some(kept) = KEPT.get(&self.view, &of)? {
            past.add_kept(kept, range);
        }
        Ok(past)
    }

    /// Returns the newest time to live of a key, and the newest transaction that created, updated, restored
    /// or removed its entry, if that is known and they come before a position.
    pub(super) fn newest(
        &self,
        of: Key,
        range: LedgerRange,
        from: TransactionPosition,
    ) -> Result<(Option<Given>, Option<TransactionPosition>), StoreError> {
        let up_to = LedgerRange { last: from.ledger, ..range };
        // The row lacks what was stored and not processed.
        if !self.store.ledgers_after(self.place).within(up_to).is_empty() {
            return Ok((None, None));
        }
        let Some(KeyRow { ttl, changed, .. }) = KEYS.get(&self.view, &of)? else {
            return Ok((None, None));
        };
        let given_at = TransactionPosition { ledger: ttl.at, application_order: LAST_ORDER };
        let is_before = |at: TransactionPosition| range.contains(at.ledger) && at <= from;
        Ok((Some(ttl).filter(|_| is_before(given_at)), Some(changed).filter(|at| is_before(*at))))
    }

    /// Whether a transaction may have created, updated, restored or removed an entry, according to its
    /// row in the index.
    pub(super) fn may_update(
        &self,
        at: TransactionPosition,
        changed: Changed,
    ) -> Result<bool, StoreError> {
        // A dead temporary entry may be created with the value that it had.
        if changed.entry_differs || (changed.entry && changed.ttl_differs) {
            return Ok(true);
        }
        if !changed.ttl_differs {
            return Ok(false);
        }
        // The transactions of a ledger that upgrades the network follow the protocol before.
        let Some(before) = at.ledger.previous() else { return Ok(true) };
        let before = self.store.ledger(before)?;
        Ok(before.is_none_or(|row| row.protocol < TELLS_RESTORED))
    }

    /// Returns what the first transactions of the range after a position found, as far as those before do
    /// not say it.
    fn next(
        &self,
        of: Key,
        range: LedgerRange,
        at: TransactionPosition,
        past: &Past,
    ) -> Result<Next, StoreError> {
        let mut next = Next::default();
        let (mut wants_value, mut wants_ttl) = (past.written.is_none(), past.ttl.is_none());
        let Some(from) = after(at).filter(|_| wants_value || wants_ttl) else { return Ok(next) };
        // What comes after it says nothing about before it.
        let deleted = self.deleted_after(of, range, at)?;
        let mut visited = 0;
        self.walk(&of.1.0, from, Direction::OldestFirst, |position, changed| {
            visited += 1;
            let is_beyond = position.ledger > range.last || deleted.is_some_and(|it| it < position);
            if is_beyond || visited > MOST_VISITED || !(wants_value || wants_ttl) {
                return Ok(ControlFlow::Break(()));
            }
            if ((wants_value && changed.entry) || (wants_ttl && changed.ttl))
                && let Some(transaction) = self.transaction(position)?
                && let Some(change) = transaction.changes.get(&of)
            {
                next.add(change, (at.ledger, position), &mut wants_value, &mut wants_ttl);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(next)
    }

    /// Returns the durability of a key that was evicted, after the newest transaction that says anything
    /// and up to a position; `None` when it was not.
    pub(super) fn evicted(
        &self,
        of: Key,
        range: LedgerRange,
        at: TransactionPosition,
        newest: Option<LedgerSeq>,
    ) -> Result<Option<Durability>, StoreError> {
        let mut found = None;
        EVICTED.scan(
            &self.view,
            &of,
            Some(&(of, Inverted(at.ledger))),
            |(_, by), durability| {
                if end_of(by.0) > at {
                    return Ok(ControlFlow::Continue(()));
                }
                found = Some((by.0, durability));
                Ok(ControlFlow::Break(()))
            },
        )?;
        // Evictions come after all transactions of their ledger.
        let is_last = |by: LedgerSeq| range.contains(by) && newest.is_none_or(|last| last <= by);
        Ok(found.filter(|(by, _)| is_last(*by)).map(|(_, durability)| durability))
    }

    /// Returns the first eviction after a position that deleted a temporary entry.
    fn deleted_after(
        &self,
        of: Key,
        range: LedgerRange,
        at: TransactionPosition,
    ) -> Result<Option<TransactionPosition>, StoreError> {
        let mut found = None;
        EVICTED.scan_back(&self.view, &of, &(of, Inverted(at.ledger)), |(_, by), durability| {
            if end_of(by.0) <= at {
                return Ok::<_, StoreError>(ControlFlow::Continue(()));
            }
            found = Some((end_of(by.0), durability));
            Ok(ControlFlow::Break(()))
        })?;
        let deletes = |(by, durability): &(TransactionPosition, Durability)| {
            *durability == Durability::Temporary && range.contains(by.ledger)
        };
        Ok(found.filter(deletes).map(|(by, _)| by))
    }

    /// Returns a stored transaction; `None` when it is not stored.
    ///
    /// # Errors
    /// Errors of the database, or that the transaction is damaged.
    pub fn transaction(
        &self,
        at: TransactionPosition,
    ) -> Result<Option<Rc<Transaction>>, StoreError> {
        self.transactions.get(&self.reader, at, |bytes| {
            self.view.count(bytes);
        })
    }

    /// Visits the rows of the index of entries as [`EntryReader::changes`] does, as long as more may be read.
    pub(super) fn walk(
        &self,
        key_hash: &[u8],
        from: TransactionPosition,
        direction: Direction,
        mut visit: impl FnMut(TransactionPosition, Changed) -> RowFlow,
    ) -> Result<bool, StoreError> {
        self.reader.changes(key_hash, from, direction, |at, changed| {
            match self.view.count(ROW_BYTES) {
                true => visit(at, changed),
                false => Ok(ControlFlow::Break(())),
            }
        })
    }
}

/// What is known of a key at a position.
#[derive(Debug)]
pub(super) struct State {
    pub key: Option<DataKey<'static>>,
    pub value: Value,
    /// The ledger that wrote the value, if that is a write of the range up to the position.
    written: Option<LedgerSeq>,
    /// Last ledger in which the entry is live.
    pub live_until: Option<LedgerSeq>,
    /// Set when the entry was evicted and nothing has happened to it since.
    pub evicted: Option<Durability>,
    updated: Option<Updated>,
}

/// What a key holds.
#[derive(Debug)]
pub(super) enum Value {
    Unknown,
    Absent,
    /// An XDR `LedgerEntry`.
    Entry(Vec<u8>),
}

impl Value {
    /// Returns the entry, if there is one and it is known.
    pub fn into_entry(self) -> Option<Vec<u8>> {
        match self {
            Self::Entry(entry) => Some(entry),
            Self::Unknown | Self::Absent => None,
        }
    }
}

impl State {
    fn of(key: Option<DataKey<'static>>, value: Value) -> Self {
        Self { key, value, written: None, live_until: None, evicted: None, updated: None }
    }
}

/// Returns the next position.
fn after(at: TransactionPosition) -> Option<TransactionPosition> {
    let TransactionPosition { ledger, application_order } = at;
    Some(match application_order {
        LAST_ORDER.. => TransactionPosition { ledger: ledger.next()?, application_order: 0 },
        order => TransactionPosition { ledger, application_order: order + 1 },
    })
}

impl Past {
    /// Adds what a transaction says, which comes before those that were added.
    fn add(&mut self, transaction: &Transaction, change: &Change) {
        let position = transaction.position;
        self.key.get_or_insert_with(|| change.key.clone());
        self.newest.get_or_insert(position.ledger);
        if let Some(WrittenEntry { after, .. }) = &change.written
            && self.written.is_none()
        {
            self.written = Some((position, after.clone()));
        }
        if change.kind.is_some_and(Kind::is_update) && self.updated.is_none() {
            self.updated = Some(Updated { position, tx: transaction.hash });
        }
    }

    /// Adds what the transactions of the range that were removed have said. Older ones than these may be
    /// stored: ledgers that came later.
    fn add_kept(&mut self, kept: Kept, range: LedgerRange) {
        let Kept { written, changed, tx, ttl, content } = kept;
        if self.key.is_none() {
            self.key = DataKey::of(content.key.into());
        }
        let is_in = |at: TransactionPosition| at != NOWHERE && range.contains(at.ledger);
        if is_in(written) && self.written.as_ref().is_none_or(|(at, _)| *at < written) {
            self.newest = self.newest.max(Some(written.ledger));
            let entry = Some(content.entry).filter(|entry| !entry.is_empty());
            self.written = Some((written, entry));
        }
        if is_in(changed) && self.updated.is_none_or(|it| it.position < changed) {
            self.updated = Some(Updated { position: changed, tx });
        }
        let is_given = ttl != NEVER_GIVEN && range.contains(ttl.at);
        if is_given && self.ttl.is_none_or(|known| known.at < ttl.at) {
            self.newest = self.newest.max(Some(ttl.at));
            self.ttl = Some(ttl);
        }
    }

    /// Adds what the newest row of a checkpoint says. Returns whether the entry was evicted then, and
    /// nothing has happened to it since.
    pub(super) fn add_found(&mut self, around: &Around) -> bool {
        let Some((ledger, row)) = &around.before else { return false };
        let is_last = self.newest.is_none_or(|newest| newest <= *ledger);
        if self.key.is_none() {
            self.key = row.key().map(DataKey::into_owned);
        }
        if self.written.as_ref().is_none_or(|(at, _)| *at <= end_of(*ledger)) {
            self.written = Some((end_of(*ledger), Some(row.entry.clone())));
        }
        if let Some(life) = around.life
            && self.ttl.is_none_or(|ttl| ttl.at <= life.at)
        {
            self.ttl = Some(life);
        }
        self.newest = self.newest.max(Some(*ledger));
        is_last && row.is_evicted
    }

    /// Whether the newest checkpoint says that there was no entry, and no transaction since then says
    /// anything of the key. `is_life_known` is whether one says until when the entry lives.
    fn is_lacking(&self, around: &Around, is_life_known: bool) -> bool {
        let Some(ledger) = around.newest.filter(|_| around.before.is_none()) else { return false };
        match &self.written {
            None => self.newest.is_none_or(|newest| newest <= ledger),
            // Without a row, what a transaction wrote is still there, unless its time is not known: then
            // there would be a row. It is over, and nothing stored says since when.
            Some((at, Some(_))) if *at <= end_of(ledger) => {
                let durability = self.key.as_ref().map(DataKey::durability);
                !is_life_known && durability == Some(Durability::Temporary)
            }
            Some(_) => false,
        }
    }

    /// Returns the last ledger in which the entry is live; ledger 0 when it was removed.
    pub(super) fn live_until(&self) -> Option<LedgerSeq> {
        self.ttl.map(|ttl| ttl.live_until)
    }
}

/// What the transactions after a ledger found.
#[derive(Debug)]
struct Next {
    key: Option<DataKey<'static>>,
    found: Found,
    live_until: Option<LedgerSeq>,
    /// The ledger of the first one that wrote the entry.
    written: Option<LedgerSeq>,
    /// The ledger of the first one that says anything of a time to live.
    given: Option<LedgerSeq>,
}

impl Next {
    /// Adds what the first checkpoint after a ledger has, as far as transactions do not say it.
    fn or_later(mut self, around: &Around, ledger: LedgerSeq) -> Self {
        let Some((at, row)) = around.later(ledger) else { return self };
        if self.key.is_none() {
            self.key = row.key().map(DataKey::into_owned);
        }
        if self.written.is_none_or(|written| written > at) {
            self.found = Found::Entry(row.entry.clone());
        }
        if self.live_until.is_none() && self.given.is_none_or(|given| given > at) {
            self.live_until = Some(row.live_until).filter(|until| until.0 > 0);
        }
        self
    }

    /// Adds what a change found that is the first one after a ledger's transactions.
    fn add(
        &mut self,
        change: &Change,
        (ledger, position): (LedgerSeq, TransactionPosition),
        wants_value: &mut bool,
        wants_ttl: &mut bool,
    ) {
        self.key.get_or_insert_with(|| change.key.clone());
        if let Some(ttl) = change.ttl.filter(|_| *wants_ttl) {
            self.given = Some(position.ledger);
            self.live_until = ttl.before.filter(|_| ttl.since <= ledger.0).map(LedgerSeq);
            *wants_ttl = false;
        }
        if let Some(written) = change.written.as_ref().filter(|_| *wants_value) {
            // A restored entry was there before, but its record does not say since when.
            let is_older = |entry: &[u8]| modified(entry).is_some_and(|since| since <= ledger.0);
            self.found = match &written.before {
                Found::Entry(entry) if !is_older(entry) => Found::Unknown,
                found => found.clone(),
            };
            self.written = Some(position.ledger);
            *wants_value = false;
            // Before an entry is created, it has no time to live.
            *wants_ttl &= self.found != Found::Absent;
        }
    }
}

impl Default for Next {
    fn default() -> Self {
        Self { key: None, found: Found::Unknown, live_until: None, written: None, given: None }
    }
}

/// The newest ledger that gave a time to live. Within it, the greatest since the last write holds: where
/// transactions are applied in parallel, several may extend an entry that they only read (CAP-63).
#[derive(Debug, Default)]
struct LastTtl {
    ledger: Option<LedgerSeq>,
    /// The greatest of the later transactions.
    greatest: Option<LedgerSeq>,
    /// Whether a write gave one, before which nothing counts.
    is_closed: bool,
}

impl LastTtl {
    fn given(&self) -> Option<Given> {
        let (live_until, at) = self.greatest.zip(self.ledger)?;
        Some(Given { live_until, at })
    }

    fn is_open(&self, ledger: LedgerSeq) -> bool {
        !self.is_closed && self.ledger.is_none_or(|last| last == ledger)
    }

    /// Adds a change, which comes before those that were added.
    fn add(&mut self, ledger: LedgerSeq, change: &Change) {
        if let Some(ttl) = change.ttl {
            self.ledger = Some(ledger);
            let until = LedgerSeq(ttl.after.unwrap_or(0));
            self.greatest = Some(self.greatest.map_or(until, |greatest| greatest.max(until)));
            self.is_closed = change.written.is_some();
        }
    }
}
