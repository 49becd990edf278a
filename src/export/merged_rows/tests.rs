//! Random files against a model: all rows, stably sorted by ledger.

use arrow::array::{Decimal128Array, Int64Array, ListBuilder, StringArray, StringBuilder};
use arrow::datatypes::{Field, Schema};
use arrow::util::display::array_value_to_string;
use orrery_iceberg::{KnownColumn, Type};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::columns;

/// What a row has: its ledger, a number with its digits, a list, and a column that older files lack.
#[derive(Debug, Clone)]
struct Row {
    ledger: u32,
    number: Option<i128>,
    list: Option<Vec<String>>,
    memo: Option<String>,
}

/// Kinds of files: of this version, before the table had the column `memo`, and without ids.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Now,
    Before,
    Earlier,
}

fn random_row(random: &mut ChaCha8Rng, kind: Kind) -> Row {
    let mut text = || format!("{:x}", random.random_range(0..1_000_000_000u64));
    let (first, second, memo) = (text(), text(), text());
    let number = match random.random_range(0..5) {
        0 => None,
        1 => Some(i128::MIN + i128::from(random.random_range(0..9))),
        _ => Some(random.random_range(-1_000_000..1_000_000)),
    };
    let list = match random.random_range(0..4) {
        0 => None,
        1 => Some(Vec::new()),
        _ => Some(vec![first, second]),
    };
    let memo = (kind == Kind::Now && random.random_bool(0.7)).then_some(memo);
    Row { ledger: random.random_range(1..40), number, list, memo }
}

fn fits(number: &i128) -> bool {
    number.unsigned_abs() < 10u128.pow(38)
}

/// The columns of a file with these rows, under the names that it has.
fn batch(rows: &[Row], kind: Kind, table: &Columns) -> RecordBatch {
    let ledgers: ArrayRef =
        Arc::new(rows.iter().map(|row| i64::from(row.ledger)).collect::<Int64Array>());
    let digits: ArrayRef = Arc::new(
        rows.iter().map(|row| row.number.map(|it| it.to_string())).collect::<StringArray>(),
    );
    let numbers: Decimal128Array = rows.iter().map(|row| row.number.filter(fits)).collect();
    let numbers: ArrayRef = Arc::new(numbers.with_precision_and_scale(38, 0).unwrap());
    // Names and nullability of elements differ from those of the table.
    let element = Field::new("item", DataType::Utf8, kind == Kind::Now);
    let mut lists = ListBuilder::new(StringBuilder::new()).with_field(element);
    for row in rows {
        match &row.list {
            None => lists.append_null(),
            Some(texts) => {
                texts.iter().for_each(|text| lists.values().append_value(text));
                lists.append(true);
            }
        }
    }
    let lists: ArrayRef = Arc::new(lists.finish());
    let memos: ArrayRef =
        Arc::new(rows.iter().map(|row| row.memo.clone()).collect::<StringArray>());
    let mut found = vec![("_ledger", ledgers)];
    match kind {
        Kind::Earlier => found.extend([("v", digits), ("l", lists)]),
        Kind::Before => found.extend([("l", lists), ("v", numbers), ("v_exact", digits)]),
        Kind::Now => {
            found.extend([("v", numbers), ("l", lists), ("memo", memos), ("v_exact", digits)]);
        }
    }
    let fields =
        found.iter().map(|(name, values)| Field::new(*name, values.data_type().clone(), true));
    let schema = Schema::new(fields.collect::<Vec<_>>());
    let schema = match kind {
        Kind::Earlier => schema,
        _ => columns::numbered(table, &schema),
    };
    let values = found.into_iter().zip(schema.fields()).map(|((_, values), field)| {
        make_array(retyped(&values.to_data(), field.data_type()).unwrap())
    });
    RecordBatch::try_new(Arc::new(schema.clone()), values.collect()).unwrap()
}

