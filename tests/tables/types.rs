//! Every type, at its limits, from an emit to an answer.

use orrery_tables::query::{Format, Numbers, QueryRequest};
use serde_json::{Value, json};
use stellar_xdr::{
    AccountId, ContractId, Duration, Hash, Int256Parts, MuxedEd25519Account, PublicKey, ScAddress,
    ScVal, TimePoint, UInt256Parts, Uint256,
};

use super::support::{Program, World, emit, owner};
use orrery_testkit::values::{bytes, i128, list, map, string, symbol, u128};

fn account(byte: u8) -> ScVal {
    let key = PublicKey::PublicKeyTypeEd25519(Uint256([byte; 32]));
    ScVal::Address(ScAddress::Account(AccountId(key)))
}

fn muxed() -> ScVal {
    // The example of SEP-23.
    let key = "3f0c34bf93ad0d9971d04ccc90f705511c838aad9734a4a2fb0d7a03fc7fe89a";
    let key = hex::decode(key).unwrap().try_into().unwrap();
    let account = MuxedEd25519Account { id: 1 << 63, ed25519: Uint256(key) };
    ScVal::Address(ScAddress::MuxedAccount(account))
}

fn u256_max() -> ScVal {
    let all = u64::MAX;
    ScVal::U256(UInt256Parts { hi_hi: all, hi_lo: all, lo_hi: all, lo_lo: all })
}

fn i256_min() -> ScVal {
    ScVal::I256(Int256Parts { hi_hi: i64::MIN, hi_lo: 0, lo_hi: 0, lo_lo: 0 })
}

/// Values with the type of their column, without a specification, and their form in an answer.
fn cases() -> Vec<(ScVal, &'static str, Value)> {
    let large = 10i128.pow(38);
    let contract = ScVal::Address(ScAddress::Contract(ContractId(Hash([0; 32]))));
    let long = "x".repeat(60_000);
    vec![
        (ScVal::Bool(true), "BOOLEAN", json!(true)),
        (ScVal::U32(u32::MAX), "UINTEGER", json!(4_294_967_295_u32)),
        (ScVal::I32(i32::MIN), "INTEGER", json!(-2_147_483_648)),
        (ScVal::U64(9_007_199_254_740_991), "UBIGINT", json!(9_007_199_254_740_991_u64)),
        (ScVal::U64(9_007_199_254_740_992), "UBIGINT", json!("9007199254740992")),
        (ScVal::U64(u64::MAX), "UBIGINT", json!("18446744073709551615")),
        (ScVal::I64(i64::MIN), "BIGINT", json!("-9223372036854775808")),
        (ScVal::I64(-9_007_199_254_740_991), "BIGINT", json!(-9_007_199_254_740_991_i64)),
        (ScVal::Timepoint(TimePoint(1_700_000_000)), "UBIGINT", json!(1_700_000_000)),
        (ScVal::Duration(Duration(u64::MAX)), "UBIGINT", json!("18446744073709551615")),
        (i128(0), "HUGEINT", json!(0)),
        (i128(-1), "HUGEINT", json!(-1)),
        (i128(large - 1), "HUGEINT", json!((large - 1).to_string())),
        (i128(large), "HUGEINT", json!(large.to_string())),
        (i128(-large), "HUGEINT", json!((-large).to_string())),
        (i128(i128::MAX), "HUGEINT", json!(i128::MAX.to_string())),
        (i128(i128::MIN), "HUGEINT", json!(i128::MIN.to_string())),
        (u128(0), "UHUGEINT", json!(0)),
        (u128(1 << 127), "UHUGEINT", json!((1u128 << 127).to_string())),
        (u128(u128::MAX), "UHUGEINT", json!(u128::MAX.to_string())),
        (
            u256_max(),
            "VARCHAR",
            json!("115792089237316195423570985008687907853269984665640564039457584007913129639935"),
        ),
        (
            i256_min(),
            "VARCHAR",
            json!("-57896044618658097711785492504343953926634992332820282019728792003956564819968"),
        ),
        (symbol("transfer"), "VARCHAR", json!("transfer")),
        (string(""), "VARCHAR", json!("")),
        (string("grün \u{1F30D} \"quoted\"\n"), "VARCHAR", json!("grün \u{1F30D} \"quoted\"\n")),
        (string(b"\xff\x00a"), "VARCHAR", json!("\\xff\u{0}a")),
        (string(&long), "VARCHAR", json!(long)),
        (contract, "VARCHAR", json!("CAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABSC4")),
        (account(0), "VARCHAR", json!("GAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAWHF")),
        (
            muxed(),
            "VARCHAR",
            json!("MA7QYNF7SOWQ3GLR2BGMZEHXAVIRZA4KVWLTJJFC7MGXUA74P7UJVAAAAAAAAAAAAAJLK"),
        ),
        (bytes(&[]), "BLOB", json!("")),
        (bytes(&[0, 1, 254, 255]), "BLOB", json!("0001feff")),
        (list([]), "JSON[]", json!([])),
        (list([ScVal::U32(1), ScVal::Void]), "UINTEGER[]", json!([1, null])),
        (list([i128(i128::MIN), i128(1)]), "HUGEINT[]", json!([i128::MIN.to_string(), 1])),
        (list([u128(u128::MAX)]), "UHUGEINT[]", json!([u128::MAX.to_string()])),
        (list([list([string("a")]), list([])]), "VARCHAR[][]", json!([["a"], []])),
        (
            map([(symbol("b"), i128(i128::MAX)), (symbol("a"), i128(-1))]),
            "MAP(VARCHAR, HUGEINT)",
            json!({"a": -1, "b": i128::MAX.to_string()}),
        ),
        (map([(u128(7), bytes(&[9]))]), "MAP(UHUGEINT, BLOB)", json!({"7": "09"})),
        (map([(bytes(&[1]), ScVal::Bool(false))]), "MAP(BLOB, BOOLEAN)", json!({"01": false})),
        (
            map([(account(0), list([ScVal::U64(1)]))]),
            "MAP(VARCHAR, UBIGINT[])",
            json!({
                "GAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAWHF": [1]
            }),
        ),
        (
            list([symbol("Idle"), ScVal::U64(1)]),
            "JSON",
            json!({
                "vec": [{"symbol": "Idle"}, {"u64": "1"}]
            }),
        ),
        (
            map([(symbol("a"), ScVal::U32(1)), (symbol("b"), symbol("x"))]),
            "JSON",
            json!({
                "map": [
                    {"key": {"symbol": "a"}, "val": {"u32": 1}},
                    {"key": {"symbol": "b"}, "val": {"symbol": "x"}},
                ]
            }),
        ),
        (ScVal::LedgerKeyContractInstance, "JSON", json!("ledger_key_contract_instance")),
    ]
}

