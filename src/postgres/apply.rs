//! Writing rows: one transaction for each batch, with the rows, the cursor and the message to whoever listens. After
//! whatever breaks, the cursor in the database says where to go on, and the same rows are never there twice.

use std::ops::RangeInclusive;

use super::connection::{Connection, Purpose};
use super::cursor::{COPIED, Cursor, Generation, Of, Position, Writer};
use super::error::{Result, SinkError};
use super::keys::bounds;
use super::names::{ROW, qualified, quoted};
use super::places::{Place, Places};
use super::rows::{RowsDigest, TableRows};

/// Rows and bytes of a transaction that fills in rows, at most; live, a transaction has whole ledgers.
pub const MOST_ROWS: u64 = 50_000;
/// Bytes of a transaction that fills in rows, at most.
pub const MOST_BYTES: usize = 32 << 20;
/// Channel on which listeners hear of rows.
const CHANNEL: &str = "orrery";

/// Whether listeners hear of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notify {
    /// They do: one message for each transaction with rows.
    Listeners,
    /// They do not.
    Nobody,
}

/// Rows of a ledger or several, and where the log is behind them.
#[derive(Debug, Clone)]
pub struct Batch {
    /// What the rows follow from.
    pub generation: Generation,
    /// Where the log was before: must be the cursor's position in the database.
    pub from: Position,
    /// Where the log is behind these rows.
    pub to: Position,
    /// Up to this ledger everything that was processed is there, with these rows.
    pub ledger: u32,
    /// First ledger from which on it is known what contracts hold; `None` if that is as it was.
    pub held_from: Option<u32>,
    /// The rows by table.
    pub tables: Vec<TableRows>,
    /// When rows are filled in beside: rows that are the same in the tables of before, and are copied there.
    pub equal: Vec<EqualRows>,
}

/// Rows of a table that are not sent again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EqualRows {
    /// Target of the table.
    pub target: String,
    /// Ledgers whose rows are equal, all of them: see [`ledger_digests`](crate::ledger_digests).
    pub ledgers: RangeInclusive<u32>,
}

impl Batch {
    /// Returns no rows behind a position.
    pub fn new(generation: Generation, from: Position) -> Self {
        let (tables, equal) = (Vec::new(), Vec::new());
        Self { generation, from, to: from, ledger: from.ledger, held_from: None, tables, equal }
    }

    /// Number of rows that are sent.
    pub fn rows(&self) -> u64 {
        self.tables.iter().map(|table| table.digest().rows).sum()
    }

    /// Whether it has as much as a transaction should have that fills in rows.
    pub fn is_full(&self) -> bool {
        let bytes: usize = self.tables.iter().map(TableRows::bytes).sum();
        self.rows() >= MOST_ROWS || bytes >= MOST_BYTES
    }

    /// The oldest and the newest ledger of the rows.
    fn ledgers(&self) -> Option<(u32, u32)> {
        widest(self.tables.iter().filter_map(TableRows::ledgers))
    }
}

/// Returns the oldest and the newest ledger of these.
fn widest(ledgers: impl Iterator<Item = (u32, u32)>) -> Option<(u32, u32)> {
    ledgers.reduce(|(first, last), other| (first.min(other.0), last.max(other.1)))
}

/// Adds rows to the tables that everybody sees, and returns the cursor of now. `places` comes from
/// [`ensure`](crate::ensure) on any connection.
///
/// # Errors
/// [`SinkError::Moved`] when the cursor is elsewhere: read it ([`Writer::cursor`]) and go on from there.
/// [`SinkError::Lost`] when it is not known whether the rows are there: read it on a new connection.
pub async fn apply(
    connection: &Connection,
    writer: &Writer,
    places: &Places,
    (project, schema): (&str, &str),
    batch: &Batch,
    notify: Notify,
) -> Result<Cursor> {
    apply_all(connection, writer, places, (project, schema), batch, &mut |_| Ok(None), notify).await
}

/// Returns the rows of a transaction that follow those behind a position, if they are too many to be in memory at once;
/// `None` when there are no more. It may be asked for the same ones again.
pub type More<'m> = dyn FnMut(Position) -> Result<Option<Batch>> + Send + 'm;

/// As [`apply`], with more rows in the same transaction. Only the tables and the position of further batches count.
///
/// # Errors
/// As there, and those of `more`.
pub async fn apply_all(
    connection: &Connection,
    writer: &Writer,
    places: &Places,
    (project, schema): (&str, &str),
    batch: &Batch,
    more: &mut More<'_>,
    notify: Notify,
) -> Result<Cursor> {
    let write = Write { connection, writer, places, project, schema, batch, of: Of::Live };
    match write.run(more, notify).await {
        Err(Failed::Notifying) => write.run(more, Notify::Nobody).await.map_err(Failed::into),
        done => done.map_err(Failed::into),
    }
}

