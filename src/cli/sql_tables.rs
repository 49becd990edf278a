//! The tables that queries may name, with their columns as SQL has them: what `orrery tables` and `orrery types`
//! tell. A table of a project is the view by which queries name it, and so are views that the service does not
//! list: that of all events of a project, and those of single versions of an event.

use std::collections::BTreeMap;

use orrery::interfaces::names::{EVENTS, PROGRESS, STORAGE};
use orrery::tables::{CHAIN, folded, in_query, may_be_schema, view, written};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Failure;
use super::remote::{Body, Remote};

/// Schema of all tables by their names in the service's list.
const SCHEMA: &str = "retroshade";
/// Query for the columns of all tables and views, one row for each of these.
const COLUMNS: &str = "select table_schema, table_name, list(column_name order by ordinal_position) as names, \
                       list(data_type order by ordinal_position) as types from information_schema.columns \
                       where table_schema not in ('orrery', 'main') group by 1, 2 order by 1, 2";
/// Maximum number of tables and views that an owner may read, or more. By default the service returns fewer
/// rows.
const MOST_TABLES: u32 = 100_000;

/// A table that the service lists.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Name in the list, `program_ID_TARGET`; of a table of the chain itself as queries write it.
    pub name: String,
    /// Project; empty for a program that is to replace another.
    pub project: String,
    /// All that the list says of it.
    pub told: Map<String, Value>,
}

