//! The form that a value of each type has in JSON.

use orrery_interfaces::{Interface, Plain, Typed};
use orrery_testkit::account_events::{account, address, contract};
use orrery_testkit::values::{bytes, fields, i128, list, map as map_of, string, symbol, u128};
use serde_json::{Value, json};
use stellar_xdr::{
    Duration, Int256Parts, MuxedEd25519Account, ScAddress, ScError, ScErrorCode, ScVal, TimePoint,
    UInt256Parts, Uint256,
};

use crate::made::{
    Type, bytes_n, errors, map, numbers, option, result, structure, tuple, udt, union, vec,
};

fn interface() -> Interface {
    let field = |name: &str, kind| (name.to_owned(), kind);
    Interface::from_entries(vec![
        structure("S", &[field("a", Type::U64), field("b", udt("N"))]),
        structure("T", &[field("0", Type::U64), field("1", map(Type::U32, Type::Bytes))]),
        union(
            "U",
            &[("None".to_owned(), None), ("Two".to_owned(), Some(vec![Type::U32, udt("S")]))],
        ),
        numbers("N", &[1, 2]),
        errors("E", &[7]),
    ])
    .unwrap()
}

fn plain(value: &ScVal, kind: &Type) -> Value {
    let interface = interface();
    serde_json::to_value(Plain::new(value, kind, interface.types())).unwrap()
}

#[test]
fn scalars() {
    let most = UInt256Parts { hi_hi: u64::MAX, hi_lo: u64::MAX, lo_hi: u64::MAX, lo_lo: u64::MAX };
    let least = Int256Parts { hi_hi: i64::MIN, hi_lo: 0, lo_hi: 0, lo_lo: 0 };
    let of_2_256 = "115792089237316195423570985008687907853269984665640564039457584007913129639935";
    let of_2_255 = "-57896044618658097711785492504343953926634992332820282019728792003956564819968";
    let muxed = ScAddress::MuxedAccount(MuxedEd25519Account { id: 9, ed25519: Uint256([1; 32]) });
    for (value, kind, expected) in [
        (ScVal::Bool(true), Type::Bool, json!(true)),
        (ScVal::Void, Type::Void, json!(null)),
        (ScVal::U32(u32::MAX), Type::U32, json!(u32::MAX)),
        (ScVal::I32(-5), Type::I32, json!(-5)),
        (ScVal::U64(5), Type::U64, json!("5")),
        (ScVal::I64(i64::MIN), Type::I64, json!("-9223372036854775808")),
        (ScVal::Timepoint(TimePoint(7)), Type::Timepoint, json!("7")),
        (ScVal::Duration(Duration(8)), Type::Duration, json!("8")),
        (u128(u128::MAX), Type::U128, json!("340282366920938463463374607431768211455")),
        (i128(-1), Type::I128, json!("-1")),
        (ScVal::U256(most), Type::U256, json!(of_2_256)),
        (ScVal::I256(least), Type::I256, json!(of_2_255)),
        (symbol("sym"), Type::Symbol, json!("sym")),
        (string("text"), Type::String, json!("text")),
        (string(b"a\xff\0b"), Type::String, json!("a\\xff\0b")),
        (bytes(b"\x00\xab"), Type::Bytes, json!("00ab")),
        (bytes(b""), Type::Bytes, json!("")),
        (bytes(&[1; 4]), bytes_n(4), json!("01010101")),
        (address(&account(1)), Type::Address, json!(account(1).to_string())),
        (address(&contract(1)), Type::MuxedAddress, json!(contract(1).to_string())),
        (ScVal::Address(muxed.clone()), Type::MuxedAddress, json!(muxed.to_string())),
        (ScVal::U32(2), udt("N"), json!(2)),
    ] {
        assert_eq!(plain(&value, &kind), expected, "{kind:?}");
        assert_eq!(plain(&value, &Type::Val), expected, "{kind:?} without a type");
        assert_eq!(plain(&value, &option(option(kind.clone()))), expected, "option of {kind:?}");
    }
}

