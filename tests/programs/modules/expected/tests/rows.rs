//! What given calls emit, as `../../README.md` tells it. The programs run natively here, in the SDK's own test
//! environment; the import that emits is played by a contract event with a topic of its own, so the
//! host takes back what a failed call has emitted.
#![allow(dead_code, unused_attributes)]

use std::cell::RefCell;

use soroban_sdk::testutils::{Address as _, EnvTestConfig, Ledger as _};
use soroban_sdk::xdr::{ContractEventBody, ScMap, ScVal};
use soroban_sdk::{Address, Env, IntoVal, Map, Symbol, TryIntoVal, Val, Vec as HostVec, vec};

#[path = "../../caller/src/lib.rs"]
mod caller;
#[path = "../../counter/src/lib.rs"]
mod counter;
#[path = "../../counter_program/src/lib.rs"]
mod counter_program;
#[path = "../../deposit/src/lib.rs"]
mod deposit;
#[path = "../../evolving/src/lib.rs"]
mod evolving;
#[path = "../../heavy/src/lib.rs"]
mod heavy;
#[path = "../../inner/src/lib.rs"]
mod inner;
#[path = "../../market/src/lib.rs"]
mod market;
#[path = "../../raw/src/lib.rs"]
mod raw;

const MARKER: &str = "emitted_row";

thread_local! {
    static EMITTING: RefCell<Option<Env>> = const { RefCell::new(None) };
}

/// The import of the programs.
#[export_name = "9"]
extern "C" fn emit(target: i64, fields: i64) -> i64 {
    let env = EMITTING.with_borrow(|env| env.clone().expect("a test calls start first"));
    let words = [Val::from_payload(target as u64), Val::from_payload(fields as u64)];
    assert!(words[0].is_good() && words[1].is_good(), "both words are values");
    let topics: HostVec<Val> = vec![&env, Symbol::new(&env, MARKER).into_val(&env), words[0]];
    #[allow(deprecated)]
    env.events().publish(topics, words[1]);
    i64::try_from(Val::VOID.to_val().get_payload()).unwrap()
}

fn start() -> Env {
    let env = Env::new_with_config(EnvTestConfig { capture_snapshot_at_drop: false });
    env.cost_estimate().disable_resource_limits();
    env.mock_all_auths();
    env.ledger().set_sequence_number(1000);
    env.ledger().set_timestamp(1_700_000_000);
    EMITTING.set(Some(env.clone()));
    env
}

/// One emitted row: contract, target, and fields as text.
type Row = (Address, String, Vec<(String, String)>);

/// What the last call has emitted and no failure has taken back.
fn rows(env: &Env) -> Vec<Row> {
    let events = env.host().get_events().unwrap();
    let mut rows = Vec::new();
    for event in events.0.iter().filter(|event| !event.failed_call) {
        let ContractEventBody::V0(body) = &event.event.body;
        let [ScVal::Symbol(marker), ScVal::Symbol(target)] = body.topics.as_slice() else {
            continue;
        };
        if marker.to_utf8_string_lossy() != MARKER {
            continue;
        }
        let ScVal::Map(Some(fields)) = &body.data else {
            panic!("not a map: {:?}", body.data);
        };
        let contract = event.event.contract_id.clone().unwrap();
        let contract: Address = ScVal::Address(soroban_sdk::xdr::ScAddress::Contract(contract))
            .try_into_val(env)
            .unwrap();
        rows.push((contract, target.to_utf8_string_lossy(), texts(fields)));
    }
    rows
}

fn texts(fields: &ScMap) -> Vec<(String, String)> {
    fields
        .iter()
        .map(|entry| {
            let ScVal::Symbol(name) = &entry.key else { panic!("not a symbol: {:?}", entry.key) };
            (name.to_utf8_string_lossy(), text(&entry.val))
        })
        .collect()
}