#[test]
fn values_of_every_type_round_trip() {
    let (world, owner) = (World::new(), owner("alice"));
    let mut program = Program::new(1, "types");
    for (number, (value, ..)) in cases().into_iter().enumerate() {
        let target = format!("t{number}");
        // Nulls before and after: a null is neither empty nor zero.
        for value in [ScVal::Void, value, ScVal::Void] {
            program.run(vec![emit(&target, [("v", value)])]).unwrap();
        }
    }
    program.feed(&world.tables, &owner, 50);
    for (number, (value, kind, shown)) in cases().into_iter().enumerate() {
        let sql = format!("SELECT v, typeof(v) AS t FROM program_1_t{number} ORDER BY _ledger");
        let rows = world.rows(&owner, &sql);
        assert_eq!(rows[0]["v"], Value::Null, "{value:?}");
        assert_eq!(rows[1], json!({"v": shown, "t": kind}), "{value:?}");
        assert_eq!(rows[2]["v"], Value::Null, "{value:?}");
    }
    let counted = world.rows(&owner, "SELECT count(*) AS n FROM information_schema.tables");
    assert!(counted[0]["n"].as_u64().unwrap() >= cases().len() as u64);
}

#[test]
fn every_row_has_its_contract_transaction_and_ledger() {
    let (world, owner) = (World::new(), owner("alice"));
    let mut program = Program::new(300, "my-project");
    program.run(vec![emit("swap", [("a", i128(1))]), emit("swap", [("a", i128(2))])]).unwrap();
    program.feed(&world.tables, &owner, 1);
    let rows = world.rows(&owner, "SELECT * FROM retroshade.\"my-project_swap\" ORDER BY a");
    let row = &program.rows[1];
    assert_eq!(
        rows[1],
        json!({
            "contract_id": row.emit.contract.to_string(),
            "transaction": row.transaction.to_string(),
            "_service_event_id": row.event_id.to_string(),
            "_ledger": 1001,
            "_ledger_closed_at": "2023-11-14T22:13:25",
            "a": 2,
        })
    );
    let keys: Vec<&String> = rows[0].as_object().unwrap().keys().collect();
    assert_eq!(keys.len(), 6);
    let described = world.rows(&owner, "DESCRIBE program_300_swap");
    let described: Vec<(&str, &str)> = described
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["column_name"].as_str().unwrap(), row["column_type"].as_str().unwrap()))
        .collect();
    assert_eq!(
        described,
        [
            ("contract_id", "VARCHAR"),
            ("transaction", "VARCHAR"),
            ("_service_event_id", "VARCHAR"),
            ("_ledger", "BIGINT"),
            ("_ledger_closed_at", "TIMESTAMP"),
            ("a", "HUGEINT"),
        ]
    );
}

