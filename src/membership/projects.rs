//! What those need to know of projects who tell users of their events.

use std::collections::HashSet;
use std::sync::Arc;

use orrery_executables::Tried;
use orrery_ledger::domain::{ContractId, EventId, LedgerSeq, Owner, ProgramId};
use orrery_store::StoreError;

/// Projects, by their names, which are unique whatever their case. A project that replaces another one has its
/// name.
pub trait Projects: Send + Sync {
    /// Returns the name of a project as its owner spelled it; `None` where there is none that this owner may
    /// read: its own, and public ones to which it has subscribed.
    fn readable(&self, owner: &Owner, project: &str) -> Option<String>;

    /// Returns the events of a ledger that a project selects, by what is known of its members now: those of a
    /// contract from the ledger on in which this became a member. `None` where there is no such project.
    ///
    /// # Errors
    /// When the store fails.
    fn selected(&self, project: &str, ledger: LedgerSeq) -> Result<Option<Selected>, StoreError>;

    /// Returns who belongs to a project in a ledger, by what is known of its members now. `None` where there is no
    /// such project.
    ///
    /// # Errors
    /// When the store fails.
    fn members_in<'p>(
        &'p self,
        project: &str,
        ledger: LedgerSeq,
    ) -> Result<Option<Box<dyn MembersInLedger + 'p>>, StoreError>;

    /// Returns all contracts that belong to a project as far as is known, or may, by id; the same list as before
    /// where nothing has become known. None belong to it for having events of some name.
    fn members(&self, project: &str) -> Arc<[ContractId]>;

    /// Whether contracts can belong to a project, and not only events by their names.
    fn has_members(&self, project: &str) -> bool;

    /// Returns the interface that was supplied with a project.
    ///
    /// # Errors
    /// When the store fails.
    fn supplied(&self, project: &str) -> Result<Option<Tried>, StoreError>;

    /// Returns the contracts that belong to a project as far as is known; `None` where there are more than `most`,
    /// or where any contract may have events of it.
    fn contracts(&self, project: &str, most: usize) -> Option<Vec<ContractId>>;

    /// Whether members were looked for in all ledgers up to a place in the feed; also where there is nothing to
    /// look for.
    fn has_looked(&self, project: &str, place: u64) -> bool;

    /// Returns the members that became known after a mark, which may be of an earlier process; none without one.
    fn known_since(&self, project: &str, mark: Option<MemberMark>) -> KnownMembers;
}

/// Who belongs to a project in one ledger: each member from the ledger on in which it became one.
pub trait MembersInLedger {
    /// Whether a contract may belong to it in some transaction of the ledger. Costs little.
    fn may_have(&self, contract: &ContractId) -> bool;

    /// Returns whether a contract belongs to it in a transaction of the ledger; in [`AT_THE_END`]: after all.
    ///
    /// # Errors
    /// When the store fails.
    fn has(&self, contract: &ContractId, application_order: u32) -> Result<Belongs, StoreError>;

    /// Returns the contracts that may belong to it and have referred to an entry (CAP-85), by the SHA-256 of the
    /// entry's key.
    ///
    /// # Errors
    /// When the store fails.
    fn referring(&self, entry: [u8; 32]) -> Result<Vec<ContractId>, StoreError>;
}

/// The application order of what comes after all transactions of a ledger.
pub const AT_THE_END: u32 = u32::MAX;

/// Whether a contract belongs to a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Belongs {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// It is not known which code the contract ran.
    NotKnown,
}

/// Events of a ledger that a project selects.
#[derive(Debug, Clone, Default)]
pub struct Selected {
    /// These.
    pub events: HashSet<EventId>,
    /// Those of which it is not known whether they belong to it.
    pub unsure: HashSet<EventId>,
    /// The interface that was supplied with the project, which declares events before others do.
    pub supplied: Option<Tried>,
}

impl Selected {
    /// Whether an event belongs to the project, or may.
    pub fn may_have(&self, event: EventId) -> bool {
        self.events.contains(&event) || self.unsure.contains(&event)
    }
}

/// A moment in the growth of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberMark {
    /// The project.
    pub program: ProgramId,
    /// Number of members that had become known.
    pub number: u64,
}

/// A member that has become known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownMember {
    /// The contract.
    pub contract: ContractId,
    /// The ledger in which it became a member; 0 where that is before what is stored.
    pub since: LedgerSeq,
}

/// Members that became known since a mark.
#[derive(Debug, Clone, Default)]
pub struct KnownMembers {
    /// The mark after them; `None` where there is no such project, or it is not known yet who was a member before.
    pub mark: Option<MemberMark>,
    /// The first of them.
    pub members: Vec<KnownMember>,
    /// Number of further ones.
    pub more: u64,
}
