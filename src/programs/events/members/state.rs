//! What is remembered of the members of one project.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::name_looks::NameLooks;
use super::newly_known::NewlyKnown;
use super::rank::Rank;
use super::reading_again::ReadingAgain;
use super::replacing::Replacing;
use super::slow::SlowMembers;
use super::stored::Cursor;
use crate::manifest::Manifest;
use orrery_ledger::domain::{ContractId, EventId, LedgerSeq};

/// The members of one project, beside those in the index that all projects share.
#[derive(Default)]
pub struct MembersOf {
    /// Locked while they are looked for, and while earlier events of new ones are read.
    pub(super) state: Mutex<MemberState>,
    /// Number of times that members were added, and removed, in this process.
    added: AtomicU64,
    removed: AtomicU64,
    /// Number of members whose earlier events have yet to be read.
    pending: AtomicUsize,
    /// Number of contracts that are no members because others became members before.
    left_out: AtomicUsize,
    /// Number of members whose stays are cut.
    cut: AtomicUsize,
    /// Whether the changes of members have yet to be recorded.
    has_unrecorded: AtomicBool,
    /// Whether what is stored of them was read, in this process.
    is_read: AtomicBool,
    /// Place in the feed up to which they were looked for in all ledgers, in this process.
    looked_to: AtomicU64,
    /// Whether contracts may have been noted as ones of which names of events are not known after these have become
    /// known.
    has_late_names: AtomicBool,
    /// Those that became known in this process.
    pub(crate) newly_known: Mutex<NewlyKnown>,
}

/// What was read from the store.
#[derive(Default)]
pub struct MemberState {
    /// Whether the rest was read since the last failure.
    pub is_read: bool,
    /// How far was looked; `None` before the first look.
    pub cursor: Option<Cursor>,
    /// Whether a write has failed since, which may have reached the store.
    pub in_doubt: bool,
    /// Members whose earlier events have yet to be read, each with where this goes on.
    pub pending: BTreeMap<ContractId, ReadTo>,
    /// The last of them that was passed over, because what it holds is not recorded yet.
    pub passed: Option<ContractId>,
    /// Members whose changes have yet to be recorded.
    pub unrecorded: BTreeSet<ContractId>,
    /// Number of contracts that are no members because others became members before, about.
    pub left_out: usize,
    /// Members whose stays are cut.
    pub cut: BTreeSet<ContractId>,
    /// Whether other members may stay than those that do.
    pub must_limit: bool,
    /// The last of those that stay; `None` where that is not known, or all do.
    pub last: Option<(Rank, ContractId)>,
    /// The pass over all members whose changes have yet to be recorded: the last one that it has passed.
    pub pass: Option<Option<ContractId>>,
    /// The ranges of ledgers for which the changes of all members are being recorded.
    pub recording_with: Option<Vec<(u32, u32)>>,
    /// What is remembered of the looks at events that may turn out to have a name of the project.
    pub names: NameLooks,
    /// When changes were recorded for the last time because other ledgers are stored, and how long it took.
    pub recorded: Option<(Instant, Duration)>,
    /// Whether the next turn is for new ledgers although some are pending.
    pub is_turn_of_ledgers: bool,
    /// When the events of factories were read again for the last time, and how long it took.
    pub read_again: Option<(Instant, Duration)>,
    /// What was known of interfaces then.
    pub read_with: Option<u64>,
    /// The reading of events of factories again that is in progress.
    pub reading_again: Option<ReadingAgain>,
    /// Number of looks since it was stored how far they have come.
    pub unwritten_looks: u32,
    /// What is remembered of the replacement of recorded changes.
    pub replacing: Replacing,
    /// Members whose changes take long to record.
    pub slow: SlowMembers,
}

impl MemberState {
    /// Whether the changes of a member are recorded later, although they have yet to be.
    pub fn must_wait(&self, contract: &ContractId, now: Instant) -> bool {
        self.replacing.has_put_off(contract) || self.slow.must_wait(contract, now)
    }