/// Adds rows to the tables that are filled beside.
pub(super) async fn fill(
    connection: &Connection,
    writer: &Writer,
    places: &Places,
    (project, schema): (&str, &str),
    batch: &Batch,
) -> Result<Cursor> {
    let write = Write { connection, writer, places, project, schema, batch, of: Of::Refill };
    write.run(&mut |_| Ok(None), Notify::Nobody).await.map_err(Failed::into)
}

/// Why a batch was not written.
enum Failed {
    /// Listeners could not be told: rows go on without.
    Notifying,
    Other(SinkError),
}

impl From<SinkError> for Failed {
    fn from(error: SinkError) -> Self {
        Self::Other(error)
    }
}

impl From<Failed> for SinkError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Other(error) => error,
            Failed::Notifying => Self::Busy("listeners cannot be told of rows".to_owned()),
        }
    }
}

/// What a transaction has written.
#[derive(Default)]
struct Written {
    rows: u64,
    /// Those that were sent.
    sent: u64,
    /// The oldest and the newest ledger of these.
    ledgers: Option<(u32, u32)>,
}

struct Write<'a> {
    connection: &'a Connection,
    writer: &'a Writer,
    places: &'a Places,
    project: &'a str,
    schema: &'a str,
    batch: &'a Batch,
    of: Of,
}

