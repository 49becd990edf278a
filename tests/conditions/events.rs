//! Conditions over events: declared ones, forms of one event, upgrades, and those without a declaration.

use orrery_conditions::{Condition, Event, FlatEvent, Judgement, Own};
use orrery_interfaces::{Interface, NamedEvent, bundled, declaration};
use orrery_ledger::domain::ContractId;
use orrery_testkit::account_events::{account, address, contract, xdr};
use orrery_testkit::random_conditions::{Material, Names};
use orrery_testkit::specs::{
    Map, SingleValue, Type, event, map as map_of, numbers, option, structure, tuple, udt, union,
    vec,
};
use orrery_testkit::values::{bytes, fields, i128, list, map, string, symbol};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use stellar_xdr::{ScSpecEntry, ScVal};

const CONTRACT: [u8; 32] = [7; 32];
const TRANSACTION: [u8; 32] = [0xab; 32];

fn own(topics: &[ScVal]) -> Own<'_> {
    Own { contract: Some(&CONTRACT), ledger: 1_000, transaction: &TRANSACTION, topics }
}

fn interface(entries: Vec<ScSpecEntry>) -> Interface {
    Interface::from_entries(entries).unwrap()
}

fn condition(text: &str) -> Condition {
    Condition::parse(text).unwrap_or_else(|problem| panic!("{text}: {problem}"))
}

/// What a condition says of an event by its values, and, where its bytes tell its declaration, by these.
fn judged(text: &str, by: Option<&Interface>, topics: &[ScVal], data: &ScVal) -> Judgement {
    let condition = condition(text);
    let matched = by.and_then(|by| declaration(std::slice::from_ref(&by), topics, data));
    let named = NamedEvent::of(matched, topics, data);
    let judged = condition.judge(&Event { named, own: own(topics) });
    if let Some(by) = by {
        let encoded: Vec<_> = topics.iter().map(xdr).collect();
        let encoded: Vec<_> = encoded.iter().map(Vec::as_slice).collect();
        let data = xdr(data);
        if let Some(flat) = FlatEvent::read(by, &encoded, &data, own(topics)) {
            assert_eq!(condition.judge_flat(&flat), judged, "{text}");
        }
    }
    judged
}

fn matches(text: &str, by: Option<&Interface>, topics: &[ScVal], data: &ScVal) -> bool {
    match judged(text, by, topics, data) {
        Judgement::Matches => true,
        Judgement::Differs => false,
        Judgement::Misfits(why) => panic!("{text}: {why}"),
    }
}

fn transfer() -> Interface {
    interface(vec![event(
        "Transfer",
        &["transfer"],
        &[("from", Type::Address), ("to", Type::Address)],
        SingleValue,
        &[("amount", Type::I128)],
    )])
}

#[test]
fn a_declared_event_has_its_parameters_and_what_every_event_has() {
    let by = transfer();
    let (from, to) = (account(1), contract(2));
    let topics = [symbol("transfer"), address(&from), address(&to)];
    let data = i128(-5);
    let emitter = ContractId(CONTRACT).to_string();
    for text in [
        "amount = -5 and AMOUNT < 0 and \"Amount\" >= - 5".to_owned(),
        format!("\"from\" = '{from}' and to = '{to}' and to like 'C%'"),
        format!("contract_id = '{emitter}' and name = 'transfer'"),
        "ledger = 1000 and _ledger < 1001 and tx = \"transaction\" and tx like 'abab%'".to_owned(),
        format!("topics[1] = 'transfer' and topics[3] = '{to}' and topics[4] is null"),
    ] {
        assert!(matches(&text, Some(&by), &topics, &data), "{text}");
    }
    for text in
        ["amount > 0", "value is null", "not value = 1", "topic_2 is not null", "_event_id > 0"]
    {
        assert!(!matches(text, Some(&by), &topics, &data), "{text}");
    }
}

#[test]
fn a_name_that_only_another_form_has_is_null_and_one_that_none_has_does_not_match() {
    let params = [("from", Type::Address)];
    let by = interface(vec![
        event("A", &["transfer"], &params, SingleValue, &[("amount", Type::I128)]),
        event("B", &["transfer"], &params, Map, &[("amount", Type::I128), ("memo", Type::String)]),
        event("Other", &["other"], &[], SingleValue, &[("fee", Type::U32)]),
    ]);
    let topics = [symbol("transfer"), address(&account(1))];
    let short = i128(7);
    let long = fields([("amount", i128(7)), ("memo", string("hi"))]);
    assert!(matches("memo is null and amount = 7", Some(&by), &topics, &short));
    assert!(matches("memo = 'hi'", Some(&by), &topics, &long));
    assert!(!matches("memo = 'hi'", Some(&by), &topics, &short));
    for data in [&short, &long] {
        for text in ["fee is null", "not fee = 1", "fee is null or true"] {
            assert!(!matches(text, Some(&by), &topics, data), "{text}");
        }
    }
}

