//! Events and interfaces for the tests of the tables of events.

mod laws;
mod layouts;
mod packing;
mod rows;
mod storage;
mod types;
mod worlds;

use orrery_interfaces::{Interface, Origin, asset_contract, declaration};
use orrery_ledger::domain::{CloseTime, ContractId, Hash32, LedgerSeq};
use orrery_testkit::values::fields;
use serde_json::Value;
use stellar_xdr::{ScSpecEntry, ScVal};

use super::*;
use crate::encode::record_batch;
use crate::row::Row;
use crate::schema::{SchemaLimits, TableSchema};

/// An interface with its declarations.
pub struct Known {
    pub interface: Interface,
    pub declarations: Declarations,
}

impl Known {
    pub fn new(id: u8, origin: Origin, entries: Vec<ScSpecEntry>) -> Self {
        let interface = Interface::from_entries(entries).unwrap();
        let declarations = Declarations::new(Hash32([id; 32]), origin, &interface);
        Self { interface, declarations }
    }

    pub fn chain(id: u8, entries: Vec<ScSpecEntry>) -> Self {
        Self::new(id, Origin::Chain, entries)
    }

    pub fn asset() -> Self {
        let declarations = Declarations::of_asset_contract();
        Self { interface: asset_contract().clone(), declarations }
    }
}

/// An event with the interface that is tried for it.
#[derive(Debug, Clone)]
pub struct Made {
    pub number: u32,
    pub topics: Vec<ScVal>,
    pub data: ScVal,
    /// Position of the interface.
    pub by: Option<usize>,
    pub is_system: bool,
}

pub fn made(number: u32, by: Option<usize>, topics: &[ScVal], data: ScVal) -> Made {
    Made { number, topics: topics.to_vec(), data, by, is_system: false }
}

impl Made {
    /// Calls `then` with the event and its declaration.
    pub fn with<T>(&self, known: &[Known], then: impl FnOnce(&Event<'_>) -> T) -> T {
        let known = self.by.map(|at| &known[at]);
        let interfaces: Vec<_> = known.iter().map(|known| &known.interface).collect();
        let matched = declaration(&interfaces, &self.topics, &self.data);
        let declared = match (&matched, known) {
            _ if self.is_system => Declared::System,
            (Some(matched), Some(known)) => Declared::By(matched, &known.declarations),
            _ => Declared::Nowhere,
        };
        then(&Event {
            place: Place::new(LedgerSeq(self.number / 6), self.number / 2 % 3, self.number % 2),
            id: 1_000 + u64::from(self.number),
            contract: ContractId([7; 32]),
            topics: &self.topics,
            data: &self.data,
            declared,
        })
    }

    pub fn add_to(&self, shapes: &mut Shapes, known: &[Known]) -> bool {
        let consults = self.by.is_some_and(|at| shapes.consult(&known[at].declarations));
        self.with(known, |event| shapes.add(event).1) | consults
    }

    pub fn rows(&self, layout: &Layout, known: &[Known]) -> Rows {
        self.with(known, |event| layout.rows(event))
    }
}

pub fn shapes(events: &[Made], known: &[Known]) -> Shapes {
    let mut shapes = Shapes::default();
    for event in events {
        event.add_to(&mut shapes, known);
    }
    shapes
}

pub fn layout(events: &[Made], known: &[Known]) -> Layout {
    shapes(events, known).tables(SchemaLimits::default())
}

/// Returns the names of the tables of the project.
pub fn tables(layout: &Layout) -> Vec<&str> {
    layout.schema().tables().iter().map(|table| table.target.as_str()).collect()
}

/// Returns the columns for values of a table, with their types.
pub fn columns(layout: &Layout, target: &str) -> Vec<String> {
    let table = layout.schema().table(target).unwrap_or_else(|| panic!("no table {target}"));
    let text = |column: &crate::types::Field| format!("{} {}", column.name, column.kind);
    let columns: Vec<String> = table.columns.iter().map(text).collect();
    let fixed = ["_event_id UBIGINT", "_event_index UINTEGER", "_declared VARCHAR"];
    assert_eq!(columns[..3], fixed);
    assert_eq!(columns.last().unwrap(), "_rest JSON");
    let begin = if columns[3] == "_event VARCHAR" { 4 } else { 3 };
    columns[begin..columns.len() - 1].to_vec()
}

/// Returns a row as JSON, after it was encoded.
pub fn shown(layout: &Layout, emit: &orrery_ledger::domain::Emit) -> Value {
    let table = layout.schema().table(&emit.target).unwrap();
    encode(table, std::slice::from_ref(emit));
    crate::show::row(table, emit)
}

/// Encodes rows of a table as they are sent to SQL workers.
pub fn encode(table: &TableSchema, emits: &[orrery_ledger::domain::Emit]) {
    let rows: Vec<Row> = emits.iter().map(|emit| row(emit.clone())).collect();
    let rows: Vec<&Row> = rows.iter().collect();
    assert_eq!(record_batch(table, &rows).unwrap().num_rows(), emits.len());
}

fn row(emit: orrery_ledger::domain::Emit) -> Row {
    Row {
        emit,
        transaction: Hash32([1; 32]),
        event_id: Hash32([2; 32]),
        ledger: LedgerSeq(7),
        closed_at: CloseTime::Seconds(1_700_000_000),
    }
}

pub fn amount(number: i128) -> ScVal {
    fields([("amount", orrery_testkit::values::i128(number))])
}
