//! Conditions over events say what `where` says over the table of these events, for each event.

use orrery_conditions::{Condition, Event, Judgement, Own};
use orrery_interfaces::{Interface, NamedEvent, declaration};
use orrery_testkit::account_events::{account, address, contract};
use orrery_testkit::histories;
use orrery_testkit::random_conditions::{Material, Names};
use orrery_testkit::specs::{Map, Type, event, option, structure, udt, vec};
use orrery_testkit::values::{fields, i128, list, string, symbol};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use stellar_xdr::{ScSpecEntry, ScVal};

use super::event_tables::Project;
use super::support::{World, owner};

fn entries() -> Vec<ScSpecEntry> {
    let deal = [
        ("price".to_owned(), Type::I128),
        ("who".to_owned(), Type::Address),
        ("open".to_owned(), Type::Bool),
    ];
    let data = [
        ("a", Type::I128),
        ("b", Type::U64),
        ("c", Type::I64),
        ("d", option(Type::U32)),
        ("e", Type::I32),
        ("t", Type::String),
        ("s", option(Type::Symbol)),
        ("flag", option(Type::Bool)),
        ("deal", option(udt("Deal"))),
        ("items", vec(option(Type::I128))),
        ("deals", vec(udt("Deal"))),
    ];
    let moved = event("moved", &["moved"], &[("who", Type::Address)], Map, &data);
    vec![structure("Deal", &deal), moved]
}

fn moved(rng: &mut ChaCha8Rng) -> ([ScVal; 2], ScVal) {
    let may = |rng: &mut ChaCha8Rng, value: ScVal| match rng.random_range(0..3) {
        0 => ScVal::Void,
        _ => value,
    };
    let number = |rng: &mut ChaCha8Rng| match rng.random_range(0..8) {
        0 => i128::MIN,
        1 => i128::MAX,
        _ => rng.random_range(-3..4),
    };
    let text =
        |rng: &mut ChaCha8Rng| *["", "a", "A", "USDC:G", "ab'c", "ÄÖ", "a_b"].choose(rng).unwrap();
    let who = |rng: &mut ChaCha8Rng| match rng.random() {
        true => address(&account(rng.random_range(1..3))),
        false => address(&contract(1)),
    };
    let deal = |rng: &mut ChaCha8Rng| {
        fields([
            ("price", i128(number(rng))),
            ("who", who(rng)),
            ("open", ScVal::Bool(rng.random())),
        ])
    };
    let count = rng.random_range(0..3);
    let items: Vec<_> = (0..count)
        .map(|_| {
            let item = i128(number(rng));
            may(rng, item)
        })
        .collect();
    let deals: Vec<_> = (0..rng.random_range(0..3)).map(|_| deal(rng)).collect();
    let (name, open, sold) = (symbol(["x", "USDC"].choose(rng).unwrap()), rng.random(), deal(rng));
    let data = fields([
        ("a", i128(number(rng))),
        ("b", ScVal::U64(*[0, 1, 2, u64::MAX].choose(rng).unwrap())),
        ("c", ScVal::I64(*[0, 1, -2, i64::MIN, i64::MAX].choose(rng).unwrap())),
        ("d", may(rng, ScVal::U32(3))),
        ("e", ScVal::I32(rng.random_range(-2..3))),
        ("t", string(text(rng))),
        ("s", may(rng, name)),
        ("flag", may(rng, ScVal::Bool(open))),
        ("deal", may(rng, sold)),
        ("items", list(items)),
        ("deals", list(deals)),
    ]);
    ([symbol("moved"), who(rng)], data)
}

fn material() -> Material {
    let owned = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let who = account(1).to_string();
    Material {
        names: Names {
            numbers: owned(&[
                "a",
                "B",
                "c",
                "d",
                "e",
                "deal.price",
                "items[1]",
                "items[2]",
                "deals[1].price",
                "_ledger",
            ]),
            texts: owned(&["t", "s", "who", "deal.who", "\"T\"", "contract_id", "deals[2].who"]),
            bools: owned(&["flag", "deal.open", "deals[1].\"OPEN\""]),
        },
        numbers: owned(&["0", "1", "2", "3", "1000", "9223372036854775807"]),
        texts: vec![String::new(), "a".to_owned(), "usdc:g".to_owned(), who],
        patterns: owned(&["%", "_", "a%", "%:%", "a_b", "G%", "%ö", "usd%", ""]),
    }
}

#[test]
fn conditions_say_what_where_says_in_sql() {
    let (world, alice) = (World::new(), owner("alice"));
    let interface = Interface::from_entries(entries()).unwrap();
    let mut project = Project::new("demo", vec![entries()]);
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let events: Vec<_> = (1_000..1_060).map(|ledger| (ledger, moved(&mut rng))).collect();
    for (ledger, (topics, data)) in &events {
        project.add(*ledger, Some(0), topics, data.clone());
    }
    project.feed(&world, "alice");
    let material = material();
    let (mut same, mut failed, mut too_large, mut held) = (0, 0, 0, 0);
    let seeds = histories::seeds(300, 100_000);
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let depth = rng.random_range(1..4);
        let text = material.condition(&mut rng, depth).written(&mut rng);
        let Ok(condition) = Condition::parse(&text) else {
            too_large += 1;
            continue;
        };
        let sql = format!("SELECT _event_id AS id FROM demo.moved WHERE {text} ORDER BY 1");
        // What SQL cannot compute, such as a sum beyond 128 bits, conditions can.
        let Ok(rows) = world.try_rows(&alice, &sql) else {
            failed += 1;
            continue;
        };
        let expected: Vec<u64> =
            rows.as_array().unwrap().iter().map(|row| row["id"].as_u64().unwrap()).collect();
        let holds = |(ledger, (topics, data)): &&(u32, ([ScVal; 2], ScVal))| {
            let matched = declaration(&[&interface], topics, data);
            let named = NamedEvent::of(matched, topics, data);
            let own =
                Own { contract: Some(&[7; 32]), ledger: *ledger, transaction: &[0; 32], topics };
            match condition.judge(&Event { named, own }) {
                Judgement::Matches => true,
                Judgement::Differs => false,
                Judgement::Misfits(why) => panic!("{text}: {why}"),
            }
        };
        let found: Vec<u64> = events.iter().filter(holds).map(|it| it.0.into()).collect();
        assert_eq!(found, expected, "seed {seed}: {text}");
        same += 1;
        held += found.len();
    }
    println!("{same} say the same, SQL fails at {failed}, {too_large} are too large, {held} rows");
    assert!(count < 100 || (same > count * 2 / 3 && held > usize::try_from(count).unwrap()));
}
