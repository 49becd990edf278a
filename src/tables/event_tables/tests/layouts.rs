//! Which tables there are: names, versions, limits, and the types of columns.

use std::time::{Duration, Instant};

use orrery_interfaces::{Interface, Origin};
use orrery_ledger::domain::Hash32;
use orrery_testkit::account_events::{account, address, contract};
use orrery_testkit::size;
use orrery_testkit::specs::{
    Map, SingleValue, Type, event, map, numbers, option, structure, tuple, udt, union, vec,
};
use orrery_testkit::values::{bytes, fields, i128, list, string, symbol};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use stellar_xdr::{Limits, ScSpecEntry, ScVal, WriteXdr};

use super::{Known, Made, columns, layout, made, shapes, shown, tables};
use crate::event_tables::{Declarations, MOST_BYTES, Shapes, Summarised};
use crate::schema::SchemaLimits;

/// The declaration of an event with one value in its data.
fn one(name: &str, column: &str, kind: Type) -> ScSpecEntry {
    event(name, &[name], &[], Map, &[(column, kind)])
}

fn with(name: &str, column: &str, value: ScVal) -> (ScVal, ScVal) {
    (symbol(name), fields([(column, value)]))
}

/// Returns an event of a name with one value in its data.
fn value(number: u32, by: Option<usize>, (topic, data): (ScVal, ScVal)) -> Made {
    made(number, by, &[topic], data)
}

#[test]
fn forms_of_the_asset_contract_are_one_table() {
    let known = [Known::asset()];
    let asset = || string("USD:GA5ZSEJYB37JRC5AVCIA5MOP4RHTM335X2KGX3IHOJAPP5RE34K4KZVN");
    let (a, b) = (|| address(&account(1)), || address(&contract(2)));
    let muxed = |id: ScVal| fields([("amount", i128(7)), ("to_muxed_id", id)]);
    let transfer = [symbol("transfer"), a(), b(), asset()];
    let events = [
        made(1, Some(0), &transfer, i128(7)),
        made(2, Some(0), &transfer, muxed(ScVal::U64(5))),
        made(3, Some(0), &transfer, muxed(bytes(&[9; 32]))),
        made(4, Some(0), &[symbol("mint"), b(), a(), asset()], i128(7)),
    ];
    let transfer = ["from VARCHAR", "to VARCHAR", "sep0011_asset VARCHAR", "amount HUGEINT"];
    let transfer = [&transfer[..], &["to_muxed_id JSON"]].concat();
    for events in [&events[..], &events[..1]] {
        assert_eq!(columns(&layout(events, &known), "transfer"), transfer);
    }
    let layout = layout(&events, &known);
    let others = ["approve", "burn", "clawback", "set_admin", "set_authorized", "undeclared"];
    assert_eq!(tables(&layout), [&["transfer", "mint"], &others[..]].concat());
    let mint = ["to VARCHAR", "sep0011_asset VARCHAR", "amount HUGEINT", "to_muxed_id JSON"];
    assert_eq!(columns(&layout, "mint"), [&mint[..], &["admin VARCHAR"]].concat());
}

#[test]
fn versions_share_a_table_when_their_common_columns_join() {
    let wider = event("swap", &["swap"], &[("who", Type::Symbol)], Map, &[("a", Type::I128)]);
    let known = [
        Known::chain(1, vec![one("swap", "a", Type::U32)]),
        Known::chain(2, vec![wider]),
        Known::chain(3, vec![one("swap", "A", Type::String), one("swap_v2", "a", Type::Bool)]),
        Known::new(4, Origin::Supplied, vec![one("Swap", "b", Type::Address)]),
    ];
    let mut events = vec![
        value(1, Some(0), with("swap", "a", ScVal::U32(1))),
        made(2, Some(1), &[symbol("swap"), symbol("x")], fields([("a", i128(1))])),
        value(3, Some(2), with("swap", "A", string("x"))),
        value(4, Some(3), with("Swap", "b", address(&account(1)))),
    ];
    let all = layout(&events, &known);
    // `swap_v2` is what the third contract declares, though it has not emitted it yet.
    assert_eq!(tables(&all), ["swap", "swap_v3", "swap_v2", "undeclared"]);
    assert_eq!(columns(&all, "swap"), ["a HUGEINT", "who VARCHAR", "b VARCHAR"]);
    assert_eq!(columns(&all, "swap_v3"), ["A VARCHAR"]);
    let views = &all.schema().of_events().versions;
    assert_eq!(*views, [["swap".to_owned(), "swap_v3".to_owned()]]);
    let swap = |number: u32| {
        let event = events.iter().find(|event| event.number == number).unwrap();
        event.rows(&all, &known).row.target
    };
    assert_eq!([1, 2, 3, 4].map(swap), ["swap", "swap", "swap_v3", "swap"]);
    // The one that comes first in the chain has the name.
    events[2].number = 0;
    let all = layout(&events, &known);
    assert_eq!(columns(&all, "swap"), ["A VARCHAR", "b VARCHAR"]);
    assert_eq!(columns(&all, "swap_v3"), ["a HUGEINT", "who VARCHAR"]);
}