fn file(rows: &[Row], kind: Kind, table: &Columns) -> File {
    let mut file = tempfile::tempfile().unwrap();
    let batch = batch(rows, kind, table);
    let properties =
        WriterProperties::builder().set_coerce_types(true).set_max_row_group_row_count(Some(7));
    let mut writer =
        ArrowWriter::try_new(&mut file, batch.schema(), Some(properties.build())).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    file
}

fn line(row: &Row) -> String {
    let number = row.number.filter(fits).map(|it| it.to_string()).unwrap_or_default();
    let digits = row.number.map(|it| it.to_string()).unwrap_or_default();
    let list = row.list.as_ref().map(|it| format!("[{}]", it.join(", "))).unwrap_or_default();
    let memo = row.memo.clone().unwrap_or_default();
    format!("{}|{number}|{list}|{memo}|{digits}", row.ledger)
}

#[test]
fn rows_of_all_files_are_sorted_by_ledger() {
    let now = [
        Column::new("_ledger", Type::Long),
        Column::new("v", Type::Decimal(38)),
        Column::new("l", Type::list(Type::String)),
        Column::new("memo", Type::String),
        Column { exact_of: Some("v".to_owned()), ..Column::new("v_exact", Type::String) },
    ];
    let earlier = [("_ledger", Type::Long), ("v", Type::String), ("l", Type::list(Type::String))];
    let earlier: Vec<_> =
        earlier.into_iter().map(|(name, kind)| (name.to_owned(), kind.sql())).collect();
    let mut table = Columns::default().of_earlier(&earlier, &now, &Type::String.sql()).unwrap();
    table.set(&now);
    let known: Vec<Column> = now
        .iter()
        .map(|it| {
            table.current().find(|known| known.name == it.name).map(KnownColumn::column).unwrap()
        })
        .collect();
    assert_eq!(known, now);
    let schema = Arc::new(columns::schema_of(&table, &now));
    let shape = Shape { columns: &table, now: &now, schema, ledger: "_ledger" };
    for seed in 0..60 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let (mut all, mut inputs) = (Vec::new(), Vec::new());
        for _ in 0..random.random_range(1..5) {
            let kind = [Kind::Now, Kind::Before, Kind::Earlier][random.random_range(0..3)];
            let count = random.random_range(1..60);
            let mut rows: Vec<Row> = (0..count).map(|_| random_row(&mut random, kind)).collect();
            if random.random_bool(0.5) {
                rows.sort_by_key(|row| row.ledger);
            }
            inputs.push(shape.open(file(&rows, kind, &table), kind != Kind::Earlier).unwrap());
            all.extend(rows);
        }
        all.sort_by_key(|row| row.ledger);
        let expected: Vec<_> = all.iter().map(line).collect();
        for bytes in [1, 500, u64::MAX] {
            let (mut found, mut calls) = (Vec::new(), 0);
            let visited = shape.visit_within(&inputs, bytes, |rows, ledgers| {
                calls += 1;
                for row in 0..rows.num_rows() {
                    let cells = rows.columns().iter();
                    let cells: Vec<_> =
                        cells.map(|column| array_value_to_string(column, row).unwrap()).collect();
                    assert!(ledgers.contains(&cells[0].parse().unwrap()));
                    found.push(cells.join("|"));
                }
                Ok(())
            });
            visited.unwrap();
            assert_eq!(found, expected, "seed {seed}, {bytes} bytes");
            assert!(
                bytes > 1
                    || calls
                        == all
                            .iter()
                            .map(|it| it.ledger)
                            .collect::<std::collections::BTreeSet<_>>()
                            .len()
            );
        }
    }
}

#[test]
fn a_column_of_another_type_is_refused() {
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    assert!(retyped(&texts.to_data(), &DataType::Int64).is_err());
    let kind = DataType::new_list(DataType::Int64, true);
    let mut lists = ListBuilder::new(StringBuilder::new());
    lists.append(true);
    assert!(retyped(&lists.finish().to_data(), &kind).is_err());
}
