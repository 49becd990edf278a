//! Events as conditions and messages see them: their parameters, and what every event has itself.

use std::borrow::Cow;

use orrery_interfaces::{Interface, NamedEvent, Plain, Scalar, Types};
use orrery_ledger::domain::ContractId;
use stellar_xdr::ScVal;

use super::condition::{Condition, Misfit};
use super::fields::{Fields, Kinds};
use super::kind::Kind;
use super::name::Name;
use super::path::Path;
use super::value::Value;

/// Names of what every event has itself. A parameter of the same name hides it.
const OF_EVENTS: [(&str, OfEvents); 7] = [
    ("contract_id", OfEvents::Contract),
    ("name", OfEvents::Name),
    ("topics", OfEvents::Topics),
    ("ledger", OfEvents::Ledger),
    ("_ledger", OfEvents::Ledger),
    ("tx", OfEvents::Transaction),
    ("transaction", OfEvents::Transaction),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OfEvents {
    Contract,
    Name,
    Topics,
    Ledger,
    Transaction,
}

impl OfEvents {
    fn named(name: &Name) -> Option<Self> {
        OF_EVENTS.iter().find(|(own, _)| *own == name.folded()).map(|(_, own)| *own)
    }

    fn kind(self) -> Kind<'static> {
        match self {
            Self::Contract | Self::Name | Self::Transaction => Kind::Text,
            Self::Topics => Kind::List,
            Self::Ledger => Kind::Number,
        }
    }
}

/// What an event has besides its name and its parameters.
#[derive(Debug, Clone, Copy)]
pub struct Own<'a> {
    /// The contract that emitted it, if one did.
    pub contract: Option<&'a [u8; 32]>,
    /// Its ledger.
    pub ledger: u32,
    /// Hash of its transaction.
    pub transaction: &'a [u8; 32],
    /// Its topics.
    pub topics: &'a [ScVal],
}

/// An event by itself.
#[derive(Debug, Clone)]
pub struct Event<'a> {
    /// Its name and parameters, if it has a name.
    pub named: Option<NamedEvent<'a>>,
    /// The rest of it.
    pub own: Own<'a>,
}

/// What a condition says of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// It holds.
    Matches,
    /// It does not hold, or the event lacks a name of it.
    Differs,
    /// The event's declaration gives a value a type that does not fit, for this reason.
    Misfits(String),
}

impl Own<'_> {
    fn value<'v>(&'v self, own: OfEvents, name: Option<&'v str>, types: &'v Types) -> Value<'v> {
        let owned = |text: String| Value::Text(Cow::Owned(text));
        match own {
            OfEvents::Contract => {
                self.contract.map_or(Value::Null, |id| owned(ContractId(*id).to_string()))
            }
            OfEvents::Name => name.map_or(Value::Null, |name| Value::Text(Cow::Borrowed(name))),
            OfEvents::Topics => {
                let topic = |topic| Value::of(Plain::undeclared(topic, types));
                Value::List(self.topics.iter().map(topic).collect())
            }
            OfEvents::Ledger => Value::Number(self.ledger.into()),
            OfEvents::Transaction => owned(hex::encode(self.transaction)),
        }
    }
}

static NO_TYPES: std::sync::LazyLock<Types> = std::sync::LazyLock::new(Types::default);

impl Fields for Event<'_> {
    fn field(&self, name: &Name) -> Option<Value<'_>> {
        match self.named.as_ref().and_then(|named| named.parameter(name.folded())) {
            Some(parameter) => Some(parameter.map_or(Value::Null, Value::of)),
            None => {
                let event = self.named.as_ref().map(NamedEvent::name);
                Some(self.own.value(OfEvents::named(name)?, event, &NO_TYPES))
            }
        }
    }
}

/// A declared event all of whose parameters are scalars, read from its bytes.
#[derive(Debug, Clone)]
pub struct FlatEvent<'a> {
    interface: &'a Interface,
    number: usize,
    /// Values of the parameters in declared order.
    values: Vec<Scalar<'a>>,
    own: Own<'a>,
}

