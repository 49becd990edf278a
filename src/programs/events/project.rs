//! What is stored of a project of events besides what every program has.

use serde::{Deserialize, Serialize};

use super::{KnownInterface, Nameless, Open, Selectors, Summary, Unsure};
use crate::{ProgramError, storage};
use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq, LedgerSet, ProgramId};
use orrery_store::{KindChanges, SharedRows, StoreError};
use orrery_tables::event_tables::{Layout, Shapes, Summarised};
use orrery_tables::schema::ProgramSchema;

/// A project of events, as a part of its manifest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EventProject {
    /// Whether an interface was supplied, whose SHA-256 is then in the manifest.
    pub has_supplied: bool,
    /// First ledger whose events are read; 0 for all.
    pub from: u32,
    /// Summary of all events, with the tables that follow from it. Stored in rows of its own.
    #[serde(skip)]
    pub summary: Summarised,
    /// The summary as earlier versions stored it.
    #[serde(rename = "shapes", default, skip_serializing)]
    earlier: Option<Shapes>,
    /// SHA-256 of the tables, while it is stored: after an upgrade, others may follow from the same
    /// summary.
    #[serde(default)]
    tables: String,
    /// Number of its contracts whose stored events are read by the last backfill that was begun, and one for its
    /// selectors.
    pub backfilled: usize,
    /// Number of times that rows of the tables were derived anew, or got into other tables or columns.
    pub derivation: u64,
    /// UNIX time in milliseconds at which rows were derived anew, or rows that were there before
    /// got into other tables or columns; 0 before that.
    #[serde(default)]
    pub arranged_at: u64,
    /// Whether they have to be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub must_derive: bool,
    /// Whether then nothing holds of what contracts declare, because some are no members any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forgets_declared: bool,
    /// Whether that is being done: some entries of the row log are those of the next tables.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_deriving: bool,
    /// The rule by which its tables are laid out.
    #[serde(default = "Rule::first")]
    pub rule: Rule,
    /// Transactions with events of contracts whose code at the time is not known.
    #[serde(default, skip_serializing_if = "Unsure::is_empty")]
    pub unsure: Unsure,
    /// Contracts with events that no interface declares; `None` when it is not known, in a project of an
    /// earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nameless: Option<Nameless>,
    /// Whether the changes of what its contracts hold are rows, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_storage: bool,
    /// Those changes of which something is not known.
    #[serde(default, skip_serializing_if = "Open::is_empty")]
    pub open: Open,
    /// What selects its contracts beside those that it names.
    #[serde(default, skip_serializing_if = "Selectors::is_empty")]
    pub selectors: Selectors,
    /// Transactions with events of contracts of which it is not known whether they belong to it.
    #[serde(default, skip_serializing_if = "Unsure::is_empty")]
    pub apart: Unsure,
    /// Transactions with events that may turn out to have a name by which it selects events, as earlier versions
    /// stored them. They are in rows of their own now.
    #[serde(default, skip_serializing_if = "Unsure::is_empty")]
    pub unnamed: Unsure,
    /// Whether there were more contracts with such events, which were passed over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_more_unnamed: bool,
}

/// The rule by which tables follow from events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule(u32);

impl Rule {
    /// The rule of this version. A change of the names, the tables or the columns that the same events
    /// have makes it another one: projects that are stored with an earlier one are derived anew.
    const NOW: Self = Self(2);

    /// The rule of projects that do not name theirs.
    fn first() -> Self {
        Self(0)
    }
}

impl Default for Rule {
    fn default() -> Self {
        Self::NOW
    }
}

/// Numbers of the events of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EventCounts {
    /// Number of events.
    pub events: u64,
    /// Number of them in the table `undeclared`.
    pub undeclared: u64,
}

impl EventCounts {
    /// Adds the numbers of further events.
    pub fn add(&mut self, more: &Self) {
        self.events += more.events;
        self.undeclared += more.undeclared;
    }

    /// Whether there are no events.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

impl EventProject {
    /// Creates a project without events. Those from a ledger on are read, or all.
    pub fn new(
        has_supplied: bool,
        from: Option<LedgerSeq>,
        has_storage: bool,
        selectors: Selectors,
    ) -> Self {
        let nameless = Some(Nameless::default());
        let from = from.map_or(0, |from| from.0);
        let summary = Shapes::new(has_storage, selectors.have_members()).into();
        Self { has_supplied, from, nameless, has_storage, summary, selectors, ..Self::default() }
    }

    /// Adds the tables of what an interface declares that was supplied with the project.
    pub fn declare(&mut self, supplied: &KnownInterface) {
        let mut shapes = Shapes::default();
        shapes.consult(&supplied.declarations);
        self.summary.join(&shapes);
    }

    /// Returns the tables.
    pub fn layout(&self) -> &Layout {
        self.summary.layout()
    }

    /// Returns the tables in the form in which they are sent to SQL workers.
    pub fn schema(&self) -> ProgramSchema {
        self.layout().schema().clone().derived(self.derivation)
    }

    /// Adds what a summary knows, where as many events as `undeclared` are in none of the tables. Returns
    /// whether that changes anything.
    pub fn add(&mut self, more: &Shapes, undeclared: u64, now: u64) -> bool {
        let before = self.summary.clone();
        if !self.summary.join(more) {
            return false;
        }
        let layout = self.layout();
        if !before.layout().grows_into(layout) {
            // The numbers of events without a table may differ from what was counted.
            self.must_derive |=
                undeclared > 0 || layout.leaves_out() || self.summary.shapes().is_cut();
            self.arrange(now);
        }
        true
    }