#[test]
fn overloads_in_one_interface_are_versions_too() {
    let overloads = vec![
        one("swap", "a", Type::U32),
        event("swap", &["swap"], &[("x", Type::U32)], Map, &[("b", Type::U32)]),
        event("swap", &["swap"], &[("x", Type::U32), ("y", Type::U32)], Map, &[("a", Type::Bool)]),
    ];
    let known = [Known::chain(1, overloads)];
    let first = layout(&[value(1, Some(0), with("swap", "a", ScVal::U32(1)))], &known);
    // The third one has not occurred.
    assert_eq!(tables(&first), ["swap", "swap_v2", "undeclared"]);
    assert_eq!(columns(&first, "swap"), ["a UINTEGER", "x UINTEGER", "b UINTEGER"]);
    let topics = [symbol("swap"), ScVal::U32(1), ScVal::U32(2)];
    let other = made(0, Some(0), &topics, fields([("a", ScVal::Bool(true))]));
    assert_eq!(
        columns(&layout(&[other], &known), "swap"),
        ["x UINTEGER", "y UINTEGER", "a BOOLEAN"]
    );
}

/// The events of tokens by both common libraries: forms with an amount alone, or with more in a map.
fn token(more: &str, muxed_id: Type) -> Vec<ScSpecEntry> {
    let parties = [("from", Type::Address), ("to", Type::Address)];
    let amount = ("amount", Type::I128);
    vec![
        event("Transfer", &["transfer"], &parties, SingleValue, std::slice::from_ref(&amount)),
        event(more, &["transfer"], &parties, Map, &[("to_muxed_id", muxed_id), amount]),
        event("Approve", &["approve"], &parties, SingleValue, &[("amount", Type::I128)]),
    ]
}

#[test]
fn forms_of_an_event_have_one_table_named_after_their_topics() {
    let known = [
        Known::chain(1, token("TransferWithAmountOnly", option(Type::U64))),
        Known::chain(2, token("MuxedTransfer", Type::U64)),
    ];
    let (a, b) = (|| address(&account(1)), || address(&account(2)));
    let transfer = [symbol("transfer"), a(), b()];
    let muxed = || fields([("amount", i128(5)), ("to_muxed_id", ScVal::U64(9))]);
    let events = [
        made(1, Some(0), &transfer, i128(1)),
        made(2, Some(0), &transfer, muxed()),
        made(3, Some(1), &transfer, i128(2)),
        made(4, Some(1), &transfer, muxed()),
        made(5, Some(1), &[symbol("approve"), a(), b()], i128(3)),
        // Another contract's event, which only looks as theirs do.
        made(6, None, &[symbol("transfer")], i128(3)),
    ];
    let expected = ["from VARCHAR", "to VARCHAR", "amount HUGEINT", "to_muxed_id UBIGINT"];
    for first in 0..4 {
        let layout = layout(&events[first..=first], &known);
        assert_eq!(tables(&layout), ["transfer", "approve", "undeclared"]);
        let mut columns = columns(&layout, "transfer");
        columns.sort_unstable();
        assert_eq!(
            columns,
            ["amount HUGEINT", "from VARCHAR", "to VARCHAR", "to_muxed_id UBIGINT"]
        );
    }
    let layout = layout(&events, &known);
    assert_eq!(tables(&layout), ["transfer", "approve", "transfer_2", "undeclared"]);
    assert_eq!(columns(&layout, "transfer"), expected);
    assert!(layout.schema().of_events().versions.is_empty());
    let amounts = events[..4].iter().map(|event| {
        let rows = event.rows(&layout, &known);
        assert_eq!(shown(&layout, &rows.event)["name"], "transfer");
        shown(&layout, &rows.row)["amount"].as_i64().unwrap()
    });
    assert_eq!(amounts.sum::<i64>(), 13);
    let alone = shown(&layout, &events[0].rows(&layout, &known).row);
    assert_eq!(alone["to_muxed_id"], serde_json::Value::Null);
}

