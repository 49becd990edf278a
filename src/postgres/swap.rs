//! Putting filled tables into the place of those before, in one transaction: whoever reads sees all rows of before,
//! or all of now.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::carried::{self, Carried};
use super::catalog::{Replace, ensure_in};
use super::connection::{Connection, Purpose, text};
use super::cursor::{Cursor, Generation, Of, REPLACING, Writer};
use super::dependents::dependents;
use super::error::{Result, SinkError};
use super::names::{qualified, quoted, shortened, waiting};
use super::objects::{self, Kind, Object};
use super::refill::Refill;
use super::types::Project;

/// Time that is waited for transactions which began before the rows were all there: in one of them, a table in its
/// new place would be empty.
const OLDER_TRANSACTIONS: Duration = Duration::from_secs(600);
/// Time between two looks at them.
const LOOK: Duration = Duration::from_secs(1);

/// What happens to what others made and cannot be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnBlocked {
    /// The tables stay as they are until somebody drops it.
    Wait,
    /// It is dropped, as `orrery sink replace` does.
    Drop,
}

/// Returns what others made on tables of a project that cannot be kept when these are replaced.
///
/// # Errors
/// When the server cannot be asked.
pub async fn blocked_by(
    connection: &Connection,
    writer: &Writer,
    project: &Project,
    targets: &BTreeSet<String>,
) -> Result<Vec<String>> {
    connection.begin(Purpose::Rows).await?;
    let done = async {
        let mut blocked = Vec::new();
        for table in tables(connection, writer, project).await? {
            let is_gone = project.table(&table.target).is_none();
            if is_gone || targets.contains(&table.target) {
                blocked.extend(dependents(connection, &project.schema, &table.name).await?.blocked);
            }
        }
        Ok(blocked)
    };
    connection.end(done.await).await
}

/// Returns the tables of a project that everybody sees.
async fn tables(
    connection: &Connection,
    writer: &Writer,
    project: &Project,
) -> Result<Vec<Object>> {
    let mut ours = objects::objects(connection, writer, &project.schema, &project.name).await?;
    ours.retain(|it| it.is_own && it.kind == Kind::Table);
    // Whoever drops a table of ours does not keep it from being made again.
    let there = objects::relations(connection, &project.schema).await?;
    ours.retain(|it| there.contains_key(&it.name));
    Ok(ours)
}

