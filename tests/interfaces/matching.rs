//! The order in which declarations are tried, and what is left over.

use orrery_interfaces::{Interface, Params, PlainRest, declaration};
use orrery_testkit::values::{fields, i128, list, map as map_of, string, symbol};
use serde_json::{Value, json};
use stellar_xdr::{ScError, ScErrorCode, ScSpecEntry, ScVal};

use crate::made::{
    Map, SingleValue, Type, Vector, errors, event, option, reconstructed, result, structure, udt,
    vec,
};

/// Returns the name of the declaration, the parameters and the rest.
fn found(interfaces: &[&Interface], topics: &[ScVal], data: &ScVal) -> Value {
    let Some(matched) = declaration(interfaces, topics, data) else { return Value::Null };
    assert_eq!(reconstructed(&matched, topics), (topics.to_vec(), data.clone()));
    let name = String::from_utf8_lossy(matched.declared.name.as_slice());
    let rest = PlainRest { rest: &matched.rest, types: matched.interface.types() };
    json!([name, Params(&matched), rest])
}

fn one(entry: ScSpecEntry) -> Interface {
    Interface::from_entries(vec![entry]).unwrap()
}

fn interface(entries: Vec<ScSpecEntry>) -> Interface {
    Interface::from_entries(entries).unwrap()
}

#[test]
fn interfaces_are_tried_in_their_order() {
    let of = |name, kind| one(event(name, &["e"], &[], SingleValue, &[("v", kind)]));
    let (supplied, before, after) =
        (of("Supplied", Type::Bool), of("Before", Type::U32), of("After", Type::Val));
    let all = [&supplied, &before, &after];
    let topics = [symbol("e")];
    assert_eq!(found(&all, &topics, &ScVal::Bool(true))[0], "Supplied");
    assert_eq!(found(&all, &topics, &ScVal::U32(1))[0], "Before");
    assert_eq!(found(&all, &topics, &ScVal::I32(1))[0], "After");
    assert_eq!(found(&all[..2], &topics, &ScVal::I32(1)), Value::Null);
    assert_eq!(found(&[], &topics, &ScVal::I32(1)), Value::Null);
}

#[test]
fn an_exact_number_of_topics_comes_before_fewer() {
    let interface = interface(vec![
        event("Fewer", &["e"], &[("a", Type::Val)], SingleValue, &[("v", Type::U32)]),
        event(
            "Exact",
            &["e"],
            &[("a", Type::Val), ("b", Type::Val)],
            SingleValue,
            &[("v", Type::U32)],
        ),
    ]);
    let topics = [symbol("e"), ScVal::U32(1), ScVal::U32(2), ScVal::U32(3)];
    let data = ScVal::U32(9);
    assert_eq!(found(&[&interface], &topics[..1], &data), Value::Null);
    assert_eq!(found(&[&interface], &topics[..2], &data), json!(["Fewer", {"a": 1, "v": 9}, {}]));
    let exact = json!(["Exact", {"a": 1, "b": 2, "v": 9}, {}]);
    assert_eq!(found(&[&interface], &topics[..3], &data), exact);
    // Both have fewer: the interface's order.
    let fewer = json!(["Fewer", {"a": 1, "v": 9}, {"topics": [2, 3]}]);
    assert_eq!(found(&[&interface], &topics, &data), fewer);
}

#[test]
fn declarations_whose_keys_are_present_come_first() {
    let interface = interface(vec![
        event("More", &["e"], &[], Map, &[("a", Type::U32), ("b", Type::U32)]),
        event("Less", &["e"], &[], Map, &[("a", Type::U32), ("c", option(Type::U32))]),
    ]);
    let topics = [symbol("e")];
    let both = fields([("a", ScVal::U32(1)), ("b", ScVal::U32(2))]);
    assert_eq!(found(&[&interface], &topics, &both), json!(["More", {"a": 1, "b": 2}, {}]));
    let less = fields([("a", ScVal::U32(1)), ("d", ScVal::U32(2))]);
    let expected = json!(["Less", {"a": 1}, {"keys": {"d": 2}}]);
    assert_eq!(found(&[&interface], &topics, &less), expected);
    // No declaration has all keys: a missing one is absent.
    let none = fields([("d", ScVal::U32(2))]);
    assert_eq!(found(&[&interface], &topics, &none), json!(["More", {}, {"keys": {"d": 2}}]));
}

