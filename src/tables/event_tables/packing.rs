//! The rows of events as frames. Events whose declaration has scalars alone, which most are, are written
//! into columns as they are read from their bytes; others take the way of [`Layout::rows`]. Both give
//! the same cells.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use orrery_interfaces::names::{DECLARED, EVENT_ID, EVENT_INDEX, EVENTS};
use orrery_interfaces::{Interface, Scalar, ScalarKind};
use orrery_ledger::domain::{
    self, CloseTime, ContractId, Emit, Hash32, LedgerSeq, ProgramId, TxHash,
};
use stellar_xdr::{AccountId, PublicKey, ScAddress, Uint256};

use super::layout::{Layout, Placement};
use super::rows::Rows;
use super::shape::ShapeKey;
use super::{Declarations, Place};
use crate::apply::weight;
use crate::error::TablesError;
use crate::frame::{Cells, Frame, LastContract, OpenFrame, Origin, ROW_OVERHEAD_BYTES};
use crate::row::event_id;
use crate::types::ColumnType;

/// Bytes of a scalar besides the bytes of a text.
const SCALAR_BYTES: usize = 16;

/// An event whose declaration is known.
pub struct FlatEvent<'a> {
    /// Id in answers of the API.
    pub id: u64,
    /// Index in its transaction, as in [`Place`].
    pub index: u32,
    /// Contract that emitted it.
    pub contract: ContractId,
    /// Number of its declaration.
    pub number: usize,
    /// Values of the parameters, in declared order.
    pub values: &'a [Scalar<'a>],
}

/// Packs rows of events for the tables of a project, transaction by transaction.
pub struct Packer<'a> {
    program: ProgramId,
    layout: &'a Layout,
    /// Frames that are not full, by target.
    open: BTreeMap<String, OpenFrame>,
    full: Vec<Frame>,
    plans: HashMap<PlanKey, Option<Plan>>,
    contract: LastContract,
    of: OfTransaction,
    params: String,
    bytes: usize,
}

/// What the rows of a transaction have in common.
struct OfTransaction {
    hash: TxHash,
    text: String,
    ledger: LedgerSeq,
    closed_at: CloseTime,
}

/// An interface and the number of a declaration.
type PlanKey = (ShapeKey, usize);

/// How the events of a declaration become rows.
struct Plan {
    target: String,
    /// What the column `_declared` says.
    declared_by: &'static str,
    /// What each column of the table gets.
    cells: Vec<Source>,
    name: String,
    /// Each parameter's name as the key of a JSON object, with what comes before it.
    keys: Vec<String>,
}

#[derive(Clone, Copy)]
enum Source {
    EventId,
    EventIndex,
    DeclaredBy,
    Parameter(usize),
    Nothing,
}

impl<'a> Packer<'a> {
    /// Begins to pack rows for these tables.
    pub fn new(program: ProgramId, layout: &'a Layout) -> Self {
        let of = OfTransaction {
            hash: TxHash::from([0; 32]),
            text: String::new(),
            ledger: LedgerSeq(0),
            closed_at: CloseTime::Seconds(0),
        };
        Self {
            program,
            layout,
            open: BTreeMap::new(),
            full: Vec::new(),
            plans: HashMap::new(),
            contract: LastContract::default(),
            of,
            params: String::new(),
            bytes: 0,
        }
    }

    /// Begins the events of a transaction.
    pub fn begin(&mut self, hash: TxHash, ledger: LedgerSeq, closed_at: CloseTime) {
        self.of = OfTransaction { hash, text: hash.to_string(), ledger, closed_at };
    }

    /// Adds the rows of an event whose parameters are scalars. Returns false, and adds nothing, when its
    /// columns are others: then its values have to be read.
    ///
    /// # Errors
    /// When a frame cannot be packed.
    pub fn add_flat(
        &mut self,
        (declarations, interface): (&Declarations, &Interface),
        event: &FlatEvent<'_>,
    ) -> Result<bool, TablesError> {
        let Some(form) = declarations.form(event.number) else { return Ok(false) };
        let key = (declarations.key(form), event.number);
        if !self.plans.contains_key(&key) {
            let plan = self.layout.plan(&key.0, &form.name, (interface, event.number));
            self.plans.insert(key.clone(), plan);
        }
        let Some(Some(plan)) = self.plans.get(&key) else { return Ok(false) };
        write_params(&plan.keys, event.values, &mut self.params);
        let id = event_id(self.program, &self.of.hash, event.index);
        let contract = self.contract.text_of(&event.contract);
        let origin = self.of.origin(contract, &id);
        let row = open_frame(&mut self.open, self.layout, &plan.target)?;
        let texts = event.values.iter().map(|value| match value {
            Scalar::Bytes(bytes) | Scalar::Text(bytes) => SCALAR_BYTES + bytes.len(),
            _ => SCALAR_BYTES,
        });
        row.begin(&origin, texts.sum());
        for (source, cells) in plan.cells.iter().zip(row.columns()) {
            put(cells, *source, event, plan.declared_by)?;
        }
        let is_full = row.is_full();
        let of_event = open_frame(&mut self.open, self.layout, EVENTS)?;
        of_event.begin(&origin, self.params.len() + plan.name.len());
        // The columns of this table are the same in every project.
        if let [id, name, params] = of_event.columns() {
            let holds = id.put_integer(i128::from(event.id))
                && name.put_text(&plan.name)
                && params.put_text(&self.params);
            holds.then_some(()).ok_or_else(misfit)?;
        }
        let targets = [(is_full, plan.target.as_str()), (of_event.is_full(), EVENTS)];
        for target in targets.into_iter().filter(|(is_full, _)| *is_full).map(|(_, it)| it) {
            let frame = self.open.get_mut(target).map(OpenFrame::take).transpose()?;
            self.full.extend(frame);
        }
        self.bytes += 2 * (ROW_OVERHEAD_BYTES + self.params.len());
        Ok(true)
    }

