//! Tables that are filled beside those which they will replace: nobody sees them until they are put in their place.

use std::collections::{BTreeMap, BTreeSet};

use super::apply::{Batch, fill};
use super::catalog;
use super::connection::{Connection, Purpose, truth};
use super::cursor::{Cursor, Generation, Of, Position, Writer};
use super::error::{Result, SinkError};
use super::names::{ROW, qualified, waiting};
use super::objects::{self, Kind};
use super::places::{Place, Places};
use super::remove::drop_filling;
use super::types::Project;

/// A refill of some of a project's tables: those whose rows are others, or which have other columns.
///
/// If all tables are among them, rows are sent from the beginning of the log to its end. If some stay, their rows follow
/// from the same log, and those of the others are sent up to the position of the cursor that everybody sees, where the
/// rows of all go on after the swap. With no table at all, one batch without rows goes to that position, and the swap
/// gives the tables another generation.
#[derive(Debug)]
pub struct Refill<'a> {
    pub(super) writer: &'a Writer,
    pub(super) project: &'a Project,
    pub(super) generation: Generation,
    /// Targets of the tables that are filled. The others stay as they are.
    pub(super) targets: BTreeSet<String>,
    pub(super) places: Places,
}

impl<'a> Refill<'a> {
    /// Begins a refill of the tables of these targets, or goes on with one that was begun. Returns it with its
    /// cursor, which says what to send next.
    ///
    /// # Errors
    /// [`SinkError::OtherWriter`] when another service fills the same project.
    pub async fn begin(
        connection: &Connection,
        writer: &'a Writer,
        project: &'a Project,
        generation: Generation,
        targets: BTreeSet<String>,
    ) -> Result<(Self, Cursor)> {
        if let Some(unknown) = targets.iter().find(|target| project.table(target).is_none()) {
            return Err(SinkError::Refused(format!("{} has no table {unknown}", project.name)));
        }
        catalog::prepare(connection, project).await?;
        connection.begin(Purpose::Tables).await?;
        let mut refill = Self { writer, project, generation, targets, places: Places::default() };
        let done = refill.begin_in(connection).await;
        let cursor = connection.end(done).await?;
        Ok((refill, cursor))
    }

    /// Begins again with no rows: when the position of its cursor is not in the log, as after a backup was restored.
    ///
    /// # Errors
    /// [`SinkError::OtherWriter`] when another service fills the same project.
    pub async fn restart(&mut self, connection: &Connection) -> Result<Cursor> {
        connection.begin(Purpose::Tables).await?;
        let done = async {
            let begun = self.writer.locked(connection, &self.project.name, Of::Refill).await?;
            begun.map(|cursor| self.writer.recognised(cursor)).transpose()?;
            self.begin_anew(connection).await
        };
        let done = done.await;
        connection.end(done).await
    }

    /// Returns the name of the table that is filled for a target.
    pub(super) fn beside(&self, target: &str) -> String {
        let Writer { network, sink, .. } = self.writer;
        waiting(&[network, sink, &self.project.name, target])
    }

    async fn begin_in(&mut self, connection: &Connection) -> Result<Cursor> {
        // Nobody writes beside a service that is there.
        let (writer, project) = (self.writer, self.project);
        let live = writer.locked(connection, &project.name, Of::Live).await?;
        live.map(|cursor| writer.recognised(cursor)).transpose()?;
        catalog::refuse_foreign(connection, writer, project).await?;
        let begun = writer.locked(connection, &project.name, Of::Refill).await?;
        let begun = begun.map(|cursor| writer.recognised(cursor)).transpose()?;
        let is_same = |it: &Cursor| {
            (&it.writer, it.generation, &it.schema)
                == (&writer.id, self.generation, &project.schema)
        };
        if let Some(cursor) = begun.filter(is_same)
            && let Some(places) = self.continued(connection).await?
        {
            self.places = places;
            return Ok(cursor);
        }
        self.begin_anew(connection).await
    }

    async fn begin_anew(&mut self, connection: &Connection) -> Result<Cursor> {
        let (writer, project) = (self.writer, self.project);
        drop_filling(connection, writer, &project.name).await?;
        for table in project.tables.iter().filter(|it| self.targets.contains(&it.target)) {
            let name = self.beside(&table.target);
            let owner = (&*project.schema, &*project.name);
            let created =
                catalog::create(connection, writer, owner, table, &name, Kind::Filling).await?;
            self.places.0.insert(table.target.clone(), created);
        }
        let cursor = Cursor {
            project: project.name.clone(),
            writer: writer.id.clone(),
            writer_name: writer.name.clone(),
            generation: self.generation,
            position: Position::default(),
            ledger: 0,
            held_from: 0,
            rows: 0,
            state: "filling".to_owned(),
            schema: project.schema.clone(),
            is_recent: true,
        };
        writer.advance(connection, Of::Refill, &cursor).await?;
        Ok(cursor)
    }

    /// Returns where the rows go if the tables are those that were begun.
    async fn continued(&self, connection: &Connection) -> Result<Option<Places>> {
        let (schema, project) = (&self.project.schema, &self.project.name);
        let ours = objects::objects(connection, self.writer, schema, project).await?;
        let filling = ours.iter().filter(|it| it.is_own && it.kind == Kind::Filling);
        let filling: BTreeMap<&str, &str> =
            filling.map(|it| (it.target.as_str(), it.name.as_str())).collect();
        if !filling.keys().copied().eq(self.targets.iter().map(String::as_str)) {
            return Ok(None);
        }
        let mut places = Places::default();
        for (target, name) in filling {
            let Some(table) = self.project.table(target) else { return Ok(None) };
            let columns = objects::columns(connection, schema, name).await?;
            let types = objects::types(connection, schema, name).await?;
            let is_equal = columns.len() == table.columns.len()
                && table.columns.iter().all(|column| {
                    let kind = columns.get(&column.name).and_then(|name| types.get(name));
                    kind.is_some_and(|kind| *kind == column.kind.to_string())
                });
            if !is_equal {
                return Ok(None);
            }
            places.0.insert(target.to_owned(), Place { name: name.to_owned(), columns });
        }
        Ok(Some(places))
    }

    /// Adds rows, and returns the cursor of now. A batch has at most [`MOST_ROWS`](crate::MOST_ROWS) or
    /// [`MOST_BYTES`](crate::MOST_BYTES) ([`Batch::is_full`]).
    ///
    /// # Errors
    /// As [`apply`](crate::apply()): after [`SinkError::Moved`] and [`SinkError::Lost`], begin again.
    pub async fn fill(&self, connection: &Connection, batch: &Batch) -> Result<Cursor> {
        let project = (&*self.project.name, &*self.project.schema);
        fill(connection, self.writer, &self.places, project, batch).await
    }

    /// Gives the filled tables their keys.
    pub(super) async fn add_keys(&self, connection: &Connection) -> Result<()> {
        for place in self.places.0.values() {
            let full = qualified(&self.project.schema, &place.name);
            let sql = "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_index WHERE indrelid = pg_catalog.to_regclass($1) \
                       AND indisprimary) AS has_key";
            let rows = connection.rows("looking for a key", sql, &[&full]).await?;
            if rows.first().map_or(Ok(false), |row| truth(row, "has_key"))? {
                continue;
            }
            connection.begin(Purpose::Tables).await?;
            let sql = format!("ALTER TABLE {full} ADD PRIMARY KEY ({ROW}); ANALYZE {full}");
            let done = connection.run_long("creating a key", &sql).await;
            connection.end(done).await?;
        }
        Ok(())
    }
}
