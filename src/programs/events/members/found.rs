//! What a look at the facts and at the events of factories finds.

use std::collections::{BTreeMap, BTreeSet};

use super::index::Flags;
use super::stored::Announcement;
use orrery_ledger::domain::ContractId;

/// New members, with what is to be stored of them.
#[derive(Default)]
pub struct Found {
    pub members: BTreeMap<ContractId, Flags>,
    /// Contracts of which something else was learnt.
    pub touched: BTreeSet<ContractId>,
    pub announcements: BTreeMap<(u8, ContractId), Announcement>,
}

impl Found {
    /// Adds a member.
    pub fn add(&mut self, contract: ContractId, flags: Flags) {
        let known = self.members.entry(contract).or_default();
        *known = known.and(flags);
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.touched.is_empty() && self.announcements.is_empty()
    }

    /// Adds an announcement of a contract.
    pub fn announce(&mut self, selector: u8, contract: ContractId, announcement: Announcement) {
        self.add(contract, Flags::ANNOUNCED);
        let first = self.announcements.entry((selector, contract)).or_insert(announcement);
        *first = announcement.min(*first);
    }
}