fn text(value: &ScVal) -> String {
    match value {
        ScVal::Bool(flag) => flag.to_string(),
        ScVal::U32(number) => format!("{number}_u32"),
        ScVal::U64(number) => format!("{number}_u64"),
        ScVal::I64(number) => format!("{number}_i64"),
        ScVal::I128(number) => format!("{}_i128", i128::from(number)),
        ScVal::Symbol(symbol) => symbol.to_utf8_string_lossy(),
        ScVal::Bytes(bytes) => format!("{} bytes", bytes.len()),
        ScVal::Address(address) => address.to_string(),
        other => format!("{other:?}"),
    }
}

fn row(contract: &Address, target: &str, fields: &[(&str, &str)]) -> Row {
    let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    (contract.clone(), target.to_owned(), fields.collect())
}

fn shown(address: &Address) -> String {
    address.to_string().to_string()
}

#[test]
fn a_deposit_is_one_row_of_eight_fields() {
    let env = start();
    let id = env.register(deposit::Deposit, ());
    let client = deposit::DepositClient::new(&env, &id);
    let who = Address::generate(&env);
    assert_eq!(client.deposit(&who, &100), 100);
    assert_eq!(client.deposit(&who, &50), 150);
    let expected = [
        ("account", shown(&who)),
        ("after", "150_i128".to_owned()),
        ("amount", "50_i128".to_owned()),
        ("before", "100_i128".to_owned()),
        ("closed_at", "1700000000_u64".to_owned()),
        ("kind", "deposit".to_owned()),
        ("ledger", "1000_u32".to_owned()),
        ("number", "2_u32".to_owned()),
    ];
    let expected: Vec<_> = expected.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(rows(&env), [row(&id, "deposit_made", &expected)]);
    assert!(client.try_deposit(&who, &0).is_err());
    assert_eq!(rows(&env), [], "a failed call leaves nothing");
}

fn stage(me: &Address, stage: &str, left: u32, ok: bool) -> Row {
    let (left, ok) = (format!("{left}_u32"), ok.to_string());
    row(me, "call_stage", &[("left", &left), ("me", &shown(me)), ("ok", &ok), ("stage", stage)])
}

fn work(worker: &Address, unit: u32, calls: u32) -> Row {
    let (unit, calls) = (format!("{unit}_u32"), format!("{calls}_u32"));
    row(worker, "work_done", &[("calls", &calls), ("unit", &unit), ("worker", &shown(worker))])
}

#[test]
fn rows_of_a_failed_call_are_discarded() {
    let env = start();
    let outer = env.register(caller::Caller, ());
    let within = env.register(inner::Inner, ());
    let client = caller::CallerClient::new(&env, &outer);
    assert!(client.attempt(&within, &2, &0));
    let (before, after) = (stage(&outer, "before", 0, true), stage(&outer, "after", 0, true));
    let expected = [before.clone(), work(&within, 0, 1), work(&within, 1, 1), after.clone()];
    assert_eq!(rows(&env), expected);
    for fail in 1..=3 {
        assert!(!client.attempt(&within, &2, &fail));
        assert_eq!(rows(&env), [before.clone(), stage(&outer, "after", 0, false)], "fail {fail}");
        assert!(client.try_insist(&within, &2, &fail).is_err());
        assert_eq!(rows(&env), [], "fail {fail}");
    }
    assert_eq!(client.insist(&within, &1, &0), 2, "failed calls are not counted");
    assert_eq!(rows(&env), [before, work(&within, 0, 2), after]);
}

