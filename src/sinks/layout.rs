//! The tables and views of a project in PostgreSQL, as they follow from its tables, and how its rows become values.

use std::collections::BTreeMap;

use orrery_interfaces::names::{
    DECLARED, EVENT, EVENT_ID, EVENT_INDEX, EVENTS, MEMBER_CHANGES, MEMBERS, REST, STORAGE,
    STORAGE_CHANGES, TRANSACTION, UNDECLARED,
};
use orrery_postgres::{Column, ColumnType, Project, Shows, Table, Value, View};
use orrery_programs::events::DeclaredTable;
use orrery_programs::manifest::Manifest;
use orrery_tables::event_tables::EVENTS_VIEW;
use orrery_tables::schema::TableSchema;
use orrery_tables::{Field, INJECTED, Row, first_version, folded, in_shown_order, is_column};

use super::values;

/// Columns of tables of events whose types are not those of values.
const FIXED: [&str; 5] = [EVENT_ID, EVENT_INDEX, DECLARED, EVENT, REST];

/// Where the value of a column comes from.
#[derive(Debug, Clone)]
enum Cell {
    Contract,
    Transaction,
    /// As [`Cell::Transaction`], null where it is before the stored ledgers.
    TransactionIfKnown,
    RowId,
    Ledger,
    ClosedAt,
    Field(Field, ColumnType),
}

/// The tables of a project in PostgreSQL.
#[derive(Debug)]
pub(crate) struct Layout {
    /// As the server is told them.
    pub project: Project,
    /// Of each table, in its order, where values come from.
    cells: Vec<Vec<Cell>>,
}

impl Layout {
    /// The tables of a program's manifest, in this schema, with what is declared of them.
    pub fn new(
        manifest: &Manifest,
        schema: String,
        declared: &BTreeMap<String, DeclaredTable>,
    ) -> Self {
        let own = &manifest.schema;
        let versions: BTreeMap<&String, &Vec<String>> =
            own.versions().iter().filter_map(|all| Some((all.first()?, all))).collect();
        let is_taken = |name: &str| own.stored_tables().any(|table| table.target == name);
        let (mut tables, mut cells, mut views) = (Vec::new(), Vec::new(), Vec::new());
        for table in own.stored_tables() {
            let declared = declared.get(&table.target);
            let (mut columns, own_cells) = columns(manifest, table);
            for column in &mut columns {
                if let Some(known) = declared.and_then(|it| it.columns.get(&column.name)) {
                    column.declared.clone_from(&known.kind);
                    column.doc.clone_from(&known.doc);
                }
            }
            let name = match versions.get(&table.target) {
                Some(_) => first_version(&table.target, is_taken),
                None => table.target.clone(),
            };
            let comment = comment(manifest, table, declared);
            tables.push(Table { target: table.target.clone(), name, columns, comment });
            cells.push(own_cells);
        }
        for targets in own.versions() {
            views.extend(together(targets, &tables));
        }
        if own.has_members() {
            views.push(View {
                name: MEMBERS.to_owned(),
                shows: Shows::Members(MEMBER_CHANGES.to_owned()),
                comment: "the contracts that are members, and those that were".to_owned(),
            });
        }
        if own.has_storage() {
            views.push(View {
                name: STORAGE.to_owned(),
                shows: Shows::Storage {
                    changes: STORAGE_CHANGES.to_owned(),
                    members: own.has_members().then(|| MEMBER_CHANGES.to_owned()),
                },
                comment: "what the contracts hold now".to_owned(),
            });
        }
        let name = manifest.project_name.clone();
        Self { project: Project { name, schema, tables, views }, cells }
    }

    /// Returns the position of the table for an emit's target, as the program spells it; `None` if the manifest, which
    /// must be the one of the layout, has none.
    pub fn table_of(&self, manifest: &Manifest, target: &str) -> Option<usize> {
        let table = manifest.schema.table(target)?;
        self.project.tables.iter().position(|it| it.target == table.target)
    }

    /// Returns the values of a row in a table's columns; the name of a column that cannot hold its value otherwise.
    pub fn values(&self, table: usize, row: &Row) -> Result<Vec<Value>, String> {
        self.cells[table].iter().map(|cell| cell.value(row)).collect()
    }
}

impl Cell {
    fn value(&self, row: &Row) -> Result<Value, String> {
        Ok(match self {
            Self::Contract => Value::Text(row.emit.contract.to_string()),
            Self::TransactionIfKnown if is_nowhere(row) => Value::Null,
            Self::Transaction | Self::TransactionIfKnown => {
                Value::Text(row.transaction.to_string())
            }
            Self::RowId => Value::Text(row.event_id.to_string()),
            Self::Ledger => Value::Integer(row.ledger.0.into()),
            Self::ClosedAt => Value::Time(row.closed_at.microseconds()),
            Self::Field(field, kind) => {
                let mut entries = row.emit.fields.iter();
                match entries.find(|entry| is_column(entry, &field.name)) {
                    None => Value::Null,
                    Some(entry) => values::value(&field.kind, kind, &entry.val)
                        .ok_or_else(|| field.name.clone())?,
                }
            }
        })
    }
}

