//! The queries of views: a table as it is, the versions of an event together, or one row per event.

use std::borrow::Cow;
use std::collections::BTreeMap;

use orrery_interfaces::names::{MEMBER_CHANGES, MEMBERS, TRANSACTION};

use super::conversion::conversion;
use super::held::{self, Held};
use super::members;
use crate::event_tables::EVENTS_VIEW;
use crate::names::{self, INJECTED, folded, quoted};
use crate::schema::TableSchema;
use crate::types::{ColumnType, Field};
use crate::wire::Definition;

/// What a view shows.
pub struct Shown<'a> {
    /// Target after which the view is named.
    pub target: Cow<'a, str>,
    /// Names of the tables.
    pub tables: Vec<String>,
    /// The query.
    pub select: String,
    /// The parameter, if this is a function with rows instead of a view.
    pub parameter: Option<&'static str>,
}

/// Returns what the views show that have the names of tables of a project of events.
pub fn of_stored(definition: &Definition) -> Vec<(String, Shown<'_>)> {
    let shown = |table: &'_ TableSchema| {
        let target = Cow::Owned(table.target.clone());
        let shown = show(definition, target, &[table], alone(definition, table));
        (names::table(definition.program, &table.target), shown)
    };
    let tables = definition.schema.stored_tables();
    tables.filter(|_| definition.is_of_events()).map(shown).collect()
}

/// Returns what the views of a program show.
pub fn of(definition: &Definition) -> Vec<Shown<'_>> {
    let of_events = definition.schema.of_events();
    let versions: BTreeMap<&String, &Vec<String>> =
        of_events.versions.iter().filter_map(|all| Some((all.first()?, all))).collect();
    let mut shown = Vec::new();
    for table in definition.schema.tables() {
        let versions = versions.get(&table.target).into_iter().flat_map(|all| all.iter());
        let versions: Vec<_> = versions.filter_map(|it| definition.schema.table(it)).collect();
        let whole = [table];
        let tables = if versions.is_empty() { &whole[..] } else { &versions };
        let select = match tables {
            [table] => alone(definition, table),
            versions => together(definition, versions),
        };
        shown.push(show(definition, Cow::Borrowed(&*table.target), tables, select));
        // That of all versions has only the columns that these have in common.
        if let [first, _, ..] = tables {
            let target = names::first_version(&first.target, |name| {
                definition.schema.stored_tables().any(|it| it.target == name)
            });
            shown.push(show(definition, Cow::Owned(target), &[first], alone(definition, first)));
        }
    }
    if let Some(table) = &of_events.events {
        let column = |(own, name): (&str, &str)| format!("{} AS {}", quoted(own), quoted(name));
        let columns = EVENTS_VIEW.map(column).join(", ");
        let select = format!("SELECT {columns} FROM {}", full_name(definition, table));
        shown.push(show(definition, Cow::Borrowed(&*table.target), &[table], select));
    }
    if let Some((stored, select)) = members::of(definition) {
        let (target, tables) = (Cow::Borrowed(MEMBERS), vec![stored]);
        shown.push(Shown { target, tables, select, parameter: None });
    }
    if let Some((stored, held)) = held::of(definition) {
        for Held { target, parameter, select } in held {
            let (target, tables) = (Cow::Borrowed(target), stored.clone());
            shown.push(Shown { target, tables, select, parameter });
        }
    }
    shown
}

fn show<'a>(
    definition: &Definition,
    target: Cow<'a, str>,
    tables: &[&TableSchema],
    select: String,
) -> Shown<'a> {
    let name = |table: &&TableSchema| definition.stored(&table.target);
    Shown { target, tables: tables.iter().map(name).collect(), select, parameter: None }
}

fn full_name(definition: &Definition, table: &TableSchema) -> String {
    let name = definition.stored(&table.target);
    format!("{}.{}", names::SCHEMA, quoted(&name))
}

/// Returns the query for the rows of a table.
fn alone(definition: &Definition, table: &TableSchema) -> String {
    let columns = INJECTED.iter().map(|(name, _)| *name);
    let columns = columns.chain(table.shown_columns().iter().map(|column| column.name.as_str()));
    let columns = names::in_shown_order(columns, |name| name, definition.is_of_events());
    let of_members = table.target == MEMBER_CHANGES && definition.schema.has_members();
    let column = |name: &str| match of_members && name == TRANSACTION {
        true => format!("{} AS {}", members::transaction(), quoted(name)),
        false => quoted(name),
    };
    let columns: Vec<String> = columns.into_iter().map(column).collect();
    format!("SELECT {} FROM {}", columns.join(", "), full_name(definition, table))
}

/// Returns the query for the rows of several tables, with the columns that all have. A column whose
/// types do not join is JSON.
fn together(definition: &Definition, tables: &[&TableSchema]) -> String {
    let by_name = |table: &TableSchema| -> BTreeMap<String, Field> {
        table.columns.iter().map(|column| (folded(&column.name), column.clone())).collect()
    };
    let columns: Vec<_> = tables.iter().map(|table| by_name(table)).collect();
    let common = tables.first().into_iter().flat_map(|first| &first.columns);
    let common: Vec<(&Field, Option<ColumnType>)> = common
        .filter(|column| columns.iter().all(|own| own.contains_key(&folded(&column.name))))
        .map(|column| {
            let mut kinds = columns.iter().filter_map(|own| own.get(&folded(&column.name)));
            let joined = kinds.try_fold(ColumnType::Unknown, |kind, own| kind.join(&own.kind));
            (column, joined)
        })
        .collect();
    let select = |(table, own): (&&TableSchema, &BTreeMap<String, Field>)| {
        let injected = INJECTED.iter().map(|(name, _)| (*name, quoted(name)));
        let values = common.iter().filter_map(|(column, joined)| {
            let own = own.get(&folded(&column.name))?;
            let value = format!("{} AS {}", value(own, joined.as_ref()), quoted(&column.name));
            Some((column.name.as_str(), value))
        });
        let values = injected.chain(values);
        let values = names::in_shown_order(values, |(name, _)| name, definition.is_of_events());
        let values: Vec<String> = values.into_iter().map(|(_, value)| value).collect();
        format!("SELECT {} FROM {}", values.join(", "), full_name(definition, table))
    };
    tables.iter().zip(&columns).map(select).collect::<Vec<_>>().join(" UNION ALL ")
}

/// Returns the values of a column in the type that all have, or as JSON.
fn value(column: &Field, joined: Option<&ColumnType>) -> String {
    let name = quoted(&column.name);
    match joined {
        Some(joined) if *joined == column.kind => name,
        Some(joined) => conversion(&column.kind, joined, &name),
        None => {
            let exact = exact(&column.kind);
            let value = if exact == column.kind {
                name.clone()
            } else {
                format!("CAST({name} AS {exact})")
            };
            format!("CASE WHEN {name} IS NULL THEN NULL ELSE to_json({value}) END")
        }
    }
}

/// Returns the type with integers of 64 bits and more as text, because many readers of JSON round
/// such numbers.
fn exact(kind: &ColumnType) -> ColumnType {
    match kind {
        ColumnType::UInt64 | ColumnType::Int64 | ColumnType::UInt128 | ColumnType::Int128 => {
            ColumnType::Text
        }
        ColumnType::List(of) => ColumnType::list(exact(of)),
        ColumnType::Map(keys, of) => ColumnType::map(exact(keys), exact(of)),
        ColumnType::Struct(fields) => {
            let field =
                |field: &Field| Field { name: field.name.clone(), kind: exact(&field.kind) };
            ColumnType::Struct(fields.iter().map(field).collect())
        }
        other => other.clone(),
    }
}
