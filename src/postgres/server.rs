//! What a server must be and allow, and what `orrery sink test` says is missing, each with the statement that
//! mends it.

use super::SCHEMA;
use super::connection::{Connection, number, text, truth};
use super::error::{Result, SinkError};
use super::names::quoted;

/// The oldest version of PostgreSQL that is written to.
const OLDEST: u32 = 14;

/// A server and what it lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Examined {
    /// Version of the server, such as `15.6`.
    pub version: String,
    /// Name of the role that writes.
    pub user: String,
    /// Name of the database.
    pub database: String,
    /// What is missing, each with what mends it; nothing if everything is there.
    pub missing: Vec<String>,
}

/// Checks that the server can be written to.
///
/// # Errors
/// With one sentence, when it cannot.
pub(super) async fn check(connection: &Connection) -> Result<()> {
    let facts = facts(connection).await?;
    if facts.version / 10_000 < OLDEST {
        return Err(SinkError::Refused(format!(
            "the server is PostgreSQL {}: rows go into PostgreSQL {OLDEST} or newer",
            facts.version_text
        )));
    }
    if facts.encoding != "UTF8" {
        return Err(SinkError::Refused(format!(
            "the database {} is {}, and texts are UTF-8: create one with ENCODING 'UTF8'",
            facts.database, facts.encoding
        )));
    }
    if facts.is_standby {
        return Err(SinkError::Lost(
            "the server is a standby, which takes no writes: give the address of the primary, or of all with \
             target_session_attrs=read-write"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Looks at what the role may do in the schemas that the sink writes to. Nothing is changed.
///
/// # Errors
/// When the server cannot be asked.
pub async fn examine(connection: &Connection, schemas: &[&str]) -> Result<Examined> {
    let facts = facts(connection).await?;
    let mut missing = Vec::new();
    for schema in std::iter::once(&SCHEMA).chain(schemas) {
        missing.extend(lacks(connection, &facts, schema).await?);
    }
    let Facts { version_text, user, database, .. } = facts;
    Ok(Examined { version: version_text, user, database, missing })
}

/// Returns what a schema lacks.
async fn lacks(connection: &Connection, facts: &Facts, schema: &str) -> Result<Option<String>> {
    let (name, user) = (quoted(schema), quoted(&facts.user));
    let sql = "SELECT n.oid IS NOT NULL AS is_there, pg_catalog.has_schema_privilege(n.oid, 'USAGE') AS uses, \
               pg_catalog.has_schema_privilege(n.oid, 'CREATE') AS creates FROM (SELECT 1) AS one \
               LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname = $1";
    let rows = connection.rows("reading privileges", sql, &[schema]).await?;
    let row = rows.first().ok_or_else(|| SinkError::odd("privileges"))?;
    let lacks = match (truth(row, "is_there")?, truth(row, "uses")?, truth(row, "creates")?) {
        (true, true, true) => None,
        (false, ..) if facts.creates_schemas => None,
        (false, ..) => {
            Some(format!("there is no schema {schema}: CREATE SCHEMA {name} AUTHORIZATION {user};"))
        }
        (true, uses, creates) => {
            let privileges = match (uses, creates) {
                (false, false) => "USAGE, CREATE",
                (false, true) => "USAGE",
                _ => "CREATE",
            };
            Some(format!(
                "{} may not write into the schema {schema}: GRANT {privileges} ON SCHEMA {name} TO {user};",
                facts.user
            ))
        }
    };
    Ok(lacks)
}

/// Creates schemas that are not there yet.
///
/// # Errors
/// [`SinkError::Refused`] with what is missing.
pub(super) async fn create_schemas(connection: &Connection, schemas: &[&str]) -> Result<()> {
    let examined = examine(connection, schemas).await?;
    if !examined.missing.is_empty() {
        return Err(SinkError::Refused(examined.missing.join(" ")));
    }
    for schema in std::iter::once(&SCHEMA).chain(schemas) {
        let sql = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1";
        if connection.rows("reading schemas", sql, &[schema]).await?.is_empty() {
            let sql = format!("CREATE SCHEMA IF NOT EXISTS {}", quoted(schema));
            connection.run("creating a schema", &sql).await?;
        }
    }
    Ok(())
}

/// What a server says of itself.
struct Facts {
    /// Number such as 150006.
    version: u32,
    version_text: String,
    encoding: String,
    is_standby: bool,
    user: String,
    database: String,
    creates_schemas: bool,
}

async fn facts(connection: &Connection) -> Result<Facts> {
    let sql = "SELECT current_setting('server_version_num') AS number, current_setting('server_version') AS \
               version, pg_catalog.pg_is_in_recovery() AS is_standby, current_user::text AS role, \
               d.datname::text AS database, pg_catalog.pg_encoding_to_char(d.encoding)::text AS encoding, \
               pg_catalog.has_database_privilege(d.oid, 'CREATE') AS creates FROM pg_catalog.pg_database AS d \
               WHERE d.datname = current_database()";
    let rows = connection.rows("asking the server what it is", sql, &[]).await?;
    let row = rows.first().ok_or_else(|| SinkError::odd("its version"))?;
    Ok(Facts {
        version: number(row, "number")?,
        version_text: text(row, "version")?.to_owned(),
        encoding: text(row, "encoding")?.to_owned(),
        is_standby: truth(row, "is_standby")?,
        user: text(row, "role")?.to_owned(),
        database: text(row, "database")?.to_owned(),
        creates_schemas: truth(row, "creates")?,
    })
}