impl<'a> FlatEvent<'a> {
    /// Reads an event, whose topics and data are XDR; `None` where the bytes alone do not tell which
    /// declaration it has. `own` needs no topics, if the condition reads none
    /// ([`Condition::reads_topics`]).
    pub fn read(
        interface: &'a Interface,
        topics: &[&'a [u8]],
        data: &'a [u8],
        own: Own<'a>,
    ) -> Option<Self> {
        let mut values = Vec::new();
        let number = interface.flat_declaration(topics.iter().copied(), data, |at, scalar| {
            if values.len() <= at {
                values.resize(at + 1, Scalar::Absent);
            }
            values[at] = scalar;
        })?;
        Some(Self { interface, number, values, own })
    }

    fn kinds(&self) -> DeclaredKinds<'a> {
        DeclaredKinds { interface: self.interface, number: self.number }
    }
}

impl Fields for FlatEvent<'_> {
    fn field(&self, name: &Name) -> Option<Value<'_>> {
        let names = self.interface.parameter_names(self.number);
        if let Some(at) = names.iter().position(|own| name.is(own)) {
            return Some(self.values.get(at).map_or(Value::Null, |it| Value::of_scalar(*it)));
        }
        let event = self.interface.event_name(self.number);
        match event.is_some_and(|event| self.interface.has_parameter(event, name.folded())) {
            true => Some(Value::Null),
            false => Some(self.own.value(OfEvents::named(name)?, event, &NO_TYPES)),
        }
    }
}

/// What values the parameters of a declared event have. Those that only other forms of it have are null
/// in this one, and have the type that the first of these declares.
#[derive(Debug, Clone, Copy)]
pub struct DeclaredKinds<'a> {
    /// The interface.
    pub interface: &'a Interface,
    /// Number of the declaration among its events.
    pub number: usize,
}

impl<'a> DeclaredKinds<'a> {
    /// Returns what one of the forms declares, if it has the parameter.
    fn declared(self, number: usize, name: &Name) -> Option<Kind<'a>> {
        let Self { interface, .. } = self;
        let at = interface.parameter_names(number).iter().position(|own| name.is(own))?;
        let declared = interface.event(number)?.params.get(at)?;
        Some(Kind::Declared(&declared.type_, interface.types()))
    }
}

impl Kinds for DeclaredKinds<'_> {
    fn kind(&self, name: &Name) -> Option<Kind<'_>> {
        let Self { interface, number } = *self;
        let of_others = || {
            let event = interface.event_name(number)?;
            // Most names are of this form, or of none.
            let has = interface.has_parameter(event, name.folded());
            let mut forms = interface.forms(event).iter().filter(|_| has);
            forms.find_map(|form| self.declared(*form, name))
        };
        let declared = self.declared(number, name).or_else(of_others);
        declared.or_else(|| OfEvents::named(name).map(OfEvents::kind))
    }
}

impl Condition {
    /// Whether it may name the topics of events.
    pub fn reads_topics(&self) -> bool {
        let is_topics = |name| OfEvents::named(name) == Some(OfEvents::Topics);
        self.paths().iter().any(|path| is_topics(&path.root))
    }

    /// Judges an event.
    pub fn judge(&self, event: &Event<'_>) -> Judgement {
        match &event.named {
            Some(NamedEvent::Declared(matched)) => {
                let (interface, number) = (matched.interface, matched.number);
                self.judge_declared(&DeclaredKinds { interface, number }, event)
            }
            Some(NamedEvent::Inferred(_)) | None => Judgement::of(self.holds(event)),
        }
    }

    /// Judges an event that was read from its bytes.
    pub fn judge_flat(&self, event: &FlatEvent<'_>) -> Judgement {
        self.judge_declared(&event.kinds(), event)
    }

    fn judge_declared(&self, kinds: &DeclaredKinds<'_>, fields: &impl Fields) -> Judgement {
        match self.check(kinds) {
            Ok(()) => Judgement::of(self.holds(fields)),
            Err(Misfit::Lacks(_)) => Judgement::Differs,
            Err(Misfit::Type(problem)) => Judgement::Misfits(problem.what),
        }
    }

