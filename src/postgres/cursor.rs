//! Cursors in the database: how far each project's rows are there, and who writes them. The server's cursor counts,
//! never what somebody remembers.

use tokio_postgres::Row;

use super::connection::{Connection, number, text};
use super::error::{Result, SinkError};

/// Time without a sign of life after which another writer's rows may be taken over.
pub const SILENCE_MINUTES: u32 = 10;

/// State of a project whose tables somebody has ordered to fill again, until that was done.
pub(crate) const REPLACING: &str = "replacing";
/// State of rows that are filled in beside, when some of them were copied from the tables that everybody sees.
pub(crate) const COPIED: &str = "copied";

/// Who writes: the same for all projects of a sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writer {
    /// Passphrase of the network.
    pub network: String,
    /// Name of the sink.
    pub sink: String,
    /// What distinguishes the data directory from all others, its copies included.
    pub id: String,
    /// What people know the service by, such as its host and data directory.
    pub name: String,
}

/// What the rows of a project follow from: with another one, earlier rows are others, or in other tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Generation {
    /// Number of the program.
    pub program: u32,
    /// When it was deployed.
    pub deployed: u64,
    /// Arrangement of its rows.
    pub arrangement: u64,
}

impl std::fmt::Display for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}-{}", self.program, self.deployed, self.arrangement)
    }
}

impl std::str::FromStr for Generation {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        let mut parts = text.split('-');
        let mut part = || parts.next()?.parse::<u64>().ok();
        let (program, deployed, arrangement) = (part(), part(), part());
        let program = program.and_then(|it| u32::try_from(it).ok()).ok_or(())?;
        Ok(Self { program, deployed: deployed.ok_or(())?, arrangement: arrangement.ok_or(())? })
    }
}

/// A place in the log of a project's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// Number of the last entry of the log; 0 before the first.
    pub number: u64,
    /// Ledger of its transaction: with the next number, it tells the log from that of a restored backup.
    pub ledger: u32,
    /// Application order of its transaction.
    pub transaction: u32,
}

/// How far the rows of a project are in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// Project.
    pub project: String,
    /// [`Writer::id`] of who writes.
    pub writer: String,
    /// [`Writer::name`] of who writes.
    pub writer_name: String,
    /// What the rows follow from.
    pub generation: Generation,
    /// Last entry of the log whose rows are there.
    pub position: Position,
    /// Up to this ledger everything that was processed is there.
    pub ledger: u32,
    /// First ledger from which on it is known what contracts hold: there is no gap between it and [`Cursor::ledger`].
    pub held_from: u32,
    /// Number of rows in all tables.
    pub rows: u64,
    /// `live`, or why nothing is added: `deleted`, `left`, `paused`; `replacing` while an order to fill the tables again
    /// waits or is carried out. Of rows that are filled in beside: `filling` or `copied`.
    pub state: String,
    /// Schema of the tables.
    pub schema: String,
    /// Whether the writer was there in the last [`SILENCE_MINUTES`].
    pub is_recent: bool,
}

impl Cursor {
    /// Whether somebody has ordered to fill the tables again, and it was not done yet.
    pub fn is_to_replace(&self) -> bool {
        self.state == REPLACING
    }

    /// Whether rows that are filled in beside were copied from the tables that everybody sees: they are not to be sent.
    pub fn has_copied(&self) -> bool {
        self.state == COPIED
    }
}

/// Table with a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    /// The rows that everybody sees.
    Live,
    /// The rows that are filled in beside.
    Refill,
}

impl Of {
    pub fn table(self) -> &'static str {
        match self {
            Self::Live => "orrery.cursor",
            Self::Refill => "orrery.refill",
        }
    }
}

fn columns() -> String {
    format!(
        "project, writer, writer_name, generation, position::text AS position, position_ledger::text AS \
         position_ledger, position_transaction::text AS position_transaction, ledger::text AS ledger, \
         held_from::text AS held_from, rows::text AS rows, state, schema_name, (updated_at > now() - interval '{SILENCE_MINUTES} minutes')::text \
         AS is_recent"
    )
}

