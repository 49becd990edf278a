//! Values come back as they were, whatever they are, and the server computes the same digests.

use orrery_postgres::{Batch, ColumnType, RowKey, TableRows, Value, check, ledger_digests};
use orrery_testkit::postgres::is_missing;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::world::{Database, GENERATION, add, filled, position, table, with_tables, writer};

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn digits(text: &str) -> Value {
    Value::Digits(text.to_owned())
}

fn json(text: &str) -> Value {
    Value::Json(text.to_owned())
}

const LARGEST_256: &str =
    "115792089237316195423570985008687907853269984665640564039457584007913129639935";
const LEAST_256: &str =
    "-57896044618658097711785492504343953926634992332820282019728792003956564819968";

/// Columns, their values, and what the server shows of them.
fn cases() -> Vec<(ColumnType, Value, &'static str)> {
    let list = |of| ColumnType::list(of);
    vec![
        (ColumnType::Boolean, Value::Boolean(true), "true"),
        (ColumnType::Int32, Value::Integer(i32::MIN.into()), "-2147483648"),
        (ColumnType::UInt32, Value::Integer(u32::MAX.into()), "4294967295"),
        (ColumnType::Int64, Value::Integer(i64::MIN.into()), "-9223372036854775808"),
        (ColumnType::UInt64, Value::Integer(u64::MAX.into()), "18446744073709551615"),
        (ColumnType::Int128, Value::Integer(i128::MIN), "-170141183460469231731687303715884105728"),
        (
            ColumnType::Int128,
            digits(&u128::MAX.to_string()),
            "340282366920938463463374607431768211455",
        ),
        (ColumnType::Int128, Value::Integer(0), "0"),
        (ColumnType::Int128, digits("-0"), "0"),
        (ColumnType::Int128, Value::Integer(100_000_000), "100000000"),
        (ColumnType::Int256, digits(LARGEST_256), LARGEST_256),
        (ColumnType::Int256, digits(LEAST_256), LEAST_256),
        (ColumnType::Int256, digits("000120000"), "120000"),
        (ColumnType::Int256, Value::Integer(-10_000), "-10000"),
        (ColumnType::Text, text("a\0b\\'\" 😀\n"), "a\\x00b\\'\" 😀\n"),
        (ColumnType::Text, text(""), ""),
        (ColumnType::Bytes, Value::Bytes(vec![0, 255, 92]), "\\x00ff5c"),
        (ColumnType::Time, Value::Time(1_700_000_000_123_456), "2023-11-14 22:13:20.123456+00"),
        (ColumnType::Time, Value::Time(0), "1970-01-01 00:00:00+00"),
        (
            ColumnType::Json,
            json(r#"{"bb":"\u0000","a":[1,"18446744073709551615",null]}"#),
            r#"{"a": [1, "18446744073709551615", null], "bb": "\\x00"}"#,
        ),
        (
            list(ColumnType::Text),
            Value::List(vec![text("a,b"), Value::Null, text("")]),
            r#"{"a,b",NULL,""}"#,
        ),
        (list(ColumnType::Int256), Value::List(vec![digits(LEAST_256)]), concat_braces(LEAST_256)),
        (list(ColumnType::Boolean), Value::List(Vec::new()), "{}"),
        (list(ColumnType::Bytes), Value::List(vec![Value::Bytes(vec![1])]), r#"{"\\x01"}"#),
        (ColumnType::Boolean, Value::Null, ""),
        (list(ColumnType::Int32), Value::Null, ""),
    ]
}

fn concat_braces(text: &str) -> &'static str {
    Box::leak(format!("{{{text}}}").into_boxed_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_all_types_come_back() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    let connection = database.connect().await;
    let cases = cases();
    let names: Vec<String> = (0..cases.len()).map(|at| format!("c{at}")).collect();
    let columns: Vec<_> =
        names.iter().zip(&cases).map(|(name, (kind, ..))| (name.as_str(), kind.clone())).collect();
    let project = with_tables(vec![table("values", &columns)]);
    let mut rows = TableRows::new(&project.tables[0]);
    let values: Vec<Value> = cases.iter().map(|(_, value, _)| value.clone()).collect();
    rows.push(RowKey { ledger: 5, transaction: 0, number: u32::MAX }, &values).unwrap();
    rows.push(RowKey { ledger: 6, transaction: u32::MAX, number: 0 }, &[]).unwrap();
    assert_eq!(rows.nuls(), 2);
    let mut batch = Batch::new(GENERATION, position(0));
    batch.to = position(1);
    batch.tables.push(rows);
    filled(&connection, &project, &[]).await;
    assert_eq!(add(&connection, &project, &batch).await.unwrap().rows, 2);
    for (name, (kind, value, expected)) in names.iter().zip(&cases) {
        let shown =
            database.sql(&format!("SELECT {name}::text FROM xlm.values ORDER BY _row LIMIT 1"));
        assert_eq!(shown, expected.trim_end(), "{kind:?} {value:?}");
    }
    let keys = database.sql("SELECT _row FROM xlm.values ORDER BY _row");
    assert_eq!(keys, "\\x0000000500000000ffffffff\n\\x00000006ffffffff00000000");
    for table in check(&connection, &writer(), &project).await.unwrap() {
        assert_eq!(table.difference(), None);
        assert_eq!((table.found.unwrap().rows, table.nuls), (2, 2));
    }
}

/// A random value, with its type.
fn random_value(kind: &ColumnType, rng: &mut ChaCha8Rng) -> Value {
    let letters = ["a", "\0", "é", "\"", "\\", "\u{1}", "😀", "\u{7f}", "/"];
    let word = |rng: &mut ChaCha8Rng| -> String {
        (0..rng.random_range(0..5)).map(|_| letters[rng.random_range(0..letters.len())]).collect()
    };
    if rng.random_ratio(1, 8) {
        return Value::Null;
    }
    match kind {
        ColumnType::Boolean => Value::Boolean(rng.random()),
        ColumnType::Int32 => Value::Integer(rng.random::<i32>().into()),
        ColumnType::UInt32 => Value::Integer(rng.random::<u32>().into()),
        ColumnType::Int64 => Value::Integer(rng.random::<i64>().into()),
        ColumnType::UInt64 => {
            Value::Integer((rng.random::<u64>() >> rng.random_range(0..64)).into())
        }
        ColumnType::Int128 => Value::Integer(rng.random::<i128>() >> rng.random_range(0..128)),
        ColumnType::Int256 => {
            let digits =
                (0..rng.random_range(1..78)).map(|_| rng.random_range(b'0'..=b'9') as char);
            let digits: String = digits.collect();
            Value::Digits(if rng.random() { digits } else { format!("-{digits}") })
        }
        ColumnType::Text => Value::Text(word(rng)),
        ColumnType::Bytes => {
            Value::Bytes((0..rng.random_range(0..9)).map(|_| rng.random()).collect())
        }
        ColumnType::Time => Value::Time(rng.random_range(0..4_000_000_000_000_000)),
        ColumnType::Json => Value::Json(random_json(3, rng).to_string()),
        ColumnType::List(of) => {
            Value::List((0..rng.random_range(0..4)).map(|_| random_value(of, rng)).collect())
        }
    }
}

fn random_json(depth: u32, rng: &mut ChaCha8Rng) -> serde_json::Value {
    use serde_json::Value as Json;
    let letters = ["a", "b", "\u{8}", "é", "\"", "\\", "\t", "\u{1f}", "😀"];
    let word = |rng: &mut ChaCha8Rng| -> String {
        (0..rng.random_range(0..4)).map(|_| letters[rng.random_range(0..letters.len())]).collect()
    };
    match rng.random_range(0..if depth == 0 { 4 } else { 6 }) {
        0 => Json::Null,
        1 => Json::Bool(rng.random()),
        2 => Json::from(rng.random::<i64>()),
        3 => Json::String(word(rng)),
        4 => (0..rng.random_range(0..4)).map(|_| random_json(depth - 1, rng)).collect(),
        _ => {
            let names: Vec<String> = (0..rng.random_range(0..5)).map(|_| word(rng)).collect();
            names.into_iter().map(|name| (name, random_json(depth - 1, rng))).collect()
        }
    }
}

/// Values of contracts have 500 levels, and maps in them several for each.
#[tokio::test(flavor = "multi_thread")]
async fn deep_values_come_back() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    let connection = database.connect().await;
    let project = with_tables(vec![table("deep", &[("v", ColumnType::Json)])]);
    let deep = format!("{}1{}", r#"[{"a": "#.repeat(950), "}]".repeat(950));
    let mut rows = TableRows::new(&project.tables[0]);
    rows.push(RowKey { ledger: 1, transaction: 1, number: 0 }, &[json(&deep)]).unwrap();
    let mut batch = Batch::new(GENERATION, position(0));
    batch.to = position(1);
    batch.tables.push(rows);
    filled(&connection, &project, &[batch]).await;
    assert_eq!(database.sql("SELECT v FROM xlm.deep"), deep);
    assert_eq!(check(&connection, &writer(), &project).await.unwrap()[0].difference(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_computes_the_digests_of_random_rows() {
    if is_missing() {
        return;
    }
    let database = Database::new();
    let connection = database.connect().await;
    let kinds = [
        ColumnType::Boolean,
        ColumnType::Int32,
        ColumnType::UInt32,
        ColumnType::Int64,
        ColumnType::UInt64,
        ColumnType::Int128,
        ColumnType::Int256,
        ColumnType::Text,
        ColumnType::Bytes,
        ColumnType::Time,
        ColumnType::Json,
    ];
    let lists = kinds.clone().map(ColumnType::list);
    let kinds: Vec<ColumnType> = kinds.into_iter().chain(lists).collect();
    let names: Vec<String> = (0..kinds.len()).map(|at| format!("Column {at}")).collect();
    let columns: Vec<_> = names.iter().map(String::as_str).zip(kinds.iter().cloned()).collect();
    let project = with_tables(vec![table("random", &columns)]);
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut all = TableRows::new(&project.tables[0]);
    let mut of_ledgers = std::collections::BTreeMap::new();
    for ledger in [1, 255, 256, 70_000, u32::MAX] {
        let mut rows = TableRows::new(&project.tables[0]);
        for number in 0..200 {
            let values: Vec<Value> =
                kinds.iter().map(|kind| random_value(kind, &mut rng)).collect();
            let key = RowKey { ledger, transaction: 1, number };
            rows.push(key, &values).unwrap();
            all.push(key, &values).unwrap();
        }
        of_ledgers.insert(ledger, rows.digest());
    }
    let mut batch = Batch::new(GENERATION, position(0));
    batch.to = position(1);
    batch.tables.push(all.clone());
    filled(&connection, &project, &[batch]).await;
    let checked = check(&connection, &writer(), &project).await.unwrap();
    assert_eq!(checked[0].found, Some(all.digest()));
    let found =
        ledger_digests(&connection, &writer(), ("xlm", "xlm"), "random", &(0..=u32::MAX)).await;
    assert_eq!(found.unwrap(), of_ledgers);
    // One changed value is another digest.
    database.sql("UPDATE xlm.random SET \"Column 7\" = 'else' WHERE _row = (SELECT _row FROM xlm.random ORDER BY _row LIMIT 1)");
    let checked = check(&connection, &writer(), &project).await.unwrap();
    assert!(checked[0].difference().unwrap().contains("somebody changed some"), "{checked:?}");
}
