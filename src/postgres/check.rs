//! Compares what is in the tables with what was written: numbers of rows and digests, which the server computes
//! itself, so that no row leaves it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::connection::{Connection, Purpose, number, text};
use super::cursor::Writer;
use super::error::Result;
use super::keys::bounds;
use super::names::{ROW, mark, qualified, quoted};
use super::objects::{self, Kind, Object};
use super::rows::RowsDigest;
use super::types::Project;

/// What a table has, and should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedTable {
    /// Name with the schema.
    pub name: String,
    /// Target.
    pub target: String,
    /// Rows that the sink wrote.
    pub written: RowsDigest,
    /// Characters U+0000 in texts that were written as `\x00`, but for rows that were copied in the database.
    pub nuls: u64,
    /// Rows that are there; none where the table is missing.
    pub found: Option<RowsDigest>,
}

impl CheckedTable {
    /// Says in a sentence what is wrong; `None` when nothing is.
    pub fn difference(&self) -> Option<String> {
        let (name, written) = (&self.name, self.written.rows);
        match self.found {
            None => Some(format!("{name} is missing: `orrery sink replace` fills it again")),
            Some(found) if found == self.written => None,
            Some(found) if found.rows != written => Some(format!(
                "{name} has {} rows, and {written} were written: somebody removed or added some; \
                 `orrery sink replace` fills it again",
                found.rows
            )),
            Some(_) => Some(format!(
                "rows of {name} are not what was written: somebody changed some; `orrery sink replace` fills it again"
            )),
        }
    }
}

/// Compares all tables of a project with what the sink wrote. Reads all of their rows, on the server, in one
/// transaction: rows that are written meanwhile do not disturb it.
///
/// # Errors
/// When the server cannot be asked.
pub async fn check(
    connection: &Connection,
    writer: &Writer,
    project: &Project,
) -> Result<Vec<CheckedTable>> {
    connection.begin(Purpose::Check).await?;
    let done = check_in(connection, writer, project).await;
    connection.end(done).await
}

async fn check_in(
    connection: &Connection,
    writer: &Writer,
    project: &Project,
) -> Result<Vec<CheckedTable>> {
    let schema = &project.schema;
    let there = objects::relations(connection, schema).await?;
    let mut checked = Vec::new();
    for object in objects::objects(connection, writer, schema, &project.name).await? {
        if !object.is_own || object.kind != Kind::Table {
            continue;
        }
        let found = match there.contains_key(&object.name) {
            true => {
                let columns = objects::columns(connection, schema, &object.name).await?;
                Some(digest_of(connection, schema, &object.name, &columns, "true").await?)
            }
            false => None,
        };
        let name = format!("{schema}.{}", object.name);
        let Object { target, digest: written, nuls, .. } = object;
        checked.push(CheckedTable { name, target, written, nuls, found });
    }
    Ok(checked)
}

/// Returns number and digest of the rows of a table by ledger, to find those that need not be sent again:
/// [`EqualRows`](crate::EqualRows). Empty when there is no such table.
///
/// # Errors
/// When the server cannot be asked.
pub async fn ledger_digests(
    connection: &Connection,
    writer: &Writer,
    (project, schema): (&str, &str),
    target: &str,
    ledgers: &RangeInclusive<u32>,
) -> Result<BTreeMap<u32, RowsDigest>> {
    by_ledgers(connection, writer, (project, schema), target, (0, &bounds(ledgers))).await
}

/// Returns number and digest of all rows of a table, by ledgers whose numbers are equal but for so many last bits: their
/// other bits are the key. Empty when there is no such table.
///
/// # Errors
/// When the server cannot be asked.
pub async fn grouped_digests(
    connection: &Connection,
    writer: &Writer,
    names: (&str, &str),
    target: &str,
    shift: u32,
) -> Result<BTreeMap<u32, RowsDigest>> {
    by_ledgers(connection, writer, names, target, (shift, "true")).await
}