    /// Adds the rows of any event of the transaction, the one with this index.
    ///
    /// # Errors
    /// When a frame cannot be packed, or a value does not match its column.
    pub fn add(&mut self, rows: &Rows, index: u32) -> Result<(), TablesError> {
        let id = event_id(self.program, &self.of.hash, index);
        for emit in [&rows.row, &rows.event] {
            let contract = self.contract.text_of(&emit.contract);
            let origin = self.of.origin(contract, &id);
            let frame = open_frame(&mut self.open, self.layout, &emit.target)?;
            let bytes = weight(emit) + frame.absent_bytes(emit);
            frame.begin(&origin, bytes);
            frame.put_emit(emit.fields.as_slice())?;
            self.bytes += ROW_OVERHEAD_BYTES + bytes;
            if frame.is_full() {
                let frame = frame.take()?;
                self.full.push(frame);
            }
        }
        Ok(())
    }

    /// Adds the row of a change of what a contract holds.
    ///
    /// # Errors
    /// When a frame cannot be packed, or a value does not match its column.
    pub fn add_change(&mut self, row: &Emit, id: &Hash32) -> Result<(), TablesError> {
        let contract = self.contract.text_of(&row.contract);
        let origin = self.of.origin(contract, id);
        let frame = open_frame(&mut self.open, self.layout, &row.target)?;
        let bytes = weight(row);
        frame.begin(&origin, bytes);
        frame.put_emit(row.fields.as_slice())?;
        self.bytes += ROW_OVERHEAD_BYTES + bytes;
        if frame.is_full() {
            let frame = frame.take()?;
            self.full.push(frame);
        }
        Ok(())
    }

    /// About how many bytes the rows so far take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns all rows.
    ///
    /// # Errors
    /// When a frame cannot be packed.
    pub fn finish(mut self) -> Result<Vec<Frame>, TablesError> {
        for frame in self.open.values_mut().filter(|frame| !frame.is_empty()) {
            self.full.push(frame.take()?);
        }
        Ok(self.full)
    }
}

impl OfTransaction {
    fn origin<'o>(&'o self, contract: &'o str, id: &'o Hash32) -> Origin<'o> {
        let Self { text, ledger, closed_at, .. } = self;
        Origin { contract, transaction: text, id, ledger: *ledger, closed_at: *closed_at }
    }
}

fn open_frame<'o>(
    open: &'o mut BTreeMap<String, OpenFrame>,
    layout: &Layout,
    target: &str,
) -> Result<&'o mut OpenFrame, TablesError> {
    if !open.contains_key(target) {
        let table = layout.schema().table(target).ok_or_else(misfit)?;
        open.insert(target.to_owned(), OpenFrame::new(table));
    }
    open.get_mut(target).ok_or_else(misfit)
}

fn misfit() -> TablesError {
    TablesError::Other("a row of events does not fit the tables that follow from them".to_owned())
}

impl Layout {
    /// Returns how the events of a declaration become rows; `None` when their values have to be read.
    fn plan(
        &self,
        key: &ShapeKey,
        name: &str,
        (interface, number): (&Interface, usize),
    ) -> Option<Plan> {
        let kinds = interface.flat_kinds(number)?;
        let names = interface.parameter_names(number);
        let Placement::In(table) = self.placement(key) else { return None };
        let columns = &self.schema().table(&table.target)?.columns;
        let fixed = columns.iter().map(|column| match column.name.as_str() {
            EVENT_ID => Source::EventId,
            EVENT_INDEX => Source::EventIndex,
            DECLARED => Source::DeclaredBy,
            _ => Source::Nothing,
        });
        let mut cells: Vec<Source> = fixed.collect();
        for (number, (kind, name)) in kinds.iter().zip(names).enumerate() {
            let column = table.columns.get(name).filter(|column| holds(&column.kind, *kind))?;
            let at = columns.iter().position(|it| it.name == column.name)?;
            cells[at] = Source::Parameter(number);
        }
        let key_of = |(number, name): (usize, &String)| {
            let name = serde_json::to_string(name).unwrap_or_default();
            format!("{}{name}:", if number == 0 { '{' } else { ',' })
        };
        Some(Plan {
            target: table.target.clone(),
            declared_by: key.declared_by(),
            cells,
            name: self.besides.name_of(name).into_owned(),
            keys: names.iter().enumerate().map(key_of).collect(),
        })
    }
}