#[test]
fn column_names_may_be_sql_keywords_and_any_text() {
    let (world, owner) = (World::new(), owner("alice"));
    let mut program = Program::new(1, "select");
    let names =
        ["select", "from", "table", "order", "rowid", "group", "a b", "x\"y", "Grün", "null"];
    for name in names {
        program.run(vec![emit("where", [(name, ScVal::U32(1))])]).unwrap();
    }
    program.feed(&world.tables, &owner, 100);
    for name in names {
        let quoted = name.replace('"', "\"\"");
        let sql = format!("SELECT sum(\"{quoted}\") AS n FROM retroshade.select_where");
        assert_eq!(world.rows(&owner, &sql), json!([{"n": 1}]), "{name}");
    }
}

#[test]
fn all_integers_can_be_requested_as_strings() {
    let (world, owner) = (World::new(), owner("alice"));
    let sql = "SELECT 1::UTINYINT AS a, 1::BIGINT AS b, 1::UHUGEINT AS c, [1::HUGEINT] AS d,
        1.5::DECIMAL(4, 1) AS e, 2.5::DOUBLE AS f, true AS g";
    let ask = |numbers| {
        let request = QueryRequest { query: sql.to_owned(), numbers, ..QueryRequest::default() };
        let answer = world.tables.query(&owner, request).unwrap();
        String::from_utf8(answer.bytes).unwrap()
    };
    world.tables.set_complete(&owner).unwrap();
    assert_eq!(ask(Numbers::Exact), r#"[{"a":1,"b":1,"c":1,"d":[1],"e":1.5,"f":2.5,"g":true}]"#);
    assert_eq!(
        ask(Numbers::String),
        r#"[{"a":1,"b":"1","c":"1","d":["1"],"e":"1.5","f":2.5,"g":true}]"#
    );
}

#[test]
fn results_can_be_columns_csv_arrow_or_parquet() {
    use arrow::array::{Array, AsArray};

    let (world, owner) = (World::new(), owner("alice"));
    world.tables.set_complete(&owner).unwrap();
    let sql = "SELECT * FROM (VALUES
        (1, '-170141183460469231731687303715884105728'::HUGEINT, 'a,\"b\"', [1::UHUGEINT]),
        (2, NULL, '', NULL)) AS t(n, h, \"n\", l)";
    let ask = |format| {
        let request = QueryRequest { query: sql.to_owned(), format, ..QueryRequest::default() };
        world.tables.query(&owner, request).unwrap()
    };
    let columns = ask(Format::Columns);
    assert_eq!(columns.media_type, "application/json");
    assert_eq!(
        String::from_utf8(columns.bytes).unwrap(),
        r#"{"n":[1,2],"h":["-170141183460469231731687303715884105728",null],"n_1":["a,\"b\"",""],"l":[[1],null]}"#
    );
    assert_eq!(
        String::from_utf8(ask(Format::Csv).bytes).unwrap(),
        "n,h,n_1,l\r\n1,-170141183460469231731687303715884105728,\"a,\"\"b\"\"\",[1]\r\n2,,\"\",\r\n"
    );
    // A column without a type holds nothing but nulls.
    let untyped = "SELECT NULL::INTEGER AS a, NULL AS c, '' AS d".to_owned();
    let request = QueryRequest { query: untyped, format: Format::Csv, ..QueryRequest::default() };
    let untyped = world.tables.query(&owner, request).unwrap().bytes;
    assert_eq!(String::from_utf8(untyped).unwrap(), "a,c,d\r\n,,\"\"\r\n");
    let arrow = ask(Format::Arrow).bytes;
    let arrow: Vec<_> = arrow::ipc::reader::StreamReader::try_new(arrow.as_slice(), None)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let parquet = bytes::Bytes::from(ask(Format::Parquet).bytes);
    let parquet: Vec<_> =
        parquet::arrow::arrow_reader::ParquetRecordBatchReader::try_new(parquet, 1024)
            .unwrap()
            .map(Result::unwrap)
            .collect();
    // Readers have decimals of 38 digits at most, so the digits are texts; in Parquet, as in exports, there
    // is a number, too.
    for (batches, digits) in [(&arrow, "h"), (&parquet, "h_exact")] {
        let [batch] = &batches[..] else { panic!("one batch") };
        assert_eq!(batch.num_rows(), 2);
        assert!(batch.column_by_name("h").unwrap().is_null(1));
        assert_eq!(batch.column(2).as_string::<i32>().value(0), "a,\"b\"");
        let huge = batch.column_by_name(digits).unwrap().as_string::<i32>();
        assert_eq!(huge.value(0), i128::MIN.to_string());
        let inside = batch.column_by_name("l").unwrap().as_list::<i32>().value(0);
        assert_eq!(inside.as_string::<i32>().value(0), "1");
    }
}

#[test]
fn integers_of_128_bits_are_numbers_in_parquet_and_in_arrow_on_request() {
    use arrow::array::{Array, AsArray};
    use arrow::datatypes::{DataType, Decimal128Type};

    let (world, owner) = (World::new(), owner("alice"));
    world.tables.set_complete(&owner).unwrap();
    let sql = "SELECT * FROM (VALUES
        (1::HUGEINT, 5::UHUGEINT, 18446744073709551615::UBIGINT, 'x', [1::UBIGINT]),
        (-99999999999999999999999999999999999999, 340282366920938463463374607431768211455, 0, 'y', []),
        (100000000000000000000000000000000000000, NULL, NULL, 'z', NULL)) AS t(h, u, b, H_EXACT, l)";
    let ask = |format, numbers| {
        let query = sql.to_owned();
        let request = QueryRequest { query, format, numbers, ..QueryRequest::default() };
        bytes::Bytes::from(world.tables.query(&owner, request).unwrap().bytes)
    };
    let arrow = |numbers| {
        let bytes = ask(Format::Arrow, numbers);
        let mut reader = arrow::ipc::reader::StreamReader::try_new(&bytes[..], None).unwrap();
        reader.next().unwrap().unwrap()
    };
    let parquet = |numbers| {
        let bytes = ask(Format::Parquet, numbers);
        let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReader::try_new(bytes, 8);
        reader.unwrap().next().unwrap().unwrap()
    };
    let decimal = DataType::Decimal128(38, 0);
    for (batch, of_64_bits) in [
        (arrow(Numbers::Decimal), DataType::UInt64),
        (parquet(Numbers::Exact), decimal.clone()),
        (parquet(Numbers::Decimal), decimal.clone()),
    ] {
        let schema = batch.schema();
        let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names, ["h", "u", "b", "H_EXACT", "l", "h_exact_", "u_exact"]);
        let kind = |name: &str| schema.field_with_name(name).unwrap().data_type();
        assert_eq!((kind("h"), kind("u"), kind("b")), (&decimal, &decimal, &of_64_bits));
        let DataType::List(inside) = kind("l") else { panic!("{}", kind("l")) };
        assert_eq!(inside.data_type(), &of_64_bits);
        let numbers = |name: &str| -> Vec<Option<i128>> {
            batch.column_by_name(name).unwrap().as_primitive::<Decimal128Type>().iter().collect()
        };
        let largest = 10i128.pow(38) - 1;
        assert_eq!(numbers("h"), [Some(1), Some(-largest), None]);
        assert_eq!(numbers("u"), [Some(5), None, None]);
        let digits = |name: &str| -> Vec<Option<String>> {
            let texts = batch.column_by_name(name).unwrap().as_string::<i32>().iter();
            texts.map(|text| text.map(str::to_owned)).collect()
        };
        let texts = |all: &[Option<&str>]| -> Vec<Option<String>> {
            all.iter().map(|text| text.map(str::to_owned)).collect()
        };
        let (low, high) = ((-largest).to_string(), (largest + 1).to_string());
        assert_eq!(digits("h_exact_"), texts(&[Some("1"), Some(&low), Some(&high)]));
        let most = u128::MAX.to_string();
        assert_eq!(digits("u_exact"), texts(&[Some("5"), Some(&most), None]));
    }
    // Without a request, Arrow has digits alone, and texts have no numbers beside them.
    for batch in [arrow(Numbers::Exact), arrow(Numbers::String), parquet(Numbers::String)] {
        assert_eq!(batch.num_columns(), 5);
        assert_eq!(batch.column(0).data_type(), &DataType::Utf8);
    }
    // In other formats it is as without.
    let lines = |numbers| ask(Format::Rows, numbers);
    assert_eq!(lines(Numbers::Decimal), lines(Numbers::Exact));
    assert!(arrow(Numbers::Decimal).column(0).is_null(2));
}

