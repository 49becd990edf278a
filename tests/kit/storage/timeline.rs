//! All changes of one key in one range, and what follows from them for each moment of it.

use stellar_xdr::LedgerKey;

use super::answers::{Because, Kind, Row, StoredRange, TransactionId, Value};
use super::checkpoints::HeldThere;
use super::is_temporary;
use super::net::{After, Before, NetChange, TtlAfter, TtlBefore};

/// A moment: after the change of this number in a ledger, or at the end of the ledger. Changes are
/// numbered from 1; moment 0 is the end of the ledger before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    pub ledger: u32,
    pub change: usize,
}

impl Moment {
    pub fn end_of(ledger: u32) -> Self {
        Self { ledger, change: usize::MAX }
    }

    fn before(self) -> Self {
        Self { change: self.change - 1, ..self }
    }

    /// The last ledger whose end is not after the moment, for what held at the ends of ledgers: a
    /// state with `lastModifiedLedgerSeq` L holds after the changes of L.
    fn covers(self, from: u32) -> bool {
        from <= if self.change == 0 { self.ledger.saturating_sub(1) } else { self.ledger }
    }
}

/// A change and when it was made.
#[derive(Debug, Clone, Copy)]
pub struct Step<'a> {
    pub at: Moment,
    pub change: &'a NetChange,
}

/// All changes of one key in one range, in order.
#[derive(Debug)]
pub struct Timeline<'a> {
    pub key: &'a LedgerKey,
    pub range: StoredRange,
    pub steps: Vec<Step<'a>>,
    /// Whether the creation of the key's contract lies in the range.
    pub contract_created: bool,
    /// Checkpoints of the range with the state of the key's contract, ascending, and what they hold.
    pub checkpoints: Vec<(u32, Option<&'a HeldThere>)>,
}

/// What is known about the entry at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held<'a> {
    Unknown,
    Absent,
    Value { value: &'a Value, modified: u32, because: Because },
}

/// What is known about a key at the end of a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State<'a> {
    Unknown { live_until: Option<u32> },
    Absent,
    Present { held: Holding<'a>, live_until: Option<u32>, archived: Option<bool> },
}

/// The value of a present entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding<'a> {
    pub value: &'a Value,
    pub modified: u32,
    pub because: Because,
}