    /// Checks whether events of any of these interfaces can meet it. Interfaces that declare no event say
    /// nothing.
    ///
    /// # Errors
    /// A sentence, when no declared event can.
    pub fn check_events<'i>(
        &self,
        interfaces: impl IntoIterator<Item = &'i Interface>,
    ) -> Result<(), String> {
        let declared = all_declared(interfaces);
        let mut problem = None;
        for kinds in &declared {
            match self.check(kinds) {
                Ok(()) => return Ok(()),
                Err(Misfit::Type(found)) => problem = problem.or(Some(found)),
                Err(Misfit::Lacks(_)) => {}
            }
        }
        match problem {
            Some(problem) => Err(problem.to_string()),
            None if declared.is_empty() => Ok(()),
            None => Err(self.lacking(&declared)),
        }
    }

    /// Says which name no declared event has.
    fn lacking(&self, declared: &[DeclaredKinds<'_>]) -> String {
        let roots = self.paths().iter().map(|path| &path.root);
        let missing = roots.clone().find(|root| declared.iter().all(|it| it.kind(root).is_none()));
        missing.map_or_else(
            || {
                let names: Vec<String> = roots.map(Name::to_string).collect();
                format!(
                    "no event that the contracts declare has all of {} together: give a subscription \
                     for each event",
                    names.join(", ")
                )
            },
            |missing| no_event_has(missing, declared),
        )
    }
}

/// Checks whether each of these names is one that some event of these interfaces has, with its parts.
/// Interfaces that declare no event say nothing.
///
/// # Errors
/// A sentence about the first name that no declared event has.
pub fn check_names<'p, 'i>(
    paths: impl IntoIterator<Item = &'p Path>,
    interfaces: impl IntoIterator<Item = &'i Interface>,
) -> Result<(), String> {
    let declared = all_declared(interfaces);
    if declared.is_empty() {
        return Ok(());
    }
    for path in paths {
        let kinds = || declared.iter().filter_map(|it| it.kind(&path.root));
        let mut problem = None;
        let has = |kind: Kind<'_>| match path.kind(kind) {
            Ok(_) => true,
            Err(found) => {
                problem.get_or_insert(found);
                false
            }
        };
        if !kinds().any(has) {
            return Err(problem.unwrap_or_else(|| no_event_has(&path.root, &declared)));
        }
    }
    Ok(())
}

fn all_declared<'i>(interfaces: impl IntoIterator<Item = &'i Interface>) -> Vec<DeclaredKinds<'i>> {
    let of = |interface: &'i Interface| {
        let numbers = 0..interface.events().count();
        numbers.map(move |number| DeclaredKinds { interface, number })
    };
    interfaces.into_iter().flat_map(of).collect()
}

/// Says that no declared event has a name, and which one may be meant.
fn no_event_has(missing: &Name, declared: &[DeclaredKinds<'_>]) -> String {
    let parameters = |kinds: &DeclaredKinds<'_>| {
        kinds.interface.parameter_names(kinds.number).to_vec().into_iter()
    };
    let known = declared.iter().flat_map(parameters);
    let known = known.chain(OF_EVENTS.iter().map(|(name, _)| (*name).to_owned()));
    let near = |known: &String| strsim::jaro_winkler(&known.to_ascii_lowercase(), missing.folded());
    let nearest = known.map(|known| (near(&known), known)).max_by(|a, b| a.0.total_cmp(&b.0));
    let meant = nearest.filter(|(near, _)| *near > NEAR);
    let meant = meant.map(|(_, known)| format!(": is '{}' meant?", Name::new(known)));
    format!(
        "no event that the contracts declare has '{missing}'{}",
        meant.unwrap_or_else(|| ": see the contract's events for their parameters".to_owned())
    )
}

/// Similarity from which on a name is taken for a mistyped one.
const NEAR: f64 = 0.8;

impl Judgement {
    fn of(holds: bool) -> Self {
        if holds { Self::Matches } else { Self::Differs }
    }
}