impl Refill<'_> {
    /// Puts the filled tables into their places, once all rows are there: makes their keys and what others had on the
    /// tables before, waits up to 10 minutes for older transactions, and renames. Returns the cursor of now. May be
    /// called again after an error.
    ///
    /// # Errors
    /// [`SinkError::Blocked`] when something cannot be kept; [`SinkError::Busy`] when somebody reads the tables, who is
    /// let pass.
    pub async fn swap(&self, connection: &Connection, on_blocked: OnBlocked) -> Result<Cursor> {
        self.swap_after(connection, on_blocked, OLDER_TRANSACTIONS).await
    }

    /// [`Refill::swap`] with another limit for older transactions.
    ///
    /// # Errors
    /// As there.
    pub async fn swap_after(
        &self,
        connection: &Connection,
        on_blocked: OnBlocked,
        wait: Duration,
    ) -> Result<Cursor> {
        let blocked = blocked_by(connection, self.writer, self.project, &self.targets).await?;
        if !blocked.is_empty() && on_blocked == OnBlocked::Wait {
            return Err(SinkError::Blocked(blocked));
        }
        self.add_keys(connection).await?;
        let schema = &*self.project.schema;
        let replaced = self.replaced(connection).await?;
        for table in &replaced {
            let new = self.beside(&table.target);
            carried::make_parts(connection, (schema, &table.name, &new)).await?;
        }
        if !replaced.is_empty() {
            wait_for_older(connection, wait).await?;
        }
        connection.begin(Purpose::Tables).await?;
        let done = self.swap_in(connection, on_blocked).await;
        connection.end(done).await
    }

    /// Returns the tables of before that others take the place of.
    async fn replaced(&self, connection: &Connection) -> Result<Vec<Object>> {
        let mut tables = {
            connection.begin(Purpose::Rows).await?;
            let done = tables(connection, self.writer, self.project).await;
            connection.end(done).await?
        };
        tables.retain(|table| self.targets.contains(&table.target));
        Ok(tables)
    }

    async fn swap_in(&self, connection: &Connection, on_blocked: OnBlocked) -> Result<Cursor> {
        let (live, cursor) = self.filled(connection).await?;
        let schema = &*self.project.schema;
        let (old_tables, views) = self.lock(connection, on_blocked).await?;
        // Views are told by the text of their queries, which has the names of now.
        let mut replacing = Vec::new();
        let ours = objects::objects(connection, self.writer, schema, &self.project.name).await?;
        let is_ours = |view: &str| {
            ours.iter().any(|it| it.kind == Kind::View && is_named(view, schema, &it.name))
        };
        for view in views.keys().filter(|view| !is_ours(view)) {
            replacing.push((view, carried::view(connection, view).await?));
        }
        let mut moves = Vec::new();
        for table in old_tables {
            moves.push(self.move_away(connection, table).await?);
        }
        self.move_in(connection, &moves).await?;
        ensure_in(connection, self.writer, self.project, &self.targets, Replace::All).await?;
        for (view, sql) in replacing {
            replace_view(connection, view, &sql, on_blocked).await?;
        }
        for moved in &moves {
            moved.drop(connection, schema, on_blocked).await?;
        }
        self.name_keys(connection).await?;
        // An order that came meanwhile is for later.
        let is_own = |live: &Cursor| live.writer == self.writer.id;
        let is_ordered = live.filter(is_own).is_some_and(|live| live.is_to_replace());
        let state = if is_ordered && on_blocked == OnBlocked::Wait { REPLACING } else { "live" };
        let (state, rows) = (state.to_owned(), self.rows(connection).await?);
        let now = Cursor { state, rows, ..cursor };
        self.writer.advance(connection, Of::Live, &now).await?;
        self.forget(connection).await?;
        Ok(now)
    }

    /// Locks the tables that are replaced and the views that show them, and returns them.
    async fn lock(
        &self,
        connection: &Connection,
        on_blocked: OnBlocked,
    ) -> Result<(Vec<Object>, BTreeMap<String, String>)> {
        let schema = &*self.project.schema;
        let mut replaced = tables(connection, self.writer, self.project).await?;
        replaced.retain(|table| {
            self.project.table(&table.target).is_none() || self.targets.contains(&table.target)
        });
        let mut views = BTreeMap::new();
        for table in &replaced {
            views.extend(dependents(connection, schema, &table.name).await?.views);
        }
        // Whoever reads by a view locks it first, and the table after it: in another order, both wait for each other.
        // This locks it, and changes nothing.
        for (view, owner) in &views {
            let sql = format!("ALTER VIEW {view} OWNER TO {}", quoted(owner));
            connection.run("locking a view", &sql).await?;
        }
        for table in &replaced {
            let full = qualified(schema, &table.name);
            let sql = format!("LOCK TABLE {full} IN ACCESS EXCLUSIVE MODE");
            connection.run("locking a table that is replaced", &sql).await?;
        }
        let mut blocked = Vec::new();
        for table in &replaced {
            let now = dependents(connection, schema, &table.name).await?;
            blocked.extend(now.blocked);
            if now.views.keys().any(|view| !views.contains_key(view)) {
                return Err(SinkError::Busy(format!(
                    "a view of {schema}.{} was made meanwhile",
                    table.name
                )));
            }
        }
        match blocked.is_empty() || on_blocked == OnBlocked::Drop {
            true => Ok((replaced, views)),
            false => Err(SinkError::Blocked(blocked)),
        }
    }

    /// Locks both cursors, and returns them: that of the tables that everybody sees, if there is one, and that of the
    /// filled ones.
    async fn filled(&self, connection: &Connection) -> Result<(Option<Cursor>, Cursor)> {
        let project = &*self.project.name;
        let live = self.writer.locked(connection, project, Of::Live).await?;
        let live = live.map(|cursor| self.writer.recognised(cursor)).transpose()?;
        let filled = self.writer.locked(connection, project, Of::Refill).await?;
        let is_same = |it: &Cursor| it.writer == self.writer.id && it.generation == self.generation;
        let filled = filled.filter(is_same).ok_or_else(|| {
            SinkError::Moved(format!(
                "the tables that were filled for {project} are gone: begin again"
            ))
        })?;
        self.check_staying(connection, live.as_ref(), &filled).await?;
        Ok((live, filled))
    }

    /// Refuses to put filled tables beside those that stay, if these follow from another log, or from another part of it.
    async fn check_staying(
        &self,
        connection: &Connection,
        live: Option<&Cursor>,
        filled: &Cursor,
    ) -> Result<()> {
        let of_log = |it: &Cursor| {
            let Generation { program, deployed, .. } = it.generation;
            (it.writer.clone(), program, deployed, it.position)
        };
        if live.is_none_or(|live| of_log(live) == of_log(filled)) {
            return Ok(());
        }
        let tables = tables(connection, self.writer, self.project).await?;
        let stays = |it: &&Object| {
            self.project.table(&it.target).is_some() && !self.targets.contains(&it.target)
        };
        match tables.iter().find(stays) {
            Some(table) => Err(SinkError::Moved(format!(
                "the table {} has rows up to another position than those that were filled in",
                table.name
            ))),
            None => Ok(()),
        }
    }

    /// Returns the number of rows in all tables.
    async fn rows(&self, connection: &Connection) -> Result<u64> {
        let tables = tables(connection, self.writer, self.project).await?;
        Ok(tables.iter().map(|table| table.digest.rows).sum())
    }

    /// Gives the keys of the new tables the names that those before had, where these are free.
    async fn name_keys(&self, connection: &Connection) -> Result<()> {
        let schema = &*self.project.schema;
        let there = objects::relations(connection, schema).await?;
        for table in self.project.tables.iter().filter(|it| self.targets.contains(&it.target)) {
            let name = shortened(&table.name);
            let key = shortened(&format!("{name}_pkey"));
            let sql = "SELECT conname::text AS name FROM pg_constraint WHERE conrelid = to_regclass($1) AND contype = 'p'";
            let full = qualified(schema, &name);
            let rows = connection.rows("looking for a key", sql, &[&full]).await?;
            let now = rows.first().map_or(Ok(""), |row| text(row, "name"))?;
            if !now.is_empty() && now != key && !there.contains_key(&key) {
                let sql = format!(
                    "ALTER TABLE {full} RENAME CONSTRAINT {} TO {}",
                    quoted(now),
                    quoted(&key)
                );
                connection.run("naming a key", &sql).await?;
            }
        }
        Ok(())
    }

    async fn forget(&self, connection: &Connection) -> Result<()> {
        let sql = "DELETE FROM orrery.refill WHERE network = $1 AND sink = $2 AND project = $3";
        let key = [&*self.writer.network, &*self.writer.sink, &*self.project.name];
        connection.rows("ending a refill", sql, &key).await.map(drop)
    }

    /// Gives a table that is replaced another name, after what it has was read.
    async fn move_away(&self, connection: &Connection, table: Object) -> Result<Moved> {
        let schema = &*self.project.schema;
        let now = self.project.table(&table.target).map(|it| shortened(&it.name));
        let mut carried = Carried::default();
        if let Some(now) = &now {
            if *now != table.name {
                // What it has is read under the name that the new one gets.
                self.rename(connection, &table.name, now).await?;
            }
            carried =
                carried::carried(connection, (schema, now, &self.beside(&table.target))).await?;
        }
        let name = now.unwrap_or_else(|| table.name.clone());
        let old = waiting(&[&*self.project.name, "of before", &*name]);
        let sql = format!("ALTER TABLE {} RENAME TO {}", qualified(schema, &name), quoted(&old));
        connection.run("renaming a table", &sql).await?;
        objects::forget(connection, schema, &name).await?;
        Ok(Moved { old, name, carried })
    }

    async fn rename(&self, connection: &Connection, from: &str, to: &str) -> Result<()> {
        let schema = &*self.project.schema;
        let ours = objects::objects(connection, self.writer, schema, &self.project.name).await?;
        if ours.iter().any(|it| it.is_own && it.kind == Kind::View && it.name == to) {
            super::views::drop(connection, schema, to).await?;
            objects::forget(connection, schema, to).await?;
        }
        let sql = format!("ALTER TABLE {} RENAME TO {}", qualified(schema, from), quoted(to));
        connection.run("renaming a table", &sql).await?;
        let sql = "UPDATE orrery.objects SET object_name = $3 WHERE schema_name = $1 AND object_name = $2";
        connection.rows("recording a name", sql, &[schema, from, to]).await.map(drop)
    }

    /// Gives the filled tables their names, and what those before had.
    async fn move_in(&self, connection: &Connection, moves: &[Moved]) -> Result<()> {
        let schema = &*self.project.schema;
        let there = objects::relations(connection, schema).await?;
        for table in self.project.tables.iter().filter(|it| self.targets.contains(&it.target)) {
            let (from, to) = (self.beside(&table.target), shortened(&table.name));
            if there.contains_key(&to) {
                self.make_room(connection, &to).await?;
            }
            // A table that somebody dropped is still recorded.
            objects::forget(connection, schema, &to).await?;
            let sql = format!("ALTER TABLE {} RENAME TO {}", qualified(schema, &from), quoted(&to));
            connection.run("renaming a table", &sql).await?;
            let sql = "UPDATE orrery.objects SET object_name = $3, kind = 'table' WHERE schema_name = $1 AND \
                       object_name = $2";
            connection.rows("recording a name", sql, &[schema, &from, &to]).await?;
            let moved = moves.iter().find(|it| it.name == to);
            for sql in moved.into_iter().flat_map(|it| &it.carried.before) {
                connection.run("giving a table what the one before had", sql).await?;
            }
        }
        Ok(())
    }

    /// Drops a view of ours whose name a table gets; what is not ours stays.
    async fn make_room(&self, connection: &Connection, name: &str) -> Result<()> {
        let schema = &*self.project.schema;
        let ours = objects::objects(connection, self.writer, schema, &self.project.name).await?;
        match ours.iter().any(|it| it.is_own && it.kind == Kind::View && it.name == name) {
            true => super::views::drop(connection, schema, name).await,
            false => Err(SinkError::Refused(format!(
                "{schema}.{name} is there already, and not Orrery's: rename it, or give the sink another `schema`"
            ))),
        }
    }
}

