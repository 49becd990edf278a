//! When a contract became a member of a project, by which selectors, and when it ceased to be one: as rows.

use std::collections::BTreeMap;

use super::index::Flags;
use super::logged::LoggedMember;
use super::rank::Rank;
use super::selectors::Selectors;
use super::stored::Announcement;
use crate::ProgramError;
use orrery_executables::Stay;
use orrery_executables::lookup::Lookup;
use orrery_ledger::domain::{CloseTime, ContractId, Hash32, LedgerSeq, TxHash};
use orrery_membership::{Creation, Facts};
use orrery_store::{Store, TransactionPosition};
use orrery_tables::event_tables::{MemberChange, MemberChangeKind};

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
    /// Returns the changes of a contract, and when it became a member.
    pub fn changes_of(
        &self,
        contract: ContractId,
        flags: Flags,
    ) -> Result<(Vec<LoggedMember>, Rank), ProgramError> {
        let (mut changes, mut rank) = (Vec::new(), Rank::NOT_KNOWN);
        let creation = self.facts.creation(&contract)?;
        let joined = match &creation {
            Some(creation) => at(creation),
            None => self.before(None),
        };
        let mut add = |selector: String, kinds: &[(MemberChangeKind, At)]| {
            for (number, (kind, at)) in (0..).zip(kinds) {
                let (selector, kind, wasm) = (selector.clone(), *kind, None);
                let change = MemberChange { contract, selector, kind, wasm, number };
                changes.push(self.logged(change, *at)?);
            }
            Ok::<_, ProgramError>(())
        };
        let join = (MemberChangeKind::Joined, joined);
        if flags.has(Flags::NAMED) {
            add("contract".to_owned(), &[join])?;
            rank = Rank::NAMED;
        }
        for (number, factory) in (0..).zip(&self.selectors.factories) {
            if let Some(announcement) = self.announcements.get(&(contract, number)) {
                rank = rank.min(announcement.rank());
                let Announcement { at, transaction, .. } = announcement;
                let transaction = TxHash::from(transaction.0);
                let announced = At { ledger: at.ledger, transaction };
                add(factory.to_string(), &[join, (MemberChangeKind::Announced, announced)])?;
            }
        }
        for creator in &self.selectors.created_by {
            if let Some(creation) = creation.filter(|creation| creation.creator == creator.0) {
                add(format!("created by {creator}"), &[join])?;
                rank = rank.min(Rank::at(creation.at));
            }
        }
        if let Some(lookup) = self.lookup.filter(|_| flags.has(Flags::MAY_RUN)) {
            for code in &self.selectors.wasm {
                rank = rank.min(self.add_stays(lookup, contract, code, &mut changes)?);
            }
        }
        Ok((changes, rank))
    }

    /// Adds the times in which a contract ran a code. Returns when the first one began.
    fn add_stays(
        &self,
        lookup: &Lookup<'_>,
        contract: ContractId,
        code: &Hash32,
        changes: &mut Vec<LoggedMember>,
    ) -> Result<Rank, ProgramError> {
        let (mut number, mut rank) = (0, Rank::NOT_KNOWN);
        let Some(latest) = self.store.ends().latest else { return Ok(rank) };
        let last = TransactionPosition { ledger: latest, application_order: u32::MAX };
        for stay in lookup.stays(&contract, &[*code], last)? {
            let Stay { since, known_at, until, .. } = stay;
            let joined = match since {
                Some(since) => self.of(since)?,
                None => self.before(Some(known_at.ledger)),
            };
            let begin = TransactionPosition { ledger: joined.ledger, application_order: 0 };
            rank = rank.min(Rank::at(since.unwrap_or(begin)));
            let left = until.map(|until| self.of(until)).transpose()?;
            let ends = [(MemberChangeKind::Joined, Some(joined)), (MemberChangeKind::Left, left)];
            for (kind, at) in ends {
                let Some(at) = at else { continue };
                let selector = format!("wasm {code}");
                let change = MemberChange { contract, selector, kind, wasm: Some(*code), number };
                changes.push(self.logged(change, at)?);
                number += 1;
            }
        }
        Ok(rank)
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
        At { ledger: first, transaction: TxHash::from([0; 32]) }
    }

    fn of(&self, at: TransactionPosition) -> Result<At, ProgramError> {
        let mut transaction = TxHash::from([0; 32]);
        self.store.entry_reader(at.ledger)?.transaction(at, |record| {
            transaction = TxHash::from(*record.tx);
        })?;
        Ok(At { ledger: at.ledger, transaction })
    }
}

fn at(creation: &Creation) -> At {
    let transaction = TxHash::from(creation.transaction.0);
    At { ledger: creation.at.ledger, transaction }
}