#[test]
fn forms_of_one_event_have_the_name_of_their_topics() {
    let of = |name, prefix: &[&str], kind| event(name, prefix, &[], SingleValue, &[("v", kind)]);
    let names = |entries: Vec<ScSpecEntry>| {
        let all = interface(entries);
        let named: Vec<String> = all.event_names().map(str::to_owned).collect();
        // Answers have the name that tables have.
        for (number, declared) in all.events().enumerate() {
            let prefix = declared.prefix_topics.iter().map(|it| ScVal::Symbol(it.clone()));
            let topics: Vec<_> = prefix.collect();
            for data in [ScVal::U32(1), ScVal::Bool(true)] {
                let matched = declaration(&[&all], &topics, &data).unwrap();
                assert!(matched.number != number || matched.name() == named[number]);
            }
        }
        named
    };
    let both = |prefix: &[&str]| {
        names(vec![of("Sent", prefix, Type::U32), of("SentMore", prefix, Type::Bool)])
    };
    assert_eq!(both(&["transfer"]), ["transfer", "transfer"]);
    assert_eq!(both(&["SoroswapPair", "swap"]), ["soroswap_pair_swap", "soroswap_pair_swap"]);
    assert_eq!(both(&["events"]), ["events_", "events_"]);
    // Without such topics, names tell events apart.
    assert_eq!(both(&[]), ["sent", "sent_more"]);
    let alone = vec![of("Sent", &["transfer"], Type::Val), of("SentMore", &["other"], Type::Val)];
    assert_eq!(names(alone), ["sent", "sent_more"]);
    // The same declaration in two sections of a module is one form.
    let twice = vec![of("Sent", &["transfer"], Type::Val), of("Sent", &["transfer"], Type::Val)];
    assert_eq!(names(twice), ["sent", "sent"]);
}

#[test]
fn prefixes_may_be_strings_and_parameters_may_not() {
    let entry = event("E", &["a", "b"], &[("t", Type::Symbol)], SingleValue, &[]);
    let interface = one(entry);
    for prefix in
        [[symbol("a"), symbol("b")], [string("a"), symbol("b")], [string("a"), string("b")]]
    {
        let topics = [&prefix[..], &[symbol("x")]].concat();
        assert_eq!(found(&[&interface], &topics, &ScVal::Void), json!(["E", {"t": "x"}, {}]));
        let topics = [&prefix[..], &[string("x")]].concat();
        assert_eq!(found(&[&interface], &topics, &ScVal::Void), Value::Null);
    }
    for wrong in [[symbol("b"), symbol("a")], [ScVal::Void, symbol("b")]] {
        let topics = [&wrong[..], &[symbol("x")]].concat();
        assert_eq!(found(&[&interface], &topics, &ScVal::Void), Value::Null);
    }
}

#[test]
fn each_format_takes_only_its_data() {
    let topics = [symbol("e")];
    let of = |format, data: &[(&str, Type)]| one(event("E", &["e"], &[], format, data));
    let number = ScVal::U32(1);
    let (map, vector) = (fields([("a", number.clone())]), list([number.clone(), ScVal::Void]));
    let single = of(SingleValue, &[("a", Type::U32)]);
    assert_eq!(found(&[&single], &topics, &number), json!(["E", {"a": 1}, {}]));
    for data in [&map, &vector, &ScVal::Void, &ScVal::I32(1)] {
        assert_eq!(found(&[&single], &topics, data), Value::Null);
    }
    let none = of(SingleValue, &[]);
    assert_eq!(found(&[&none], &topics, &ScVal::Void), json!(["E", {}, {}]));
    assert_eq!(found(&[&none], &topics, &number), Value::Null);
    let two = of(SingleValue, &[("a", Type::Val), ("b", Type::Val)]);
    for data in [&map, &vector, &ScVal::Void, &number] {
        assert_eq!(found(&[&two], &topics, data), Value::Null);
    }
    let vectors = of(Vector, &[("a", Type::U32)]);
    let expected = json!(["E", {"a": 1}, {"items": [null]}]);
    assert_eq!(found(&[&vectors], &topics, &vector), expected);
    for data in [&map, &list([]), &ScVal::Void, &number, &ScVal::Vec(None)] {
        assert_eq!(found(&[&vectors], &topics, data), Value::Null);
    }
    let maps = of(Map, &[("a", Type::U32)]);
    assert_eq!(found(&[&maps], &topics, &map), json!(["E", {"a": 1}, {}]));
    for data in [&vector, &ScVal::Void, &number, &ScVal::Map(None)] {
        assert_eq!(found(&[&maps], &topics, data), Value::Null);
    }
    let broken = fields([("a", ScVal::I32(1))]);
    assert_eq!(found(&[&maps], &topics, &broken), Value::Null);
}

