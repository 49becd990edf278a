//! Random interfaces of several contracts with events, declared and not.

use orrery_interfaces::Origin;
use orrery_testkit::account_events::{account, address};
use orrery_testkit::random_events::{Declared as Generated, Generator};
use orrery_testkit::random_values;
use orrery_testkit::specs::{
    Map, SingleValue, Type, Vector, event, map, option, structure, udt, vec,
};
use orrery_testkit::values::{fields, i128, list, map as map_of, string, symbol};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use stellar_xdr::{ScSpecEntry, ScVal};

use super::{Known, Made, made};

const NAMES: [&str; 4] = ["swap", "Swap", "mint", "events"];
const PARAMETERS: [&str; 6] = ["a", "A", "b", "to", "contract_id", "_rest"];

/// Interfaces and events that fit them, or nothing.
pub struct World {
    pub known: Vec<Known>,
    pub events: Vec<Made>,
    pub random: ChaCha8Rng,
}

/// An event that a contract declares.
struct Declaration {
    by: usize,
    name: &'static str,
    topics: Vec<Type>,
    format: stellar_xdr::ScSpecEventDataFormat,
    data: Vec<(&'static str, Type)>,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let (mut known, mut declared) = (Vec::new(), Vec::new());
        for by in 0..3 {
            let own: Vec<_> =
                (0..random.random_range(1..4)).map(|_| draw(by, &mut random)).collect();
            let inner = structure("S", &[("x".into(), Type::U32), ("y".into(), Type::String)]);
            let mut entries: Vec<_> = own.iter().map(entry).collect();
            entries.push(inner);
            let origin = if random.random() { Origin::Chain } else { Origin::Supplied };
            known.push(Known::new(u8::try_from(by).unwrap() + 1, origin, entries));
            declared.extend(own);
        }
        let mut generator = Generator::new(seed, false);
        let generated = generator.declared();
        known.push(Known::chain(9, generator.entries(&generated)));
        let mut world = Self { known, events: Vec::new(), random };
        for number in 0..40 {
            let event = world.event(number, &declared, &mut generator, &generated);
            world.events.push(event);
        }
        world
    }

    fn event(
        &mut self,
        number: u32,
        declared: &[Declaration],
        generator: &mut Generator,
        generated: &Generated,
    ) -> Made {
        let random = &mut self.random;
        let generated_at = self.known.len() - 1;
        match random.random_range(0..10) {
            0..5 => {
                let of = declared.choose(random).unwrap();
                let mut topics = vec![symbol(topic(of))];
                topics.extend(of.topics.iter().map(|kind| value(kind, random)));
                let mut values: Vec<_> =
                    of.data.iter().map(|(name, kind)| (*name, value(kind, random))).collect();
                if of.format == Map && random.random_bool(0.3) {
                    values.push((
                        "more",
                        random_values::value(random, &random_values::Template::Odd),
                    ));
                }
                let data = match of.format {
                    SingleValue => values.pop().map_or(ScVal::Void, |(_, value)| value),
                    Vector => list(values.into_iter().map(|(_, value)| value)),
                    Map => fields(values),
                };
                made(number, Some(of.by), &topics, data)
            }
            5 | 6 => {
                let (topics, data) = generator.event(generated, None).unwrap();
                made(number, Some(generated_at), &topics, data)
            }
            7 => Made {
                is_system: true,
                ..made(number, None, &[symbol("executable_update")], ScVal::Void)
            },
            _ => {
                let by = random.random_bool(0.5).then(|| random.random_range(0..3));
                let (topics, data) = undeclared(random);
                made(number, by, &topics, data)
            }
        }
    }
}

fn draw(by: usize, random: &mut ChaCha8Rng) -> Declaration {
    let format = *[Map, Vector, SingleValue].choose(random).unwrap();
    let most = if format == SingleValue { 1 } else { 4 };
    let mut names = PARAMETERS.to_vec();
    let data = (0..random.random_range(0..=most)).map(|_| {
        let name = names.swap_remove(random.random_range(0..names.len()));
        (name, kinds().choose(random).unwrap().clone())
    });
    let data = data.collect();
    let topics = (0..random.random_range(0..3)).map(|_| kinds().choose(random).unwrap().clone());
    let topics = topics.collect();
    Declaration { by, name: NAMES.choose(random).unwrap(), topics, format, data }
}

fn kinds() -> Vec<Type> {
    vec![
        Type::U32,
        Type::U64,
        Type::I128,
        Type::String,
        Type::Address,
        Type::Val,
        option(Type::U32),
        vec(Type::U64),
        map(Type::Symbol, Type::U32),
        udt("S"),
    ]
}

fn entry(of: &Declaration) -> ScSpecEntry {
    let names = ["t", "u"];
    let topics: Vec<_> = names.into_iter().zip(of.topics.iter().cloned()).collect();
    // Events of two names that begin with one topic are forms of one.
    event(of.name, &[topic(of)], &topics, of.format, &of.data)
}

fn topic(of: &Declaration) -> &'static str {
    if of.name == "Swap" { "mint" } else { of.name }
}

fn value(kind: &Type, random: &mut ChaCha8Rng) -> ScVal {
    match kind {
        Type::U32 => ScVal::U32(random.random()),
        Type::U64 => ScVal::U64(random.random()),
        Type::I128 => i128(random.random()),
        Type::String => string(random.random::<[u8; 3]>()),
        Type::Address => address(&account(random.random())),
        Type::Option(_) if random.random() => ScVal::Void,
        Type::Option(of) => value(&of.value_type, random),
        Type::Vec(of) => {
            list((0..random.random_range(0..3)).map(|_| value(&of.element_type, random)))
        }
        Type::Map(_) => map_of([(symbol("k"), ScVal::U32(random.random()))]),
        Type::Udt(_) => fields([("x", ScVal::U32(1)), ("y", string("y"))]),
        _ => {
            let template = random_values::template(random, 2);
            random_values::value(random, &template)
        }
    }
}

fn undeclared(random: &mut ChaCha8Rng) -> (Vec<ScVal>, ScVal) {
    let first = [symbol("swap"), string("Pair"), symbol("odd"), ScVal::U32(1)];
    let mut topics = vec![first.choose(random).unwrap().clone()];
    let second = [symbol("mint"), ScVal::U32(3), ScVal::I32(-3), address(&account(1))];
    topics.extend((0..random.random_range(0..3)).map(|_| second.choose(random).unwrap().clone()));
    topics.truncate(random.random_range(0..4));
    let template = random_values::template(random, 2);
    let data = match random.random_range(0..3) {
        0 => fields([("a", random_values::value(random, &template)), ("b", ScVal::U32(1))]),
        1 => list([random_values::value(random, &template), symbol("x")]),
        _ => random_values::value(random, &template),
    };
    (topics, data)
}
