//! Rows of the smart account index, and how events change them.
//!
//! | Family | Key → value |
//! |---|---|
//! | `log` | contract, position → number of the event's kind, id, XDR of its data |
//! | `accounts` | contract → [`Summary`] |
//! | `tags` | contract → tags of its active signers |
//! | `signers` | tag, contract's strkey → contract |
//! | `credentials` | tag → empty; credential ids that were seen |
//! | `stats` | empty → [`Stats`] |
//!
//! The state of an account is recomputed from its log whenever the log grows. Logs are short, and
//! the result does not depend on the order in which ledgers arrive.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use super::event::{Change, Event, Kind, Reference, Signer, Variant, recognise};
use super::fold::Account;
use crate::accounts::rows::{
    Rows, RowsMut, Tag, numbers, put_new, put_numbers, put_strkey, read, scan_under,
};
use crate::accounts::stats::STATS;
use crate::accounts::{AccountIndex, Emitted, Position, Stats, value};
use crate::domain::ContractId;
use crate::store::StoreError;

const LOG: &str = "log";
const ACCOUNTS: &str = "accounts";
const TAGS: &str = "tags";
const SIGNERS: &str = "signers";
const CREDENTIALS: &str = "credentials";

/// Maximum size of the part of a log that is evaluated, in bytes. It holds some ten thousand
/// events; a real account has about ten. Without a limit, a contract that is no account could keep
/// the index busy.
const MAX_LOG: usize = 1 << 20;

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
    /// Whether the log exceeded its limit. Rules and counts then describe the account after the
    /// events within the limit.
    pub is_cut: bool,
    /// Ids of its rules, ascending.
    pub rules: Vec<u32>,
}

impl Summary {
    fn encode(&self) -> Vec<u8> {
        let Self { first_seen, last_seen, external, delegated, native, is_cut, rules } = self;
        let fixed = [*first_seen, *last_seen, *external, *delegated, *native, u32::from(*is_cut)];
        put_numbers(fixed.into_iter().chain(rules.iter().copied()))
    }

    fn decode(row: &[u8]) -> Option<Self> {
        let numbers = numbers(row)?;
        let (fixed, rules) = numbers.split_first_chunk()?;
        let [first_seen, last_seen, external, delegated, native, is_cut] = *fixed;
        let (is_cut, rules) = (is_cut != 0, rules.to_vec());
        Some(Self { first_seen, last_seen, external, delegated, native, is_cut, rules })
    }
}

/// An event with the log row that is stored for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    event: Event,
    row: Vec<u8>,
}

impl Logged {
    fn read(row: &[u8]) -> Option<Event> {
        let (kind, rest) = row.split_first()?;
        let kind = *Kind::ALL.get(usize::from(*kind))?;
        let (id, data) = rest.split_first_chunk()?;
        Event::with(kind, u32::from_be_bytes(*id), &value::parse(data)?)
    }
}

/// Index of smart accounts.
#[derive(Debug, Clone, Copy, Default)]
pub struct SmartAccounts;

impl AccountIndex for SmartAccounts {
    type Event = Logged;
    type Summary = Summary;

    const CONSUMER: &'static str = "smart_accounts";
    const FAMILIES: &'static [&'static str] = &[LOG, ACCOUNTS, TAGS, SIGNERS, CREDENTIALS, STATS];
    const ACCOUNTS: &'static str = ACCOUNTS;
    const ACTIVE_SIGNERS: &'static str = SIGNERS;
    const COUNTS_SIGNERS: bool = false;

    fn kinds() -> impl ExactSizeIterator<Item = (Option<&'static str>, &'static str)> {
        Kind::ALL.into_iter().map(|kind| (None, kind.name()))
    }

    fn recognise(topics: &[&[u8]], data: &[u8]) -> Option<Logged> {
        let event = recognise(topics, data)?;
        let mut row = vec![event.kind as u8];
        row.extend_from_slice(&event.id.to_be_bytes());
        row.extend_from_slice(data);
        Some(Logged { event, row })
    }

    fn apply_events(rows: &mut dyn RowsMut, events: &[Emitted<Logged>]) -> Result<(), StoreError> {
        let mut stats = Stats::read::<Self>(rows)?;
        // Accounts with new events, each with the last ledger among these.
        let mut touched: BTreeMap<ContractId, u32> = BTreeMap::new();
        for Emitted { contract, position, event: Logged { event, row } } in events {
            let key = [&contract.0[..], &position.encode()].concat();
            if !put_new(rows, LOG, key, row.clone())? {
                continue;
            }
            stats.count(event.kind as usize, position.ledger);
            for tag in credentials(&event.change) {
                stats.credentials +=
                    u64::from(put_new(rows, CREDENTIALS, tag.0.to_vec(), Vec::new())?);
            }
            let newest = touched.entry(*contract).or_default();
            *newest = position.ledger.max(*newest);
        }
        for (contract, newest) in &touched {
            let is_new = refresh(rows, contract, *newest)?;
            stats.accounts += u64::from(is_new);
        }
        if touched.is_empty() { Ok(()) } else { stats.write::<Self>(rows) }
    }

    /// `None` when the contract has emitted nothing.
    fn summary(rows: &dyn Rows, contract: &ContractId) -> Result<Option<Summary>, StoreError> {
        read(rows, ACCOUNTS, &contract.0, Summary::decode)
    }
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

