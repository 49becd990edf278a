//! Programs from the perspective of readers of their tables: the list of tables, subscriptions, and
//! queries.

use std::time::Instant;

use super::manifest::Manifest;
use super::registry::ReadableProgram;
use super::{ProgramError, Programs};
use orrery_ledger::domain::{LedgerSeq, Owner, ProgramId};
use orrery_tables::CHAIN;
use orrery_tables::query::{Interrupted, QueryAnswer, QueryError, QueryRequest};

/// A table that an owner may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadTable {
    /// Name of the table.
    pub name: String,
    /// Project of the table's program; empty while the program is to replace another. Of a table of the chain, its
    /// schema.
    pub project: String,
    /// Whether the program is the owner's own; otherwise the owner has subscribed to it.
    pub own: bool,
    /// Why the table cannot be read, or only in part; `None` when it can.
    pub problem: Option<&'static str>,
}

/// The answer to a query, with how far what it read reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// Body of the response.
    pub bytes: Vec<u8>,
    /// Media type of the body.
    pub media_type: &'static str,
    /// The newest ledger that the answer has: that of the tables of the chain if it reads them, else that of the
    /// projects' tables. `None` when there is none.
    pub as_of: Option<LedgerSeq>,
    /// The ledger up to which all projects' tables have their rows; `None` without projects.
    pub tables_ledger: Option<LedgerSeq>,
}

const NO_ROOM: &str = "its rows do not fit into the space that your own rows leave: end a \
                       subscription, or delete a program";
const ROWS_MISSING: &str = "some of its rows cannot be written: the program's status says why";

impl Programs {
    /// Returns the tables that an owner may read: those of its own programs, then those of programs
    /// that it has subscribed to, then those of the chain, while it is exported to a directory. Of a program that is in the owner's file, these are the tables that
    /// queries find there, which follow those of the program.
    pub fn tables(&self, owner: &Owner) -> Vec<ReadTable> {
        let mut tables = Vec::new();
        let mut shown = self.feeder.tables().shown_tables(owner);
        for ReadableProgram { id, own, named, fits } in self.registry.readable_programs(owner) {
            let Some(entry) = self.registry.get(id) else { continue };
            if !own && !named {
                continue;
            }
            let manifest = entry.snapshot().manifest;
            let unreadable = if fits {
                self.feeder.skip_reason(owner, id).map(|_| ROWS_MISSING)
            } else {
                Some(NO_ROOM)
            };
            let names = match shown.remove(&id) {
                Some(names) => names,
                // A query waits for the tables of a program that has a name.
                None if named || unreadable.is_some() => manifest.table_names(),
                None => Vec::new(),
            };
            tables.extend(names.into_iter().map(|name| ReadTable {
                name,
                project: manifest.project_name.clone(),
                own,
                problem: unreadable,
            }));
        }
        // Those of the chain come last: all owners have the same.
        let of_chain = self.feeder.tables().chain_tables().iter().map(|table| ReadTable {
            name: table.in_query(),
            project: CHAIN.to_owned(),
            own: false,
            problem: None,
        });
        tables.extend(of_chain);
        tables
    }

    /// Returns the programs whose tables an owner may read.
    pub fn readable(&self, owner: &Owner) -> Vec<ProgramId> {
        let readable = self.registry.readable_programs(owner).into_iter();
        readable.filter(|it| it.own || it.named).map(|it| it.id).collect()
    }

    /// Subscribes an owner to another owner's public program, whose tables the owner may then read.
    /// The subscription is on disk when this returns.
    ///
    /// # Errors
    /// [`ProgramError::NotPublic`], [`ProgramError::TooManySubscriptions`], and
    /// [`ProgramError::Value`] when the program is the owner's own.
    pub fn subscribe(&self, owner: &Owner, project: &str) -> Result<Manifest, ProgramError> {
        let manifest = self.registry.subscribe(owner, project)?;
        self.feeder.wake();
        Ok(manifest)
    }

    /// Ends a subscription. Succeeds when there is none.
    ///
    /// # Errors
    /// [`ProgramError::NotPublic`], and [`ProgramError::Value`] when the program is the owner's
    /// own.
    pub fn unsubscribe(&self, owner: &Owner, project: &str) -> Result<Manifest, ProgramError> {
        let manifest = self.registry.unsubscribe(owner, project)?;
        // Tables that cannot be dropped now are dropped later, and before the next query.
        if let Err(error) = self.feeder.feed(owner, Some(Instant::now())) {
            tracing::warn!(program = %manifest.id, "its tables will be dropped later: {error}");
        }
        self.feeder.wake();
        Ok(manifest)
    }

    /// Answers a query over the tables that an owner may read, until `interrupted` returns true.
    ///
    /// # Errors
    /// [`ProgramError::Query`].
    pub fn query(
        &self,
        owner: &Owner,
        request: QueryRequest,
        interrupted: Interrupted<'_>,
    ) -> Result<Answered, ProgramError> {
        let mut reached = Ok(None);
        let ready = || {
            self.feeder.ensure_current(owner)?;
            // Rows of later ledgers may come before the query is executed; these are there.
            reached = self.feeder.reached(owner);
            Ok::<(), QueryError>(())
        };
        let answer = self.feeder.tables().query_when(owner, request, ready, interrupted);
        let QueryAnswer { bytes, media_type, chain_ledger } =
            answer.map_err(|error| match error {
                QueryError::Refused(message) => QueryError::Refused(self.with_hint(owner, message)),
                error => error,
            })?;
        let tables_ledger = reached?;
        Ok(Answered { bytes, media_type, as_of: chain_ledger.or(tables_ledger), tables_ledger })
    }

    /// Returns the message of a refused query. If it names a table of another owner's public
    /// program, adds how to subscribe.
    fn with_hint(&self, owner: &Owner, message: String) -> String {
        let own = self.registry.readable_programs(owner);
        let word = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
        let words: Vec<String> = message.split(word).map(str::to_ascii_lowercase).collect();
        for entry in self.registry.all() {
            let manifest = entry.snapshot().manifest;
            if !manifest.public
                || manifest.replaces.is_some()
                || own.iter().any(|it| it.id == entry.id)
            {
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
                    "{message}. The project '{project}' is public: subscribe to it to read it (POST \
                     /rest/retroshade/subscribe)"
                );
            }
        }
        message
    }
}