fn read(row: &Row) -> Result<Cursor> {
    let position = Position {
        number: number(row, "position")?,
        ledger: number(row, "position_ledger")?,
        transaction: number(row, "position_transaction")?,
    };
    let own = |column| text(row, column).map(str::to_owned);
    Ok(Cursor {
        project: own("project")?,
        writer: own("writer")?,
        writer_name: own("writer_name")?,
        generation: text(row, "generation")?.parse().map_err(|()| SinkError::odd("generation"))?,
        position,
        ledger: number(row, "ledger")?,
        held_from: number(row, "held_from")?,
        rows: number(row, "rows")?,
        state: own("state")?,
        schema: own("schema_name")?,
        is_recent: text(row, "is_recent")? == "true",
    })
}

/// Whether anything was ever written.
async fn is_installed(connection: &Connection) -> Result<bool> {
    let sql = "SELECT pg_catalog.to_regclass('orrery.cursor')::text AS name";
    let rows = connection.rows("reading cursors", sql, &[]).await?;
    Ok(!rows.first().map_or(Ok(""), |row| text(row, "name"))?.is_empty())
}

/// Returns the cursors of a sink, sorted by project, whoever writes. None if nothing was ever written.
///
/// # Errors
/// When the server cannot be asked.
pub async fn cursors(connection: &Connection, network: &str, sink: &str) -> Result<Vec<Cursor>> {
    if !is_installed(connection).await? {
        return Ok(Vec::new());
    }
    let sql = format!(
        "SELECT {} FROM orrery.cursor WHERE network = $1 AND sink = $2 ORDER BY project",
        columns()
    );
    let rows = connection.rows("reading cursors", &sql, &[network, sink]).await?;
    rows.iter().map(read).collect()
}

impl Writer {
    /// Returns the cursor of a project, locked until the transaction ends, in which this must be called.
    pub(crate) async fn locked(
        &self,
        connection: &Connection,
        project: &str,
        of: Of,
    ) -> Result<Option<Cursor>> {
        self.select(connection, project, of, " FOR UPDATE").await
    }

    /// Returns the cursor of a project's rows that everybody sees; `None` before the first fill is over.
    ///
    /// # Errors
    /// [`SinkError::OtherWriter`] when another service wrote them lately.
    pub async fn cursor(&self, connection: &Connection, project: &str) -> Result<Option<Cursor>> {
        self.unlocked(connection, project, Of::Live).await
    }

    /// Returns the cursor of the rows that are filled in beside; `None` if there are none.
    ///
    /// # Errors
    /// [`SinkError::OtherWriter`] when another service wrote them lately.
    pub async fn refill_cursor(
        &self,
        connection: &Connection,
        project: &str,
    ) -> Result<Option<Cursor>> {
        self.unlocked(connection, project, Of::Refill).await
    }

    async fn unlocked(
        &self,
        connection: &Connection,
        project: &str,
        of: Of,
    ) -> Result<Option<Cursor>> {
        if !is_installed(connection).await? {
            return Ok(None);
        }
        let cursor = self.select(connection, project, of, "").await?;
        cursor.map(|cursor| self.recognised(cursor)).transpose()
    }

    async fn select(
        &self,
        connection: &Connection,
        project: &str,
        of: Of,
        end: &str,
    ) -> Result<Option<Cursor>> {
        let (table, columns) = (of.table(), columns());
        let sql = format!(
            "SELECT {columns} FROM {table} WHERE network = $1 AND sink = $2 AND project = $3{end}"
        );
        let key = [&*self.network, &*self.sink, project];
        let rows = connection.rows("reading the cursor", &sql, &key).await?;
        rows.first().map(read).transpose()
    }

    /// Returns the cursor if it is ours, or that of a writer who is gone.
    pub(crate) fn recognised(&self, cursor: Cursor) -> Result<Cursor> {
        if cursor.writer == self.id || !cursor.is_recent {
            return Ok(cursor);
        }
        Err(SinkError::OtherWriter(format!(
            "another service, {}, writes {} with the sink name {}: stop it, or give this sink another name; what \
             it wrote is taken over {SILENCE_MINUTES} minutes after it was there last",
            cursor.writer_name, cursor.project, self.sink
        )))
    }