#[test]
fn forms_whose_columns_do_not_join_are_versions() {
    let forms = |prefix: &str| {
        vec![
            event("PaidInText", &[prefix], &[], Map, &[("amount", Type::String)]),
            event("Paid", &[prefix, "in"], &[], Map, &[("amount", Type::Bool)]),
            event("PaidInNumbers", &[prefix], &[], Map, &[("amount", Type::I128)]),
        ]
    };
    let known = [Known::chain(1, forms("pay-ment"))];
    let event =
        |number, value| made(number, Some(0), &[symbol("pay-ment")], fields([("amount", value)]));
    let events = [event(1, string("x")), event(2, i128(1))];
    let layout = layout(&events, &known);
    assert_eq!(tables(&layout), ["pay_ment", "pay_ment_v2", "paid", "undeclared"]);
    assert_eq!(columns(&layout, "pay_ment"), ["amount VARCHAR"]);
    assert_eq!(columns(&layout, "pay_ment_v2"), ["amount HUGEINT"]);
    let versions = &layout.schema().of_events().versions;
    assert_eq!(*versions, [["pay_ment".to_owned(), "pay_ment_v2".to_owned()]]);
}

#[test]
fn types_of_columns_follow_the_declared_types() {
    let deep = (0..9).fold(Type::U32, |of, _| vec(of));
    let wide: Vec<_> = (0..60).map(|at| (format!("f{at}"), Type::U32)).collect();
    let texts = |fields: &[(&str, Type)]| -> Vec<(String, Type)> {
        fields.iter().map(|(name, kind)| ((*name).to_owned(), kind.clone())).collect()
    };
    let params = [
        ("contract_id", Type::I256),
        ("Deep", deep),
        ("tree", udt("Tree")),
        ("wide", udt("Wide")),
        ("too_wide", map(Type::Symbol, udt("Wider"))),
        ("inner", udt("Inner")),
        ("number", udt("Number")),
        ("case", udt("Case")),
        ("pair", tuple(vec![Type::U32, Type::U32])),
        ("maybe", option(vec(option(Type::Timepoint)))),
        ("_REST", map(Type::Address, Type::Bytes)),
        ("any", Type::Val),
    ];
    let entries = vec![
        event("e", &["e"], &[], Map, &params),
        structure("Tree", &texts(&[("left", option(udt("Tree")))])),
        structure("Wide", &wide),
        structure("Wider", &texts(&[("a", udt("Wide")), ("b", udt("Wide"))])),
        structure("Inner", &texts(&[("z", Type::U32), ("a", vec(Type::MuxedAddress))])),
        numbers("Number", &[1]),
        union("Case", &[("A".to_owned(), None)]),
    ];
    let known = [Known::chain(1, entries)];
    let data = fields([("any", ScVal::Void)]);
    let columns = columns(&layout(&[made(1, Some(0), &[symbol("e")], data)], &known), "e");
    let wide: Vec<_> = (0..60).map(|at| format!("\"f{at}\" UINTEGER")).collect();
    let expected = [
        "contract_id_ VARCHAR",
        "Deep JSON",
        "tree STRUCT(\"left\" JSON)",
        &format!("wide STRUCT({})", wide.join(", ")),
        "too_wide JSON",
        "inner STRUCT(\"z\" UINTEGER, \"a\" VARCHAR[])",
        "number UINTEGER",
        "case JSON",
        "pair JSON",
        "maybe UBIGINT[]",
        "_REST_ MAP(VARCHAR, BLOB)",
        "any JSON",
    ];
    assert_eq!(columns, expected);
}