#[test]
fn options_errors_and_results() {
    let error = |code| ScVal::Error(ScError::Contract(code));
    let typed = json!({"error": {"contract": 7}});
    for kind in [Type::Error, udt("E"), Type::Val, result(Type::U32, udt("E"))] {
        assert_eq!(plain(&error(7), &kind), typed, "{kind:?}");
    }
    let host = ScVal::Error(ScError::Budget(ScErrorCode::ExceededLimit));
    assert_eq!(plain(&host, &Type::Error), json!({"error": {"budget": "exceeded_limit"}}));
    assert_eq!(plain(&ScVal::U64(1), &result(Type::U64, udt("E"))), json!("1"));
    assert_eq!(plain(&ScVal::Void, &option(udt("S"))), json!(null));
}

#[test]
fn containers() {
    let s = || fields([("a", ScVal::U64(1)), ("b", ScVal::U32(2))]);
    let plain_s = json!({"a": "1", "b": 2});
    let numbers = || map_of([(ScVal::U32(1), bytes(b"\x01"))]);
    let two = list([symbol("Two"), ScVal::U32(1), s()]);
    for (value, kind, expected) in [
        (list([]), vec(Type::U32), json!([])),
        (list([s(), s()]), vec(udt("S")), json!([plain_s, plain_s])),
        (list([ScVal::Void, s()]), tuple(vec![Type::Void, udt("S")]), json!([null, plain_s])),
        (list([ScVal::U64(1), numbers()]), udt("T"), json!(["1", [[1, "01"]]])),
        (s(), udt("S"), plain_s.clone()),
        (two, udt("U"), json!({"tag": "Two", "values": [1, plain_s]})),
        (list([symbol("None")]), udt("U"), json!({"tag": "None", "values": []})),
        (numbers(), map(Type::U32, Type::Bytes), json!([[1, "01"]])),
        (map_of([]), map(Type::U32, Type::Bytes), json!([])),
        (map_of([]), map(Type::Symbol, Type::Bytes), json!({})),
        (map_of([(string("k"), s())]), map(Type::String, udt("S")), json!({"k": plain_s})),
        (map_of([(symbol("k"), s())]), map(Type::Symbol, udt("S")), json!({"k": plain_s})),
        // Keys that may be text and here are, yet are declared as anything.
        (map_of([(symbol("k"), s())]), map(Type::Val, udt("S")), json!([["k", plain_s]])),
        (list([s(), ScVal::Bool(true)]), Type::Val, json!([plain_s, true])),
        (map_of([]), Type::Val, json!({})),
        (map_of([(string("k"), s())]), Type::Val, json!({"k": plain_s})),
        (numbers(), Type::Val, json!([[1, "01"]])),
        (
            map_of([(string("k"), s()), (symbol("k"), s())]),
            Type::Val,
            json!([["k", plain_s], ["k", plain_s]]),
        ),
        // Different as bytes, and equal as text: nothing is lost.
        (
            map_of([(string(b"\xff"), ScVal::Void), (string("\\xff"), ScVal::Void)]),
            map(Type::String, Type::Void),
            json!([["\\xff", null], ["\\xff", null]]),
        ),
    ] {
        // The order of a map's entries is that of the network, by their XDR type and bytes.
        let found = plain(&value, &kind);
        assert_eq!(found, expected, "{kind:?}");
    }
}

#[test]
fn values_that_no_contract_can_emit_are_typed() {
    for value in [ScVal::Vec(None), ScVal::Map(None), ScVal::LedgerKeyContractInstance] {
        assert_eq!(plain(&value, &Type::Val), serde_json::to_value(&value).unwrap());
        assert_eq!(
            serde_json::to_value(Typed(&value)).unwrap(),
            serde_json::to_value(&value).unwrap()
        );
    }
}

/// As deep as a ledger may hold, on a stack as small as that of some threads.
#[test]
fn deep_values_are_written_on_a_small_stack() {
    let deep = || (0..499).fold(ScVal::Void, |inner, _| list([inner]));
    let write = move || {
        let (interface, deep) = (interface(), deep());
        let plain = Plain::new(&deep, &Type::Val, interface.types());
        let plain = serde_json::to_string(&plain).unwrap();
        assert_eq!(plain, "[".repeat(499) + "null" + &"]".repeat(499));
        let typed = serde_json::to_string(&Typed(&deep)).unwrap();
        assert_eq!(typed.matches("{\"vec\":[").count(), 499);
    };
    let thread = std::thread::Builder::new().stack_size(512 << 10);
    thread.spawn(write).unwrap().join().unwrap();
}