    /// Says that this service is there, so that no other takes over what it writes: to be called every few minutes
    /// when there are no rows. Returns the number of projects whose rows everybody sees.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub async fn touch(&self, connection: &Connection) -> Result<usize> {
        let key = [&*self.network, &*self.sink, &*self.id];
        let mut projects = 0;
        for of in [Of::Refill, Of::Live] {
            let sql = format!(
                "UPDATE {} SET updated_at = now() WHERE network = $1 AND sink = $2 AND writer = $3 RETURNING 1",
                of.table()
            );
            projects = connection.rows("touching the cursors", &sql, &key).await?.len();
        }
        Ok(projects)
    }

    /// Says why no rows are added to those of a project: `deleted`, `left`, `paused`. Nothing else changes.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub async fn set_state(
        &self,
        connection: &Connection,
        project: &str,
        state: &str,
    ) -> Result<()> {
        // An order stands until it is carried out, or the project is gone.
        let sql = format!(
            "UPDATE orrery.cursor SET state = $5, updated_at = now() WHERE network = $1 AND sink = $2 AND writer = $3 AND \
             project = $4 AND (state <> '{REPLACING}' OR $5 NOT IN ('live', 'paused'))"
        );
        let key = [&*self.network, &*self.sink, &*self.id, project, state];
        connection.rows("writing the state of a project", &sql, &key).await.map(drop)
    }

    /// Notes in the database that the tables of a project are to be filled again, so that a restart does not forget it.
    /// Putting tables in their places with [`OnBlocked::Drop`](crate::OnBlocked::Drop) is what was ordered. Nothing is noted
    /// where no rows of this writer are seen yet: they are filled in anyway.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub async fn order_to_replace(&self, connection: &Connection, project: &str) -> Result<()> {
        if !is_installed(connection).await? {
            return Ok(());
        }
        self.set_state(connection, project, REPLACING).await
    }

    /// Writes where the rows of a project are now, in the transaction that wrote them.
    pub(crate) async fn advance(
        &self,
        connection: &Connection,
        of: Of,
        cursor: &Cursor,
    ) -> Result<()> {
        let table = of.table();
        let sql = format!(
            "INSERT INTO {table} AS c (network, sink, project, writer, writer_name, program, generation, position, \
             position_ledger, position_transaction, ledger, held_from, rows, state, schema_name, updated_at) \
             VALUES ($1, $2, $3, $4, $5, $6::bigint, $7, $8::bigint, $9::bigint, $10::bigint, $11::bigint, \
             $12::bigint, $13::bigint, $14, $15, now()) ON CONFLICT (network, sink, project) DO UPDATE SET \
             writer = excluded.writer, writer_name = excluded.writer_name, program = excluded.program, \
             generation = excluded.generation, position = excluded.position, \
             position_ledger = excluded.position_ledger, \
             position_transaction = excluded.position_transaction, ledger = excluded.ledger, \
             held_from = excluded.held_from, rows = excluded.rows, state = excluded.state, schema_name = excluded.schema_name, \
             updated_at = excluded.updated_at"
        );
        let Position { number, ledger, transaction } = cursor.position;
        let texts = [
            cursor.generation.program.to_string(),
            cursor.generation.to_string(),
            number.to_string(),
            ledger.to_string(),
            transaction.to_string(),
            cursor.ledger.to_string(),
            cursor.held_from.to_string(),
            cursor.rows.to_string(),
        ];
        let mut values =
            vec![&*self.network, &*self.sink, &*cursor.project, &*self.id, &*self.name];
        values.extend(texts.iter().map(String::as_str));
        values.extend([&*cursor.state, &*cursor.schema]);
        connection.rows("writing the cursor", &sql, &values).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_are_texts() {
        let generation = Generation { program: 7, deployed: u64::MAX, arrangement: 3 };
        assert_eq!(generation.to_string().parse(), Ok(generation));
        assert_eq!("7-1".parse::<Generation>(), Err(()));
        assert_eq!("".parse::<Generation>(), Err(()));
    }
}