async fn by_ledgers(
    connection: &Connection,
    writer: &Writer,
    (project, schema): (&str, &str),
    target: &str,
    (shift, condition): (u32, &str),
) -> Result<BTreeMap<u32, RowsDigest>> {
    connection.begin(Purpose::Rows).await?;
    let done = async {
        let ours = objects::objects(connection, writer, schema, project).await?;
        let there = objects::relations(connection, schema).await?;
        let is_wanted = |it: &&objects::Object| {
            it.is_own
                && it.kind == Kind::Table
                && it.target == target
                && there.contains_key(&it.name)
        };
        let Some(table) = ours.iter().find(is_wanted) else { return Ok(BTreeMap::new()) };
        let known = objects::columns(connection, schema, &table.name).await?;
        let hash = hash(connection, schema, &table.name, &known).await?;
        let ledger = format!(
            "(get_byte({ROW}, 0) * 16777216::bigint + get_byte({ROW}, 1) * 65536 + get_byte({ROW}, 2) * 256 + \
             get_byte({ROW}, 3)) >> {shift}"
        );
        let sql = format!(
            "SELECT ledger::text AS ledger, {SUMS} FROM (SELECT {ledger} AS ledger, {hash} AS hash FROM {} WHERE \
             {condition}) AS h GROUP BY ledger",
            qualified(schema, &table.name),
        );
        let rows = connection.rows_long("computing digests of ledgers", &sql, &[]).await?;
        rows.iter().map(|row| Ok((number(row, "ledger")?, sums(row)?))).collect()
    };
    connection.end(done.await).await
}

/// Returns number and digest of those rows of a table for which a condition holds. `known` has its columns in the
/// database by their exact names.
pub(super) async fn digest_of(
    connection: &Connection,
    schema: &str,
    table: &str,
    known: &BTreeMap<String, String>,
    condition: &str,
) -> Result<RowsDigest> {
    let hash = hash(connection, schema, table, known).await?;
    let full = qualified(schema, table);
    let sql =
        format!("SELECT {SUMS} FROM (SELECT {hash} AS hash FROM {full} WHERE {condition}) AS h");
    let rows = connection.rows_long("computing a digest", &sql, &[]).await?;
    rows.first().map_or(Ok(RowsDigest::default()), sums)
}

/// The number of rows, and the sums of the parts of their hashes.
const SUMS: &str = "count(*)::text AS number, sum(('x' || encode(substring(hash FROM 1 FOR 8), \
                    'hex'))::bit(64)::bigint)::text AS first, sum(('x' || encode(substring(hash FROM 9 FOR 8), \
                    'hex'))::bit(64)::bigint)::text AS second";

fn sums(row: &tokio_postgres::Row) -> Result<RowsDigest> {
    let (first, second) = (number(row, "first")?, number(row, "second")?);
    Ok(RowsDigest { rows: number(row, "number")?, sums: [first, second] })
}

/// Returns the expression for the hash of a row as [`RowsDigest`] describes it. The functions that send values give
/// the bytes which a binary `COPY` has.
async fn hash(
    connection: &Connection,
    schema: &str,
    table: &str,
    known: &BTreeMap<String, String>,
) -> Result<String> {
    let sql = "SELECT attname::text AS name, typsend::text AS sender FROM pg_attribute AS a JOIN pg_type AS t ON \
               t.oid = a.atttypid WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped";
    let rows = connection.rows("looking at columns", sql, &[&qualified(schema, table)]).await?;
    let mut fields = Vec::new();
    for (exact, name) in known {
        // A column that somebody dropped has no value any more.
        let mut found = rows.iter().filter(|row| text(row, "name").is_ok_and(|it| it == name));
        if let Some(row) = found.next() {
            fields.push((mark(exact), format!("{}({})", text(row, "sender")?, quoted(name))));
        }
    }
    fields.sort();
    let mut all = ROW.to_owned();
    for (mark, bytes) in fields {
        let mark: String = mark.iter().map(|byte| format!("{byte:02x}")).collect();
        all += &format!(
            " || coalesce('\\x{mark}'::bytea || int4send(octet_length({bytes})) || {bytes}, ''::bytea)"
        );
    }
    Ok(format!("sha256({all})"))
}
