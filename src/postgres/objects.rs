//! What the schema `orrery` records of our tables and views, and what the server has of them.

use std::collections::BTreeMap;

use super::connection::{Connection, number, text, truth};
use super::cursor::Writer;
use super::error::{Result, SinkError};
use super::names::qualified;
use super::rows::RowsDigest;

/// The tables of the schema `orrery`. The names of columns are for people: they stay what they are.
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS orrery.cursor (network text, sink text, project text, writer text NOT NULL,
  writer_name text NOT NULL, program bigint NOT NULL, generation text NOT NULL, position bigint NOT NULL,
  position_ledger bigint NOT NULL, position_transaction bigint NOT NULL, ledger bigint NOT NULL,
  held_from bigint NOT NULL, rows bigint NOT NULL, state text NOT NULL, schema_name text NOT NULL, updated_at timestamptz NOT NULL,
  PRIMARY KEY (network, sink, project));
CREATE TABLE IF NOT EXISTS orrery.refill (LIKE orrery.cursor INCLUDING ALL);
CREATE TABLE IF NOT EXISTS orrery.objects (schema_name text, object_name text, network text NOT NULL,
  sink text NOT NULL, project text NOT NULL, kind text NOT NULL, target text NOT NULL,
  rows numeric NOT NULL DEFAULT 0, digest_1 numeric NOT NULL DEFAULT 0, digest_2 numeric NOT NULL DEFAULT 0,
  nuls numeric NOT NULL DEFAULT 0,
  first_row bytea, definition text NOT NULL DEFAULT '', comment text NOT NULL DEFAULT '',
  PRIMARY KEY (schema_name, object_name));
CREATE TABLE IF NOT EXISTS orrery.columns (schema_name text, table_name text, column_name text,
  exact_name text NOT NULL, kind text NOT NULL, declared_type text NOT NULL, comment text NOT NULL DEFAULT '',
  PRIMARY KEY (schema_name, table_name, column_name),
  FOREIGN KEY (schema_name, table_name) REFERENCES orrery.objects ON UPDATE CASCADE ON DELETE CASCADE);
COMMENT ON TABLE orrery.cursor IS 'Orrery: how far the rows of each project are. Up to the ledger everything \
processed is there.';
COMMENT ON TABLE orrery.refill IS 'Orrery: rows that are filled in beside those which they will replace.';
COMMENT ON TABLE orrery.objects IS 'Orrery: its tables and views.';
COMMENT ON TABLE orrery.columns IS 'Orrery: exact names of columns, which can be longer than PostgreSQL keeps.';
";

/// Whether the tables of the schema `orrery` are there.
pub(super) async fn are_installed(connection: &Connection) -> Result<bool> {
    let sql = "SELECT count(*)::text AS number FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON \
               n.oid = c.relnamespace WHERE n.nspname = 'orrery' AND c.relname IN ('cursor', 'refill', \
               'objects', 'columns')";
    let rows = connection.rows("looking for the tables of the sink", sql, &[]).await?;
    let there: u32 = rows.first().map_or(Ok(0), |row| number(row, "number"))?;
    Ok(there == 4)
}

/// Creates the tables of the schema `orrery`, if they are not there.
pub(super) async fn install(connection: &Connection) -> Result<()> {
    if are_installed(connection).await? {
        return Ok(());
    }
    connection.run("creating the tables of the schema orrery", TABLES).await
}

/// What one of our objects is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A table that everybody sees.
    Table,
    /// A view.
    View,
    /// A table that is filled to take the place of another.
    Filling,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::View => "view",
            Self::Filling => "filling",
        }
    }
}

/// One of our objects, as recorded.
#[derive(Debug, Clone)]
pub(super) struct Object {
    pub name: String,
    pub kind: Kind,
    /// What a table is known by.
    pub target: String,
    /// Whether it is of this sink and this project.
    pub is_own: bool,
    /// Whose it is.
    pub project: String,
    /// Query of a view.
    pub definition: String,
    /// Rows that were written.
    pub digest: RowsDigest,
    /// Characters U+0000 that were written as `\x00`.
    pub nuls: u64,
    /// Comment that was set.
    pub comment: String,
}

/// Returns our objects in a schema.
pub(super) async fn objects(
    connection: &Connection,
    writer: &Writer,
    schema: &str,
    project: &str,
) -> Result<Vec<Object>> {
    let sql = "SELECT object_name, kind, target, project, definition, comment, rows::text AS rows, digest_1::text \
               AS digest_1, digest_2::text AS digest_2, nuls::text AS nuls, (network = $2 AND sink = $3 AND project = $4) AS is_own \
               FROM orrery.objects WHERE schema_name = $1 ORDER BY object_name";
    let key = [schema, &*writer.network, &*writer.sink, project];
    let rows = connection.rows("reading the objects of the sink", sql, &key).await?;
    let object = |row: &tokio_postgres::Row| {
        let own = |column| text(row, column).map(str::to_owned);
        Ok(Object {
            name: own("object_name")?,
            kind: match text(row, "kind")? {
                "view" => Kind::View,
                "filling" => Kind::Filling,
                _ => Kind::Table,
            },
            target: own("target")?,
            is_own: truth(row, "is_own")?,
            project: own("project")?,
            definition: own("definition")?,
            digest: RowsDigest {
                rows: number(row, "rows")?,
                sums: [number(row, "digest_1")?, number(row, "digest_2")?],
            },
            nuls: number(row, "nuls")?,
            comment: own("comment")?,
        })
    };
    rows.iter().map(object).collect()
}