/// A table of before.
struct Moved {
    /// Name that it has now.
    old: String,
    /// Name that it had.
    name: String,
    carried: Carried,
}

impl Moved {
    async fn drop(
        &self,
        connection: &Connection,
        schema: &str,
        on_blocked: OnBlocked,
    ) -> Result<()> {
        let cascade = if on_blocked == OnBlocked::Drop { " CASCADE" } else { "" };
        let sql = format!("DROP TABLE {}{cascade}", qualified(schema, &self.old));
        let dropped = connection.run("dropping a table that was replaced", &sql).await;
        dropped.map_err(|error| super::views::blocked(error, &qualified(schema, &self.name)))?;
        for sql in &self.carried.after {
            connection.run("giving a table what the one before had", sql).await?;
        }
        Ok(())
    }
}

/// Whether the server's text of a view's name is this one.
fn is_named(view: &str, schema: &str, name: &str) -> bool {
    // The server leaves out quotes where it can.
    let plain = |text: &str| text.replace('"', "");
    plain(view) == plain(&qualified(schema, name))
}

/// Has a view of others show the new table.
async fn replace_view(
    connection: &Connection,
    view: &str,
    sql: &str,
    on_blocked: OnBlocked,
) -> Result<()> {
    connection.run("replacing a view", "SAVEPOINT view").await?;
    match connection.run("replacing a view", sql).await {
        Ok(()) => connection.run("replacing a view", "RELEASE SAVEPOINT view").await,
        Err(SinkError::Refused(_)) if on_blocked == OnBlocked::Drop => {
            connection.run("replacing a view", "ROLLBACK TO SAVEPOINT view").await
        }
        Err(SinkError::Refused(text)) => Err(SinkError::Blocked(vec![format!(
            "view {view}, which does not fit the new table ({text}): drop it, and create it again"
        )])),
        Err(error) => Err(error),
    }
}

/// Waits until no transaction of others in this database is left that is there now, at most for `limit`.
async fn wait_for_older(connection: &Connection, limit: Duration) -> Result<()> {
    // Everybody may see the locks, and that alone of the transactions of others.
    let sql = "SELECT virtualtransaction AS id FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_stat_activity AS a ON \
               a.pid = l.pid WHERE locktype = 'virtualxid' AND l.pid <> pg_catalog.pg_backend_pid() AND a.datname = \
               current_database()";
    let look = || async {
        let rows = connection.rows("looking at transactions", sql, &[]).await?;
        rows.iter().map(|row| text(row, "id").map(str::to_owned)).collect::<Result<BTreeSet<_>>>()
    };
    let until = Instant::now() + limit;
    let older = look().await?;
    let mut left = !older.is_empty();
    while left && Instant::now() < until {
        sleep(LOOK.min(until - Instant::now())).await;
        left = !look().await?.is_disjoint(&older);
    }
    Ok(())
}