fn is_nowhere(row: &Row) -> bool {
    row.transaction.as_bytes().iter().all(|byte| *byte == 0)
}

/// Returns the columns of a table in the order in which queries see them, and where their values come from.
fn columns(manifest: &Manifest, table: &TableSchema) -> (Vec<Column>, Vec<Cell>) {
    let project = manifest.events.as_ref();
    if project.is_some() && table.target == EVENTS {
        return of_events(table);
    }
    let is_inferred = project.is_some_and(|it| it.layout().is_inferred(&table.target));
    let of_members = manifest.schema.has_members() && table.target == MEMBER_CHANGES;
    let injected = INJECTED.iter().map(|(name, _)| {
        let cell = injected(name, of_members);
        ((*name).to_owned(), kind_of_injected(&cell), cell)
    });
    let own = table.shown_columns().iter().map(|field| {
        let is_inferred = match project {
            Some(_) => is_inferred && !FIXED.contains(&&*field.name),
            None => table.is_inferred(&field.name),
        };
        let kind = values::kind(&field.kind, is_inferred);
        (field.name.clone(), kind.clone(), Cell::Field(field.clone(), kind))
    });
    let all = in_shown_order(injected.chain(own), |(name, ..)| name, project.is_some());
    all.into_iter().map(|(name, kind, cell)| (Column::new(&name, kind), cell)).unzip()
}

/// Returns the columns of the table with all events, which have the names that a view gives them in our own SQL.
fn of_events(table: &TableSchema) -> (Vec<Column>, Vec<Cell>) {
    let column = |(own, shown): (&str, &str)| {
        let field = table.columns.iter().find(|field| field.name == own);
        let (kind, cell) = match field {
            Some(field) => {
                let kind = values::kind(&field.kind, false);
                (kind.clone(), Cell::Field(field.clone(), kind))
            }
            None => {
                let cell = injected(own, false);
                (kind_of_injected(&cell), cell)
            }
        };
        (Column::new(shown, kind), cell)
    };
    EVENTS_VIEW.map(column).into_iter().unzip()
}

/// Returns what a column that every table has is filled from.
fn injected(name: &str, of_members: bool) -> Cell {
    use orrery_interfaces::names::{CLOSED_AT, CONTRACT_ID, LEDGER};
    match name {
        CONTRACT_ID => Cell::Contract,
        TRANSACTION if of_members => Cell::TransactionIfKnown,
        TRANSACTION => Cell::Transaction,
        LEDGER => Cell::Ledger,
        CLOSED_AT => Cell::ClosedAt,
        _ => Cell::RowId,
    }
}

fn kind_of_injected(cell: &Cell) -> ColumnType {
    match cell {
        Cell::Ledger => ColumnType::UInt32,
        Cell::ClosedAt => ColumnType::Time,
        _ => ColumnType::Text,
    }
}

/// Returns what a table is, in a sentence for people.
fn comment(manifest: &Manifest, table: &TableSchema, declared: Option<&DeclaredTable>) -> String {
    let project = &manifest.project_name;
    if let Some(DeclaredTable { event, doc, .. }) = declared {
        let begin = format!("event {event} of the project {project}");
        return if doc.is_empty() { begin } else { format!("{begin}: {doc}") };
    }
    match (&*table.target, &manifest.events) {
        (target, None) => format!("rows that the program {project} emits for {target}"),
        (EVENTS, Some(_)) => format!("all events of the project {project}"),
        (UNDECLARED, Some(_)) => format!("events of {project} that no other table holds"),
        (STORAGE_CHANGES, Some(_)) if manifest.schema.has_storage() => {
            format!("changes of what the contracts of {project} hold")
        }
        (MEMBER_CHANGES, Some(_)) if manifest.schema.has_members() => {
            format!("contracts that became members of {project}, and that left")
        }
        (target, Some(_)) => format!("events {target} of the project {project}"),
    }
}

/// Returns the view of several versions of an event, with the columns that all have.
fn together(targets: &[String], tables: &[Table]) -> Option<View> {
    let versions: Vec<&Table> =
        targets.iter().filter_map(|target| tables.iter().find(|it| it.target == *target)).collect();
    let (first, others) = versions.split_first()?;
    let mut columns = Vec::new();
    for column in &first.columns {
        // Names are compared as our own SQL folds them, and shown as the first version spells them.
        let same = others
            .iter()
            .map(|table| table.columns.iter().find(|it| folded(&it.name) == folded(&column.name)));
        let Some(same) = same.collect::<Option<Vec<&Column>>>() else { continue };
        // A view finds columns by one name: that of all.
        if same.iter().all(|it| it.name == column.name) {
            let kinds = same.iter().map(|it| &it.kind);
            let kind = kinds.fold(column.kind.clone(), values::joined);
            columns.push(Column { kind, ..column.clone() });
        }
    }
    Some(View {
        name: targets.first()?.clone(),
        shows: Shows::Versions { targets: targets.to_vec(), columns },
        comment: format!(
            "all versions of the event {}, in the columns that they share",
            first.target
        ),
    })
}