#[test]
fn a_failure_in_a_chain_discards_the_rows_below_it() {
    let env = start();
    let chain: Vec<_> = (0..4).map(|_| env.register(caller::Caller, ())).collect();
    let client = caller::CallerClient::new(&env, &chain[0]);
    let path = vec![&env, chain[1].clone(), chain[2].clone(), chain[3].clone()];
    assert_eq!(client.descend(&path, &None), 3);
    let all: Vec<_> = (0..4)
        .map(|i| stage(&chain[i], "before", 3 - i as u32, true))
        .chain((0..4).rev().map(|i| stage(&chain[i], "after", 3 - i as u32, true)))
        .collect();
    assert_eq!(rows(&env), all);
    // The third of the four fails, and takes the fourth with it.
    assert_eq!(client.descend(&path, &Some(1)), 1);
    let expected = [
        stage(&chain[0], "before", 3, true),
        stage(&chain[1], "before", 2, true),
        stage(&chain[1], "after", 2, false),
        stage(&chain[0], "after", 3, true),
    ];
    assert_eq!(rows(&env), expected);
    assert!(client.try_descend(&path, &Some(3)).is_err());
    assert_eq!(rows(&env), []);
    // A contract cannot be entered twice.
    assert_eq!(client.descend(&vec![&env, chain[0].clone()], &None), 0);
    assert_eq!(
        rows(&env),
        [stage(&chain[0], "before", 1, true), stage(&chain[0], "after", 1, false)]
    );
}

#[test]
fn the_counter_program_behaves_like_the_counter() {
    let env = start();
    let contract = env.register(counter::Counter, (5_u32,));
    let program = env.register(counter_program::Program, (5_u32,));
    let contract = counter::CounterClient::new(&env, &contract);
    let client = counter_program::ProgramClient::new(&env, &program);
    for by in [3, 0, 101] {
        assert_eq!(contract.increment(&by), client.increment(&by));
    }
    let changed = |how: &str, before: u32, after: u32| {
        let difference = format!("{}_i64", i64::from(after) - i64::from(before));
        let (before, after) = (format!("{before}_u32"), format!("{after}_u32"));
        let fields = [
            ("after", after.as_str()),
            ("before", &before),
            ("difference", &difference),
            ("how", how),
            ("ledger", "1000_u32"),
        ];
        row(&program, "count_changed", &fields)
    };
    assert_eq!(rows(&env), [changed("increment", 8, 109)]);
    assert_eq!((contract.reset(), client.reset()), (109, 109));
    assert_eq!(rows(&env), [changed("reset", 109, 0)]);
    assert_eq!((contract.count(), client.count()), (0, 0));
    assert_eq!(rows(&env), []);
}

#[test]
fn names_map_to_the_expected_tables_and_columns() {
    let env = start();
    let id = env.register(evolving::Evolving, ());
    let client = evolving::EvolvingClient::new(&env, &id);
    assert_eq!(client.names(&10), 1);
    let numbers: Vec<String> = (10..18).map(|number| format!("{number}_u32")).collect();
    let select = [
        ("end", numbers[5].as_str()),
        ("from", &numbers[3]),
        ("group", &numbers[4]),
        ("null", &numbers[6]),
        ("order", &numbers[1]),
        ("select", &numbers[0]),
        ("table", &numbers[2]),
        ("user", &numbers[7]),
    ];
    let longest = [("_0", "10_u32"), ("the_longest_field_name_allowed", "10_u32"), ("x", "10_u32")];
    let expected = [
        row(&id, "select", &select),
        row(&id, "longest_target_a_symbol_can_hold", &longest),
        row(&id, "http_entry", &[("status", "10_u32")]),
        row(&id, "swap_2_hop", &[("hop", "10_u32")]),
        row(&id, "tick", &[("at", "10_u32")]),
    ];
    assert_eq!(rows(&env), expected);
    assert_eq!(client.shapes(&u64::MAX), 2);
    let expected = [
        row(&id, "two_shapes", &[("amount", "1_u32"), ("first", "7_u32")]),
        row(&id, "two_shapes", &[("amount", "18446744073709551615_u64"), ("second", "true")]),
    ];
    assert_eq!(rows(&env), expected);
    assert!(client.try_too_long().is_err());
    assert!(client.try_never().is_err());
    assert_eq!(rows(&env), []);
}