#[test]
fn names_of_events_without_a_declaration_are_inferred() {
    let pair = [string("SoroswapPair"), symbol("swap")];
    let more = [string("SoroswapPair"), symbol("swap"), ScVal::U32(1)];
    let (keys, known) = (|| fields([("to", address(&account(1))), ("topic_2", ScVal::U32(1))]), []);
    let events = [
        made(1, None, &pair, keys()),
        made(2, None, &more, keys()),
        made(3, None, &pair, list([ScVal::U32(1), symbol("x")])),
        made(4, None, &pair, ScVal::U32(1)),
        made(5, None, &pair, i128(-1)),
        made(6, None, &[symbol("events")], ScVal::Void),
        made(7, None, &[ScVal::U32(1), symbol("x")], ScVal::Void),
        made(8, None, &[], ScVal::Void),
        made(9, None, &pair, list((0..17).map(ScVal::U32))),
        made(
            10,
            None,
            &[symbol("balances")],
            orrery_testkit::values::map([(bytes(b"k"), i128(1))]),
        ),
        // A symbol alone makes the name, whatever is behind it; a string does with a second text.
        made(11, None, &[symbol("role_granted"), symbol("minter")], ScVal::Void),
        made(12, None, &[symbol("role_granted"), symbol("burner")], ScVal::Void),
        made(13, None, &[string("swap"), string("offer_amount")], i128(1)),
        made(14, None, &[string("ping"), ScVal::U32(1)], ScVal::Void),
    ];
    let layout = layout(&events, &known);
    let names = ["", "_2", "_3", "_4"].map(|it| format!("soroswap_pair_swap{it}"));
    let more = ["events_", "balances", "role_granted", "swap_offer_amount", "ping", "undeclared"];
    let names = [&names[..], &more.map(str::to_owned)].concat();
    assert_eq!(tables(&layout), names);
    assert_eq!(columns(&layout, &names[0]), ["topic_2 VARCHAR", "to VARCHAR", "topic_2_ UINTEGER"]);
    assert_eq!(columns(&layout, &names[1])[..2], ["topic_2 VARCHAR", "topic_3 UINTEGER"]);
    let items = ["topic_2 VARCHAR", "value_1 UINTEGER", "value_2 VARCHAR"];
    assert_eq!(columns(&layout, &names[2]), items);
    // A number, another, and a long vector.
    assert_eq!(columns(&layout, &names[3]), ["topic_2 VARCHAR", "value JSON"]);
    assert_eq!(columns(&layout, "events_"), ["value JSON"]);
    assert_eq!(columns(&layout, "balances"), ["value MAP(BLOB, HUGEINT)"]);
    let exact = |at: usize| shown(&layout, &events[at].rows(&layout, &[]).row)["_event"].clone();
    assert_eq!(exact(0), "SoroswapPair,swap");
    assert_eq!((exact(10), exact(11)), ("role_granted".into(), "role_granted".into()));
    assert_eq!((exact(12), exact(13)), ("swap,offer_amount".into(), "ping".into()));
}

/// The system's events have tables as others without a declaration have, and say whose they are.
#[test]
fn events_of_the_system_have_tables() {
    let wasm = |hash: u8| list([symbol("Wasm"), bytes(&[hash; 32])]);
    let update = [symbol("executable_update"), wasm(1), wasm(2)];
    let system = Made { is_system: true, ..made(1, Some(0), &update, list([])) };
    // What a contract itself emits under the name of such an event is told from it.
    let own = made(2, Some(0), &update, list([]));
    let known = [Known::chain(1, vec![one("swap", "a", Type::U32)])];
    let layout = layout(&[system.clone(), own.clone()], &known);
    assert_eq!(tables(&layout), ["executable_update", "swap", "undeclared"]);
    assert_eq!(columns(&layout, "executable_update"), ["topic_2 JSON", "topic_3 JSON"]);
    let rows = system.rows(&layout, &known);
    let row = shown(&layout, &rows.row);
    assert_eq!(
        (&row["_declared"], &row["_event"]),
        (&"system".into(), &"executable_update".into())
    );
    assert_eq!(row["topic_3"]["vec"][0]["symbol"], "Wasm");
    assert_eq!(shown(&layout, &rows.event)["name"], "executable_update");
    assert_eq!(shown(&layout, &own.rows(&layout, &known).row)["_declared"], "inferred");
    let without_text = Made { is_system: true, ..made(1, None, &[ScVal::U32(1)], ScVal::Void) };
    assert!(without_text.rows(&layout, &known).is_undeclared());
}

