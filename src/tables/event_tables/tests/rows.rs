//! The rows of single events: every value that the network has, and what no column can hold.

use orrery_testkit::account_events::{account, address};
use orrery_testkit::specs::{
    Map, SingleValue, Type, Vector, event, map, option, structure, udt, union, vec,
};
use orrery_testkit::values::{fields, i128, list, map as map_of, string, symbol};
use serde_json::{Value, json};
use stellar_xdr::{
    Int256Parts, MuxedEd25519Account, ScAddress, ScSpecEntry, ScVal, UInt256Parts, Uint256,
};

use super::{Known, Made, amount, layout, made, shown};

/// Returns the row of an event in its table and the one behind the view `events`, and the table.
fn both(event: &Made, known: &[Known]) -> (String, Value, Value) {
    let layout = layout(std::slice::from_ref(event), known);
    let rows = event.rows(&layout, known);
    let row = shown(&layout, &rows.row);
    (rows.row.target.clone(), row, shown(&layout, &rows.event))
}

fn declared(entries: Vec<ScSpecEntry>) -> [Known; 1] {
    [Known::chain(1, entries)]
}

#[test]
fn values_of_all_types_are_in_their_columns() {
    let params = [
        ("u256", Type::U256),
        ("i256", Type::I256),
        ("muxed", Type::MuxedAddress),
        ("text", Type::String),
        ("case", udt("Case")),
        ("none", option(Type::U32)),
        ("some", option(Type::U32)),
        ("inner", udt("Inner")),
        ("map", map(Type::String, Type::U32)),
        ("absent", Type::Symbol),
    ];
    let inner = [("z".to_owned(), Type::U32), ("a".to_owned(), option(Type::Bool))];
    let known = declared(vec![
        event("all", &["all"], &[("who", Type::Address)], Map, &params),
        union("Case", &[("A".to_owned(), None), ("B".to_owned(), Some(vec![Type::I128]))]),
        structure("Inner", &inner),
    ]);
    let muxed = ScAddress::MuxedAccount(MuxedEd25519Account { id: 3, ed25519: Uint256([7; 32]) });
    let (max, all) =
        (u64::MAX, |hi_lo| UInt256Parts { hi_hi: hi_lo, hi_lo, lo_hi: hi_lo, lo_lo: hi_lo });
    let least = Int256Parts { hi_hi: i64::MIN, hi_lo: 0, lo_hi: 0, lo_lo: 0 };
    let data = fields([
        ("u256", ScVal::U256(all(max))),
        ("i256", ScVal::I256(least)),
        ("muxed", ScVal::Address(muxed.clone())),
        ("text", string(b"a\0\xff\"")),
        ("case", list([symbol("B"), i128(-1)])),
        ("none", ScVal::Void),
        ("some", ScVal::U32(5)),
        ("inner", fields([("a", ScVal::Void), ("z", ScVal::U32(1))])),
        ("map", map_of([(string("k\0"), ScVal::U32(1))])),
        ("unknown", list([ScVal::U32(1), symbol("x")])),
    ]);
    let who = address(&account(1));
    let topics = [symbol("all"), who, string("beyond")];
    let (target, row, event) = both(&made(5, Some(0), &topics, data), &known);
    let u256 = "115792089237316195423570985008687907853269984665640564039457584007913129639935";
    let i256 = "-57896044618658097711785492504343953926634992332820282019728792003956564819968";
    let text = "a\0\\xff\"";
    let expected = json!({
        "_event_id": 1005, "_event_index": 1, "_declared": "chain",
        "who": account(1).to_string(),
        "u256": u256, "i256": i256, "muxed": muxed.to_string(), "text": text,
        "case": {"vec": [{"symbol": "B"}, {"i128": "-1"}]},
        "none": null, "some": 5, "inner": {"a": null, "z": 1}, "map": {"k\0": 1}, "absent": null,
        "_rest": {"keys": {"unknown": [1, "x"]}, "topics": ["beyond"]},
    });
    assert_eq!((target.as_str(), row), ("all", expected));
    let params = json!({
        "who": account(1).to_string(),
        "u256": u256, "i256": i256, "muxed": muxed.to_string(), "text": text,
        "case": {"tag": "B", "values": ["-1"]},
        "none": null, "some": 5, "inner": {"a": null, "z": 1}, "map": {"k\0": 1},
    });
    assert_eq!(event, json!({"_event_id": 1005, "name": "all", "params": params}));
}