/// Recomputes the derived rows of an account from its log, to which events of ledgers up to
/// `newest` were added. Returns whether the account is new.
fn refresh(rows: &mut dyn RowsMut, contract: &ContractId, newest: u32) -> Result<bool, StoreError> {
    let Replayed { account, first_seen, is_cut } = replay(rows, contract)?;
    let known = SmartAccounts::summary(rows, contract)?;
    let last_seen = known.map_or(newest, |known| known.last_seen.max(newest));
    let mut counts: BTreeMap<Variant, u32> = BTreeMap::new();
    let (mut rules, mut tags) = (Vec::new(), BTreeSet::new());
    for (id, rule) in account.rules() {
        rules.push(id);
        for signer in account.signers_of(rule) {
            *counts.entry(signer.variant).or_default() += 1;
            tags.insert(Tag::of_address(signer.address));
            tags.extend(signer.credential.map(Tag::of_credential));
        }
    }
    let count = |variant| counts.get(&variant).copied().unwrap_or_default();
    let summary = Summary {
        first_seen,
        last_seen,
        external: count(Variant::External),
        delegated: count(Variant::Delegated),
        native: count(Variant::Native),
        is_cut,
        rules,
    };
    let before = tags_of(rows, contract)?;
    for gone in before.iter().flatten().filter(|tag| !tags.contains(tag)) {
        rows.delete(SIGNERS, signer_key(gone, contract))?;
    }
    for tag in &tags {
        if before.as_ref().is_none_or(|before| !before.contains(tag)) {
            rows.put(SIGNERS, signer_key(tag, contract), contract.0.to_vec())?;
        }
    }
    rows.put(ACCOUNTS, contract.0.to_vec(), summary.encode())?;
    rows.put(TAGS, contract.0.to_vec(), tags.iter().flat_map(|tag| tag.0).collect())?;
    Ok(before.is_none())
}

/// Returns the stored tags of an account's active signers; `None` for a new account.
fn tags_of(rows: &dyn Rows, contract: &ContractId) -> Result<Option<BTreeSet<Tag>>, StoreError> {
    read(rows, TAGS, &contract.0, |row| {
        let (tags, []) = row.as_chunks::<32>() else { return None };
        Some(tags.iter().copied().map(Tag).collect())
    })
}

fn signer_key(tag: &Tag, contract: &ContractId) -> Vec<u8> {
    let mut key = tag.0.to_vec();
    put_strkey(&mut key, contract);
    key
}

/// State of an account, computed from its log.
pub(super) struct Replayed {
    pub account: Account,
    first_seen: u32,
    is_cut: bool,
}

/// Computes the state of an account from its log.
pub(super) fn replay(rows: &dyn Rows, contract: &ContractId) -> Result<Replayed, StoreError> {
    let mut replayed = Replayed { account: Account::default(), first_seen: 0, is_cut: false };
    let mut bytes = 0;
    replayed.is_cut = scan_under(rows, LOG, &contract.0, &[], |key, row| {
        let position = Position::decode(key)?;
        if replayed.first_seen == 0 {
            replayed.first_seen = position.ledger;
        }
        bytes += row.len();
        if bytes > MAX_LOG {
            return Some(ControlFlow::Break(Ok(())));
        }
        replayed.account.apply(Logged::read(row)?);
        Some(ControlFlow::Continue(()))
    })?;
    Ok(replayed)
}
