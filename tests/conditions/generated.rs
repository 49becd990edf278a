//! Generated conditions over generated rows, against the model.

use std::collections::HashMap;

use orrery_conditions::{Condition, Fields, Name, Value};
use orrery_interfaces::{Plain, Types};
use orrery_testkit::histories;
use orrery_testkit::random_conditions::{Material, Names};
use orrery_testkit::values::{bytes, fields, list, string, symbol};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use stellar_xdr::{Duration, Int256Parts, ScVal, TimePoint, UInt128Parts, UInt256Parts};

use crate::decimal::Decimal;
use crate::model;

const NUMBERS: [&str; 9] =
    ["a", "b", "\"C d\"", "deal.price", "deal.Seller.n", "items[1]", "items[2]", "items[9]", "ÿ"];
const TEXTS: [&str; 4] = ["t", "U", "deal.\"na me\"", "deal.seller.s"];
const BOOLS: [&str; 2] = ["flag", "deal.open"];

/// Values of named `ScVal`s, without declared types.
struct Row<'t> {
    values: Vec<(&'static str, ScVal)>,
    types: &'t Types,
}

impl Fields for Row<'_> {
    fn field(&self, name: &Name) -> Option<Value<'_>> {
        let found = self.values.iter().find(|(own, _)| name.is(own));
        found.map(|(_, value)| Value::of(Plain::undeclared(value, self.types)))
    }
}

fn integer(rng: &mut ChaCha8Rng) -> (ScVal, model::Value) {
    let extreme = |rng: &mut ChaCha8Rng| match rng.random_range(0..4) {
        0 => 0,
        1 => u64::MAX,
        2 => u64::from(rng.random::<u8>()),
        _ => rng.random(),
    };
    let word = |rng: &mut ChaCha8Rng| extreme(rng).cast_signed();
    let value = match rng.random_range(0..11) {
        0 => ScVal::U32(rng.random_range(0..4)),
        1 => ScVal::I32(rng.random_range(-3..4)),
        2 => ScVal::U64(extreme(rng)),
        3 => ScVal::I64(word(rng)),
        4 => ScVal::Timepoint(TimePoint(extreme(rng))),
        5 => ScVal::Duration(Duration(extreme(rng))),
        6 => ScVal::U128(UInt128Parts { hi: extreme(rng), lo: extreme(rng) }),
        7 | 8 => orrery_testkit::values::i128(match rng.random_range(0..4) {
            0 => i128::MIN,
            1 => i128::MAX,
            2 => rng.random_range(-3..4),
            _ => rng.random(),
        }),
        9 => ScVal::U256(UInt256Parts {
            hi_hi: extreme(rng),
            hi_lo: extreme(rng),
            lo_hi: extreme(rng),
            lo_lo: extreme(rng),
        }),
        _ => ScVal::I256(Int256Parts {
            hi_hi: word(rng),
            hi_lo: extreme(rng),
            lo_hi: extreme(rng),
            lo_lo: extreme(rng),
        }),
    };
    let text = match &value {
        ScVal::U32(it) => it.to_string(),
        ScVal::I32(it) => it.to_string(),
        ScVal::U64(it) => it.to_string(),
        ScVal::I64(it) => it.to_string(),
        ScVal::Timepoint(it) => it.0.to_string(),
        ScVal::Duration(it) => it.0.to_string(),
        ScVal::U128(it) => it.to_string(),
        ScVal::I128(it) => it.to_string(),
        ScVal::U256(it) => it.to_string(),
        ScVal::I256(it) => it.to_string(),
        other => panic!("{other:?}"),
    };
    (value, model::Value::Number(Decimal::new(&text)))
}

