//! The project of one stream: its members are waited for before events are read, for a bounded time, and those
//! that become known later are told.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::frames;
use orrery_ledger::domain::{EventId, LedgerSeq, Owner};
use orrery_membership::{MemberMark, Projects, Selected};
use orrery_store::{Store, StoreError};
use orrery_webhooks::followed::LateMember;

/// How long members are waited for, and how often it is looked.
const MOST_WAITED: Duration = Duration::from_secs(2);
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(20);
/// For how long they are not waited for after that was in vain.
const NOT_WAITED: Duration = Duration::from_secs(60);

/// How long it is kept what the project selects of a ledger.
const LONGEST_KEPT: Duration = Duration::from_secs(1);

/// The project whose events a stream sends.
pub(super) struct Members {
    pub projects: Arc<dyn Projects>,
    /// Name of the project.
    pub name: String,
    owner: Owner,
    mark: Option<MemberMark>,
    /// The first ledger that counts, and the last one that was passed.
    passed: (LedgerSeq, LedgerSeq),
    /// Up to which event it is read, with the newest ledger then.
    limit: Option<(EventId, LedgerSeq)>,
    waiting: Option<Instant>,
    in_vain: Option<Instant>,
    /// Of the ledger of which a part was read.
    kept: Mutex<Option<Kept>>,
}

/// What the project selects of a ledger: a ledger may be read in parts.
pub(super) struct Kept {
    pub ledger: LedgerSeq,
    pub selected: Selected,
    /// What was known of the members then.
    mark: Option<MemberMark>,
    since: Instant,
}

impl Members {
    /// A project that an owner reads, for a stream that begins after the newest event, or after an earlier one.
    pub fn new(
        projects: Arc<dyn Projects>,
        (owner, name): (Owner, String),
        store: &Store,
        is_from_newest: bool,
    ) -> Self {
        let mark = projects.known_since(&name, None).mark;
        let newest = store.ends().latest.unwrap_or_default();
        let passed = match is_from_newest {
            true => (newest.next().unwrap_or(newest), newest),
            false => (LedgerSeq(0), LedgerSeq(0)),
        };
        let (limit, waiting, in_vain, kept) = (None, None, None, Mutex::default());
        Self { projects, name, owner, mark, passed, limit, waiting, in_vain, kept }
    }

    /// Whether the owner still reads the project.
    pub fn is_readable(&self) -> bool {
        self.projects.readable(&self.owner, &self.name).is_some()
    }

    /// Returns the event up to which it is read.
    pub fn limit(&self) -> Option<EventId> {
        self.limit.map(|(event, _)| event)
    }

    /// Whether events after a position are read now, rather than later because members are looked for.
    pub fn may_read(&mut self, store: &Store, position: EventId) -> bool {
        if self.limit.is_none_or(|(event, _)| event <= position) {
            // In this order: the ledgers up to that place have all events up to that id.
            let event = store.last_durable_event();
            let newest = store.ends().latest.unwrap_or_default();
            let place = store.last_place();
            let is_impatient = self.in_vain.is_some_and(|since| since.elapsed() < NOT_WAITED);
            if !is_impatient && !self.projects.has_looked(&self.name, place) {
                let since = *self.waiting.get_or_insert_with(Instant::now);
                if since.elapsed() < MOST_WAITED {
                    return false;
                }
                self.in_vain = Some(Instant::now());
            }
            self.waiting = None;
            self.limit = Some((event, newest));
        }
        true
    }

    /// Returns what the project selects of a ledger.
    pub fn selected(&self, ledger: LedgerSeq) -> Result<Kept, StoreError> {
        let holds = |kept: &Kept| {
            kept.ledger == ledger && kept.mark == self.mark && kept.since.elapsed() < LONGEST_KEPT
        };
        if let Some(kept) = self.kept.lock().take().filter(holds) {
            return Ok(kept);
        }
        let (mark, since) = (self.mark, Instant::now());
        let selected = self.projects.selected(&self.name, ledger)?.unwrap_or_default();
        Ok(Kept { ledger, selected, mark, since })
    }

    /// Keeps for a moment what the project selects of a ledger, unless more may become known of its events.
    pub fn keep(&self, kept: Kept) {
        if kept.selected.unsure.is_empty() {
            *self.kept.lock() = Some(kept);
        }
    }

    /// Returns messages about members that became known after ledgers had passed in which they were members.
    pub fn late(&mut self, position: EventId) -> String {
        let known = self.projects.known_since(&self.name, self.mark);
        self.mark = known.mark.or(self.mark);
        let late = known
            .members
            .iter()
            .filter_map(|member| LateMember::of(&member.contract, member.since, self.passed));
        let mut text: String = late.map(|late| frames::member(&late, position)).collect();
        if known.more > 0 {
            text.push_str(&frames::more_members(known.more, position));
        }
        text
    }

    /// Notes that all events up to one are passed, those of a ledger at least in part.
    pub fn pass(&mut self, position: EventId, ledger: Option<LedgerSeq>) {
        if let Some(ledger) = ledger {
            self.passed.1 = self.passed.1.max(ledger);
        }
        if let Some((_, newest)) = self.limit.filter(|(event, _)| *event <= position) {
            self.passed.1 = self.passed.1.max(newest);
        }
    }
}
