//! When a contract became a member of a project, by which selectors, and when it ceased to be one: as rows.

use std::collections::BTreeMap;

use super::index::Flags;
use super::logged::LoggedMember;
use super::rank::Rank;
use super::selectors::Selectors;
use super::stored::Announcement;
use crate::ProgramError;
use orrery_executables::lookup::Lookup;
use orrery_executables::{Stay, Stays};
use orrery_ledger::domain::{CloseTime, ContractId, Hash32, LedgerSeq, TxHash};
use orrery_membership::{Creation, Facts};
use orrery_store::{Store, TransactionPosition};
use orrery_tables::event_tables::{MemberChange, MemberChangeKind};

/// Maximum number of changes of what a contract runs that are looked at, with those of entries to which it refers: the
/// first ones.
pub const MOST_CHANGES: usize = if cfg!(test) { 60 } else { 10_000 };
/// Maximum number of times in which a contract ran codes of a project that are rows, the first ones: each has two rows,
/// of some 200 bytes, and all are compared whenever there may be another one.
const MOST_STAYS: usize = if cfg!(test) { 25 } else { 1_000 };

/// What is recorded of a contract.
pub struct Changes {
    /// When it became a member, by which selectors, and when it ceased to be one.
    pub changes: Vec<LoggedMember>,
    /// When it became a member first.
    pub rank: Rank,
    /// Whether only the first of the times are among the changes in which it ran the codes of the project.
    pub is_cut: bool,
}

/// What changes of members follow from.
pub struct Sources<'a, 's> {
    pub store: &'a Store,
    pub selectors: &'a Selectors,
    pub facts: &'a Facts<'s>,
    /// `None` where no contract is selected by what it runs.
    pub lookup: Option<&'a Lookup<'s>>,
    pub announcements: &'a BTreeMap<(ContractId, u8), Announcement>,
}

/// A place in the chain.
#[derive(Clone, Copy)]
struct At {
    ledger: LedgerSeq,
    transaction: TxHash,
}

impl Sources<'_, '_> {
    /// Returns the changes of a contract.
    pub fn changes_of(&self, contract: ContractId, flags: Flags) -> Result<Changes, ProgramError> {
        let mut found = Changes { changes: Vec::new(), rank: Rank::NOT_KNOWN, is_cut: false };
        let creation = self.facts.creation(&contract)?;
        let joined = match &creation {
            Some(creation) => at(creation),
            None => self.before(None),
        };
        let join = (MemberChangeKind::Joined, joined);
        if flags.has(Flags::NAMED) {
            self.add(&mut found, (contract, "contract".to_owned()), &[join])?;
            found.rank = Rank::NAMED;
        }
        for (number, factory) in (0..).zip(&self.selectors.factories) {
            if let Some(announcement) = self.announcements.get(&(contract, number)) {
                found.rank = found.rank.min(announcement.rank());
                let Announcement { at, transaction, .. } = announcement;
                let announced = At { ledger: at.ledger, transaction: *transaction };
                let both = [join, (MemberChangeKind::Announced, announced)];
                self.add(&mut found, (contract, factory.to_string()), &both)?;
            }
        }
        for creator in &self.selectors.created_by {
            if let Some(creation) = creation.filter(|creation| creation.creator == creator.0) {
                self.add(&mut found, (contract, format!("created by {creator}")), &[join])?;
                found.rank = found.rank.min(Rank::at(creation.at));
            }
        }
        if let Some(lookup) = self.lookup.filter(|_| flags.has(Flags::MAY_RUN)) {
            self.add_stays(lookup, contract, &mut found)?;
        }
        Ok(found)
    }

    /// Adds changes of a contract by a selector that does not depend on what it runs.
    fn add(
        &self,
        found: &mut Changes,
        (contract, selector): (ContractId, String),
        kinds: &[(MemberChangeKind, At)],
    ) -> Result<(), ProgramError> {
        for (number, (kind, at)) in (0..).zip(kinds) {
            let (selector, kind, wasm) = (selector.clone(), *kind, None);
            let change = MemberChange { contract, selector, kind, wasm, number };
            found.changes.push(self.logged(change, *at)?);
        }
        Ok(())
    }

    /// Adds the times in which a contract ran the codes of the project.
    fn add_stays(
        &self,
        lookup: &Lookup<'_>,
        contract: ContractId,
        found: &mut Changes,
    ) -> Result<(), ProgramError> {
        let Some(latest) = self.store.ends().latest else { return Ok(()) };
        let last = TransactionPosition { ledger: latest, application_order: u32::MAX };
        let codes = &self.selectors.wasm;
        let Stays { stays, are_cut } = lookup.stays(&contract, codes, last, MOST_CHANGES)?;
        found.is_cut = are_cut || stays.len() > MOST_STAYS;
        let mut numbers: BTreeMap<Hash32, u32> = BTreeMap::new();
        for stay in stays.into_iter().take(MOST_STAYS) {
            let Stay { code, since, known_at, until } = stay;
            let joined = match since {
                Some(since) => of(lookup, since)?,
                None => self.before(Some(known_at.ledger)),
            };
            let begin = TransactionPosition { ledger: joined.ledger, application_order: 0 };
            found.rank = found.rank.min(Rank::at(since.unwrap_or(begin)));
            let left = until.map(|until| of(lookup, until)).transpose()?;
            let ends = [(MemberChangeKind::Joined, Some(joined)), (MemberChangeKind::Left, left)];
            for (kind, at) in ends {
                let Some(at) = at else { continue };
                let number = numbers.entry(code).or_default();
                let (selector, wasm) = (format!("wasm {code}"), Some(code));
                let change = MemberChange { contract, selector, kind, wasm, number: *number };
                found.changes.push(self.logged(change, at)?);
                *number += 1;
            }
        }
        Ok(())
    }

    fn logged(&self, change: MemberChange, at: At) -> Result<LoggedMember, ProgramError> {
        let row = self.store.ledger(at.ledger)?;
        let closed_at = row.map_or(CloseTime::Seconds(0), |row| row.close_time);
        let At { ledger, transaction } = at;
        Ok(LoggedMember { change, ledger, transaction, closed_at })
    }

    /// Returns the place of what was so before the stored ledgers around one, or before all.
    fn before(&self, ledger: Option<LedgerSeq>) -> At {
        let ranges = self.store.status().ranges;
        let around = ledger.and_then(|ledger| ranges.iter().find(|it| it.contains(ledger)));
        let first = around.or(ranges.first()).map(|range| range.first).unwrap_or_default();
        At { ledger: first, transaction: TxHash::default() }
    }
}

fn at(creation: &Creation) -> At {
    At { ledger: creation.at.ledger, transaction: creation.transaction }
}

fn of(lookup: &Lookup<'_>, at: TransactionPosition) -> Result<At, ProgramError> {
    let transaction = lookup.transaction(at)?.unwrap_or_default();
    Ok(At { ledger: at.ledger, transaction })
}
