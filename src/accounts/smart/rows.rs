//! How events change the rows of the smart account index.
//!
//! An event that comes after all earlier ones of its account is applied to the state at once, for
//! the same cost whatever the account has. Which effect an event has depends on those before it: an
//! id may mean another signer before and after an event of an older ledger. When such an event
//! arrives later, the state is therefore deleted and computed again from the log, in pieces: a
//! piece with the event, and the others while no newer ledger waits. So no event costs more than a
//! piece, and the rows in the end depend on the events alone and not on the order of their arrival.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::account::{Logged, Progress, Stored};
use super::event::{Change, Kind, Reference, Signer, recognise};
use super::fold::Fold;
use super::tables::{ACCOUNTS, BEHIND, CREDENTIALS, FAMILIES, LOG, RULE_IDS, SIGNERS, STATE, TAG};
use crate::{AccountIndex, Emitted, Position, Stats, Tag};
use orrery_ledger::domain::ContractId;
use orrery_store::{Mark, RowCodec, Rows, RowsMut, StoreError, Table};

/// Maximum size of the part of an account's log that counts, in bytes: the events after it change
/// nothing but the totals of the index and the ledger of the account's last event. It holds some
/// ten thousand events; a real account has about ten.
const MAX_LOG: u32 = 1 << 20;

/// Maximum number of rule ids in a summary.
const MAX_RULE_IDS: usize = 100;

/// Number of rows that are read and written with an event that comes later than it should, to compute
/// the state of its account again.
const PIECE: usize = 256;

/// Maximum number of events that are read from a log at a time.
const MAX_EVENTS_READ: usize = 32;

/// Properties of an account that a list shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Ledger of its first event.
    pub first_seen: u32,
    /// Ledger of its last event.
    pub last_seen: u32,
    /// Number of (rule, signer) pairs with an external signer.
    pub external: u32,
    /// Number of (rule, signer) pairs with a delegated signer.
    pub delegated: u32,
    /// Number of (rule, signer) pairs with a native signer.
    pub native: u32,
    /// Whether all its events counted. They do not when they are more than the index evaluates, or
    /// while the state is computed again.
    pub is_complete: bool,
    /// Number of its rules.
    pub rule_count: u32,
    /// Ids of its first rules, ascending, at most 100.
    pub rules: Vec<u32>,
}

/// Index of smart accounts.
#[derive(Debug, Clone, Copy, Default)]
pub struct SmartAccounts;

impl AccountIndex for SmartAccounts {
    type Event = Logged;
    type Summary = Summary;

    const CONSUMER: &'static str = "smart_accounts";
    const FAMILIES: &'static [&'static str] = FAMILIES;
    const ACTIVE_SIGNERS: Table<(Tag, Position), ContractId> = SIGNERS;
    const COUNTS_SIGNERS: bool = false;

    fn kinds() -> impl ExactSizeIterator<Item = (Option<&'static str>, &'static str)> {
        Kind::ALL.into_iter().map(|kind| (None, kind.name()))
    }

    fn recognise(topics: &[&[u8]], data: &[u8]) -> Option<Logged> {
        Some(Logged::new(recognise(topics, data)?, data))
    }

    fn apply_events(rows: &mut dyn RowsMut, events: &[Emitted<Logged>]) -> Result<(), StoreError> {
        let mut stats = Stats::read::<Self>(rows)?;
        let mut new: BTreeMap<ContractId, Vec<(Position, &Logged)>> = BTreeMap::new();
        for Emitted { contract, position, event: logged } in events {
            if !LOG.put_new(rows, &(*contract, *position), logged)? {
                continue;
            }
            stats.count(logged.event.kind as usize, position.ledger);
            for tag in credentials(&logged.event.change) {
                stats.credentials += u64::from(CREDENTIALS.put_new(rows, &tag, &())?);
            }
            new.entry(*contract).or_default().push((*position, logged));
        }
        if new.is_empty() {
            return Ok(());
        }
        for (contract, mut events) in new {
            events.sort_by_key(|(position, _)| *position);
            let known = ACCOUNTS.get(rows, &contract)?;
            stats.accounts += u64::from(known.is_none());
            apply_to_account(rows, &contract, known.unwrap_or_default(), &events)?;
        }
        stats.write::<Self>(rows)
    }

    fn continue_work(rows: &mut dyn RowsMut, most: usize) -> Result<bool, StoreError> {
        let mut left = most;
        while let Some(contract) = first_behind(rows)? {
            if left == 0 {
                return Ok(true);
            }
            let mut account = ACCOUNTS.get(rows, &contract)?.unwrap_or_default();
            refold(rows, &contract, &mut account, &mut left)?;
            ACCOUNTS.put(rows, &contract, &account)?;
        }
        Ok(false)
    }

    fn has_work_left(rows: &dyn Rows) -> Result<bool, StoreError> {
        Ok(first_behind(rows)?.is_some())
    }

    /// `None` when the contract has emitted nothing.
    fn summary(rows: &dyn Rows, contract: &ContractId) -> Result<Option<Summary>, StoreError> {
        let stored = ACCOUNTS.get(rows, contract)?;
        stored.map(|stored| summary(rows, contract, &stored)).transpose()
    }

    fn missing(contract: &ContractId) -> StoreError {
        ACCOUNTS.damaged(contract)
    }
}