#[test]
fn declared_names_are_not_inferred() {
    let known = [Known::chain(1, vec![one("swap", "a", Type::U32), one("mint", "a", Type::U32)])];
    let inferred = |number, by| made(number, by, &[symbol("mint")], ScVal::U32(1));
    assert_eq!(tables(&layout(&[inferred(1, None)], &known)), ["mint", "undeclared"]);
    // An interface that was consulted reserves its names, also those that nothing was emitted of.
    let names = |layout| tables(layout).into_iter().map(str::to_owned).collect::<Vec<_>>();
    let reserved = layout(&[inferred(1, Some(0))], &known);
    assert_eq!(names(&reserved), ["mint_2", "mint", "swap", "undeclared"]);
    assert!(!layout(&[inferred(1, None)], &known).grows_into(&reserved));
    let swap = value(2, Some(0), with("swap", "a", ScVal::U32(1)));
    let all = layout(&[inferred(1, None), swap], &known);
    assert_eq!(tables(&all), ["mint_2", "swap", "mint", "undeclared"]);
}

#[test]
fn beyond_the_limits_events_are_undeclared_and_values_in_the_rest() {
    let entries = (0..5).map(|at| one(&format!("e{at}"), "a", Type::U32)).collect();
    let known = [Known::chain(1, entries)];
    let limits = SchemaLimits { tables: 3, ..SchemaLimits::default() };
    let mut events: Vec<_> = (1..=2)
        .map(|at| value(10 + at, Some(0), with(&format!("e{at}"), "a", ScVal::U32(1))))
        .collect();
    events.extend((0..4).map(|at| made(at, None, &[symbol(&format!("i{at}"))], ScVal::U32(at))));
    let limited = shapes(&events, &known).tables(limits);
    // Declared events have tables though they come later.
    assert_eq!(tables(&limited), ["i0", "e1", "e2", "undeclared"]);
    let rows = events.iter().map(|event| event.rows(&limited, &known));
    let undeclared: Vec<_> = rows.map(|rows| rows.is_undeclared()).collect();
    assert_eq!(undeclared, [false, false, false, true, true, true]);
    let all = fields([]);
    let wide = list((0..150).map(ScVal::U32));
    let ScVal::Vec(Some(values)) = wide else { panic!("it is a vector") };
    let names: Vec<_> = (0..150).map(|at| format!("k{at:03}")).collect();
    let data = fields(names.iter().map(String::as_str).zip(values.iter().cloned()));
    let events = [made(1, None, &[symbol("wide")], data), made(2, None, &[symbol("none")], all)];
    let layout = layout(&events, &[]);
    assert_eq!(columns(&layout, "wide").len(), 100);
    assert_eq!(columns(&layout, "none").len(), 0);
    let row = events[0].rows(&layout, &[]).row;
    let row = super::shown(&layout, &row);
    assert_eq!(row["k099"], 99);
    assert_eq!(row["_rest"]["params"].as_object().unwrap().len(), 50);
    assert_eq!(row["_rest"]["params"]["k149"], 149);
}

/// A map with numbers under as many keys.
fn numbered(name: &str, count: u32) -> ScVal {
    let keys: Vec<String> = (0..count).map(|key| format!("{name}_{key}")).collect();
    fields(keys.iter().map(|key| (key.as_str(), ScVal::U32(1))))
}

/// The first in the chain are kept; what is without declared types has no exact ones any more. How
/// much the others take does not matter.
#[test]
fn too_many_shapes_are_the_same_in_any_order() {
    let known = [Known::chain(1, vec![one("swap", "a", Type::U32)])];
    let wide = |at: u32| numbered("key", at * 7 % 60);
    let mut events: Vec<_> =
        (0..1_000).map(|at| made(at, None, &[symbol(&format!("e{at}"))], wide(at))).collect();
    events.push(value(5, Some(0), with("swap", "a", ScVal::U32(1))));
    let forward = shapes(&events, &known);
    assert!(forward.is_cut() && forward.len() < 1_000 && forward.bytes() <= MOST_BYTES + 64);
    assert!(forward.bytes() > MOST_BYTES - 6_000);
    let layout = forward.tables(SchemaLimits::default());
    assert_eq!(columns(&layout, "e1")[0], "key_0 JSON");
    assert_eq!(columns(&layout, "swap"), ["a UINTEGER"]);
    assert!(events[999].rows(&layout, &known).is_undeclared());
    events.reverse();
    assert!(!shapes(&events[..40], &known).is_cut());
    let (late, early) = events.split_at(events.len() / 2);
    let mut joined = shapes(late, &known);
    assert!(joined.join(&shapes(early, &known)));
    assert!(joined == forward);
    assert!(!joined.join(&forward) && !joined.join(&Shapes::default()));
    assert!(!joined.may_change_by(&forward));
    assert!(shapes(&events, &known) == forward);
    for seed in 0..20 {
        events.shuffle(&mut StdRng::seed_from_u64(seed));
        let mut parts = events.chunks(100).map(|part| shapes(part, &known));
        let first = parts.next().unwrap();
        let joined = parts.fold(first, |mut joined, part| {
            joined.join(&part);
            joined
        });
        assert!(joined == forward && shapes(&events, &known) == forward, "seed {seed}");
    }
}