#[test]
fn heavy_emits_the_requested_number_of_rows_and_bytes() {
    let env = start();
    let id = env.register(heavy::Heavy, ());
    let client = heavy::HeavyClient::new(&env, &id);
    for (count, bytes) in [(0, 0), (3, 0), (2, 1000), (1, 65_536)] {
        assert_eq!(client.rows(&count, &bytes), count);
        let size = format!("{bytes} bytes");
        let expected: Vec<_> = (0..count)
            .map(|number| {
                row(&id, "heavy_row", &[("number", &format!("{number}_u32")), ("payload", &size)])
            })
            .collect();
        assert_eq!(rows(&env), expected);
    }
    assert_eq!(client.spin(&0), 0);
    assert_eq!(client.host_calls(&7), 7000);
    assert_eq!(client.recurse(&100), 100);
    assert_eq!(client.objects(&5, &64), 5);
    assert_eq!(client.store(&3), 3);
    client.random(&2);
    let drawn = rows(&env);
    assert_eq!(drawn.len(), 2);
    assert_ne!(drawn[0].2[1], drawn[1].2[1], "two numbers");
    assert_eq!(client.wide(&101), 101);
    let wide = rows(&env);
    assert_eq!((wide.len(), wide[0].1.as_str(), wide[0].2.len()), (1, "wide_row", 101));
    assert_eq!(wide[0].2[100], ("column_100".to_owned(), "100_u32".to_owned()));
    client.deep(&0);
    assert_eq!(rows(&env), [row(&id, "deep_row", &[("value", "7_u32")])]);
    client.deep(&2);
    let value = "Vec(Some(ScVec(VecM([Vec(Some(ScVec(VecM([U32(7)]))))]))))";
    assert_eq!(rows(&env), [row(&id, "deep_row", &[("value", value)])]);
}

#[test]
fn a_filled_offer_emits_a_trade() {
    let env = start();
    let id = env.register(market::Market, ());
    let client = market::MarketClient::new(&env, &id);
    let (maker, taker) = (Address::generate(&env), Address::generate(&env));
    client.fund(&maker, &0, &100);
    client.fund(&taker, &1000, &0);
    assert_eq!(rows(&env), []);
    assert_eq!(client.place(&maker, &40, &7), 1);
    assert_eq!(client.place(&maker, &60, &1), 2);
    assert_eq!(rows(&env), []);
    assert_eq!(client.fill(&taker, &1, &30), 210);
    let fields = [
        ("amount", "30_i128"),
        ("cost", "210_i128"),
        ("id", "1_u64"),
        ("maker", &shown(&maker)),
        ("price", "7_u32"),
        ("taker", &shown(&taker)),
        ("timestamp", "1700000000_u64"),
    ];
    assert_eq!(rows(&env), [row(&id, "trade", &fields)]);
    // More than is left, an offer that is gone, more than was ever there: nothing happens.
    assert!(client.try_fill(&taker, &1, &11).is_err());
    assert_eq!(client.fill(&taker, &1, &10), 70);
    assert!(client.try_fill(&taker, &1, &1).is_err());
    assert!(client.try_place(&maker, &1, &1).is_err());
    assert_eq!(rows(&env), []);
    let (maker, taker) = (client.account(&maker), client.account(&taker));
    assert_eq!((maker.cash, maker.goods), (280, 0));
    assert_eq!((taker.cash, taker.goods), (720, 40));
}

#[test]
fn raw_emits_the_given_target_and_fields() {
    let env = start();
    let id = env.register(raw::Raw, ());
    let client = raw::RawClient::new(&env, &id);
    let fields = Map::<Symbol, u32>::from_array(&env, [(Symbol::new(&env, "Mixed"), 1)]);
    let target: Val = Symbol::new(&env, "Mixed_Case").into_val(&env);
    let fields: Val = fields.into_val(&env);
    client.emit_all(&vec![&env, (target, fields), (target, fields)]);
    let expected = row(&id, "Mixed_Case", &[("Mixed", "1_u32")]);
    assert_eq!(rows(&env), [expected.clone(), expected.clone()]);
    assert!(client.try_emit_and_fail(&target, &fields).is_err());
    assert_eq!(rows(&env), []);
    assert_eq!(client.answer(&target, &fields), 2, "what this test's import returns");
}
