//! Removing what the sink made for a project, or forgetting it: `orrery sink remove`.

use super::connection::{Connection, Purpose, text};
use super::cursor::{Of, Writer};
use super::error::Result;
use super::names::qualified;
use super::{objects, views};

/// Drops the tables and views of a project, whoever of the same sink wrote them, and forgets its cursor. Without this,
/// they stay as they are: see [`Writer::set_state`].
///
/// # Errors
/// [`SinkError::Blocked`](crate::SinkError::Blocked) when something of others depends on one of them. Then nothing is
/// dropped.
pub async fn remove(connection: &Connection, writer: &Writer, project: &str) -> Result<()> {
    connection.begin(Purpose::Tables).await?;
    let done = remove_in(connection, writer, project).await;
    connection.end(done).await
}

/// Forgets a project: its tables and views stay as they are, and are the users' from then on. What was begun to be filled
/// beside is dropped.
///
/// # Errors
/// When the server cannot be asked. Then nothing is forgotten.
pub async fn release(connection: &Connection, writer: &Writer, project: &str) -> Result<()> {
    connection.begin(Purpose::Tables).await?;
    let done = release_in(connection, writer, project).await;
    connection.end(done).await
}

/// Drops what this writer has begun to fill in beside for projects that are not among these.
///
/// # Errors
/// When the server cannot be asked. Some may be dropped then.
pub async fn drop_begun(
    connection: &Connection,
    writer: &Writer,
    is_there: impl Fn(&str) -> bool,
) -> Result<()> {
    let sql = "SELECT project FROM orrery.refill WHERE network = $1 AND sink = $2 AND writer = $3";
    let key = [&*writer.network, &*writer.sink, &*writer.id];
    for row in connection.rows("looking for tables that were begun", sql, &key).await? {
        let project = text(&row, "project")?;
        if is_there(project) {
            continue;
        }
        connection.begin(Purpose::Tables).await?;
        let done = drop_begun_in(connection, writer, project).await;
        connection.end(done).await?;
    }
    Ok(())
}

async fn drop_begun_in(connection: &Connection, writer: &Writer, project: &str) -> Result<()> {
    let begun = writer.locked(connection, project, Of::Refill).await?;
    if begun.is_none_or(|cursor| cursor.writer != writer.id) {
        return Ok(());
    }
    drop_filling(connection, writer, project).await?;
    let key = [&*writer.network, &*writer.sink, project];
    let sql = "DELETE FROM orrery.refill WHERE network = $1 AND sink = $2 AND project = $3";
    connection.rows("forgetting what was begun", sql, &key).await.map(drop)
}

/// Drops the tables of a project that were begun to be filled, in whatever schema.
pub(super) async fn drop_filling(
    connection: &Connection,
    writer: &Writer,
    project: &str,
) -> Result<()> {
    let sql = "SELECT schema_name, object_name FROM orrery.objects WHERE network = $1 AND sink = $2 AND project = $3 \
               AND kind = 'filling'";
    let key = [&*writer.network, &*writer.sink, project];
    for row in connection.rows("looking for tables that were begun", sql, &key).await? {
        let (schema, name) = (text(&row, "schema_name")?, text(&row, "object_name")?);
        let sql = format!("DROP TABLE IF EXISTS {}", qualified(schema, name));
        connection.run("dropping a table that was begun", &sql).await?;
        objects::forget(connection, schema, name).await?;
    }
    Ok(())
}

async fn release_in(connection: &Connection, writer: &Writer, project: &str) -> Result<()> {
    drop_filling(connection, writer, project).await?;
    let key = [&*writer.network, &*writer.sink, project];
    let sql = "SELECT schema_name, object_name FROM orrery.objects WHERE network = $1 AND sink = $2 AND project = $3";
    for row in connection.rows("looking for what is forgotten", sql, &key).await? {
        let (schema, name) = (text(&row, "schema_name")?, text(&row, "object_name")?);
        objects::forget(connection, schema, name).await?;
    }
    for table in ["orrery.cursor", "orrery.refill"] {
        let sql = format!("DELETE FROM {table} WHERE network = $1 AND sink = $2 AND project = $3");
        connection.rows("forgetting a project", &sql, &key).await?;
    }
    Ok(())
}

async fn remove_in(connection: &Connection, writer: &Writer, project: &str) -> Result<()> {
    let key = [&*writer.network, &*writer.sink, project];
    // Views first: they show the tables.
    let sql = "SELECT schema_name, object_name, kind FROM orrery.objects WHERE network = $1 AND sink = $2 AND project = \
               $3 ORDER BY kind <> 'view', object_name";
    for row in connection.rows("looking for what is removed", sql, &key).await? {
        let (schema, name) = (text(&row, "schema_name")?, text(&row, "object_name")?);
        if text(&row, "kind")? == "view" {
            views::drop(connection, schema, name).await?;
        } else {
            let table = qualified(schema, name);
            let dropped =
                connection.run("dropping a table", &format!("DROP TABLE IF EXISTS {table}")).await;
            dropped.map_err(|error| views::blocked(error, &table))?;
        }
        objects::forget(connection, schema, name).await?;
    }
    for table in ["orrery.cursor", "orrery.refill"] {
        let sql = format!("DELETE FROM {table} WHERE network = $1 AND sink = $2 AND project = $3");
        connection.rows("forgetting a project", &sql, &key).await?;
    }
    Ok(())
}