/// Records an object, or what is new about it.
pub(super) async fn record(
    connection: &Connection,
    writer: &Writer,
    (schema, project): (&str, &str),
    object: &Object,
) -> Result<()> {
    let sql = "INSERT INTO orrery.objects (schema_name, object_name, network, sink, project, kind, target, \
               definition, comment) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (schema_name, \
               object_name) DO UPDATE SET kind = excluded.kind, target = excluded.target, definition = \
               excluded.definition, comment = excluded.comment";
    let values = [
        schema,
        &*object.name,
        &*writer.network,
        &*writer.sink,
        project,
        object.kind.name(),
        &*object.target,
        &*object.definition,
        &*object.comment,
    ];
    connection.rows("recording an object", sql, &values).await.map(drop)
}

/// Forgets an object and its columns.
pub(super) async fn forget(connection: &Connection, schema: &str, name: &str) -> Result<()> {
    let sql = "DELETE FROM orrery.objects WHERE schema_name = $1 AND object_name = $2";
    connection.rows("forgetting an object", sql, &[schema, name]).await.map(drop)
}

/// Returns the names of columns in PostgreSQL of one of our tables, by the exact ones.
pub(super) async fn columns(
    connection: &Connection,
    schema: &str,
    table: &str,
) -> Result<BTreeMap<String, String>> {
    let sql = "SELECT exact_name, column_name FROM orrery.columns WHERE schema_name = $1 AND table_name = $2";
    let rows = connection.rows("reading names of columns", sql, &[schema, table]).await?;
    rows.iter()
        .map(|row| Ok((text(row, "exact_name")?.to_owned(), text(row, "column_name")?.to_owned())))
        .collect()
}

/// Returns the types that the columns of one of our tables had when they were created, by their exact names.
pub(super) async fn kinds(
    connection: &Connection,
    schema: &str,
    table: &str,
) -> Result<BTreeMap<String, String>> {
    let sql =
        "SELECT exact_name, kind FROM orrery.columns WHERE schema_name = $1 AND table_name = $2";
    let rows = connection.rows("reading types of columns", sql, &[schema, table]).await?;
    rows.iter()
        .map(|row| Ok((text(row, "exact_name")?.to_owned(), text(row, "kind")?.to_owned())))
        .collect()
}

/// Something in a schema that has the name of a table or a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Relation {
    /// Kind as in `pg_class`: `r` of a table, `v` of a view.
    pub kind: String,
    /// Owner.
    pub owner: String,
    /// Whether its owner is the role that writes, or one that it belongs to.
    pub is_owned: bool,
    /// Whether policies hold for its owner, too.
    pub is_forced: bool,
}

/// Returns everything that has a name in a schema which a table or a view could have.
pub(super) async fn relations(
    connection: &Connection,
    schema: &str,
) -> Result<BTreeMap<String, Relation>> {
    let sql = "SELECT c.relname::text AS name, c.relkind::text AS kind, pg_get_userbyid(c.relowner)::text AS \
               owner, pg_has_role(c.relowner, 'USAGE') AS is_owned, (c.relrowsecurity AND \
               c.relforcerowsecurity) AS is_forced FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = \
               c.relnamespace WHERE n.nspname = $1";
    let rows = connection.rows("looking at the schema", sql, &[schema]).await?;
    let relation = |row: &tokio_postgres::Row| {
        let (kind, owner) = (text(row, "kind")?.to_owned(), text(row, "owner")?.to_owned());
        let (is_owned, is_forced) = (truth(row, "is_owned")?, truth(row, "is_forced")?);
        Ok((text(row, "name")?.to_owned(), Relation { kind, owner, is_owned, is_forced }))
    };
    rows.iter().map(relation).collect()
}

/// Returns the types of a table's columns by name.
pub(super) async fn types(
    connection: &Connection,
    schema: &str,
    table: &str,
) -> Result<BTreeMap<String, String>> {
    let sql = "SELECT attname::text AS name, format_type(atttypid, atttypmod) AS kind FROM pg_attribute WHERE \
               attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped";
    let rows = connection.rows("looking at columns", sql, &[&qualified(schema, table)]).await?;
    rows.iter()
        .map(|row| Ok((text(row, "name")?.to_owned(), text(row, "kind")?.to_owned())))
        .collect()
}

/// Refuses a table of ours that others have made unusable.
pub(super) fn usable<'a>(
    relation: Option<&'a Relation>,
    schema: &str,
    name: &str,
) -> Result<&'a Relation> {
    let refused = |text: &str| Err(SinkError::Refused(format!("the table {schema}.{name} {text}")));
    match relation {
        None => refused("was dropped or renamed: `orrery sink replace` fills it again"),
        Some(it) if !it.is_owned => {
            let table = qualified(schema, name);
            let owner = &it.owner;
            refused(&format!(
                "belongs to {owner} now: ALTER TABLE {table} OWNER TO the role of the sink"
            ))
        }
        Some(it) if it.is_forced => {
            let table = qualified(schema, name);
            refused(&format!(
                "has policies that hold for its owner, too: ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY"
            ))
        }
        Some(it) => Ok(it),
    }
}