#[test]
fn values_that_a_column_cannot_hold_are_in_the_rest() {
    let wide: Vec<_> = (0..90).map(|at| (format!("f{at}"), Type::U32)).collect();
    let known = declared(vec![
        event(
            "e",
            &["e"],
            &[],
            Vector,
            &[
                ("keys", map(Type::String, Type::U32)),
                ("many", vec(option(udt("Wide")))),
                ("few", vec(option(udt("Wide")))),
            ],
        ),
        structure("Wide", &wide),
    ]);
    // Two keys with the same text, and structs that are left out more than 10,000 times.
    let keys = map_of([(string(b"\xff"), ScVal::U32(1)), (string(b"\\xff"), ScVal::U32(2))]);
    let nothing = |count: usize| list(vec![ScVal::Void; count]);
    let data = list([keys, nothing(112), nothing(111), ScVal::Bool(true)]);
    let (_, row, event) = both(&made(1, Some(0), &[symbol("e")], data), &known);
    assert_eq!((&row["keys"], &row["many"]), (&Value::Null, &Value::Null));
    assert_eq!(row["few"].as_array().unwrap().len(), 111);
    let pairs = json!([["\\xff", 2], ["\\xff", 1]]);
    let nulls = vec![Value::Null; 112];
    let rest = json!({"params": {"keys": pairs, "many": nulls}, "items": [true]});
    assert_eq!(row["_rest"], rest);
    assert_eq!(event["params"]["keys"], pairs);
}

#[test]
fn undeclared_events_are_kept_in_the_typed_form() {
    let topics = [ScVal::U32(1), string(b"\xff\0")];
    let (target, row, event) = both(&made(3, None, &topics, amount(-1)), &[]);
    let data = json!({"map": [{"key": {"symbol": "amount"}, "val": {"i128": "-1"}}]});
    let expected = json!({
        "_event_id": 1003, "_event_index": 1,
        "topics": [{"u32": 1}, {"string": "\\xff\\0"}], "data": data,
        "reason": "no interface declares the event, and its first topic is no text",
    });
    assert_eq!((target.as_str(), row), ("undeclared", expected));
    assert_eq!(event, json!({"_event_id": 1003, "name": null, "params": null}));
}

#[test]
fn inferred_events_have_a_name_and_no_params() {
    let data = fields([("_event", i128(2)), ("a", i128(1)), ("_declared", ScVal::Void)]);
    let (target, row, event) = both(&made(1, None, &[symbol("Odd"), symbol("One")], data), &[]);
    assert_eq!(target, "odd");
    let expected = json!({
        "_event_id": 1001, "_event_index": 1, "_declared": "inferred", "_event": "Odd",
        "topic_2": "One", "_event_": 2, "a": 1, "_declared_": null, "_rest": null,
    });
    assert_eq!(row, expected);
    assert_eq!(event, json!({"_event_id": 1001, "name": "odd", "params": null}));
    let topics = [string(b"O\xffdd\0"), string("One, two")];
    let (target, row, _) = both(&made(1, None, &topics, ScVal::Void), &[]);
    assert_eq!((target.as_str(), &row["_event"]), ("o_dd_one_two", &json!("O\\xffdd\0,One, two")));
}

#[test]
fn the_amount_in_a_map_is_in_its_column() {
    let declaration = event("fee", &["fee"], &[], SingleValue, &[("amount", Type::I128)]);
    let known = declared(vec![declaration]);
    let data = fields([("amount", i128(7)), ("memo", ScVal::U64(1))]);
    let (_, row, _) = both(&made(1, Some(0), &[symbol("fee")], data), &known);
    assert_eq!(row["amount"], 7);
    assert_eq!(row["_rest"], json!({"keys": {"memo": "1"}}));
}

#[test]
fn values_with_hundreds_of_levels_have_rows() {
    let deep = |levels: u32| (0..levels).fold(ScVal::U32(1), |of, _| list([of]));
    let known = declared(vec![event("e", &["e"], &[], SingleValue, &[("v", Type::Val)])]);
    for levels in [8, 9, 500] {
        for (by, topic) in [(Some(0), symbol("e")), (None, symbol("e")), (None, ScVal::Void)] {
            let event = made(1, by, &[topic, deep(levels)], deep(levels));
            let layout = layout(std::slice::from_ref(&event), &known);
            let rows = event.rows(&layout, &known);
            for emit in [rows.row, rows.event] {
                super::encode(layout.schema().table(&emit.target).unwrap(), &[emit]);
            }
        }
    }
}

/// Names longer than a symbol, which keys of maps of the network cannot have.
#[test]
fn long_names_of_columns_have_their_values() {
    let name = "é".repeat(16);
    let data = fields([(name.as_str(), ScVal::U32(1)), ("é", ScVal::U32(2))]);
    let mut long = made(1, None, &[symbol("x")], data);
    if let ScVal::Map(Some(map)) = &mut long.data {
        let mut entries = map.to_vec();
        entries[1].key = ScVal::Symbol(stellar_xdr::ScSymbol([0xff; 32].try_into().unwrap()));
        map.0 = entries.try_into().unwrap();
    }
    let (_, row, _) = both(&long, &[]);
    assert_eq!((&row["é"], &row["\\xff".repeat(32)]), (&json!(2), &json!(1)));
}

#[test]
fn the_rest_of_a_table_with_several_forms_has_what_was_left_over() {
    let known = declared(vec![event("e", &["e"], &[], Map, &[("a", Type::U32)])]);
    let unknown = map_of([(ScVal::U32(1), symbol("x")), (symbol("a"), ScVal::U32(5))]);
    let (_, row, _) = both(&made(1, Some(0), &[symbol("e")], unknown), &known);
    assert_eq!((&row["a"], &row["_rest"]), (&json!(5), &json!({"keys": [[1, "x"]]})));
}