/// What is written of a summary is bounded by the events, however many kinds of them there are.
///
/// Small: 400 kinds; full: 10,000.
#[test]
fn a_change_writes_what_has_changed() {
    let (mut all, mut written, mut of_events) = (Summarised::default(), 0, 0);
    for at in 0..u32::try_from(size::choose(400, 10_000)).unwrap() {
        let event = made(at, None, &[symbol("kind")], numbered(&format!("a{at}"), 100));
        of_events += event.data.to_xdr(Limits::none()).unwrap().len();
        let before = all.clone();
        all.join(&shapes(std::slice::from_ref(&event), &[]));
        let rows = all.shapes().rows_since(before.shapes());
        written += rows
            .iter()
            .map(|(key, value)| key.len() + value.as_ref().map_or(0, Vec::len))
            .sum::<usize>();
        assert!(rows.len() <= 3 || before.shapes().is_cut() != all.shapes().is_cut());
    }
    println!("{written} bytes for {of_events} bytes of events");
    assert!(written <= 4 * of_events);
    assert!(all.shapes().is_cut() && all.shapes().bytes() <= MOST_BYTES);
}

#[test]
fn single_values_of_one_name_differ_by_their_declaration_alone() {
    let none = event("paused", &["paused"], &[], SingleValue, &[]);
    let known = [Known::chain(1, vec![none])];
    let layout = layout(&[made(1, Some(0), &[symbol("paused")], ScVal::Void)], &known);
    assert_eq!(columns(&layout, "paused").len(), 0);
}

/// The tables alone do not tell that rows would have to move.
#[test]
fn shapes_that_change_their_table_cause_a_refill() {
    let [later, earlier] = [(9, fields([])), (3, list([]))]
        .map(|(number, data)| made(number, None, &[symbol("paused")], data));
    let old = layout(std::slice::from_ref(&later), &[]);
    let new = layout(&[later.clone(), earlier], &[]);
    assert_eq!(tables(&old), ["paused", "undeclared"]);
    assert_eq!(tables(&new), ["paused", "paused_2", "undeclared"]);
    assert_eq!(later.rows(&new, &[]).row.target, "paused_2");
    assert_eq!(columns(&new, "paused"), columns(&old, "paused"));
    assert!(!old.grows_into(&new));
    // One that comes later in the chain moves nothing.
    let more = layout(&[later, made(10, None, &[symbol("paused")], list([]))], &[]);
    assert!(old.grows_into(&more));
}

/// Four thousand parameters of a struct with 60,000 fields, in 2 MiB: the fields are not looked at for
/// each parameter.
#[test]
fn parameters_of_wide_structs_cost_no_more_than_others() {
    let fields: Vec<_> = (0..60_000).map(|at| (format!("f{at}"), Type::U32)).collect();
    let names: Vec<String> = (0..1_000).map(|at| format!("p{at}")).collect();
    let params: Vec<_> = names.iter().map(|name| (name.as_str(), udt("S"))).collect();
    let events = (0..4).map(|at| event(&format!("e{at}"), &[], &[], Map, &params));
    let entries = [structure("S", &fields)].into_iter().chain(events).collect();
    let interface = Interface::from_entries(entries).unwrap();
    let begun = Instant::now();
    let declarations = Declarations::new(Hash32([1; 32]), Origin::Supplied, &interface);
    // With the fields, it took minutes in such a build.
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(declarations.bytes() < 1 << 20);
    // Structs that fit have columns for their fields, until all together have too many.
    let small = structure("S", &fields[..3]);
    let entries = [small].into_iter().chain([event("e", &[], &[], Map, &params[..2])]).collect();
    let known = [Known::chain(1, entries)];
    let none = orrery_testkit::values::fields([]);
    let layout = layout(&[made(1, Some(0), &[], none)], &known);
    let kind = "STRUCT(\"f0\" UINTEGER, \"f1\" UINTEGER, \"f2\" UINTEGER)";
    assert_eq!(columns(&layout, "e"), [format!("p0 {kind}"), format!("p1 {kind}")]);
}