/// A table or view that queries may name.
#[derive(Debug, Clone)]
pub struct SqlTable {
    /// What the service lists of it, or of its project.
    pub listed: Listed,
    /// The part of its name that the program chose, or the name of an event.
    pub target: String,
    /// Its name as queries write it.
    pub called: String,
    /// Names and SQL types of its columns, in their order; none while it is not in SQL.
    pub columns: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct Described {
    table_schema: String,
    table_name: String,
    names: Vec<String>,
    types: Vec<String>,
}

/// Columns by schema and table, both as SQL folds them.
type Columns = BTreeMap<(String, String), Described>;

/// Asks the service for its list of tables.
pub fn listed(remote: &Remote) -> Result<Vec<Listed>, Failure> {
    let all = remote.get("retroshade/tables")?.json()?;
    let text = |of: &Map<String, Value>, name: &str| {
        of.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let all = all.as_array().into_iter().flatten().filter_map(Value::as_object).cloned();
    Ok(all
        .map(|told| Listed {
            name: text(&told, "table_name"),
            project: text(&told, "project_name_plain"),
            told,
        })
        .collect())
}

/// Returns the listed tables as queries name them, without columns.
pub fn without_columns(listed: Vec<Listed>) -> Vec<SqlTable> {
    listed.into_iter().map(|it| of_listed(it, &Columns::new())).collect()
}

/// Asks for the columns of the listed tables, and for further views of their projects, which follow the
/// project's tables.
pub fn with_columns(remote: &Remote, listed: Vec<Listed>) -> Result<Vec<SqlTable>, Failure> {
    let question = json!({ "query": COLUMNS, "max_rows": MOST_TABLES });
    let described = remote.post("retroshade/query", &question)?.json()?;
    let described: Vec<Described> = serde_json::from_value(described).map_err(|error| {
        Failure::failed(format!("the service's answer is not understood: {error}"))
    })?;
    let key = |it: &Described| (folded(&it.table_schema), folded(&it.table_name));
    let columns: Columns = described.into_iter().map(|it| (key(&it), it)).collect();
    let mut tables: Vec<SqlTable> = Vec::new();
    let mut rest = listed.into_iter().peekable();
    while let Some(one) = rest.next() {
        let is_last = rest.peek().is_none_or(|next| next.project != one.project);
        let like = one.clone();
        tables.push(of_listed(one, &columns));
        if is_last && !like.project.is_empty() {
            let further = further(&like, &tables, &columns);
            tables.extend(further);
        }
    }
    Ok(tables)
}

/// Returns the columns of a table or view.
fn columns_in(columns: &Columns, schema: &str, table: &str) -> Option<Vec<(String, String)>> {
    let found = columns.get(&(folded(schema), folded(table)))?;
    Some(found.names.iter().cloned().zip(found.types.iter().cloned()).collect())
}

/// Returns the schema and the name of the view of a project's table.
fn view_of(project: &str, target: &str) -> (String, String) {
    match may_be_schema(project) {
        true => (project.to_owned(), target.to_owned()),
        false => (SCHEMA.to_owned(), view(project, target)),
    }
}

fn of_listed(listed: Listed, columns: &Columns) -> SqlTable {
    if let Some(target) = listed.name.strip_prefix(CHAIN).and_then(|name| name.strip_prefix('.')) {
        let (target, called) = (target.to_owned(), listed.name.clone());
        let columns = columns_in(columns, CHAIN, &target).unwrap_or_default();
        return SqlTable { listed, target, called, columns };
    }
    let target = target(&listed.name).to_owned();
    let (schema, name) = view_of(&listed.project, &target);
    let of_view = columns_in(columns, &schema, &name).filter(|_| !listed.project.is_empty());
    let own = columns_in(columns, SCHEMA, &listed.name);
    // Another program's view may have taken the name; the table itself always has one.
    let is_without_view = listed.project.is_empty() || of_view.is_none() && own.is_some();
    let called = match is_without_view {
        true => written(&listed.name),
        false => in_query(&listed.project, &target),
    };
    SqlTable { listed, target, called, columns: of_view.or(own).unwrap_or_default() }
}

/// Returns the views of a project that are not among these tables. `like` is one of its listed tables.
fn further(like: &Listed, tables: &[SqlTable], columns: &Columns) -> Vec<SqlTable> {
    let project = &like.project;
    let is_known = |target: &str| {
        tables
            .iter()
            .any(|it| it.listed.project == *project && folded(&it.target) == folded(target))
    };
    let in_schema = columns.values().filter(|it| folded(&it.table_schema) == folded(project));
    let targets: Vec<&str> = match may_be_schema(project) {
        true => in_schema.map(|it| it.table_name.as_str()).collect(),
        false => vec![EVENTS, STORAGE, PROGRESS],
    };
    let targets = targets.into_iter().filter(|target| !is_known(target));
    let table = |target: &str| {
        let (schema, name) = view_of(project, target);
        let columns = columns_in(columns, &schema, &name)?;
        let mut listed = Listed { name: view(project, target), ..like.clone() };
        listed.told.insert("table_name".to_owned(), listed.name.clone().into());
        let called = in_query(project, target);
        Some(SqlTable { listed, target: target.to_owned(), called, columns })
    };
    targets.filter_map(table).collect()
}

/// Returns an answer about a project with its tables as queries name them, for people.
pub fn with_names_in_sql(answer: &Body) -> Result<Body, Failure> {
    let mut answer = answer.json()?;
    let name = ["project_name", "project"].iter().find_map(|name| answer[*name].as_str());
    let name = name.unwrap_or_default().to_owned();
    for table in answer["tables"].as_array_mut().into_iter().flatten() {
        if let Some(listed) = table.as_str().filter(|_| !name.is_empty()) {
            *table = in_query(&name, target(listed)).into();
        }
    }
    Ok(Body(answer.to_string().into_bytes()))
}

/// Returns the part of `program_7_deposit` that the program chose, here `deposit`.
pub fn target(table: &str) -> &str {
    let rest = table.strip_prefix("program_").unwrap_or(table);
    match rest.split_once('_') {
        Some((number, target)) if number.bytes().all(|byte| byte.is_ascii_digit()) => target,
        _ => table,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str, project: &str) -> Listed {
        Listed { name: name.to_owned(), project: project.to_owned(), told: Map::new() }
    }

    fn columns(tables: &[(&str, &str, &[&str])]) -> Columns {
        let described = |(schema, table, names): &(&str, &str, &[&str])| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            let types = names.iter().map(|_| "VARCHAR".to_owned()).collect();
            let (table_schema, table_name) = ((*schema).to_owned(), (*table).to_owned());
            ((folded(schema), folded(table)), Described { table_schema, table_name, names, types })
        };
        tables.iter().map(described).collect()
    }

    #[test]
    fn people_see_names_that_they_can_paste() {
        for (answer, tables) in [
            (
                json!({ "project_name": "xlm", "tables": ["program_1_transfer", "program_12_signer_2"] }),
                json!(["xlm.transfer", "xlm.signer_2"]),
            ),
            (
                json!({ "project": "my-pools", "tables": ["program_1_join"] }),
                json!([r#""my-pools"."join""#]),
            ),
            (
                json!({ "project_name": "Orders-2", "tables": ["program_1_placed"] }),
                json!([r#""Orders-2".placed"#]),
            ),
            (json!({ "project_name": "7", "tables": ["program_1_a b"] }), json!([r#""7"."a b""#])),
            // It is to replace another one, and has no name yet.
            (
                json!({ "project_name": "", "tables": ["program_1_join"] }),
                json!(["program_1_join"]),
            ),
            (json!({}), Value::Null),
        ] {
            let shown = with_names_in_sql(&Body(answer.to_string().into_bytes())).unwrap();
            assert_eq!(shown.json().unwrap()["tables"], tables);
        }
    }

    #[test]
    fn targets_are_told_from_numbers() {
        assert_eq!(target("program_12_big_deposit"), "big_deposit");
        assert_eq!(target("programs"), "programs");
    }

    #[test]
    fn tables_have_the_columns_of_the_views_by_which_they_are_named() {
        let known = columns(&[
            ("retroshade", "program_1_said", &["_ledger", "a"]),
            ("retroshade", "program_2_said", &["b"]),
            ("retroshade", "main_said", &["c"]),
            ("retroshade", "program_3_said", &["_ledger", "c"]),
            ("My-p", "said", &["a", "_ledger"]),
            ("My-p", "events", &["name"]),
            ("chain", "events", &["id"]),
        ]);
        for (name, project, called, first) in [
            ("program_1_said", "My-p", "\"My-p\".said", Some("a")),
            ("program_2_said", "", "program_2_said", Some("b")),
            ("program_3_said", "main", "main_said", Some("c")),
            ("chain.events", "chain", "chain.events", Some("id")),
            // Not in SQL yet.
            ("program_1_told", "My-p", "\"My-p\".told", None),
        ] {
            let table = of_listed(listed(name, project), &known);
            let columns: Vec<_> = table.columns.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!((table.called.as_str(), columns.first().copied()), (called, first));
        }
        let own = [of_listed(listed("program_1_said", "My-p"), &known)];
        let further = further(&own[0].listed, &own, &known);
        let further: Vec<_> = further.iter().map(|it| it.called.as_str()).collect();
        assert_eq!(further, ["\"My-p\".events"]);
    }
}
