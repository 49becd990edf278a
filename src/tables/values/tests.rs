use stellar_xdr::{
    Int128Parts, Int256Parts, ScBytes, ScString, ScSymbol, ScVec, UInt128Parts, UInt256Parts,
};

use super::*;

fn symbol(text: &str) -> ScVal {
    ScVal::Symbol(ScSymbol(text.try_into().unwrap()))
}

fn list(values: impl IntoIterator<Item = ScVal>) -> ScVal {
    ScVal::Vec(Some(ScVec(values.into_iter().collect::<Vec<_>>().try_into().unwrap())))
}

fn map(entries: impl IntoIterator<Item = (ScVal, ScVal)>) -> ScVal {
    let entries: Vec<_> = entries.into_iter().map(|(key, val)| ScMapEntry { key, val }).collect();
    ScVal::Map(Some(ScMap(entries.try_into().unwrap())))
}

#[test]
fn tagged_json_has_wide_integers_as_strings() {
    let idle = list([symbol("Idle")]);
    for (value, form) in [
        (ScVal::U32(70_000), r#"{"u32":70000}"#),
        (ScVal::I32(-1), r#"{"i32":-1}"#),
        (ScVal::U64(u64::MAX), r#"{"u64":"18446744073709551615"}"#),
        (ScVal::I64(-1), r#"{"i64":"-1"}"#),
        (
            ScVal::I128(Int128Parts { hi: i64::MIN, lo: 0 }),
            r#"{"i128":"-170141183460469231731687303715884105728"}"#,
        ),
        (idle, r#"{"vec":[{"symbol":"Idle"}]}"#),
        (symbol("a"), r#"{"symbol":"a"}"#),
        (
            map([(symbol("k"), ScVal::Bool(true))]),
            r#"{"map":[{"key":{"symbol":"k"},"val":{"bool":true}}]}"#,
        ),
        (ScVal::Bytes(ScBytes(vec![1, 255].try_into().unwrap())), r#"{"bytes":"01ff"}"#),
    ] {
        assert_eq!(tagged(&value), form);
    }
}

#[test]
fn values_as_text_are_exact_and_valid_utf8() {
    let all = u64::MAX;
    for (value, text) in [
        (ScVal::U128(UInt128Parts { hi: all, lo: all }), "340282366920938463463374607431768211455"),
        (
            ScVal::U256(UInt256Parts { hi_hi: all, hi_lo: all, lo_hi: all, lo_lo: all }),
            "115792089237316195423570985008687907853269984665640564039457584007913129639935",
        ),
        (
            ScVal::I256(Int256Parts { hi_hi: i64::MIN, hi_lo: 0, lo_hi: 0, lo_lo: 0 }),
            "-57896044618658097711785492504343953926634992332820282019728792003956564819968",
        ),
        (ScVal::String(ScString(b"a\xffb".as_slice().try_into().unwrap())), "a\\xffb"),
        (ScVal::String(ScString("grün".try_into().unwrap())), "grün"),
    ] {
        assert_eq!(plain(&value), text);
    }
}

#[test]
fn column_types_are_inferred_from_values() {
    let numbers = list([ScVal::U32(1), ScVal::I64(-1)]);
    let mixed = list([ScVal::U32(1), symbol("a")]);
    let twice = map([
        (symbol("a"), ScVal::U32(1)),
        (ScVal::String(ScString("a".try_into().unwrap())), ScVal::U32(2)),
    ]);
    let kinds = [
        (list([]), ColumnType::list(ColumnType::Unknown)),
        (numbers, ColumnType::list(ColumnType::Int64)),
        (mixed.clone(), ColumnType::Json),
        (list([mixed, list([])]), ColumnType::list(ColumnType::Json)),
        (map([(symbol("a"), ScVal::Void)]), ColumnType::map(ColumnType::Text, ColumnType::Unknown)),
        (map([(ScVal::Void, ScVal::U32(1))]), ColumnType::Json),
        (twice, ColumnType::Json),
        (ScVal::Void, ColumnType::Unknown),
    ];
    for (value, kind) in kinds {
        assert_eq!(infer(&value), kind, "{value:?}");
        assert!(kind.holds(&value), "{value:?}");
    }
}

#[test]
fn failed_widening_reports_the_path_of_the_mismatch() {
    let inner = Field { name: "amount".to_owned(), kind: ColumnType::Int32 };
    let kind = ColumnType::list(ColumnType::Struct(vec![inner]));
    let wider = list([map([(symbol("amount"), ScVal::I64(1))])]);
    let widened = kind.widened(&wider).unwrap();
    assert!(!kind.holds(&wider) && widened.holds(&wider));
    let wrong = list([map([(symbol("amount"), symbol("x"))])]);
    let misfit = kind.widened(&wrong).unwrap_err();
    let expected = Misfit {
        path: "[].amount".to_owned(),
        expected: "INTEGER".to_owned(),
        got: "VARCHAR".to_owned(),
    };
    assert_eq!(misfit, expected);
    let more = list([map([(symbol("other"), ScVal::U32(1))])]);
    assert_eq!(kind.widened(&more).unwrap_err().path, "[].other");
}

#[test]
fn an_empty_list_takes_the_type_of_the_first_value() {
    let empty = ColumnType::list(ColumnType::Unknown);
    let mixed = list([ScVal::U32(1), symbol("a")]);
    assert_eq!(empty.widened(&mixed), Ok(ColumnType::Json));
    assert_eq!(empty.widened(&list([ScVal::U32(1)])), Ok(ColumnType::list(ColumnType::UInt32)));
    assert!(ColumnType::list(ColumnType::UInt32).widened(&mixed).is_err());
}

#[test]
fn depth_counts_enclosing_containers() {
    assert_eq!(depth(&ScVal::U32(1)), 0);
    assert_eq!(depth(&list([])), 1);
    assert_eq!(depth(&list([map([(symbol("a"), list([]))])])), 3);
}

#[test]
fn missing_struct_fields_are_counted() {
    let field = |name: &str, kind| Field { name: name.to_owned(), kind };
    let inner =
        ColumnType::Struct(vec![field("a", ColumnType::UInt32), field("b", ColumnType::Text)]);
    let outer = ColumnType::Struct(vec![field("in", inner), field("n", ColumnType::UInt32)]);
    let kind = ColumnType::list(outer);
    let whole = map([
        (symbol("in"), map([(symbol("a"), ScVal::U32(1)), (symbol("b"), symbol("x"))])),
        (symbol("n"), ScVal::Void),
    ]);
    let part = map([(symbol("in"), map([(symbol("a"), ScVal::U32(1))]))]);
    for (items, left_out) in [
        (vec![whole.clone()], 0),
        (vec![map([])], 3),
        (vec![ScVal::Void, whole], 3),
        (vec![part], 2),
    ] {
        let value = list(items);
        assert_eq!(absent(&kind, &value, 1_000), left_out, "{value:?}");
    }
    // A small value may leave out very many cells; counting stops soon after the limit.
    let many = list(vec![map([]); 50_000]);
    assert!((1_000..1_010).contains(&absent(&kind, &many, 1_000)));
}
