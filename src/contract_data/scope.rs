//! Of which contracts it is recorded what they hold: all, or those that somebody watches. One that is
//! watched from now on gets the rows of the ledgers that are stored already (`filling`); until it has them,
//! nothing is known of it. Of one that nobody watches any more, nothing is known from then on, and its rows
//! are removed (`removal`); until they are gone, it cannot be watched again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq, LedgerSet};
use orrery_store::{Mark, RowBounds, RowCodec, Rows, RowsMut, Store, StoreError, Table, row_codec};

use super::rows::CONSUMER;

/// Whose rows there are. Without a row: those of all contracts.
pub(super) const SCOPE: Table<Mark<0>, Scope> = Table::new("scope");
/// The pass over the stored ledgers that is under way: the first ledger that it has not read.
pub(super) const PASS: Table<Mark<1>, LedgerSeq> = Table::new(SCOPE.family);
/// How many contracts have ceased to be watched.
const ENDED: Table<Mark<2>, u64> = Table::new(SCOPE.family);
/// Contracts that are watched, and those whose rows are being removed.
pub(super) const WATCHED: Table<ContractId, Watch> = Table::new("watched");
/// Stored ledgers of which a contract has no rows, because their transactions were removed before the
/// contract was watched: first and last one.
pub(super) const MISSING: Table<(ContractId, LedgerSeq), LedgerSeq> = Table::new("missing");

/// Families of the rows above.
pub(super) const FAMILIES: [&str; 3] = [SCOPE.family, WATCHED.family, MISSING.family];

/// Number of contracts whose rows in [`WATCHED`] are written at once.
pub(super) const CONTRACTS_AT_ONCE: usize = 10_000;

/// Of which contracts it is recorded what they hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// All contracts.
    #[default]
    All,
    /// Those that somebody watches.
    Watched,
}

row_codec!(enum Scope);

impl Scope {
    const ALL: [Self; 2] = [Self::All, Self::Watched];
}

/// A contract that is watched, or was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Watch {
    /// What became of it.
    pub state: WatchState,
    /// How many contracts had ceased to be watched before: another one for each time that a contract is
    /// watched.
    pub number: u64,
    /// No ledger before says anything of it.
    pub first: LedgerSeq,
}

/// What became of a contract that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchState {
    /// It waits for the next pass over the stored ledgers. The consumer adds rows already.
    Waiting,
    /// It has all its rows.
    Filled,
    /// Nobody watches it: its rows are being removed.
    Leaving,
    /// A pass over the stored ledgers adds its rows.
    Filling,
}

row_codec!(enum WatchState);

impl WatchState {
    // Their numbers are stored.
    const ALL: [Self; 4] = [Self::Waiting, Self::Filled, Self::Leaving, Self::Filling];
}

/// Size of the rest of a row as earlier versions wrote it: the ledger up to which a contract was filled.
const OLD_REST: usize = 4;

impl RowCodec for Watch {
    fn write(&self, to: &mut Vec<u8>) {
        self.state.write(to);
        self.number.write(to);
        self.first.write(to);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let state = WatchState::read(bytes)?;
        if bytes.len() == OLD_REST {
            // One that was being filled begins again: what it has is written once more.
            *bytes = &[];
            return Some(Self { state, number: 0, first: LedgerSeq(0) });
        }
        Some(Self { state, number: u64::read(bytes)?, first: LedgerSeq::read(bytes)? })
    }
}

/// Returns of which contracts rows are recorded.
///
/// # Errors
/// Errors of the database, or that there is no index.
pub fn scope(store: &Store) -> Result<Scope, StoreError> {
    scope_in(&store.consumer_view(CONSUMER, RowBounds::none())?)
}

pub(super) fn scope_in(rows: &dyn Rows) -> Result<Scope, StoreError> {
    Ok(SCOPE.get(rows, &Mark)?.unwrap_or_default())
}

/// Makes the index record these contracts. Where it has recorded others so far, it begins again: what it
/// knows from removed ledgers and from checkpoints goes. Returns whether it does.
///
/// # Errors
/// Errors of the database, or that there is no index.
pub fn set_scope(store: &Store, wanted: Scope) -> Result<bool, StoreError> {
    if scope(store)? == wanted {
        return Ok(false);
    }
    store.begin_again(CONSUMER)?;
    store.change_consumer_rows(CONSUMER, move |effects| SCOPE.put(effects, &Mark, &wanted))?;
    Ok(true)
}