/// Decimals of 256 bits end some readers, wherever they are.
#[test]
fn columnar_answers_have_no_decimals_of_256_bits() {
    let (world, owner) = (World::new(), owner("alice"));
    world.tables.set_complete(&owner).unwrap();
    let sql = "SELECT 1::HUGEINT AS a, [1::UHUGEINT] AS b, MAP {'k': 1::HUGEINT} AS c,
        {'x': [{'y': 1::UHUGEINT}]} AS d, MAP {1::HUGEINT: 1} AS e, sum(1::BIGINT) AS f,
        1.5::DECIMAL(38, 10) AS g, [1::HUGEINT]::HUGEINT[1] AS h";
    for (numbers, first) in [
        (Numbers::Exact, "Utf8"),
        (Numbers::String, "Utf8"),
        (Numbers::Decimal, "Decimal128(38, 0)"),
    ] {
        let format = Format::Arrow;
        let request =
            QueryRequest { query: sql.to_owned(), format, numbers, ..QueryRequest::default() };
        let bytes = world.tables.query(&owner, request).unwrap().bytes;
        let reader = arrow::ipc::reader::StreamReader::try_new(&bytes[..], None).unwrap();
        let schema = reader.schema();
        let types = schema.fields().iter().map(|it| it.data_type().to_string());
        let types: Vec<_> = types.collect();
        assert!(!types.iter().any(|kind| kind.contains("Decimal256")), "{types:?}");
        assert_eq!(types[0], first);
    }
}