impl Write<'_> {
    async fn run(
        &self,
        more: &mut More<'_>,
        notify: Notify,
    ) -> std::result::Result<Cursor, Failed> {
        self.connection.begin(Purpose::Rows).await?;
        let done = self.write(more).await;
        let told = match (&done, notify) {
            (Ok((_, written)), Notify::Listeners) => self.tell(written).await,
            _ => Ok(()),
        };
        let done = done.map(|(cursor, _)| cursor);
        if let Err(why) = &told
            && !self.connection.is_closed()
        {
            self.connection.tell_mute(why);
            // What was done is taken back; the error that this returns is known.
            let _: Result<()> = self.connection.end(told).await;
            return Err(Failed::Notifying);
        }
        match self.connection.end(done).await {
            // The queue of messages is full: it is looked at when the transaction is committed.
            Err(SinkError::Refused(text))
                if notify == Notify::Listeners && text.contains("[54000]") =>
            {
                self.connection.tell_mute(&SinkError::Refused(text));
                Err(Failed::Notifying)
            }
            done => done.map_err(Failed::Other),
        }
    }

    async fn write(&self, more: &mut More<'_>) -> Result<(Cursor, Written)> {
        let cursor = self.locked().await?;
        let mut written = Written::default();
        self.add(self.batch, &mut written).await?;
        for equal in &self.batch.equal {
            written.rows += self.copy_equal(equal).await?;
        }
        let mut position = self.batch.to;
        while let Some(next) = more(position)? {
            self.add(&next, &mut written).await?;
            position = next.to;
        }
        let now = Cursor {
            position,
            ledger: self.batch.ledger.max(cursor.ledger),
            held_from: self.batch.held_from.unwrap_or(cursor.held_from),
            rows: cursor.rows + written.rows,
            state: match self.of {
                Of::Live if !cursor.is_to_replace() => "live".to_owned(),
                Of::Refill if !self.batch.equal.is_empty() => COPIED.to_owned(),
                _ => cursor.state.clone(),
            },
            ..cursor
        };
        self.writer.advance(self.connection, self.of, &now).await?;
        Ok((now, written))
    }

    /// Sends the rows of a batch.
    async fn add(&self, batch: &Batch, written: &mut Written) -> Result<()> {
        for table in &batch.tables {
            written.rows += self.copy(table).await?;
        }
        written.sent += batch.rows();
        let ledgers = [written.ledgers, batch.ledgers()].into_iter().flatten();
        written.ledgers = widest(ledgers);
        Ok(())
    }

    /// Locks the cursor, and compares it with what the batch follows.
    async fn locked(&self) -> Result<Cursor> {
        let cursor = self.writer.locked(self.connection, self.project, self.of).await?;
        let moved =
            |text: &str| Err(SinkError::Moved(format!("the cursor of {} {text}", self.project)));
        let Some(cursor) = cursor else { return moved("is gone: the project is filled in again") };
        let cursor = self.writer.recognised(cursor)?;
        if cursor.writer != self.writer.id || cursor.generation != self.batch.generation {
            return moved("is that of other rows, or of another writer: they are filled in again");
        }
        if cursor.schema != self.schema {
            return moved(&format!(
                "is that of tables in the schema {}: they are filled in again",
                cursor.schema
            ));
        }
        if cursor.position != self.batch.from {
            let (there, expected) = (cursor.position.number, self.batch.from.number);
            return moved(&format!("is at entry {there}, and the rows follow entry {expected}"));
        }
        Ok(cursor)
    }

    fn place(&self, target: &str) -> Result<&Place> {
        self.places.0.get(target).ok_or_else(|| {
            SinkError::Moved(format!(
                "{} has no table {target} yet: its tables have grown",
                self.project
            ))
        })
    }

    async fn copy(&self, table: &TableRows) -> Result<u64> {
        if table.digest().rows == 0 {
            return Ok(0);
        }
        let place = self.place(table.target())?;
        let mut columns = vec![ROW.to_owned()];
        for column in table.columns() {
            let name = place.columns.get(column).ok_or_else(|| {
                SinkError::Moved(format!("{} has no column {column} yet: it has grown", place.name))
            })?;
            columns.push(quoted(name));
        }
        let full = qualified(self.schema, &place.name);
        let sql = format!("COPY {full} ({}) FROM STDIN (FORMAT binary)", columns.join(", "));
        let what = format!("writing rows of {}.{}", self.schema, place.name);
        let rows = self.connection.copy_in(&what, &sql, table.parts()).await?;
        let sent = table.digest();
        if rows != sent.rows {
            // A trigger can leave rows out.
            return Err(SinkError::Refused(format!(
                "of {} rows for {full}, a trigger kept {rows}: drop the trigger, which changes what the sink writes",
                sent.rows
            )));
        }
        self.count(place, &sent, table.nuls(), &table.a_key()).await?;
        Ok(rows)
    }

    /// Copies rows from the table that everybody sees.
    async fn copy_equal(&self, equal: &EqualRows) -> Result<u64> {
        let place = self.place(&equal.target)?;
        let sql = "SELECT object_name FROM orrery.objects WHERE schema_name = $1 AND target = $2 AND project = $3 \
                   AND kind = 'table'";
        let key = [self.schema, &*equal.target, self.project];
        let rows = self.connection.rows("looking for equal rows", sql, &key).await?;
        let row =
            rows.first().ok_or_else(|| SinkError::Moved("there are no equal rows".to_owned()))?;
        let before = super::connection::text(row, "object_name")?;
        let known = super::objects::columns(self.connection, self.schema, before).await?;
        let common = place.columns.iter().filter_map(|(exact, now)| Some((now, known.get(exact)?)));
        let (mut to, mut from) = (ROW.to_owned(), ROW.to_owned());
        for (now, before) in common {
            to += &format!(", {}", quoted(now));
            from += &format!(", {}", quoted(before));
        }
        let bounds = bounds(&equal.ledgers);
        let digest = super::check::digest_of(self.connection, self.schema, before, &known, &bounds);
        let digest = digest.await?;
        let (into, out_of) = (qualified(self.schema, &place.name), qualified(self.schema, before));
        let sql = format!("INSERT INTO {into} ({to}) SELECT {from} FROM {out_of} WHERE {bounds}");
        self.connection.run_long("copying equal rows", &sql).await?;
        let sql =
            format!("SELECT encode({ROW}, 'hex') AS key FROM {out_of} WHERE {bounds} LIMIT 1");
        let rows = self.connection.rows("looking for an equal row", &sql, &[]).await?;
        let key = rows.first().map_or(Ok(""), |row| super::connection::text(row, "key"))?;
        self.count(place, &digest, 0, key).await?;
        Ok(digest.rows)
    }

    /// Counts rows that were written, for [`check`](crate::check), and remembers one of the first, in hexadecimal digits,
    /// for [`watch`](crate::watch()).
    async fn count(&self, place: &Place, rows: &RowsDigest, nuls: u64, key: &str) -> Result<()> {
        let sql = "UPDATE orrery.objects SET rows = rows + $3::numeric, digest_1 = digest_1 + $4::numeric, \
                   digest_2 = digest_2 + $5::numeric, nuls = nuls + $6::numeric, first_row = coalesce(first_row, \
                   decode(nullif($7, ''), 'hex')) WHERE schema_name = $1 AND object_name = $2";
        let numbers = [
            rows.rows.to_string(),
            rows.sums[0].to_string(),
            rows.sums[1].to_string(),
            nuls.to_string(),
        ];
        let mut values = vec![self.schema, &*place.name];
        values.extend(numbers.iter().map(String::as_str));
        values.push(key);
        self.connection.rows("counting rows", sql, &values).await.map(drop)
    }

    /// Sends the message to listeners, which they get when the transaction is committed.
    async fn tell(&self, written: &Written) -> Result<()> {
        let Some((from, to)) = written.ledgers else { return Ok(()) };
        let message = serde_json::json!({
            "sink": self.writer.sink,
            "project": self.project,
            "from": from,
            "to": to,
            "rows": written.sent,
            "generation": self.batch.generation.to_string(),
        });
        let sql = "SELECT pg_notify($1, $2)";
        let values = [CHANNEL, &*message.to_string()];
        self.connection.rows("telling listeners", sql, &values).await.map(drop)
    }
}