#[test]
fn a_type_that_does_not_fit_does_not_match_and_says_why() {
    let by = interface(vec![event("Set", &["set"], &[], SingleValue, &[("price", Type::String)])]);
    let (topics, data) = ([symbol("set")], string("5"));
    for text in ["price > 5", "not price > 5", "price = 5 or true"] {
        let Judgement::Misfits(why) = judged(text, Some(&by), &topics, &data) else {
            panic!("{text}")
        };
        assert!(why.contains("'price' is a text"), "{why}");
    }
    // A value of any type fits whatever is asked: what it is decides.
    let by = interface(vec![event("Set", &["set"], &[], SingleValue, &[("price", Type::Val)])]);
    assert!(matches("price = 5 or price = '5'", Some(&by), &topics, &data));
    assert!(!matches("not price = 5", Some(&by), &topics, &data));
}

#[test]
fn parts_of_values_are_named() {
    let by = interface(vec![
        structure(
            "Deal",
            &[("price".to_owned(), Type::I128), ("Seller".to_owned(), Type::Address)],
        ),
        structure("Pair", &[("0".to_owned(), Type::U32), ("1".to_owned(), Type::String)]),
        union(
            "Order",
            &[
                ("Market".to_owned(), None),
                ("Limit".to_owned(), Some(vec![Type::I128, udt("Deal")])),
            ],
        ),
        numbers("Side", &[0, 1]),
        event(
            "Filled",
            &["filled"],
            &[],
            Map,
            &[
                ("deal", udt("Deal")),
                ("deals", vec(udt("Deal"))),
                ("prices", map_of(Type::Symbol, Type::I128)),
                ("by_number", map_of(Type::U32, Type::String)),
                ("order", udt("Order")),
                ("side", udt("Side")),
                ("pair", udt("Pair")),
                ("both", tuple(vec![Type::U32, option(Type::Bool)])),
                ("hash", Type::Bytes),
                ("any", Type::Val),
                ("maybe", option(udt("Deal"))),
            ],
        ),
    ]);
    let deal = |price| fields([("Seller", address(&account(3))), ("price", i128(price))]);
    let data = fields([
        ("deal", deal(10)),
        ("deals", list([deal(1), deal(2)])),
        ("prices", fields([("XLM", i128(5)), ("usdc", i128(6))])),
        ("by_number", map([(ScVal::U32(7), string("seven"))])),
        ("order", list([symbol("Limit"), i128(99), deal(4)])),
        ("side", ScVal::U32(1)),
        ("pair", list([ScVal::U32(8), string("x")])),
        ("both", list([ScVal::U32(3), ScVal::Void])),
        ("hash", bytes(&[0xde, 0xad])),
        ("any", fields([("Deep", list([i128(1), string("two")]))])),
        ("maybe", ScVal::Void),
    ]);
    let topics = [symbol("filled")];
    let seller = account(3);
    for text in [
        "deal.price = 10 and DEAL.Price = 10".to_owned(),
        format!("deal.seller = '{seller}'"),
        "deals[1].price = 1 and deals[2].price = 2 and deals[3].price is null".to_owned(),
        "prices.XLM = 5 and prices.\"usdc\" = 6 and prices.xlm is null and prices.eur is null"
            .to_owned(),
        "by_number.\"7\" = 'seven' and by_number.\"8\" is null".to_owned(),
        "\"order\".tag = 'Limit' and \"order\".values[1] = 99 and \"order\".values[2].price = 4"
            .to_owned(),
        "\"order\".values[3] is null".to_owned(),
        "side = 1 and pair[1] = 8 and pair[2] = 'x' and both[1] = 3 and both[2] is null".to_owned(),
        "hash = 'dead' and any.deep[2] = 'two' and any.deep[1] = 1 and any.deep.x is null"
            .to_owned(),
        "maybe.price is null and maybe is null and deal is not null".to_owned(),
    ] {
        assert!(matches(&text, Some(&by), &topics, &data), "{text}");
    }
    for (text, why) in [
        ("deal = 1", "'deal' is a struct: name one of its members"),
        ("deals = deals", "'deals' is a list: name one of its items"),
        ("prices in (1)", "'prices' is a map"),
        ("deal.cost = 1", "'deal' has no member cost"),
        ("deal[1] = 1", "'deal' is a struct and has no items"),
        ("deals.price = 1", "'deals' is a list and has no members"),
        ("side.x = 1", "'side' is a number and has no members"),
        ("both[3] = 1", "'both' has no part 'both[3]'"),
        ("\"order\".Limit = 1", "'.tag' and '.values'"),
        ("\"order\" = 'Limit'", "is a union"),
        ("deal.price = 'x'", "'deal.price' is a number"),
    ] {
        let Judgement::Misfits(found) = judged(text, Some(&by), &topics, &data) else {
            panic!("{text}")
        };
        assert!(found.contains(why), "{text}: {found}");
        let refused = condition(text).check_events([&by]).unwrap_err();
        assert!(refused.contains(why), "{text}: {refused}");
    }
}