#[test]
fn numbers_are_strings_in_arrow_and_parquet_when_asked_for() {
    use arrow::array::AsArray;

    let (world, owner) = (World::new(), owner("alice"));
    world.tables.set_complete(&owner).unwrap();
    let sql = "SELECT 9007199254740993::BIGINT AS b, 340282366920938463463374607431768211455::UHUGEINT AS u,
        1.50::DECIMAL(10, 2) AS d, [1::UBIGINT] AS l, {'h': -1::HUGEINT} AS s, 7::INTEGER AS n";
    for format in [Format::Arrow, Format::Parquet] {
        let request = QueryRequest {
            query: sql.to_owned(),
            format,
            numbers: Numbers::String,
            ..QueryRequest::default()
        };
        let bytes = bytes::Bytes::from(world.tables.query(&owner, request).unwrap().bytes);
        let batch = if format == Format::Arrow {
            arrow::ipc::reader::StreamReader::try_new(&bytes[..], None).unwrap().next()
        } else {
            parquet::arrow::arrow_reader::ParquetRecordBatchReader::try_new(bytes, 8)
                .unwrap()
                .next()
        };
        let batch = batch.unwrap().unwrap();
        let text = |name: &str| batch.column_by_name(name).unwrap().as_string::<i32>().value(0);
        assert_eq!(
            (text("b"), text("u"), text("d")),
            ("9007199254740993", &*u128::MAX.to_string(), "1.50")
        );
        let list = batch.column_by_name("l").unwrap().as_list::<i32>().value(0);
        assert_eq!(list.as_string::<i32>().value(0), "1");
        let inside = batch.column_by_name("s").unwrap().as_struct().column(0);
        assert_eq!(inside.as_string::<i32>().value(0), "-1");
        assert_eq!(
            batch.column_by_name("n").unwrap().data_type(),
            &arrow::datatypes::DataType::Int32
        );
    }
}