fn text(rng: &mut ChaCha8Rng) -> (ScVal, model::Value) {
    let text = ["", "a", "A", "USDC:G", "ab'c", "ÄÖ", "İ%", "a_b", "Ω"].choose(rng).unwrap();
    let value = match rng.random_range(0..3) {
        0 if text.is_ascii() => symbol(text),
        1 => return (bytes(text.as_bytes()), model::Value::Text(hex(text.as_bytes()))),
        _ => string(text),
    };
    (value, model::Value::Text((*text).to_owned()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn flag(rng: &mut ChaCha8Rng) -> (ScVal, model::Value) {
    let value = rng.random();
    (ScVal::Bool(value), model::Value::Bool(value))
}

fn perhaps(rng: &mut ChaCha8Rng, value: (ScVal, model::Value)) -> (ScVal, model::Value) {
    if rng.random_range(0..5) == 0 { (ScVal::Void, model::Value::Null) } else { value }
}

/// A row, and the same for the model.
fn row<'t>(rng: &mut ChaCha8Rng, types: &'t Types) -> (Row<'t>, model::Row) {
    let mut known: model::Row = HashMap::new();
    let mut note = |name: &str, (value, model): (ScVal, model::Value)| {
        known.insert(name.to_owned(), model);
        value
    };
    let mut number = |rng: &mut ChaCha8Rng, name: &str, may_lack: bool| {
        let value = integer(rng);
        let value = if may_lack { perhaps(rng, value) } else { value };
        note(name, value)
    };
    let numbers: Vec<_> =
        ["a", "b", "\"C d\"", "ÿ", "deal.price", "deal.Seller.n", "items[1]", "items[2]"]
            .iter()
            .map(|name| number(rng, name, true))
            .collect();
    let mut text_of = |rng: &mut ChaCha8Rng, name: &str| {
        let value = text(rng);
        let value = perhaps(rng, value);
        note(name, value)
    };
    let texts: Vec<_> = TEXTS.iter().map(|name| text_of(rng, name)).collect();
    let mut flag_of = |rng: &mut ChaCha8Rng, name: &str| {
        let value = flag(rng);
        let value = perhaps(rng, value);
        note(name, value)
    };
    let flags: Vec<_> = BOOLS.iter().map(|name| flag_of(rng, name)).collect();
    known.insert("items[9]".to_owned(), model::Value::Null);
    let seller = fields([("n", numbers[5].clone()), ("s", texts[3].clone())]);
    let deal = ScVal::Map(Some(stellar_xdr::ScMap(
        vec![
            entry("price", numbers[4].clone()),
            entry("seller", seller),
            entry("na me", texts[2].clone()),
            entry("OPEN", flags[1].clone()),
        ]
        .try_into()
        .unwrap(),
    )));
    let values = vec![
        ("A", numbers[0].clone()),
        ("b", numbers[1].clone()),
        ("c D", numbers[2].clone()),
        ("ÿ", numbers[3].clone()),
        ("items", list([numbers[6].clone(), numbers[7].clone()])),
        ("T", texts[0].clone()),
        ("u", texts[1].clone()),
        ("deal", deal),
        ("Flag", flags[0].clone()),
    ];
    (Row { values, types }, known)
}

fn entry(key: &str, val: ScVal) -> stellar_xdr::ScMapEntry {
    stellar_xdr::ScMapEntry { key: string(key), val }
}

fn material() -> Material {
    let owned = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    Material {
        names: Names { numbers: owned(&NUMBERS), texts: owned(&TEXTS), bools: owned(&BOOLS) },
        numbers: owned(&[
            "0",
            "1",
            "2",
            "007",
            "18446744073709551615",
            "170141183460469231731687303715884105727",
            "170141183460469231731687303715884105728",
            "115792089237316195423570985008687907853269984665640564039457584007913129639935",
        ]),
        texts: owned(&["", "a", "A", "usdc:g", "ab'c", "äö", "i%", "61"]),
        patterns: owned(&["%", "_", "a%", "%:%", "_b_c", "%ö", "__%", "ab", "", "%a%_", "usd_:%"]),
    }
}

#[test]
fn generated_conditions_agree_with_the_model() {
    let (material, types) = (material(), Types::default());
    let (mut held, mut different, mut too_large) = (0, 0, 0);
    let seeds = histories::seeds(5_000, 100_000);
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let depth = rng.random_range(0..5);
        let expr = material.condition(&mut rng, depth);
        let text = expr.written(&mut rng);
        let condition = match Condition::parse(&text) {
            Ok(condition) => condition,
            Err(problem) if problem.what.contains("at the most") => {
                too_large += 1;
                continue;
            }
            Err(problem) => panic!("seed {seed}: {text}: {problem}"),
        };
        for _ in 0..3 {
            let (row, known) = row(&mut rng, &types);
            let expected = model::value(&expr, &known) == model::Value::Bool(true);
            let found = condition.holds(&row);
            assert_eq!(found, expected, "seed {seed}: {text}\n{known:?}");
            *(if expected { &mut held } else { &mut different }) += 1;
        }
    }
    println!("{held} hold, {different} do not, {too_large} are too large");
    assert!(count < 100 || held > count / 4 && different > count / 4 && too_large < count / 10);
}