#[test]
fn declared_events_have_tables_before_the_first_one() {
    let known = [
        Known::chain(1, vec![one("swap", "a", Type::U32), one("burn", "a", Type::U64)]),
        // A later version: its `swap` adds a column, its `burn` does not join.
        Known::chain(
            2,
            vec![
                event("swap", &["swap"], &[], Map, &[("a", Type::U32), ("b", Type::U32)]),
                one("burn", "a", Type::String),
            ],
        ),
    ];
    let mut declared = Shapes::default();
    assert!(declared.consult(&known[0].declarations));
    assert!(!declared.consult(&known[0].declarations));
    let of = |shapes: &Shapes| shapes.tables(SchemaLimits::default());
    let first = of(&declared);
    assert_eq!(tables(&first), ["burn", "swap", "undeclared"]);
    assert_eq!(columns(&first, "swap"), ["a UINTEGER"]);
    // Events without a declaration do not take the names, and come first.
    let inferred = value(1, None, with("burn", "x", ScVal::U32(1)));
    inferred.add_to(&mut declared, &known);
    let second = of(&declared);
    assert_eq!(tables(&second), ["burn_2", "burn", "swap", "undeclared"]);
    assert!(first.grows_into(&second));
    // What has occurred comes first, in the same table.
    value(2, Some(0), with("swap", "a", ScVal::U32(1))).add_to(&mut declared, &known);
    let third = of(&declared);
    assert_eq!(tables(&third), ["burn_2", "swap", "burn", "undeclared"]);
    assert!(second.grows_into(&third));
    declared.consult(&known[1].declarations);
    let fourth = of(&declared);
    assert_eq!(tables(&fourth), ["burn_2", "swap", "burn", "burn_v2", "undeclared"]);
    assert_eq!(columns(&fourth, "swap"), ["a UINTEGER", "b UINTEGER"]);
    // As it is stored, and joined in another order.
    let rows = declared.rows_since(&Shapes::default());
    let rows: Vec<_> = rows.into_iter().map(|(key, value)| (key, value.unwrap())).collect();
    let stored = Shapes::from_rows(rows.iter().map(|(key, value)| (&key[..], &value[..])));
    assert_eq!(stored, Some(declared.clone()));
    let mut joined = Shapes::default();
    joined.consult(&known[1].declarations);
    assert!(joined.join(&declared));
    assert!(!joined.may_change_by(&declared));
    assert_eq!(joined, declared);
}

#[test]
fn declared_events_take_limited_room_whatever_their_order() {
    let interface = |id: u8| {
        let columns: Vec<String> = (0..8).map(|at| format!("{at}{}", "c".repeat(28))).collect();
        let columns: Vec<_> = columns.iter().map(|name| (name.as_str(), Type::U32)).collect();
        let events = (0..200).map(|at| {
            let name = format!("event_{id}_{at}");
            event(&name, &[&name], &[], Map, &columns)
        });
        Known::chain(id, events.collect())
    };
    let mut known: Vec<Known> = (0..8).map(interface).collect();
    let consulted = |known: &[Known]| {
        let mut shapes = Shapes::default();
        for known in known {
            shapes.consult(&known.declarations);
        }
        shapes
    };
    let expected = consulted(&known);
    let (names, most) = (expected.names().map(String::len).sum::<usize>(), 257 << 10);
    assert!(expected.bytes() - names < most, "{}", expected.bytes());
    assert!(expected.declared.beyond().is_some());
    let mut random = StdRng::seed_from_u64(5);
    for _ in 0..8 {
        known.shuffle(&mut random);
        assert_eq!(consulted(&known), expected);
        let mut joined = consulted(&known[..3]);
        joined.join(&consulted(&known[3..]));
        assert_eq!(joined, expected);
        let rows = joined.rows_since(&Shapes::default());
        let rows: Vec<_> =
            rows.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        let rows = rows.iter().map(|(key, value)| (&key[..], &value[..]));
        assert_eq!(Shapes::from_rows(rows).as_ref(), Some(&expected));
    }
}
