//! Programs as those see them who read their tables: which tables there are for whom, subscriptions, and
//! queries.

use std::time::Instant;

use super::manifest::Manifest;
use super::registry::Shelved;
use super::turns::Fed;
use super::{ProgramError, Programs};
use crate::domain::Owner;
use crate::observe::health::Health;
use crate::tables::query::{Interrupted, QueryAnswer, QueryError, QueryRequest};

/// A table that an owner reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadTable {
    /// Its name.
    pub name: String,
    /// Its project.
    pub project: String,
    /// Whether it is the owner's own; else it is there by subscription.
    pub own: bool,
    /// Why it cannot be read, or not all of it.
    pub problem: Option<&'static str>,
}

const NO_ROOM: &str = "it does not fit into the room that your own rows leave: end a subscription, or \
                       delete a program";
const ROWS_MISSING: &str = "some of its rows cannot be brought in: the program's status says why";

impl Programs {
    /// The tables that an owner reads: those of its own programs, then those of programs that it has
    /// subscribed to.
    pub fn tables(&self, owner: &Owner) -> Vec<ReadTable> {
        let mut tables = Vec::new();
        for Shelved { id, own, fits } in self.registry.shelf(owner) {
            let Some(entry) = self.registry.get(id) else { continue };
            let manifest = entry.shown().manifest;
            let unreadable = match fits {
                true => self.feeder.trouble(owner, id).map(|_| ROWS_MISSING),
                false => Some(NO_ROOM),
            };
            tables.extend(manifest.table_names().into_iter().map(|name| ReadTable {
                name,
                project: manifest.project_name.clone(),
                own,
                problem: unreadable,
            }));
        }
        tables
    }

    /// Subscribes an owner to another one's public program: from then on its tables are among those that
    /// the owner reads. The subscription is stored when this returns.
    ///
    /// # Errors
    /// [`ProgramError::NotPublic`], [`ProgramError::TooManySubscriptions`]
    pub fn subscribe(&self, owner: &Owner, project: &str) -> Result<Manifest, ProgramError> {
        let manifest = self.registry.subscribe(owner, project)?;
        self.feeder.wake();
        Ok(manifest)
    }

    /// Ends a subscription; one that is not there has ended already.
    ///
    /// # Errors
    /// [`ProgramError::NotPublic`]
    pub fn unsubscribe(&self, owner: &Owner, project: &str) -> Result<Manifest, ProgramError> {
        let manifest = self.registry.unsubscribe(owner, project)?;
        // Tables that cannot be dropped now are dropped later, and before the next query.
        if let Err(error) = self.feeder.feed(owner, Some(Instant::now())) {
            tracing::warn!(program = %manifest.id, "its tables will be dropped later: {error}");
        }
        self.feeder.wake();
        Ok(manifest)
    }

    /// Answers a query over the tables that an owner may read, unless it is interrupted.
    ///
    /// # Errors
    /// [`ProgramError::Query`] and what the tables say.
    pub fn query(
        &self,
        owner: &Owner,
        request: QueryRequest,
        interrupted: Interrupted<'_>,
    ) -> Result<QueryAnswer, ProgramError> {
        let ready = || self.feeder.current(owner);
        let answer = self.feeder.tables().query_when(owner, request, ready, interrupted);
        Ok(answer.map_err(|error| match error {
            QueryError::Refused(message) => QueryError::Refused(self.with_hint(owner, message)),
            error => error,
        })?)
    }

    /// Why a query is refused; where a table is not found that is another owner's public one, with what
    /// to do to read it.
    fn with_hint(&self, owner: &Owner, message: String) -> String {
        let own = self.registry.shelf(owner);
        let word = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
        let words: Vec<String> = message.split(word).map(str::to_ascii_lowercase).collect();
        for entry in self.registry.all() {
            let manifest = entry.shown().manifest;
            if !manifest.public || own.iter().any(|it| it.id == entry.id) {
                continue;
            }
            let project = &manifest.project_name;
            let is_named = manifest.schema.tables().iter().any(|table| {
                let names = [
                    format!("{project}_{}", table.target),
                    format!("{project}.{}", table.target),
                    format!("program_{}_{}", entry.id, table.target),
                ];
                names.iter().any(|name| {
                    words.iter().any(|word| {
                        word.trim_start_matches("retroshade.").eq_ignore_ascii_case(name)
                    })
                })
            });
            if is_named {
                return format!(
                    "{message}. The project '{project}' is public: POST /rest/retroshade/subscribe \
                     {{\"project\": \"{project}\"}} to read it"
                );
            }
        }
        message
    }
}

/// Reports how the owners' tables are. What is wrong with those of some owners is a detail: the service is
/// down only when none of several owners has tables, or the store fails. What anybody may read does not say where files
/// are, or what programs emit.
pub(super) fn report(fed: Fed, health: &Health) {
    let Fed { owners, behind, failed, store_failed, troubled } = fed;
    if owners == 0 {
        return health.forget("tables");
    }
    let mut details = Vec::new();
    if failed > 0 {
        details.push(format!(
            "rows of {failed} of {owners} owners cannot be brought into their tables: the log says why"
        ));
    }
    if troubled > 0 {
        details.push(format!(
            "rows of {troubled} {} cannot be brought into their tables: the status of each says why",
            if troubled == 1 { "program" } else { "programs" }
        ));
    }
    if behind > 0 {
        details.push(format!("rows of {behind} owners are still being brought in"));
    }
    let details = details.join("; ");
    // What fails for a single owner may be that owner's doing.
    let nobody_has_any = owners > 1 && failed == owners;
    match (nobody_has_any || store_failed, details.is_empty()) {
        (true, _) => health.down("tables", details),
        (false, true) => health.up("tables"),
        (false, false) => health.up_with("tables", details),
    }
}
