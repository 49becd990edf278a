//! Rows to fill tables with, as the program of an exchange would emit them: three rows per run.

use orrery::domain::{CloseTime, ContractId, Emit, LedgerSeq, ProgramId, TxHash};
use orrery::tables::schema::{ProgramSchema, SchemaLimits};
use orrery::tables::{Change, Row, event_id};
use stellar_xdr::{Int128Parts, ScMap, ScMapEntry, ScString, ScSymbol, ScVal};

use super::baseline::rows::PlainRow;
use super::variation::spread;

/// Emit target of the rows.
pub const TARGET: &str = "swap_made";
/// Id of the program.
pub const PROGRAM: ProgramId = ProgramId(1);
const PER_RUN: u64 = 3;
const BUYERS: u64 = 5_000;

/// Rows in row log order.
pub struct Swaps {
    schema: ProgramSchema,
    rows: Vec<Row>,
}

impl Swaps {
    /// Makes the rows of `runs` runs.
    pub fn new(runs: u64) -> Self {
        let mut schema = ProgramSchema::default();
        let mut rows = Vec::with_capacity((runs * PER_RUN) as usize);
        for run in 1..=runs {
            let transaction = TxHash::from(spread(run));
            let emits: Vec<Emit> = (0..PER_RUN).map(|part| emit(run, part)).collect();
            let grown = schema.admit(&emits, SchemaLimits::default());
            if let Some(grown) = grown.expect("all rows are alike") {
                schema = grown;
            }
            rows.extend((0..).zip(emits).map(|(at, emit)| Row {
                emit,
                transaction,
                event_id: event_id(PROGRAM, &transaction, at),
                ledger: ledger(run),
                closed_at: CloseTime::Seconds(closed_at(run)),
            }));
        }
        Self { schema, rows }
    }

    /// Returns the change that adds the table of these rows to the program's tables.
    pub fn definition(&self, project: &str) -> Change {
        let schema = self.schema.clone();
        Change::Program { id: PROGRAM, project: project.to_owned(), own: true, schema }
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns all rows, as changes of `runs` runs each.
    pub fn changes(&self, runs: u64) -> Vec<Change> {
        let chunks = self.rows.chunks((runs * PER_RUN) as usize);
        let changes = chunks.scan(0, |after, rows| {
            let from = std::mem::replace(after, *after + rows.len() as u64 / PER_RUN);
            Some(Change::Rows {
                program: PROGRAM,
                after: from,
                up_to: *after,
                rows: rows.to_vec().into(),
            })
        });
        changes.collect()
    }

    /// Returns the same rows as the DuckDB baseline takes them.
    pub fn plain(&self) -> Vec<PlainRow> {
        let runs = (1..).flat_map(|run| (0..PER_RUN).map(move |part| (run, part)));
        let plain = |(row, (run, part)): (&Row, (u64, u64))| PlainRow {
            contract: row.emit.contract.to_string(),
            transaction: row.transaction.to_string(),
            event_id: row.event_id.to_string(),
            ledger: i64::from(row.ledger.0),
            closed_at: row.closed_at.seconds() as i64,
            amount: amount(run),
            fee: fee(run),
            pool: pool(part),
            buyer: buyer(run),
            sequence: sequence(run),
            buy: is_buy(run),
        };
        self.rows.iter().zip(runs).map(plain).collect()
    }
}

/// Does not fit into 64 bits, but the sum of a million amounts fits into 128.
fn amount(run: u64) -> i128 {
    i128::from(run) * 1_000_000_000_000_000_007
}

fn fee(run: u64) -> u32 {
    (run % 100) as u32
}

fn pool(part: u64) -> &'static str {
    if part == 0 { "xlm_usdc" } else { "btc_usdc" }
}

fn buyer(run: u64) -> String {
    format!("GBUYER{:050}", run % BUYERS)
}

fn sequence(run: u64) -> u64 {
    run << 20
}

fn is_buy(run: u64) -> bool {
    run.is_multiple_of(2)
}

fn ledger(run: u64) -> LedgerSeq {
    LedgerSeq(1_000 + (run / 100) as u32)
}

fn closed_at(run: u64) -> u64 {
    1_700_000_000 + run / 100 * 5
}

fn emit(run: u64, part: u64) -> Emit {
    let amount = amount(run);
    let fields = [
        ("amount", ScVal::I128(Int128Parts { hi: (amount >> 64) as i64, lo: amount as u64 })),
        ("buy", ScVal::Bool(is_buy(run))),
        ("buyer", ScVal::String(ScString(buyer(run).try_into().expect("it is short")))),
        ("fee", ScVal::U32(fee(run))),
        ("pool", symbol(pool(part))),
        ("sequence", ScVal::U64(sequence(run))),
    ];
    let fields: Vec<_> =
        fields.into_iter().map(|(key, val)| ScMapEntry { key: symbol(key), val }).collect();
    Emit {
        contract: ContractId([7; 32]),
        target: TARGET.to_owned(),
        fields: ScMap(fields.try_into().expect("there are six")),
    }
}

fn symbol(text: &str) -> ScVal {
    ScVal::Symbol(ScSymbol(text.try_into().expect("it is short")))
}