/// Makes these the contracts that are watched. New ones are watched from now on; `first` returns the first
/// ledger that may say anything of one. Of those that are not among them nothing is known from now on, and
/// [`super::remove_some`] removes their rows; one that is among them again is watched once its rows are gone.
/// Returns whether all of these are watched. To be called by the thread that fills.
///
/// # Errors
/// Errors of the database and of `first`, or that there is no index.
pub fn set_watched(
    store: &Store,
    wanted: &BTreeSet<ContractId>,
    first: impl Fn(&ContractId) -> Result<LedgerSeq, StoreError>,
) -> Result<bool, StoreError> {
    let (mut gone, mut known, mut leaving) = (Vec::new(), BTreeSet::new(), false);
    let view = store.consumer_view(CONSUMER, RowBounds::none())?;
    WATCHED.scan_all(&view, None, |contract, watch| {
        let is_wanted = wanted.contains(&contract);
        if watch.state != WatchState::Leaving && !is_wanted {
            gone.push(contract);
        }
        leaving |= watch.state == WatchState::Leaving && is_wanted;
        if is_wanted {
            known.insert(contract);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    drop(view);
    let new: Vec<_> = wanted.difference(&known).copied().collect();
    for some in gone.chunks(CONTRACTS_AT_ONCE) {
        let some = some.to_vec();
        store.change_consumer_rows(CONSUMER, move |effects| {
            some.iter().try_for_each(|contract| leave(effects, contract))
        })?;
    }
    if !gone.is_empty() {
        // What was answered from their rows must not be answered any longer.
        store.end_generation();
    }
    for some in new.chunks(CONTRACTS_AT_ONCE) {
        let some = some.iter().map(|contract| Ok((*contract, first(contract)?)));
        let some = some.collect::<Result<Vec<_>, StoreError>>()?;
        store.change_consumer_rows(CONSUMER, move |effects| {
            let number = ENDED.get(effects, &Mark)?.unwrap_or_default();
            some.iter().try_for_each(|(contract, first)| {
                let watch = Watch { state: WatchState::Waiting, number, first: *first };
                WATCHED.put(effects, contract, &watch)
            })
        })?;
    }
    Ok(!leaving)
}

/// Records that nobody watches a contract: from then on nothing adds rows, and nothing is known.
fn leave(rows: &mut dyn RowsMut, contract: &ContractId) -> Result<(), StoreError> {
    let Some(watch) = WATCHED.get(rows, contract)? else { return Ok(()) };
    let ended = ENDED.get(rows, &Mark)?.unwrap_or_default();
    ENDED.put(rows, &Mark, &ended.saturating_add(1))?;
    WATCHED.put(rows, contract, &Watch { state: WatchState::Leaving, ..watch })
}

/// Returns the contracts that are watched and have all their rows.
///
/// # Errors
/// Errors of the database, or that there is no index.
pub fn watched(store: &Store) -> Result<BTreeSet<ContractId>, StoreError> {
    let view = store.consumer_view(CONSUMER, RowBounds::none())?;
    let mut all = BTreeSet::new();
    WATCHED.scan_all(&view, None, |contract, row| {
        if row.state == WatchState::Filled {
            all.insert(contract);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(all)
}

/// Whether all of these contracts are recorded, with the rows of the ledgers that were stored before.
///
/// # Errors
/// Errors of the database, or that there is no index.
pub fn are_recorded<'c>(
    store: &Store,
    contracts: impl IntoIterator<Item = &'c ContractId>,
) -> Result<bool, StoreError> {
    let view = store.consumer_view(CONSUMER, RowBounds::none())?;
    if scope_in(&view)? == Scope::All {
        return Ok(true);
    }
    for contract in contracts {
        if !is_filled(&view, contract)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a watched contract has all its rows.
pub(super) fn is_filled(rows: &dyn Rows, contract: &ContractId) -> Result<bool, StoreError> {
    Ok(state_of(rows, contract)? == Some(WatchState::Filled))
}

fn state_of(rows: &dyn Rows, contract: &ContractId) -> Result<Option<WatchState>, StoreError> {
    Ok(WATCHED.get(rows, contract)?.map(|watch| watch.state))
}

/// Removes from the ledgers of which all changes of a contract's data are stored those of which it has no
/// rows.
pub(super) fn leave_out(
    rows: &dyn Rows,
    contract: &ContractId,
    known: &mut LedgerSet,
) -> Result<(), StoreError> {
    if !is_filled(rows, contract)? {
        *known = LedgerSet::default();
        return Ok(());
    }
    MISSING.scan(rows, contract, None, |(_, first), last| {
        known.remove_all(&LedgerRange { first, last }.into());
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(())
}

/// Which contracts get rows, within one ledger.
pub(super) struct Recorded {
    scope: Scope,
    asked: BTreeMap<ContractId, bool>,
}

impl Recorded {
    /// Reads whose rows there are.
    pub fn load(rows: &dyn Rows) -> Result<Self, StoreError> {
        Ok(Self { scope: scope_in(rows)?, asked: BTreeMap::new() })
    }

    /// Whether a contract gets rows.
    pub fn has(&mut self, rows: &dyn Rows, contract: &ContractId) -> Result<bool, StoreError> {
        if self.scope == Scope::All {
            return Ok(true);
        }
        if let Some(known) = self.asked.get(contract) {
            return Ok(*known);
        }
        let is_watched = state_of(rows, contract)?.is_some_and(|it| it != WatchState::Leaving);
        self.asked.insert(*contract, is_watched);
        Ok(is_watched)
    }
}

/// The contracts for which a long piece of work writes rows, as they were watched when it began. Rows of one
/// that has ceased to be watched since are being removed, or are those of another watch: nothing is added
/// to them.
#[derive(Debug, Clone)]
pub(super) struct Watches(Option<Arc<BTreeMap<ContractId, u64>>>);

impl Watches {
    /// Notes how those of these contracts are watched that have all their rows; `None` stands for all
    /// contracts.
    pub fn load(
        rows: &dyn Rows,
        contracts: Option<&BTreeSet<ContractId>>,
    ) -> Result<Self, StoreError> {
        if scope_in(rows)? == Scope::All {
            return Ok(Self(None));
        }
        let mut numbers = BTreeMap::new();
        WATCHED.scan_all(rows, None, |contract, watch| {
            let is_one = contracts.is_none_or(|contracts| contracts.contains(&contract));
            if is_one && watch.state == WatchState::Filled {
                numbers.insert(contract, watch.number);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(Self(Some(Arc::new(numbers))))
    }

    /// Whether a contract is still watched as it was.
    pub fn still_has(&self, rows: &dyn Rows, contract: &ContractId) -> Result<bool, StoreError> {
        let Some(numbers) = &self.0 else { return Ok(true) };
        let Some(watch) = WATCHED.get(rows, contract)? else { return Ok(false) };
        let is_same = numbers.get(contract) == Some(&watch.number);
        Ok(is_same && watch.state != WatchState::Leaving)
    }
}