    /// Says that rows which were there before are others, or are in other tables or columns.
    pub fn arrange(&mut self, now: u64) {
        self.arranged_at = now;
        self.derivation += 1;
    }

    /// Says that rows have to be derived anew, because some contracts are no members any more: what only these
    /// declare has no tables then.
    pub fn must_derive_without_members(&mut self) {
        (self.must_derive, self.forgets_declared) = (true, true);
    }

    /// Returns the summary with which deriving all rows anew begins.
    pub(super) fn summary_without_events(&self) -> Shapes {
        match self.forgets_declared {
            true => Shapes::new(self.has_storage, self.selectors.have_members()),
            // What was known of the contracts is, also if it is not stored any more.
            false => self.summary.shapes().without_events(),
        }
    }

    /// Takes what its events were derived to. `tables` are those of the summary.
    pub(super) fn set_derived(&mut self, tables: Summarised, summary: Summary, now: u64) {
        self.summary = tables;
        self.unsure = summary.unsure;
        self.apart = summary.apart;
        self.nameless = Some(summary.nameless);
        self.open = summary.open;
        (self.must_derive, self.is_deriving, self.forgets_declared) = (false, false, false);
        self.arrange(now);
        self.rule = Rule::default();
    }

    /// Reads the summary, after the rest was read from a manifest with these tables. Returns whether
    /// it has to be stored again.
    ///
    /// # Errors
    /// When the store fails, or a part is damaged.
    pub(crate) fn load_summary(
        &mut self,
        rows: &SharedRows<'_>,
        (program, stored): (ProgramId, &ProgramSchema),
    ) -> Result<bool, ProgramError> {
        const DAMAGED: ProgramError = ProgramError::Damaged("the summary of a project of events");
        if let Some(earlier) = self.earlier.take() {
            self.summary = earlier.within_limits().into();
            // Earlier versions stored the tables.
            self.must_derive |= !stored.grows_into(&self.schema());
            return Ok(true);
        }
        let mut parts = Vec::new();
        storage::summary_parts(rows, program, |key, value| {
            parts.push((key.to_vec(), value.to_vec()));
        })?;
        let parts = parts.iter().map(|(key, value)| (key.as_slice(), value.as_slice()));
        self.summary = Shapes::from_rows(parts).ok_or(DAMAGED)?.into();
        self.must_derive |= std::mem::take(&mut self.tables) != self.summary.digest();
        Ok(false)
    }

    /// Puts what of the summary differs from what is stored; all of it without `stored`.
    pub(crate) fn put_summary(
        &self,
        changes: &mut KindChanges<'_>,
        program: ProgramId,
        stored: Option<&Self>,
    ) -> Result<(), StoreError> {
        let before = stored.map(|project| &project.summary);
        if before.is_some_and(|before| before.is_same(&self.summary)) {
            return Ok(());
        }
        let none = Shapes::default();
        let before = before.map_or(&none, Summarised::shapes);
        for (part, value) in self.summary.shapes().rows_since(before) {
            let row = storage::summary(program, &part);
            match value {
                Some(value) => changes.put(&row, value)?,
                None => changes.delete(&row)?,
            }
        }
        Ok(())
    }

    /// Returns the project as it is stored in its manifest.
    pub(crate) fn in_manifest(&self) -> Self {
        Self {
            tables: self.summary.digest().to_owned(),
            summary: Summarised::default(),
            ..self.clone()
        }
    }

    /// Returns a number that is another one once rows which were there before are others, or are in
    /// other tables or columns; `None` while they are about to be derived anew.
    pub fn arrangement(&self) -> Option<u64> {
        // Not a count: after a backup was restored, the same count can stand for other rows.
        (!self.must_derive()).then_some(self.arranged_at)
    }

    /// Whether the rows of the tables have to be derived anew.
    pub fn must_derive(&self) -> bool {
        self.must_derive || self.is_of_earlier_rule()
    }

    /// Whether the tables are laid out by the rule of an earlier version. They stay as they were until
    /// they are laid out anew, because no further rows fit them.
    pub fn is_of_earlier_rule(&self) -> bool {
        self.rule != Rule::NOW
    }

    /// Whether all events of a contract so far are declared, where an interface was supplied.
    pub fn declares_all_of(&self, contract: &ContractId) -> bool {
        self.has_supplied && self.nameless.as_ref().is_some_and(|it| !it.has(contract))
    }

    /// Whether more may become known of the events than what was known when they were read.
    pub fn may_know_more(&self) -> bool {
        self.must_derive()
            || !self.unsure.is_empty()
            || !self.open.is_empty()
            || !self.selectors.is_empty()
    }

    /// Returns the value of [`Self::backfilled`] once a backfill of all its contracts was begun.
    pub(crate) fn wanted_backfill(&self, contracts: &[ContractId]) -> usize {
        contracts.len() + usize::from(!self.selectors.is_empty())
    }

    /// Returns those of these ledgers whose events are read.
    pub fn wanted(&self, mut ledgers: LedgerSet) -> LedgerSet {
        if let Some(before) = LedgerSeq(self.from).previous() {
            ledgers.remove_all(&LedgerRange { first: LedgerSeq(0), last: before }.into());
        }
        ledgers
    }

    /// Whether the events of a ledger are read.
    pub fn wants(&self, ledger: LedgerSeq) -> bool {
        self.from <= ledger.0
    }
}