    /// Whether the changes of some members have yet to be recorded, or it is not known which stay.
    pub fn has_unrecorded(&self) -> bool {
        !self.unrecorded.is_empty() || self.pass.is_some() || self.must_limit
    }
}

/// How far what was stored of a member before it became known has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadTo {
    /// Its events up to one of them.
    Events(Option<EventId>),
    /// All its events, and the changes of what it holds up to this ledger.
    Data(Option<LedgerSeq>),
}

impl Default for ReadTo {
    fn default() -> Self {
        Self::Events(None)
    }
}

/// Numbers that are others once a project has other members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Versions {
    added: u64,
    removed: u64,
}

impl Versions {
    /// Whether none was removed since an earlier version.
    pub fn keeps_those_of(self, earlier: Self) -> bool {
        self.removed == earlier.removed
    }
}

impl MembersOf {
    /// Returns what is to be compared with [`Self::accept`].
    pub fn versions(&self) -> Versions {
        let added = self.added.load(Ordering::SeqCst);
        Versions { added, removed: self.removed.load(Ordering::SeqCst) }
    }

    /// Whether what was read with the members of these versions holds: members that were added since are
    /// read again, except in ledgers that are new to the project.
    pub fn accept(&self, read: Versions, is_new_ledger: bool) -> bool {
        let now = self.versions();
        now.removed == read.removed && (!is_new_ledger || now.added == read.added)
    }

    /// Whether earlier events of members have yet to be read.
    pub fn has_pending(&self) -> bool {
        self.pending.load(Ordering::SeqCst) > 0
    }

    /// Whether they were looked for in all ledgers up to a place in the feed.
    pub fn has_looked(&self, place: u64) -> bool {
        self.looked_to.load(Ordering::SeqCst) >= place
    }

    /// Whether all is known of the members in ledgers up to a place in the feed: they were looked for, unless
    /// the project is paused, their earlier events are read, and their changes are recorded.
    pub fn are_known(&self, manifest: &Manifest, place: u64) -> bool {
        let selectors = manifest.events.as_ref().map(|project| &project.selectors);
        let selectors = selectors.filter(|it| !it.is_empty() && manifest.running);
        !self.has_pending()
            && !self.has_unrecorded.load(Ordering::SeqCst)
            && selectors.is_none_or(|selectors| {
                let must_look = selectors.have_members();
                self.is_read.load(Ordering::SeqCst) && (!must_look || self.has_looked(place))
            })
    }

    /// Notes that contracts were noted as ones of which names of events are not known, by what was known before a look
    /// that may have passed them.
    pub(crate) fn note_late_names(&self) {
        self.has_late_names.store(true, Ordering::SeqCst);
    }

    /// Returns whether that was noted since it was asked last.
    pub(super) fn take_late_names(&self) -> bool {
        self.has_late_names.swap(false, Ordering::SeqCst)
    }

    pub(super) fn note_read(&self) {
        self.is_read.store(true, Ordering::SeqCst);
    }

    pub(super) fn set_unrecorded(&self, has_some: bool) {
        self.has_unrecorded.store(has_some, Ordering::SeqCst);
    }

    pub(super) fn note_looked(&self, place: u64) {
        self.looked_to.fetch_max(place, Ordering::SeqCst);
    }

    pub(super) fn note_added(&self) {
        self.added.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn note_removed(&self) {
        self.removed.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the number of contracts that are no members because others became members before, once it is known.
    pub fn left_out(&self) -> usize {
        self.left_out.load(Ordering::SeqCst)
    }

    pub(super) fn set_left_out(&self, count: usize) {
        self.left_out.store(count, Ordering::SeqCst);
    }

    /// Returns the number of members whose stays are cut.
    pub fn cut(&self) -> usize {
        self.cut.load(Ordering::SeqCst)
    }

    pub(super) fn set_cut(&self, count: usize) {
        self.cut.store(count, Ordering::SeqCst);
    }

    pub(super) fn set_pending(&self, count: usize) {
        self.pending.store(count, Ordering::SeqCst);
    }
}
