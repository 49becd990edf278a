//! What is remembered of the looks for one project (see `looking`).

use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

use super::derivation::Derivation;
use super::members::Versions;
use super::pause::pause_after;
use orrery_contract_data::KeyTag;
use orrery_ledger::domain::{ContractId, Hash32};
use orrery_store::TransactionPosition;

/// How long rows may be derived without another look being put off.
const SHORT_DERIVATION: Duration = Duration::from_secs(1);

/// What is remembered of the looks for one project.
#[derive(Debug, Default)]
pub struct Looks {
    /// When the last one ended, and how long it took.
    pub(super) last: Option<(Instant, Duration)>,
    /// The walk over the ends of spans that is in progress.
    pub(super) ends: Option<Walk>,
    /// The walk through the middles of joined spans that is in progress.
    pub(super) walk: Option<Walk>,
    /// What was stored when the last such walk began that found nothing.
    pub(super) walked: Option<u64>,
    /// What is remembered of the looks for what the contracts declare.
    pub(super) declared: DeclaredLooks,
    /// What is remembered of the looks at events of which it was not known whether they belong to the
    /// project.
    pub(super) apart: ApartLooks,
    /// What is remembered of the looks at changes of contract data.
    pub(super) data: DataLooks,
    /// What is remembered of the looks for what contracts held when the project begins.
    pub(super) finds: DataFinds,
    /// The derivation of rows that is in progress.
    pub(super) derivation: Option<Derivation>,
}

/// What is remembered of the looks at events of which it was not known whether they belong to the project.
#[derive(Debug, Default)]
pub struct ApartLooks {
    /// When the last one ended, and how long it took.
    pub(super) last: Option<(Instant, Duration)>,
    /// What was stored when the walk in progress began, and where it goes on.
    pub(super) walk: Option<(u64, Option<(ContractId, TransactionPosition)>)>,
    /// Where the walk in progress goes on among the transactions of contracts that are not listed.
    pub(super) beyond: Option<TransactionPosition>,
    /// What was stored when the last walk began that found nothing.
    pub(super) walked: Option<u64>,
}

/// What is remembered of the looks for what contracts held when a project begins (see `data_finding`).
#[derive(Debug, Default)]
pub struct DataFinds {
    /// When the last one ended, and how long it took.
    pub(super) last: Option<(Instant, Duration)>,
    /// The walk that is in progress.
    pub(super) walk: Option<DataWalkOfKeys>,
    /// What there was when the last walk began that came to its end.
    pub(super) walked: Option<FoundWith>,
    /// What was found so far, once it has been read.
    pub(super) known: Option<KnownFound>,
}

/// The keys of what was found, and the number of the last entry of the row log with some.
pub(super) type KnownFound = (BTreeSet<(ContractId, KeyTag)>, u32);

/// What there was when a walk over the keys of the contracts of a project began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FoundWith {
    /// The place of the index.
    pub place: u64,
    /// Number of the contracts that the project names.
    pub contracts: usize,
    /// Its members.
    pub members: Versions,
}

/// A walk over the keys of the contracts of a project: of those that it names, then of its other members.
#[derive(Debug, Clone, Copy)]
pub(super) struct DataWalkOfKeys {
    /// What there was when it began.
    pub seen: FoundWith,
    /// Number of named contracts that it has passed.
    pub contract: usize,
    /// The last of the other members that it has passed.
    pub member: Option<ContractId>,
    /// The last key of the next one that it has passed.
    pub after: Option<KeyTag>,
}

impl DataFinds {
    /// Returns how long to wait before the next look.
    pub(super) fn pause(&self, now: Instant) -> Duration {
        pause_after(self.last, now)
    }
}

/// What is remembered of the looks at changes of contract data (see `data_looking`).
#[derive(Debug, Default)]
pub struct DataLooks {
    /// When the last one ended, or the rows were derived that followed from it, and how long it took.
    pub(super) last: Option<(Instant, Duration)>,
    /// When a look found something of which the rows are to be derived.
    pub(super) found: Option<Instant>,
    /// The walk that is in progress.
    pub(super) walk: Option<DataWalk>,
    /// The place of the index when the last walk began that found nothing.
    pub(super) walked: Option<u64>,
}

/// A walk over transactions with changes of contract data.
#[derive(Debug, Clone, Copy)]
pub(super) struct DataWalk {
    /// The place of the index when it began.
    pub place: u64,
    /// The last transaction that was looked at.
    pub at: TransactionPosition,
}

impl DataLooks {
    /// Returns how long to wait before the next look.
    pub(super) fn pause(&self, now: Instant) -> Duration {
        pause_after(self.last, now)
    }

    /// Notes that rows were derived. Deriving them counts as a part of the look from which it followed, if
    /// it took long.
    pub(super) fn end(&mut self, now: Instant) {
        if let Some(found) = self.found.take() {
            self.last = Some((now, (now - found).saturating_sub(SHORT_DERIVATION)));
        }
        (self.walk, self.walked) = (None, None);
    }
}

/// What is remembered of the looks for what the contracts of a project declare (see `declaring`).
#[derive(Debug, Default)]
pub(super) struct DeclaredLooks {
    /// When the last one ended, and how long it took.
    pub(super) last: Option<(Instant, Duration)>,
    /// Whether the look in progress, or the last one, has found something unknown.
    pub(super) lacks: bool,
    /// Number of looks in a row that have found something unknown.
    pub(super) unknown: u32,
    /// Number of contracts that the look in progress has passed.
    pub(super) passed: usize,
    /// The last member that it has passed after those.
    pub(super) member: Option<ContractId>,
    /// Whether it has more to pass.
    pub(super) is_under_way: bool,
    /// Modules whose declarations are in the project's summary: zeros stand for the asset contract.
    pub(super) consulted: HashSet<Hash32>,
}

/// A walk over the ends of spans, or through the transactions in the middle of joined ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walk {
    /// What was stored when it began: see `Interfaces::generation`.
    pub generation: u64,
    /// The last transaction that was looked at, or the first one of the last span.
    pub at: Option<(ContractId, TransactionPosition)>,
    /// The last transaction that was looked at of those of contracts that are not listed.
    pub beyond: Option<TransactionPosition>,
}

impl Walk {
    /// Begins a walk, when this was stored.
    pub fn new(generation: u64) -> Self {
        Self { generation, at: None, beyond: None }
    }
}

impl Looks {
    /// Forgets which declarations are in the project's summary, because it is another one.
    pub(super) fn forget_consulted(&mut self) {
        self.declared.consulted.clear();
    }

    /// Returns how long to wait before the next look.
    pub(super) fn pause(&self, now: Instant) -> Duration {
        pause_after(self.last, now)
    }
}