#[test]
fn types_that_a_format_lacks_are_refused_at_once() {
    let (world, owner) = (World::new(), owner("alice"));
    world.tables.set_complete(&owner).unwrap();
    let ask = |query: &str, format| {
        let request = QueryRequest { query: query.to_owned(), format, ..QueryRequest::default() };
        world.tables.query(&owner, request)
    };
    for value in ["union_value(k := 1)", "INTERVAL 1 HOUR"] {
        for sql in [
            format!("SELECT {value} AS v"),
            format!("SELECT [{value}] AS v"),
            format!("SELECT {{'a': [{value}]}} AS v"),
            format!("SELECT MAP {{1: {value}}} AS v"),
        ] {
            let begun = std::time::Instant::now();
            let refused = ask(&sql, Format::Parquet).unwrap_err().to_string();
            assert!(
                refused.contains("Column 'v' has a type that Parquet answers do not"),
                "{refused}"
            );
            assert!(refused.ends_with("CAST it to VARCHAR"), "{refused}");
            assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{sql}");
            assert!(ask(&sql, Format::Rows).is_ok(), "{sql}");
        }
    }
    for format in [Format::Rows, Format::Columns, Format::Csv, Format::Parquet, Format::Arrow] {
        let refused = ask("SELECT 1::VARIANT AS v", format).unwrap_err().to_string();
        assert!(refused.contains("CAST it to VARCHAR"), "{format:?}: {refused}");
        assert!(ask("SELECT 1", format).is_ok(), "the worker goes on");
    }
}

#[test]
fn the_last_hour_can_be_asked_for() {
    let (world, owner) = (World::new(), owner("alice"));
    world.tables.set_complete(&owner).unwrap();
    let ask = |query: &str| {
        let request = QueryRequest { query: query.to_owned(), ..QueryRequest::default() };
        String::from_utf8(
            world
                .tables
                .query(&owner, request)
                .unwrap_or_else(|error| panic!("{query}: {error}"))
                .bytes,
        )
        .unwrap()
    };
    let before = "(epoch(now()) - 3600)";
    for (hour_ago, unit) in [
        ("now() - interval '1 hour'", 1),
        ("current_timestamp - interval 1 hour", 1),
        ("transaction_timestamp() - interval '60 minutes'", 1),
        ("localtimestamp - interval '1 hour'", 1),
        ("(now() at time zone 'UTC') - interval '1 hour'", 1),
        ("now()::timestamp - interval '1 hour'", 1),
    ] {
        let sql = format!("SELECT abs(epoch({hour_ago}) - {before}) < {unit} AS ok");
        assert_eq!(ask(&sql), r#"[{"ok":true}]"#, "{hour_ago}");
    }
    for is_true in [
        "current_date = now()::date",
        "today() = current_date",
        "current_date - 1 < current_date",
        "current_date - interval 1 day < now()",
        "date_part('hour', now()) = hour(now())",
        "extract('year' from current_timestamp) >= 2024",
        "age(now() - interval '3 days') >= interval '2 days'",
        "age(now(), now() - interval '1 hour') = interval '1 hour'",
        "now() - TIMESTAMP '2024-01-01' > interval '1 day'",
        "current_time BETWEEN time '00:00' AND time '24:00'",
        "date_trunc('hour', now()) <= now()",
        "time_bucket(interval '5 minutes', now()) <= now()",
        "timezone('utc', TIMESTAMP '2024-01-01 10:00:00') = TIMESTAMP '2024-01-01 10:00:00'",
        "strftime(now(), '%Y') = year(today())::VARCHAR",
        "now() = get_current_timestamp()",
    ] {
        assert_eq!(ask(&format!("SELECT {is_true} AS ok")), r#"[{"ok":true}]"#, "{is_true}");
    }
    let request = QueryRequest {
        query: "SELECT now() AT TIME ZONE 'America/New_York'".into(),
        ..QueryRequest::default()
    };
    let refused = world.tables.query(&owner, request).unwrap_err().to_string();
    assert!(refused.contains("Times are UTC here"), "{refused}");
}
