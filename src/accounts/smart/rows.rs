//! What the index of smart accounts keeps, and how events change it.
//!
//! | Family | Key → value |
//! |---|---|
//! | `log` | contract, position → number of the event's name, id, XDR of its data |
//! | `accounts` | contract → [`Summary`] |
//! | `tags` | contract → tags of its active signers |
//! | `signers` | tag, contract's strkey → contract |
//! | `credentials` | tag → nothing: ids of credentials that were seen |
//! | `stats` | nothing → counters |
//!
//! All that follows from an account's events is computed from its log whenever that grows. Logs are short; and so
//! it makes no difference in which order ledgers come.

use std::collections::{BTreeMap, BTreeSet};

use super::event::{Change, Event, Kind, Named, Signer, Variant, recognise};
use super::fold::Account;
use crate::accounts::emitted::Emitted;
use crate::accounts::rows::{
    Counters, Rows, RowsMut, Tag, damaged, mark, numbers, put_numbers, put_strkey, scan_under,
    widen,
};
use crate::accounts::{Position, value};
use crate::domain::ContractId;
use crate::store::StoreError;

const LOG: &str = "log";
pub(super) const ACCOUNTS: &str = "accounts";
const TAGS: &str = "tags";
pub(super) const SIGNERS: &str = "signers";
const CREDENTIALS: &str = "credentials";
const STATS: &str = "stats";

/// All families.
pub const FAMILIES: &[&str] = &[LOG, ACCOUNTS, TAGS, SIGNERS, CREDENTIALS, STATS];

/// Bytes of an account's log up to which it is computed what follows from it. That is some ten thousand events,
/// and an account has some ten; with more, a contract that is none could keep the index busy.
const MOST_LOG: usize = 1 << 20;

/// What is told of an account in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Ledger of its first event.
    pub first_seen: u32,
    /// Ledger of its last event.
    pub last_seen: u32,
    /// Pairs of a rule and a signer of this variant.
    pub external: u32,
    /// The same of delegated signers.
    pub delegated: u32,
    /// The same of native signers.
    pub native: u32,
    /// Whether it had too many events: then what is told is how it was after the first of them.
    pub is_cut: bool,
    /// Its rules, ascending.
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

/// An event with what is kept of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    event: Event,
    row: Vec<u8>,
}

impl Logged {
    /// Reads an event of type `contract`; none when it is not one of a smart account.
    pub fn recognise(topics: &[&[u8]], data: &[u8]) -> Option<Self> {
        let event = recognise(topics, data)?;
        let mut row = vec![event.kind as u8];
        row.extend_from_slice(&event.id.to_be_bytes());
        row.extend_from_slice(data);
        Some(Self { event, row })
    }

    fn read(row: &[u8]) -> Option<Event> {
        let (kind, rest) = row.split_first()?;
        let kind = *Kind::ALL.get(usize::from(*kind))?;
        let (id, data) = rest.split_first_chunk()?;
        Event::with(kind, u32::from_be_bytes(*id), &value::parse(data)?)
    }
}

/// Takes events of one or several ledgers, in any order; one that was taken before changes nothing.
///
/// # Errors
/// What the store says.
pub fn take(rows: &mut dyn RowsMut, events: &[Emitted<Logged>]) -> Result<(), StoreError> {
    let mut stats = Stats::read(rows)?;
    // Each with the last ledger that is new to it.
    let mut touched: BTreeMap<ContractId, u32> = BTreeMap::new();
    for Emitted { contract, position, event: Logged { event, row } } in events {
        let key = [&contract.0[..], &position.encode()].concat();
        if rows.get(LOG, &key)?.is_some() {
            continue;
        }
        rows.put(LOG, key, row.clone())?;
        stats.count(event.kind, position.ledger);
        for tag in credentials(&event.change) {
            stats.credentials += u64::from(mark(rows, CREDENTIALS, tag.0.to_vec())?);
        }
        let newest = touched.entry(*contract).or_default();
        *newest = position.ledger.max(*newest);
    }
    for (contract, newest) in &touched {
        let is_new = refresh(rows, contract, *newest)?;
        stats.contracts += u64::from(is_new);
    }
    if touched.is_empty() { Ok(()) } else { stats.write(rows) }
}

/// Tags of the credentials that an event names.
fn credentials(change: &Change) -> Vec<Tag> {
    let signers: Vec<&Signer> = match change {
        Change::RuleAdded { signers, .. } => signers
            .iter()
            .filter_map(|signer| match signer {
                Named::Inline(signer) => Some(signer),
                Named::Id(_) => None,
            })
            .collect(),
        Change::SignerAdded(Named::Inline(signer))
        | Change::SignerRemoved(Named::Inline(signer))
        | Change::SignerRegistered(signer) => vec![signer],
        _ => Vec::new(),
    };
    signers.into_iter().filter_map(|it| it.credential().map(Tag::of_credential)).collect()
}