/// Whether a column of a type holds all scalars of a kind as they are.
fn holds(column: &ColumnType, kind: ScalarKind) -> bool {
    let kind = match kind {
        ScalarKind::Bool => ColumnType::Boolean,
        ScalarKind::U32 => ColumnType::UInt32,
        ScalarKind::I32 => ColumnType::Int32,
        ScalarKind::U64 => ColumnType::UInt64,
        ScalarKind::I64 => ColumnType::Int64,
        ScalarKind::U128 => ColumnType::UInt128,
        ScalarKind::I128 => ColumnType::Int128,
        ScalarKind::Bytes => ColumnType::Bytes,
        ScalarKind::Text => ColumnType::Text,
    };
    column.join(&kind).as_ref() == Some(column)
}

/// Adds a cell of a row.
fn put(
    cells: &mut Cells,
    source: Source,
    event: &FlatEvent<'_>,
    declared_by: &str,
) -> Result<(), TablesError> {
    let is_put = match source {
        Source::EventId => cells.put_integer(i128::from(event.id)),
        Source::EventIndex if event.index < Place::OUTSIDE => {
            cells.put_integer(i128::from(event.index))
        }
        Source::DeclaredBy => cells.put_text(declared_by),
        Source::Parameter(number) => match event.values.get(number) {
            Some(value) => put_scalar(cells, value),
            None => false,
        },
        Source::EventIndex | Source::Nothing => {
            cells.put_null();
            true
        }
    };
    is_put.then_some(()).ok_or_else(misfit)
}

fn put_scalar(cells: &mut Cells, value: &Scalar<'_>) -> bool {
    match *value {
        Scalar::Absent => {
            cells.put_null();
            true
        }
        Scalar::Bool(value) => cells.put_boolean(value),
        Scalar::U32(number) => cells.put_integer(number.into()),
        Scalar::I32(number) => cells.put_integer(number.into()),
        Scalar::U64(number) => cells.put_integer(number.into()),
        Scalar::I64(number) => cells.put_integer(number.into()),
        Scalar::U128(number) => cells.put_unsigned(number),
        Scalar::I128(number) => cells.put_integer(number),
        Scalar::Bytes(bytes) => cells.put_bytes(bytes),
        Scalar::Text(bytes) => match str::from_utf8(bytes) {
            Ok(text) => cells.put_text(text),
            Err(_) => cells.put_text(&domain::text(bytes)),
        },
        Scalar::Account(key) => cells.put_text(&account(key)),
        Scalar::Contract(id) => cells.put_text(&ContractId(*id).to_string()),
    }
}

fn account(key: &[u8; 32]) -> String {
    let key = PublicKey::PublicKeyTypeEd25519(Uint256(*key));
    ScAddress::Account(AccountId(key)).to_string()
}

/// Writes the parameters as [`Params`](orrery_interfaces::Params) does.
fn write_params(keys: &[String], values: &[Scalar<'_>], out: &mut String) {
    out.clear();
    if keys.is_empty() {
        out.push('{');
    }
    for (key, value) in keys.iter().zip(values) {
        out.push_str(key);
        // Writing to a string does not fail.
        let _ = match *value {
            Scalar::Absent => out.write_str("null"),
            Scalar::Bool(value) => write!(out, "{value}"),
            Scalar::U32(number) => write!(out, "{number}"),
            Scalar::I32(number) => write!(out, "{number}"),
            Scalar::U64(number) => write!(out, "\"{number}\""),
            Scalar::I64(number) => write!(out, "\"{number}\""),
            Scalar::U128(number) => write!(out, "\"{number}\""),
            Scalar::I128(number) => write!(out, "\"{number}\""),
            Scalar::Bytes(bytes) => write!(out, "\"{}\"", hex::encode(bytes)),
            Scalar::Text(bytes) => {
                let text = serde_json::to_string(&domain::text(bytes));
                out.write_str(&text.unwrap_or_default())
            }
            Scalar::Account(key) => write!(out, "\"{}\"", account(key)),
            Scalar::Contract(id) => write!(out, "\"{}\"", ContractId(*id)),
        };
    }
    out.push('}');
}
