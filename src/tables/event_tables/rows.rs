//! The rows of an event: one in its table, and one in the table behind the view `events`. Every
//! event has both, whatever it contains: a value that its column cannot hold is kept in `_rest`.

use orrery_interfaces::names::{DECLARED, EVENT, EVENT_ID, EVENT_INDEX, EVENTS, REST, UNDECLARED};
use orrery_interfaces::{Params, Plain, PlainRest, Rest, Typed, Types};
use orrery_ledger::domain::Emit;
use serde::{Serialize, Serializer};
use stellar_xdr::{ScMap, ScMapEntry, ScString, ScSymbol, ScVal};

use super::columns::is_deep;
use super::fixed_tables::{DATA, NAME, PARAMS, REASON, TOPICS};
use super::layout::{Layout, Placement, Table};
use super::shape::ShapeKey;
use super::shaped::Shaped;
use super::{Declared, Event, Place};
use crate::types::ColumnType;
use crate::values::{absent, is_null};

/// What the column `_declared` says of an event that the system emitted.
const SYSTEM: &str = "system";
const NO_TEXT: &str = "no interface declares the event, and its first topic is no text";
const TOO_MANY_TABLES: &str = "the project has as many tables as it may have";
const TOO_MANY_SHAPES: &str = "the project has more kinds of events than it may have";

/// The rows of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows {
    /// The row in a table of the project.
    pub row: Emit,
    /// The row behind the view `events`.
    pub event: Emit,
}

impl Rows {
    /// Whether the event is in the table `undeclared`.
    pub fn is_undeclared(&self) -> bool {
        self.row.target == UNDECLARED
    }
}

impl Layout {
    /// Returns the rows of an event. The event must have been added to the summary that the layout
    /// comes from; of a kind that was not, it is one for `undeclared`. Rows belong to the schema of
    /// the same layout, so tables get both together.
    pub fn rows(&self, event: &Event<'_>) -> Rows {
        let Some(shaped) = Shaped::new(event) else {
            return self.undeclared_rows(event, NO_TEXT);
        };
        let key = shaped.key(event.topics.len());
        match self.placement(&key) {
            Placement::TooManyTables => self.undeclared_rows(event, TOO_MANY_TABLES),
            Placement::Unknown => self.undeclared_rows(event, TOO_MANY_SHAPES),
            Placement::In(table) => Rows {
                row: self.row(event, &shaped, &key, table),
                event: self.of_event(event, Some(&shaped)),
            },
        }
    }

    fn row(&self, event: &Event<'_>, shaped: &Shaped<'_>, key: &ShapeKey, table: &Table) -> Emit {
        let declared_by = match event.declared {
            Declared::System => SYSTEM,
            Declared::By(..) | Declared::Nowhere => key.declared_by(),
        };
        let mut row = vec![
            (EVENT_ID, ScVal::U64(event.id)),
            (EVENT_INDEX, event_index(event.place)),
            (DECLARED, text(declared_by.as_bytes())),
        ];
        if let Shaped::Inferred(inferred) = shaped {
            row.push((EVENT, text(&inferred.event)));
        }
        let none = Types::default();
        let mut cells =
            Cells { table, absent: self.limits.absent, row: &mut row, rest: Vec::new() };
        let (mut rest, mut types) = (&NO_REST, &none);
        match (shaped, event.declared) {
            (Shaped::Declared(..), Declared::By(matched, _)) => {
                (rest, types) = (&matched.rest, matched.interface.types());
                for parameter in &matched.parameters {
                    let plain = Plain::new(parameter.value, &parameter.declared.type_, types);
                    cells.put(parameter.name, parameter.value, plain);
                }
            }
            (Shaped::Inferred(inferred), _) => {
                for (name, value) in &inferred.values {
                    cells.put(name, value, Plain::undeclared(value, types));
                }
            }
            // A shape is declared exactly where the event is.
            (Shaped::Declared(..), _) => {}
        }
        let params = cells.rest;
        if !params.is_empty() || !rest.is_empty() {
            row.push((REST, json(&RestOfEvent { params, others: PlainRest { rest, types } })));
        }
        emit(event, &table.target, row)
    }