#[test]
fn an_amount_may_stand_in_a_map() {
    let single = event("Single", &["e"], &[], SingleValue, &[("amount", Type::I128)]);
    let wider = event("Wider", &["e"], &[], Map, &[("amount", Type::I128), ("x", Type::U32)]);
    let other = event("Other", &["e"], &[], SingleValue, &[("quantity", Type::I128)]);
    let (topics, more) = ([symbol("e")], [symbol("e"), ScVal::Void]);
    let data = fields([("amount", i128(5)), ("to_muxed_id", ScVal::U64(7))]);
    let alone = one(single.clone());
    let expected = json!(["Single", {"amount": "5"}, {"keys": {"to_muxed_id": "7"}}]);
    assert_eq!(found(&[&alone], &topics, &data), expected);
    let expected =
        json!(["Single", {"amount": "5"}, {"keys": {"to_muxed_id": "7"}, "topics": [null]}]);
    assert_eq!(found(&[&alone], &more, &data), expected);
    assert_eq!(found(&[&alone], &topics, &i128(5)), json!(["Single", {"amount": "5"}, {}]));
    let strange = fields([("amount", ScVal::U64(5))]);
    assert_eq!(found(&[&alone], &topics, &strange), Value::Null);
    assert_eq!(found(&[&alone], &topics, &fields([("x", i128(5))])), Value::Null);
    assert_eq!(found(&[&one(other)], &topics, &fields([("quantity", i128(5))])), Value::Null);
    // A map is declared, although not all of its keys are there.
    let both = interface(vec![single, wider]);
    assert_eq!(found(&[&both], &topics, &data)[0], "Wider");
}

#[test]
fn what_is_left_over_has_the_form_of_a_map_without_a_type() {
    let maps = one(event("E", &["e"], &[], Map, &[("a", Type::U32)]));
    let topics = [symbol("e")];
    let rest = |data: &ScVal| found(&[&maps], &topics, data)[2].clone();
    let strange = map_of([(symbol("a"), ScVal::U32(1)), (ScVal::U32(2), i128(3))]);
    assert_eq!(rest(&strange), json!({"keys": [[2, "3"]]}));
    // A String is no key of a map's parameter.
    let text = map_of([(string("a"), ScVal::U32(1)), (symbol("b"), ScVal::Void)]);
    assert_eq!(rest(&text), json!({"keys": {"a": 1, "b": null}}));
    let same = map_of([(string("b"), ScVal::U32(1)), (symbol("b"), ScVal::Void)]);
    assert_eq!(rest(&same), json!({"keys": [["b", 1], ["b", null]]}));
}

#[test]
fn parameters_of_the_same_name_get_names_of_their_own() {
    let params = [("a", Type::U32), ("A", Type::U32)];
    let topics = [("a", Type::U32), ("contract_id", Type::U32)];
    let interface = one(event("E", &["e"], &topics, Map, &params));
    let topics = [symbol("e"), ScVal::U32(1), ScVal::U32(2)];
    let data = fields([("A", ScVal::U32(4)), ("a", ScVal::U32(3))]);
    let expected = json!(["E", {"a": 1, "contract_id_": 2, "a_": 3, "A__": 4}, {}]);
    assert_eq!(found(&[&interface], &topics, &data), expected);
}

#[test]
fn recursive_types_are_walked_with_the_value() {
    let field = |name: &str, kind| (name.to_owned(), kind);
    let tree = structure(
        "Tree",
        &[field("parts", vec(udt("Tree"))), field("value", option(option(Type::U32)))],
    );
    let interface =
        interface(vec![event("E", &["e"], &[], SingleValue, &[("v", udt("Tree"))]), tree]);
    let node = |parts: Vec<ScVal>, value| fields([("parts", list(parts)), ("value", value)]);
    let leaf = || node(Vec::new(), ScVal::U32(1));
    let topics = [symbol("e")];
    let whole = node(vec![leaf(), node(vec![leaf()], ScVal::Void)], ScVal::Void);
    let plain = json!({"parts": [], "value": 1});
    let expected = json!({"parts": [plain, {"parts": [plain], "value": null}], "value": null});
    assert_eq!(found(&[&interface], &topics, &whole)[1]["v"], expected);
    let broken =
        node(vec![leaf(), node(vec![node(Vec::new(), i128(1))], ScVal::Void)], ScVal::Void);
    assert_eq!(found(&[&interface], &topics, &broken), Value::Null);
}

#[test]
fn a_result_is_its_value_or_one_of_its_errors() {
    let of = |error| {
        let params = [("v", result(option(Type::U32), error))];
        interface(vec![event("E", &["e"], &[], SingleValue, &params), errors("Errors", &[1, 5])])
    };
    let topics = [symbol("e")];
    let contract = |code| ScVal::Error(ScError::Contract(code));
    let host = ScVal::Error(ScError::Auth(ScErrorCode::InvalidInput));
    let fits = |interface: &Interface, data: &ScVal| !found(&[interface], &topics, data).is_null();
    for (error, fitting, others) in [
        (udt("Errors"), vec![contract(1), contract(5)], vec![contract(2), host.clone()]),
        (Type::Error, vec![contract(1), host.clone()], vec![]),
        (Type::U32, vec![], vec![contract(1), host]),
        (udt("Missing"), vec![], vec![contract(1)]),
    ] {
        let interface = of(error);
        for data in fitting.iter().chain(&[ScVal::U32(1), ScVal::Void]) {
            assert!(fits(&interface, data), "{data:?}");
        }
        for data in others.iter().chain(&[ScVal::I32(1), symbol("x")]) {
            assert!(!fits(&interface, data), "{data:?}");
        }
    }
}
