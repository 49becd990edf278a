//! Looks at the tables of a project without reading their rows: how much was written, and whether rows are gone that were
//! there, as after `TRUNCATE`.

use super::connection::{Connection, Purpose, truth};
use super::cursor::Writer;
use super::error::Result;
use super::names::{ROW, qualified};
use super::objects::{self, Kind};
use super::types::Project;

/// A table that everybody sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenTable {
    /// Name in its schema.
    pub name: String,
    /// Target.
    pub target: String,
    /// Number of rows that the sink wrote.
    pub rows: u64,
    /// Characters U+0000 in texts that were written as `\x00`, but for rows that were copied in the database.
    pub nuls: u64,
    /// Whether rows are gone: one of those that were written first.
    pub has_lost_rows: bool,
}

impl WrittenTable {
    /// Says in a sentence what is wrong; `None` when nothing is.
    pub fn problem(&self, schema: &str) -> Option<String> {
        self.has_lost_rows.then(|| {
            format!(
                "rows of {schema}.{} were removed, as TRUNCATE does: `orrery sink replace` fills it again",
                self.name
            )
        })
    }
}

/// Returns the tables of a project that everybody sees, sorted by name. One of the first rows of each is remembered in the
/// database, by the transaction that wrote it: it never goes by itself, and no row that comes later hides that it is gone.
/// Cheap, because tables have a key.
///
/// # Errors
/// When the server cannot be asked, or a table is missing.
pub async fn watch(
    connection: &Connection,
    writer: &Writer,
    project: &Project,
) -> Result<Vec<WrittenTable>> {
    connection.begin(Purpose::Rows).await?;
    let done = watch_in(connection, writer, project).await;
    connection.end(done).await
}

async fn watch_in(
    connection: &Connection,
    writer: &Writer,
    project: &Project,
) -> Result<Vec<WrittenTable>> {
    let schema = &project.schema;
    let mut written = Vec::new();
    for object in objects::objects(connection, writer, schema, &project.name).await? {
        if !object.is_own || object.kind != Kind::Table {
            continue;
        }
        let has_lost_rows =
            object.digest.rows > 0 && one_is_gone(connection, schema, &object.name).await?;
        let (name, target) = (object.name, object.target);
        let (rows, nuls) = (object.digest.rows, object.nuls);
        written.push(WrittenTable { name, target, rows, nuls, has_lost_rows });
    }
    Ok(written)
}

/// Whether the row of a table that is remembered is gone.
async fn one_is_gone(connection: &Connection, schema: &str, table: &str) -> Result<bool> {
    let full = qualified(schema, table);
    let sql = format!(
        "SELECT NOT EXISTS (SELECT 1 FROM {full} AS t WHERE t.{ROW} = o.first_row) AS is_gone FROM orrery.objects AS o \
         WHERE o.schema_name = $1 AND o.object_name = $2"
    );
    let rows = connection.rows("looking for a row", &sql, &[schema, table]).await?;
    rows.first().map_or(Ok(false), |row| truth(row, "is_gone"))
}