#[test]
fn events_without_a_declaration_have_inferred_names() {
    let topics = [string("SoroswapFactory"), symbol("new_pair")];
    let data = fields([("pair", address(&contract(4))), ("new_pairs_length", ScVal::U32(3))]);
    let pair = contract(4);
    for text in [
        format!("pair = '{pair}' and name = 'soroswap_factory_new_pair'"),
        "new_pairs_length > 2 and topic_2 = 'new_pair'".to_owned(),
    ] {
        assert!(matches(&text, None, &topics, &data), "{text}");
    }
    for text in ["value is null", "not value = 1", "pair_ is null"] {
        assert!(!matches(text, None, &topics, &data), "{text}");
    }
    // Without a name, an event has what every event has.
    assert!(matches("name is null and topics[1] = 5", None, &[ScVal::U32(5)], &data));
    assert!(!matches("pair is null", None, &[ScVal::U32(5)], &data));
}

#[test]
fn a_condition_that_no_declared_event_can_meet_is_refused() {
    let (transfer, blend) = (transfer(), bundled("blend").unwrap());
    let nothing = interface(Vec::new());
    for text in ["amount > 5", "pool_address like 'C%'", "ledger > 5", "true"] {
        assert_eq!(condition(text).check_events([&transfer, blend]), Ok(()), "{text}");
    }
    for (text, why) in [
        ("amuont > 5", "has 'amuont': is 'amount' meant?"),
        ("completely_else > 5", "has 'completely_else': see"),
        ("amount = 'x'", "'amount' is a number"),
        ("amount > 5 and to_add is null", "together"),
    ] {
        let refused = condition(text).check_events([&transfer, blend]).err();
        let refused = refused.unwrap_or_else(|| panic!("{text} is not refused"));
        assert!(refused.contains(why), "{refused}");
        assert_eq!(condition(text).check_events([&nothing]), Ok(()));
        assert_eq!(condition(text).check_events([]), Ok(()));
    }
}

/// Generated conditions over generated transfers: by values and by bytes alike.
#[test]
fn events_read_from_their_bytes_are_judged_as_those_read_by_values() {
    let by = interface(vec![event(
        "Moved",
        &["moved"],
        &[("from", Type::Address), ("note", option(Type::Symbol))],
        Map,
        &[
            ("amount", Type::I128),
            ("big", Type::U128),
            ("open", Type::Bool),
            ("part", option(Type::U32)),
        ],
    )]);
    let owned = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let material = Material {
        names: Names {
            numbers: owned(&["amount", "BIG", "part", "ledger"]),
            texts: owned(&["\"from\"", "note", "name", "tx"]),
            bools: owned(&["open"]),
        },
        numbers: owned(&["0", "3", "1000", "340282366920938463463374607431768211455"]),
        texts: owned(&["x", "moved", ""]),
        patterns: owned(&["G%", "%v%", "_"]),
    };
    let mut held = 0;
    for seed in 0..2_000 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let text = material.condition(&mut rng, 3).written(&mut rng);
        if Condition::parse(&text).is_err() {
            continue;
        }
        let may = |rng: &mut ChaCha8Rng, value| if rng.random() { value } else { ScVal::Void };
        let from = if rng.random() { account(1) } else { contract(1) };
        let note = may(&mut rng, symbol("x"));
        let topics = [symbol("moved"), address(&from), note];
        let part = may(&mut rng, ScVal::U32(3));
        let data = fields([
            ("amount", i128(rng.random_range(-4..4))),
            ("big", orrery_testkit::values::u128(rng.random())),
            ("open", ScVal::Bool(rng.random())),
            ("part", part),
        ]);
        let encoded: Vec<_> = topics.iter().map(xdr).collect();
        let encoded: Vec<_> = encoded.iter().map(Vec::as_slice).collect();
        assert!(FlatEvent::read(&by, &encoded, &xdr(&data), own(&topics)).is_some());
        held += usize::from(matches(&text, Some(&by), &topics, &data));
    }
    assert!(held > 300, "{held}");
}
