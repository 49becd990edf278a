//! The queries of views: several versions of an event together, the members of a project, and what its contracts
//! hold. They answer what the views of our own SQL do.

use super::connection::Connection;
use super::cursor::Writer;
use super::error::{Result, SinkError};
use super::names::{ROW, literal, qualified, quoted};
use super::places::{Place, Places};
use super::types::{Column, Project, Shows, View};

/// Returns the query of a view.
pub(super) fn query(
    writer: &Writer,
    project: &Project,
    view: &View,
    places: &Places,
) -> Result<String> {
    let place = |target: &str| {
        places.0.get(target).ok_or_else(|| {
            SinkError::Refused(format!("the view {} shows {target}, which is no table", view.name))
        })
    };
    match &view.shows {
        Shows::Versions { targets, columns } => {
            let selects = targets
                .iter()
                .map(|target| version(project, (&view.name, columns), target, place(target)?));
            Ok(selects.collect::<Result<Vec<_>>>()?.join(" UNION ALL "))
        }
        Shows::Members(target) => Ok(members(&qualified(&project.schema, &place(target)?.name))),
        Shows::Storage { changes, members } => {
            // The newest ledger that was processed, whether it has changes or not, and the first without a gap before.
            let cursor = |column: &str| {
                format!(
                    "(SELECT {column} FROM orrery.cursor WHERE network ={} AND sink ={} AND project ={})",
                    literal(&writer.network),
                    literal(&writer.sink),
                    literal(&project.name)
                )
            };
            let table = |target: &str| -> Result<String> {
                Ok(qualified(&project.schema, &place(target)?.name))
            };
            let members = members.as_deref().map(table).transpose()?;
            let known = recorded(&table(changes)?, members.as_deref(), &cursor("held_from"));
            Ok(storage(&known, &cursor("ledger")))
        }
    }
}

/// Returns a query for the changes that count for what contracts hold: those of the ledgers from `first` on, and after
/// a contract left those that were recorded since. What leaves a code for another one that is selected, or is selected
/// otherwise, stays a member.
fn recorded(changes: &str, members: Option<&str>, first: &str) -> String {
    let Some(members) = members else {
        return format!("(SELECT * FROM {changes} WHERE _ledger >= {first})");
    };
    format!(
        "(SELECT s.* FROM {changes} AS s LEFT JOIN (SELECT l.contract_id AS who, max(l._ledger) AS gone_at FROM \
         {members} AS l WHERE l.change = 'left' AND NOT EXISTS (SELECT 1 FROM {members} AS j WHERE j.contract_id = \
         l.contract_id AND (j.wasm_hash IS NULL OR (j.change = 'joined' AND j._ledger = l._ledger AND \
         j.\"transaction\" = l.\"transaction\"))) GROUP BY l.contract_id) AS l ON l.who = s.contract_id WHERE \
         s._ledger >= {first} AND (l.gone_at IS NULL OR s._ledger > l.gone_at))"
    )
}

/// Returns the query for the rows of one version, in the columns of a view.
fn version(
    project: &Project,
    (view, columns): (&str, &[Column]),
    target: &str,
    place: &Place,
) -> Result<String> {
    let kinds = project.table(target).map(|table| &table.columns[..]).unwrap_or_default();
    let mut selected = vec![ROW.to_owned()];
    // Columns of the view have names of their own, shortened as those of tables are.
    let names = super::names::columns(columns.iter().map(|column| column.name.as_str()));
    for (column, name) in columns.iter().zip(names) {
        let found =
            kinds.iter().find(|it| it.name == column.name).zip(place.columns.get(&column.name));
        let (own, own_name) = found.ok_or_else(|| {
            SinkError::Refused(format!(
                "{target} has no column {}, which {view} shows",
                column.name
            ))
        })?;
        let value = own.kind.converted(&column.kind, &quoted(own_name));
        selected.push(format!("{value} AS {}", quoted(&name)));
    }
    let table = qualified(&project.schema, &place.name);
    Ok(format!("SELECT {} FROM {table}", selected.join(", ")))
}

/// Returns the query for the contracts that are members, as the view `members` of our own SQL has them.
fn members(table: &str) -> String {
    format!(
        "SELECT contract_id, selector, CASE WHEN \"transaction\" IS NOT NULL THEN _ledger END AS since_ledger, \
         \"transaction\" AS since_transaction, until_ledger, wasm_hash FROM (SELECT *, CASE WHEN wasm_hash IS NOT \
         NULL THEN lead(_ledger) OVER (PARTITION BY contract_id, selector ORDER BY {ROW}) END AS until_ledger \
         FROM {table}) AS m WHERE change = 'joined'"
    )
}

/// Returns the query for what contracts hold, as the view `storage` of our own SQL has it: of each key the newest
/// change, as of the ledger `newest`, with the origin of the newest one that is more than an extension.
fn storage(changes: &str, newest: &str) -> String {
    format!(
        "SELECT c.key_name, c.key_args, c.key, c.value, c.durability, c.live_until, (c.change = 'evicted' OR \
         c.live_until < {newest}) AS archived, c.key_hash, c.contract_id, u.\"transaction\", u._ledger, \
         u._ledger_closed_at, u._service_event_id FROM (SELECT DISTINCT ON (key_hash) * FROM {changes} AS c ORDER BY \
         key_hash, {ROW} DESC) AS c JOIN (SELECT DISTINCT ON (key_hash) key_hash, \"transaction\", _ledger, \
         _ledger_closed_at, _service_event_id FROM {changes} AS c ORDER BY key_hash, change IN ('extended', 'evicted'), \
         {ROW} DESC) AS u ON u.key_hash = c.key_hash WHERE c.value IS NOT NULL AND c.change <> 'removed' AND \
         (c.durability = 'persistent' OR (c.change <> 'evicted' AND coalesce(c.live_until >= {newest}, c._ledger = \
         {newest})))"
    )
}

/// Creates a view, or replaces it; where its columns are others, it is dropped first.
pub(super) async fn replace(
    connection: &Connection,
    schema: &str,
    name: &str,
    query: &str,
) -> Result<()> {
    let view = qualified(schema, name);
    connection.run("beginning to create a view", "SAVEPOINT view").await?;
    let sql = format!("CREATE OR REPLACE VIEW {view} AS {query}");
    match connection.run("creating a view", &sql).await {
        Ok(()) => connection.run("creating a view", "RELEASE SAVEPOINT view").await,
        Err(SinkError::Refused(_)) => {
            connection.run("creating a view", "ROLLBACK TO SAVEPOINT view").await?;
            drop(connection, schema, name).await?;
            connection.run("creating a view", &format!("CREATE VIEW {view} AS {query}")).await
        }
        Err(error) => Err(error),
    }
}

/// Drops a view.
///
/// # Errors
/// [`SinkError::Blocked`] when others depend on it.
pub(super) async fn drop(connection: &Connection, schema: &str, name: &str) -> Result<()> {
    let view = qualified(schema, name);
    let dropped = connection.run("dropping a view", &format!("DROP VIEW IF EXISTS {view}")).await;
    dropped.map_err(|error| blocked(error, &view))
}

/// Turns the refusal to drop something that others depend on into what blocks.
pub(super) fn blocked(error: SinkError, object: &str) -> SinkError {
    match error {
        SinkError::Refused(text) if text.contains("[2BP01]") => SinkError::Blocked(vec![format!(
            "what depends on {object}, which has to change: drop that, and create it again afterwards"
        )]),
        error => error,
    }
}