    fn undeclared_rows(&self, event: &Event<'_>, reason: &str) -> Rows {
        let topics: Vec<Typed<'_>> = event.topics.iter().map(Typed).collect();
        let row = vec![
            (EVENT_ID, ScVal::U64(event.id)),
            (EVENT_INDEX, event_index(event.place)),
            (TOPICS, json(&topics)),
            (DATA, json(&Typed(event.data))),
            (REASON, text(reason.as_bytes())),
        ];
        Rows { row: emit(event, UNDECLARED, row), event: self.of_event(event, None) }
    }

    /// Returns the row behind the view `events`.
    fn of_event(&self, event: &Event<'_>, shaped: Option<&Shaped<'_>>) -> Emit {
        let mut row = vec![(EVENT_ID, ScVal::U64(event.id))];
        let name = shaped.map(|shaped| match shaped {
            Shaped::Declared(_, form) => &form.name,
            Shaped::Inferred(inferred) => &inferred.name,
        });
        row.extend(name.map(|name| (NAME, text(self.besides.name_of(name).as_bytes()))));
        if let (Some(Shaped::Declared(..)), Declared::By(matched, _)) = (shaped, event.declared) {
            row.push((PARAMS, json(&Params(matched))));
        }
        emit(event, EVENTS, row)
    }
}

static NO_REST: Rest<'static> = Rest { keys: Vec::new(), topics: &[], items: &[] };

/// Takes the values of an event one by one.
struct Cells<'a, 'b> {
    table: &'a Table,
    /// Number of struct fields that the values may still leave out.
    absent: usize,
    row: &'b mut Vec<(&'a str, ScVal)>,
    /// Values without a column that could hold them.
    rest: Vec<(&'a str, Plain<'a>)>,
}

impl<'a> Cells<'a, '_> {
    fn put(&mut self, name: &'a str, value: &ScVal, plain: Plain<'a>) {
        if is_null(value) {
            return;
        }
        match self.table.columns.get(name) {
            Some(column) if self.holds(&column.kind, value) => {
                self.row.push((&column.name, value.clone()));
            }
            _ => self.rest.push((name, plain)),
        }
    }

    fn holds(&mut self, kind: &ColumnType, value: &ScVal) -> bool {
        if *kind == ColumnType::Json {
            return true;
        }
        if is_deep(value) || !kind.holds(value) {
            return false;
        }
        let absent = absent(kind, value, self.absent + 1);
        let fits = absent <= self.absent;
        self.absent -= if fits { absent } else { 0 };
        fits
    }
}

/// What the columns of an event do not hold, as JSON.
#[derive(Serialize)]
struct RestOfEvent<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "object")]
    params: Vec<(&'a str, Plain<'a>)>,
    #[serde(flatten)]
    others: PlainRest<'a>,
}

#[allow(clippy::ptr_arg, reason = "serde passes a reference to the member")]
fn object<S: Serializer>(params: &Vec<(&str, Plain<'_>)>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(params.iter().map(|(name, value)| (name, value)))
}

/// Returns the index of an event in its transaction, which fee events do not have.
fn event_index(place: Place) -> ScVal {
    if place.index() >= Place::OUTSIDE { ScVal::Void } else { ScVal::U32(place.index()) }
}

fn emit(event: &Event<'_>, target: &str, row: Vec<(&str, ScVal)>) -> Emit {
    let entry = |(name, val): (&str, ScVal)| ScMapEntry { key: key(name), val };
    let mut fields: Vec<ScMapEntry> = row.into_iter().map(entry).collect();
    fields.sort_by(|a, b| a.key.cmp(&b.key));
    // An event has fewer values than a map may have entries.
    let fields = ScMap(fields.try_into().unwrap_or_default());
    Emit { contract: event.contract, target: target.to_owned(), fields }
}

/// Returns the key of a column: a symbol, or a string where the name is longer than a symbol can be.
fn key(name: &str) -> ScVal {
    match name.as_bytes().try_into() {
        Ok(symbol) => ScVal::Symbol(ScSymbol(symbol)),
        Err(_) => text(name.as_bytes()),
    }
}

fn text(text: &[u8]) -> ScVal {
    // Fails beyond 4 GiB, which no event has.
    ScVal::String(ScString(text.try_into().unwrap_or_default()))
}

/// Returns JSON text.
fn json(value: &impl Serialize) -> ScVal {
    // Serialising to memory fails only for keys that are no strings, of which there are none here.
    text(&serde_json::to_vec(value).unwrap_or_else(|_| b"null".to_vec()))
}