impl<'a> Timeline<'a> {
    pub(super) fn last(&self, at: Moment, is: impl Fn(&NetChange) -> bool) -> Option<&Step<'a>> {
        self.steps.iter().rev().find(|step| step.at <= at && is(step.change))
    }

    fn next(&self, at: Moment, is: impl Fn(&NetChange) -> bool) -> Option<&Step<'a>> {
        self.steps.iter().find(|step| step.at > at && is(step.change))
    }

    /// Whether a state before a later change, last modified in this ledger, holds at a moment. S2:
    /// "its STATE, with `lastModifiedLedgerSeq` L: exact for ledgers from the greater of L and the
    /// first of the range".
    pub(super) fn holds(&self, modified: u32, at: Moment) -> bool {
        at.covers(modified.max(self.range.known_first))
    }

    /// The entry at a moment. S2: "**Known** when one of these lies in the range".
    pub fn held(&self, at: Moment) -> Held<'a> {
        let of = |held: &'a HeldThere| Held::Value {
            value: &held.value,
            modified: held.modified,
            because: Because::Checkpoint,
        };
        // S7: what the checkpoint says holds, until the next change.
        if let Some(held) = self.seen(at, NetChange::names_entry) {
            return held.map_or(Held::Absent, of);
        }
        // "a change at or before N"
        if let Some(step) = self.last(at, NetChange::names_entry) {
            return match &step.change.after {
                After::Value(value, modified) => {
                    Held::Value { value, modified: *modified, because: Because::Change }
                }
                After::Gone | After::Same => Held::Absent,
            };
        }
        let next = self.next(at, NetChange::names_entry);
        // Before a later change in its ledger, a checkpoint says nothing.
        if let Some((ledger, held)) = self.ahead(at)
            && next.is_none_or(|step| step.at > Moment::end_of(ledger))
        {
            return of(held);
        }
        // "the state before a later change (its STATE […]; before a `created`: absent, back to the
        // first)". Of a `created` over dead temporary data the STATE is the state before, because
        // that data may have lived at N.
        if let Some(step) = next {
            match &step.change.before {
                Before::Absent => return Held::Absent,
                Before::Value(value, modified) if self.holds(*modified, at) => {
                    let because = Because::StateBefore;
                    return Held::Value { value, modified: *modified, because };
                }
                Before::Value(..) | Before::NotNamed => {}
            }
        }
        // "the creation of its contract (before it: absent; after it, without a change: absent)",
        // "one that begins at genesis or at the first ledger of protocol 20 knows everything".
        // Choice: changes of its TTL alone contradict that it is absent, and leave it unknown.
        let knows_all = self.contract_created || self.range.knows_everything;
        let is_mentioned = self.last(at, |_| true).is_some() || self.live_until(at).is_some();
        if knows_all && !is_mentioned { Held::Absent } else { Held::Unknown }
    }

    /// The TTL at a moment, by the same rules: TTL entries have STATE and `lastModifiedLedgerSeq` of
    /// their own.
    pub fn live_until(&self, at: Moment) -> Option<u32> {
        if let Some(until) = self.seen_life(at) {
            return Some(until);
        }
        if let Some(step) = self.last(at, NetChange::names_ttl) {
            return match step.change.ttl_after {
                TtlAfter::Until(until) => Some(until),
                TtlAfter::Gone | TtlAfter::Lost | TtlAfter::Same => None,
            };
        }
        let next = self.next(at, NetChange::names_ttl);
        match next.map(|step| step.change.ttl_before) {
            Some(TtlBefore::Until(until, modified)) if self.holds(modified, at) => Some(until),
            _ => {
                let (ledger, held) = self.ahead(at)?;
                let is_given = next.is_some_and(|step| step.at <= Moment::end_of(ledger));
                held.live_until.filter(|_| !is_given)
            }
        }
    }

    /// Whether the entry was evicted and has not been restored or made anew since.
    fn is_evicted(&self, at: Moment) -> bool {
        let moves = |change: &NetChange| {
            change.names_entry() || matches!(change.kind, Some(Kind::Evicted | Kind::Restored))
        };
        match self.seen(at, moves) {
            Some(held) => held.is_some_and(|held| held.is_evicted),
            None => {
                self.last(at, moves).is_some_and(|step| step.change.kind == Some(Kind::Evicted))
            }
        }
    }

    /// What is known at the end of a ledger of the range.
    pub fn state(&self, ledger: u32) -> State<'a> {
        let at = Moment::end_of(ledger);
        let live_until = self.live_until(at);
        let held = match self.held(at) {
            Held::Absent => return State::Absent,
            // "TTL changes alone without a value: unknown, with `live_until_ledger` in the answer."
            // Choice: also of temporary data whose TTL has passed.
            Held::Unknown => return State::Unknown { live_until },
            Held::Value { value, modified, because } => Holding { value, modified, because },
        };
        if is_temporary(self.key) {
            return match live_until {
                // "Temporary and `live_until < N`: absent." "At `live_until = N` it is live."
                Some(until) if until < ledger => State::Absent,
                Some(_) => State::Present { held, live_until, archived: Some(false) },
                // "A temporary entry whose TTL is not known: present in the ledger of its change,
                // unknown from the next on until its TTL or eviction is seen."
                None if self.is_changed_in(ledger) => {
                    State::Present { held, live_until, archived: None }
                }
                None => State::Unknown { live_until },
            };
        }
        // "Persistent and `live_until < N`, or evicted: present with `archived: true`"; "TTL not
        // known: `live_until_ledger` null, `archived` null (true after an eviction)."
        let archived = match live_until {
            _ if self.is_evicted(at) => Some(true),
            Some(until) => Some(until < ledger),
            None => None,
        };
        State::Present { held, live_until, archived }
    }

    fn is_changed_in(&self, ledger: u32) -> bool {
        self.last(Moment::end_of(ledger), NetChange::names_entry)
            .is_some_and(|step| step.at.ledger == ledger)
    }

    /// Ledger and transaction "of the last created, updated or restored change" (S3), if one is known;
    /// else the entry's own `lastModifiedLedgerSeq` stands for it, as of `found`. An equal update is no
    /// change of these kinds.
    pub fn updated(&self, at: Moment) -> Option<(u32, Option<TransactionId>)> {
        let is = |change: &NetChange| {
            matches!(change.kind, Some(Kind::Created | Kind::Updated | Kind::Restored))
        };
        self.last(at, is).map(|step| (step.at.ledger, step.change.tx))
    }

    /// A change as history shows it; `None` if it is no row.
    pub fn row(&self, step: &Step<'a>) -> Option<Row> {
        let change = step.change;
        let kind = change.kind?;
        let value_at = |at: Moment| match self.held(at) {
            Held::Value { value, .. } => Some(value.clone()),
            Held::Unknown | Held::Absent => None,
        };
        let value = value_at(step.at);
        let previous = match &change.before {
            _ if kind == Kind::Created || change.dead_before => None,
            Before::Value(value, _) => Some(value.clone()),
            // A change of the TTL alone, an eviction, or a restoring of protocols 20 to 22.
            _ if change.after == After::Same => value.clone(),
            _ => value_at(step.at.before()),
        };
        Some(Row {
            key_hash: change.key_hash,
            key: change.key.clone(),
            kind,
            value,
            previous,
            live_until: self.live_until(step.at),
            tx: change.tx,
            ledger: step.at.ledger,
        })
    }

    /// Changes that name another state before them than the changes before them have left.
    pub fn contradictions(&self) -> Vec<String> {
        let mut found = Vec::new();
        for pair in self.steps.windows(2) {
            let [earlier, step] = pair else { continue };
            let at = step.at.before();
            let agrees = match (&step.change.before, self.last(at, NetChange::names_entry)) {
                (Before::NotNamed, _) | (_, None) => true,
                (Before::Absent, Some(last)) => last.change.after == After::Gone,
                (Before::Value(value, modified), Some(last)) => {
                    // Most RESTORED records have the ledger's own number.
                    let own = *modified == step.at.ledger;
                    matches!(&last.change.after, After::Value(after, at)
                        if after == value && (at == modified || own))
                }
            };
            // Bumps of transactions that only read do not see those before them in their ledger.
            let is_alone = earlier.at.ledger < step.at.ledger;
            let ttl_agrees = match (step.change.ttl_before, self.live_until(at)) {
                (TtlBefore::Until(before, _), Some(until)) => before == until || !is_alone,
                (TtlBefore::Absent, Some(_)) => false,
                _ => true,
            };
            if !agrees || !ttl_agrees {
                found.push(format!("{step:?} does not follow {earlier:?}"));
            }
        }
        found
    }
}