/// Computes anew what follows from an account's log, to which something was added of ledgers up to `newest`. Says
/// whether there was nothing before.
fn refresh(rows: &mut dyn RowsMut, contract: &ContractId, newest: u32) -> Result<bool, StoreError> {
    let Replayed { account, first_seen, is_cut } = replay(rows, contract)?;
    let known = summary(rows, contract)?;
    let last_seen = known.map_or(newest, |known| known.last_seen.max(newest));
    let mut counts: BTreeMap<Variant, u32> = BTreeMap::new();
    let (mut rules, mut tags) = (Vec::new(), BTreeSet::new());
    for (id, rule) in account.rules() {
        rules.push(id);
        for signer in account.signers_of(rule) {
            *counts.entry(signer.variant).or_default() += 1;
            tags.insert(Tag::of_address(&value::xdr(signer.address)));
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

/// Tags of an account's active signers as they were written last; none before the first time.
fn tags_of(rows: &dyn Rows, contract: &ContractId) -> Result<Option<BTreeSet<Tag>>, StoreError> {
    let Some(row) = rows.get(TAGS, &contract.0)? else { return Ok(None) };
    let (tags, []) = row.as_chunks::<32>() else { return Err(damaged(TAGS, &contract.0)) };
    Ok(Some(tags.iter().copied().map(Tag).collect()))
}

fn signer_key(tag: &Tag, contract: &ContractId) -> Vec<u8> {
    let mut key = tag.0.to_vec();
    put_strkey(&mut key, contract);
    key
}

/// An account, computed from its log.
pub(super) struct Replayed {
    pub account: Account,
    first_seen: u32,
    is_cut: bool,
}

/// What is told of an account; none when it has emitted nothing.
pub(super) fn summary(
    rows: &dyn Rows,
    contract: &ContractId,
) -> Result<Option<Summary>, StoreError> {
    let Some(row) = rows.get(ACCOUNTS, &contract.0)? else { return Ok(None) };
    Summary::decode(&row).map(Some).ok_or_else(|| damaged(ACCOUNTS, &contract.0))
}

/// Computes an account from its log.
pub(super) fn replay(rows: &dyn Rows, contract: &ContractId) -> Result<Replayed, StoreError> {
    let mut replayed = Replayed { account: Account::default(), first_seen: 0, is_cut: false };
    let (mut bytes, mut failure) = (0, None);
    scan_under(rows, LOG, &contract.0, |key, row| {
        let Some(position) = Position::decode(key) else {
            failure = Some(damaged(LOG, key));
            return false;
        };
        if replayed.first_seen == 0 {
            replayed.first_seen = position.ledger;
        }
        bytes += row.len();
        if bytes > MOST_LOG {
            replayed.is_cut = true;
            return false;
        }
        match Logged::read(row) {
            Some(event) => replayed.account.apply(event),
            None => failure = Some(damaged(LOG, key)),
        }
        failure.is_none()
    })?;
    failure.map_or(Ok(replayed), Err)
}

/// Totals of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Events of smart accounts.
    pub events: u64,
    /// Contracts that have emitted one.
    pub contracts: u64,
    /// Credentials that were ever named in one.
    pub credentials: u64,
    /// Ledger of the first; 0 without one.
    pub first_ledger: u64,
    /// Ledger of the last; 0 without one.
    pub last_ledger: u64,
    /// How many there are of each name, in the order of [`Kind::ALL`].
    pub kinds: [u64; Kind::ALL.len()],
}

const COUNTERS: usize = 5 + Kind::ALL.len();

impl Stats {
    fn count(&mut self, kind: Kind, ledger: u32) {
        self.events += 1;
        self.kinds[kind as usize] += 1;
        widen(&mut self.first_ledger, &mut self.last_ledger, ledger);
    }

    /// Reads them.
    ///
    /// # Errors
    /// What the store says.
    pub fn read(rows: &dyn Rows) -> Result<Self, StoreError> {
        let Counters(counters) = Counters::<COUNTERS>::read(rows, STATS)?;
        let [events, contracts, credentials, first_ledger, last_ledger, kinds @ ..] = counters;
        Ok(Self { events, contracts, credentials, first_ledger, last_ledger, kinds })
    }

    fn write(&self, rows: &mut dyn RowsMut) -> Result<(), StoreError> {
        let Self { events, contracts, credentials, first_ledger, last_ledger, kinds } = *self;
        let mut counters = [0; COUNTERS];
        let (own, of_kinds) = counters.split_at_mut(5);
        own.copy_from_slice(&[events, contracts, credentials, first_ledger, last_ledger]);
        of_kinds.copy_from_slice(&kinds);
        Counters(counters).write(rows, STATS)
    }
}
