//! Whether stored events meet the conditions of subscriptions and streams. Most are judged from their
//! bytes; the values of others are read once, however many conditions there are.

use std::cell::OnceCell;

use orrery_conditions::{Condition, Event, FlatEvent, Judgement, Own};
use orrery_executables::{AllTried, DeclaredEvent, InterfaceReader, Tried};
use orrery_ledger::domain::{ContractId, NetworkId};
use orrery_membership::Selected;
use orrery_store::EventRecord;

/// Name of the condition, as requests spell it.
pub const WHERE: &str = "where";

/// Reads a condition that a user has given. The error continues the sentence after its name.
///
/// # Errors
/// A part of a sentence, when it is not understood.
pub fn condition(text: &str) -> Result<Condition, String> {
    Condition::parse(text).map_err(|problem| format!("is not understood: {problem}"))
}

/// Checks whether events of these contracts can meet a condition, by what they are known to declare, or to
/// have declared; one that was supplied declares them too. The error continues the sentence after the condition's name.
///
/// # Errors
/// A part of a sentence, when no declared event can.
pub fn check(
    condition: &Condition,
    contracts: &[ContractId],
    supplied: Option<&Tried>,
    names: &InterfaceReader<'_>,
) -> Result<(), String> {
    let had = contracts.iter().flat_map(|it| names.had(it, |_| true).0);
    let had: Vec<Tried> = supplied.cloned().into_iter().chain(had).collect();
    let checked = condition.check_events(had.iter().map(|tried| tried.interface()));
    checked.map_err(|problem| format!("can be met by no event: {problem}"))
}

/// What a condition says of a stored event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Matches,
    /// It does not hold, or the event lacks a name of it.
    Differs,
    /// The event's declaration gives a value a type that does not fit, for this reason.
    Misfits(String),
    /// What the event's contract declares is not known.
    Unjudged,
}

/// A stored event that conditions judge.
pub struct JudgedEvent<'e, 'n> {
    event: &'e EventRecord<'e>,
    network: &'e NetworkId,
    names: Option<&'e InterfaceReader<'n>>,
    /// The interfaces that may declare it, and whether these are all.
    tried: OnceCell<(AllTried, bool)>,
    /// Its values, if they can be read.
    declared: OnceCell<Option<DeclaredEvent>>,
}

impl<'e, 'n> JudgedEvent<'e, 'n> {
    /// An event on this network, whose contract has the interfaces that `names` finds.
    pub fn new(
        event: &'e EventRecord<'e>,
        network: &'e NetworkId,
        names: Option<&'e InterfaceReader<'n>>,
    ) -> Self {
        Self { event, network, names, tried: OnceCell::new(), declared: OnceCell::new() }
    }

    /// Judges the event.
    pub fn by(&self, condition: &Condition) -> Verdict {
        let Some(names) = self.names else { return Verdict::Unjudged };
        let (tried, is_sure) = self.tried.get_or_init(|| names.of_event(self.event, self.network));
        if tried.is_empty() && !is_sure {
            return Verdict::Unjudged;
        }
        if let Some(first) = tried.first()
            && !condition.reads_topics()
            && let Some(flat) =
                FlatEvent::read(first.interface(), self.event.topics, self.event.data, self.own())
        {
            return condition.judge_flat(&flat).into();
        }
        let read = || DeclaredEvent::tried(self.event, tried.clone(), names);
        // Values that no contract can emit have no name.
        let Some(declared) = self.declared.get_or_init(read) else { return Verdict::Differs };
        if declared.matched().is_none() && !is_sure {
            return Verdict::Unjudged;
        }
        let own = Own { topics: declared.topics(), ..self.own() };
        condition.judge(&Event { named: declared.named(), own }).into()
    }

    /// Judges the event by a condition, if there is one, and by what a project selects, if it is about one:
    /// where it is not known whether an event belongs to it, the condition cannot be enough.
    pub fn of_project(
        &self,
        condition: Option<&Condition>,
        selected: Option<&Selected>,
    ) -> Verdict {
        let verdict = condition.map_or(Verdict::Matches, |condition| self.by(condition));
        verdict.unless_unsure(selected.is_some_and(|it| it.unsure.contains(&self.event.id)))
    }

    /// What it has itself, without its topics.
    fn own(&self) -> Own<'_> {
        let EventRecord { contract, ledger, tx, .. } = self.event;
        Own { contract: *contract, ledger: ledger.0, transaction: tx, topics: &[] }
    }
}

impl Verdict {
    /// The verdict on an event of which it may be unsure whether it belongs to what is asked about.
    #[must_use]
    pub fn unless_unsure(self, is_unsure: bool) -> Self {
        match self {
            Self::Matches if is_unsure => Self::Unjudged,
            verdict => verdict,
        }
    }
}

impl From<Judgement> for Verdict {
    fn from(judgement: Judgement) -> Self {
        match judgement {
            Judgement::Matches => Self::Matches,
            Judgement::Differs => Self::Differs,
            Judgement::Misfits(why) => Self::Misfits(why),
        }
    }
}