fn summary(rows: &dyn Rows, contract: &ContractId, stored: &Stored) -> Result<Summary, StoreError> {
    let mut rules = Vec::new();
    if stored.rules > 0 {
        RULE_IDS.scan(rows, &(*contract, Mark), None, |(_, id), ()| {
            rules.push(id);
            let is_full = rules.len() == MAX_RULE_IDS;
            Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
    }
    let [delegated, external, native] = stored.pairs;
    Ok(Summary {
        first_seen: stored.first_seen,
        last_seen: stored.last_seen,
        external,
        delegated,
        native,
        is_complete: !stored.is_cut && stored.progress == Progress::Current,
        rule_count: stored.rules,
        rules,
    })
}

/// Returns the tags of the credentials that an event contains.
fn credentials(change: &Change) -> Vec<Tag> {
    let signers: Vec<&Signer> = match change {
        Change::RuleAdded { signers, .. } => signers
            .iter()
            .filter_map(|signer| match signer {
                Reference::Inline(signer) => Some(signer),
                Reference::Id(_) => None,
            })
            .collect(),
        Change::SignerAdded(Reference::Inline(signer))
        | Change::SignerRemoved(Reference::Inline(signer))
        | Change::SignerRegistered(signer) => vec![signer],
        _ => Vec::new(),
    };
    signers.into_iter().filter_map(|it| it.credential().map(Tag::of_credential)).collect()
}

/// Applies new events of an account, in order, which are in its log already.
fn apply_to_account(
    rows: &mut dyn RowsMut,
    contract: &ContractId,
    mut account: Stored,
    events: &[(Position, &Logged)],
) -> Result<(), StoreError> {
    for &(position, logged) in events {
        account.see(position.ledger);
        let is_next = account.folded < Some(position);
        match (account.progress, is_next) {
            (Progress::Current, true) => {
                fold(rows, contract, &mut account, position, logged)?;
            }
            (Progress::Current | Progress::Refolding, false) => {
                account.begin_again();
                BEHIND.put(rows, contract, &())?;
            }
            // It will be read from the log.
            (Progress::Refolding, true) | (Progress::Clearing, _) => {}
        }
    }
    if account.progress != Progress::Current {
        refold(rows, contract, &mut account, &mut { PIECE })?;
    }
    ACCOUNTS.put(rows, contract, &account)
}

/// Applies the event that follows those that were folded, unless the log's limit is exceeded. Returns
/// the number of rows that it read and wrote.
fn fold(
    rows: &mut dyn RowsMut,
    contract: &ContractId,
    account: &mut Stored,
    at: Position,
    Logged { event, row }: &Logged,
) -> Result<usize, StoreError> {
    if account.log_bytes > MAX_LOG {
        return Ok(0);
    }
    account.folded = Some(at);
    let bytes = u32::try_from(row.len()).unwrap_or(u32::MAX);
    account.log_bytes = account.log_bytes.saturating_add(bytes);
    if account.log_bytes > MAX_LOG {
        account.is_cut = true;
        return Ok(0);
    }
    let mut fold = Fold { rows, contract, account, at, work: 0 };
    fold.apply(event)?;
    Ok(fold.work)
}

/// Computes the state of an account again, until some `left` rows are read and written. Subtracts
/// those that were.
fn refold(
    rows: &mut dyn RowsMut,
    contract: &ContractId,
    account: &mut Stored,
    left: &mut usize,
) -> Result<(), StoreError> {
    if account.progress == Progress::Clearing {
        let deleted = delete_state(rows, contract, *left)?;
        *left -= deleted;
        if *left == 0 {
            return Ok(());
        }
        account.progress = Progress::Refolding;
    }
    loop {
        let next = unfolded(rows, contract, account)?;
        if next.is_empty() || account.log_bytes > MAX_LOG {
            account.progress = Progress::Current;
            return BEHIND.delete(rows, contract);
        }
        for (at, logged) in &next {
            let work = 1 + fold(rows, contract, account, *at, logged)?;
            *left = left.saturating_sub(work);
            if *left == 0 {
                return Ok(());
            }
        }
    }
}

/// Reads the events that follow those that were folded, at most [`MAX_EVENTS_READ`].
fn unfolded(
    rows: &dyn Rows,
    contract: &ContractId,
    account: &Stored,
) -> Result<Vec<(Position, Logged)>, StoreError> {
    let from = account.folded.map(|at| (*contract, at));
    let mut found = Vec::new();
    LOG.scan(rows, contract, from.as_ref(), |(_, at), logged| {
        if Some(at) != account.folded {
            found.push((at, logged));
        }
        let is_full = found.len() == MAX_EVENTS_READ;
        Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(found)
}

/// Deletes rows of an account's state, and what lookups find through them. Returns their number,
/// which is `most` while there are more.
fn delete_state(
    rows: &mut dyn RowsMut,
    contract: &ContractId,
    most: usize,
) -> Result<usize, StoreError> {
    let mut found = Vec::new();
    STATE.scan(rows, contract, None, |key, row| {
        if found.len() == most {
            return Ok(ControlFlow::Break(()));
        }
        let mut signer = None;
        if let Some(tag) = key.1.strip_prefix(&[TAG]) {
            let parts = Tag::decode(tag).zip(<(u32, Position)>::decode(&row));
            let (tag, (members, first)) = parts.ok_or_else(|| STATE.damaged(&key))?;
            signer = (members > 0).then_some((tag, first));
        }
        found.push((key, signer));
        Ok(ControlFlow::Continue(()))
    })?;
    for (key, signer) in &found {
        STATE.delete(rows, key)?;
        signer.as_ref().map_or(Ok(()), |signer| SIGNERS.delete(rows, signer))?;
    }
    Ok(found.len())
}

fn first_behind(rows: &dyn Rows) -> Result<Option<ContractId>, StoreError> {
    Ok(BEHIND.first(rows, None)?.map(|(contract, ())| contract))
}
