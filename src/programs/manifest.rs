//! Stored data of a program: its manifest, which changes on requests of the owner and when a table
//! grows, and its progress, which changes with every write of rows.

use serde::{Deserialize, Serialize};

use super::events::{EventCounts, EventProject};
use super::storage::put_json;
use super::{ProgramError, storage};
use orrery_ledger::domain::{ContractId, Hash32, Owner, ProgramId};
use orrery_store::{KindChanges, SharedRows, Store, StoreError};
use orrery_tables::schema::ProgramSchema;

/// Description of a program, without its module's code and its progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Id of the program.
    pub id: ProgramId,
    /// Owner of the program.
    pub owner: Owner,
    /// Project name chosen by the owner, unique on the network; empty while the program is to
    /// replace another.
    pub project_name: String,
    /// The program whose project name this one is to take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<Replaced>,
    /// Contracts whose transactions the program is run on, in the order of registration.
    pub contracts: Vec<ContractId>,
    /// SHA-256 of the module; of a project of events, of the supplied interface, if there is one.
    pub module: Hash32,
    /// Whether other owners may subscribe to the tables.
    pub public: bool,
    /// Whether the program is run on new ledgers.
    pub running: bool,
    /// Why the service stopped the program; `None` while it runs or when its owner paused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_because: Option<String>,
    /// Time of deployment, in UNIX seconds.
    pub deployed_at: u64,
    /// Current schema of the tables. That of a project of events is not stored.
    pub schema: ProgramSchema,
    /// What a project of events has besides; `None` for a program with code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<EventProject>,
}

/// Returns the names of the stored projects that record what their contracts hold.
///
/// # Errors
/// When the store fails, or a manifest is damaged.
pub fn projects_with_storage(store: &Store) -> Result<Vec<String>, ProgramError> {
    #[derive(Deserialize)]
    struct Named {
        project_name: String,
        events: Option<Recording>,
    }
    #[derive(Deserialize)]
    struct Recording {
        #[serde(default)]
        has_storage: bool,
    }
    let mut names = Vec::new();
    for (_, stored) in storage::manifests(store)? {
        let manifest: Named = serde_json::from_slice(&stored)
            .map_err(|_| ProgramError::Damaged("the manifest of a program"))?;
        if manifest.events.is_some_and(|events| events.has_storage) {
            names.push(manifest.project_name);
        }
    }
    Ok(names)
}

impl Manifest {
    /// Reads a stored manifest, with what belongs to it in other rows. Also returns whether it has to
    /// be stored again, because an earlier version has stored it.
    pub(super) fn load(rows: &SharedRows<'_>, stored: &[u8]) -> Result<(Self, bool), ProgramError> {
        let mut manifest: Self = serde_json::from_slice(stored)
            .map_err(|_| ProgramError::Damaged("the manifest of a program"))?;
        let Some(project) = &mut manifest.events else { return Ok((manifest, false)) };
        let is_earlier = project.load_summary(rows, (manifest.id, &manifest.schema))?;
        manifest.schema = project.schema();
        Ok((manifest, is_earlier))
    }

    /// Puts the manifest, and what belongs to it in other rows as far as it differs from what is
    /// stored; all of it without `stored`.
    pub(super) fn put(
        &self,
        changes: &mut KindChanges<'_>,
        stored: Option<&Self>,
    ) -> Result<(), StoreError> {
        let row = storage::manifest(self.id);
        let Some(project) = &self.events else { return put_json(changes, &row, self) };
        project.put_summary(changes, self.id, stored.and_then(|it| it.events.as_ref()))?;
        // The tables follow from the summary.
        let manifest = Self {
            schema: ProgramSchema::default(),
            events: Some(project.in_manifest()),
            owner: self.owner.clone(),
            project_name: self.project_name.clone(),
            replaces: self.replaces.clone(),
            contracts: self.contracts.clone(),
            stopped_because: self.stopped_because.clone(),
            ..*self
        };
        put_json(changes, &row, &manifest)
    }

    /// Returns the names of the tables, in schema order.
    pub fn table_names(&self) -> Vec<String> {
        let tables = self.schema.tables().iter();
        tables.map(|table| format!("program_{}_{}", self.id, table.target)).collect()
    }
}

/// A program that another one is to replace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replaced {
    /// The program.
    pub program: ProgramId,
    /// Its project name, which does not change meanwhile.
    pub project_name: String,
    /// Whether this one may take its name although rows would be lost that the other one has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_loss: bool,
}

/// Progress of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Cursor: the place in the feed up to which the program has processed ledgers. Stored by the
    /// store.
    #[serde(skip)]
    pub place: u64,
    /// Place in the feed when the program was deployed; `None` when an earlier version deployed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployed_at_place: Option<u64>,
    /// Number of the last run with rows.
    pub log: u64,
    /// Number of the last execution record.
    pub executions: u64,
    /// Size of all rows, in bytes.
    pub row_bytes: u64,
    /// Number of failed runs on new ledgers since the last successful one.
    pub errors_in_a_row: u32,
    /// Remaining part of a ledger of which the first part was written; `None` between ledgers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// Number of runs for which state was missing and which were not kept for a repetition, because
    /// too many wait already.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub given_up: u64,
    /// Numbers of events of a project of events.
    #[serde(default, skip_serializing_if = "EventCounts::is_zero")]
    pub events: EventCounts,
}

/// Remaining part of a partly processed ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Place of the ledger in the feed.
    pub place: u64,
    /// Application order of the first transaction that remains.
    pub from: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
