//! Generated interfaces over every type, nested, with events that fit and events that are broken in
//! one place.

use orrery_interfaces::{Interface, Scalar, declaration, declaration_counted};
use orrery_testkit::account_events::{account, address, xdr};
use orrery_testkit::random_events::Generator;
use orrery_testkit::size;
use orrery_testkit::specs::{Map, SingleValue, Type, Vector, event, option};
use orrery_testkit::values::{fields, list, symbol};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use stellar_xdr::{ScAddress, ScSpecEntry, ScVal};

use crate::made::reconstructed;

#[test]
fn events_fit_exactly_when_every_value_is_of_its_type() {
    let (mut fitting, mut broken) = (0, 0);
    for seed in 0..size::choose(400, 20_000) {
        let mut generator = Generator::new(seed, false);
        let declared = generator.declared();
        let interface = Interface::from_entries(generator.entries(&declared)).unwrap();
        let params = declared.topics.len() + declared.data.len();
        for _ in 0..5 {
            let (topics, data) = generator.event(&declared, None).unwrap();
            let matched = declaration(&[&interface], &topics, &data)
                .unwrap_or_else(|| panic!("seed {seed}: {topics:?} {data:?}"));
            // Those that the event has: a map may lack keys.
            assert!(matched.parameters.len() <= params);
            assert_eq!(reconstructed(&matched, &topics), (topics.clone(), data.clone()));
            fitting += 1;
        }
        for at in 0..params {
            let Some((topics, data)) = generator.event(&declared, Some(at)) else { continue };
            let (matched, _) = declaration_counted(&[&interface], &topics, &data);
            let problem = || format!("seed {seed}, parameter {at}: {topics:?} {data:?}");
            assert!(matched.is_none(), "{}", problem());
            broken += 1;
        }
    }
    println!("{fitting} events that fit, {broken} that are broken in one place");
    assert!(fitting > 1_000 && broken > 500);
}

/// The value that a scalar stands for, if it is of this kind.
fn is_value(scalar: &Scalar<'_>, value: &ScVal) -> bool {
    match (*scalar, value) {
        (Scalar::Absent, ScVal::Void) => true,
        (Scalar::Bool(own), ScVal::Bool(it)) => own == *it,
        (Scalar::U32(own), ScVal::U32(it)) => own == *it,
        (Scalar::I32(own), ScVal::I32(it)) => own == *it,
        (Scalar::U64(own), ScVal::U64(it)) => own == *it,
        (Scalar::U64(own), ScVal::Timepoint(it)) => own == it.0,
        (Scalar::U64(own), ScVal::Duration(it)) => own == it.0,
        (Scalar::I64(own), ScVal::I64(it)) => own == *it,
        (Scalar::U128(own), ScVal::U128(it)) => own.to_string() == it.to_string(),
        (Scalar::I128(own), ScVal::I128(it)) => own.to_string() == it.to_string(),
        (Scalar::Bytes(own), ScVal::Bytes(it)) => own == it.as_slice(),
        (Scalar::Text(own), ScVal::String(it)) => own == it.as_slice(),
        (Scalar::Text(own), ScVal::Symbol(it)) => own == it.as_slice(),
        (Scalar::Account(own), ScVal::Address(it @ ScAddress::Account(_))) => {
            xdr(&ScVal::Address(it.clone())).ends_with(own)
        }
        (Scalar::Contract(own), ScVal::Address(it @ ScAddress::Contract(_))) => {
            xdr(&ScVal::Address(it.clone())).ends_with(own)
        }
        _ => false,
    }
}

#[test]
fn what_the_bytes_tell_is_what_the_values_tell() {
    let (mut told, mut left) = (0, 0);
    for seed in 0..size::choose(2_000, 100_000) {
        let mut generator = Generator::new(seed, false);
        let declared = generator.declared();
        let interface = Interface::from_entries(generator.entries(&declared)).unwrap();
        let params = declared.topics.len() + declared.data.len();
        let events = [None].into_iter().chain((0..params).map(Some));
        for (topics, data) in events.filter_map(|broken| generator.event(&declared, broken)) {
            let bytes: Vec<Vec<u8>> = topics.iter().map(xdr).collect();
            let data_bytes = xdr(&data);
            let mut values = vec![None; params];
            let topics_bytes = bytes.iter().map(Vec::as_slice);
            let number = interface
                .flat_declaration(topics_bytes, &data_bytes, |at, value| values[at] = Some(value));
            let Some(number) = number else {
                left += 1;
                continue;
            };
            let matched = declaration(&[&interface], &topics, &data).unwrap();
            assert_eq!(matched.number, number, "seed {seed}: {topics:?} {data:?}");
            assert!(matched.rest.is_empty());
            let names = interface.parameter_names(number);
            assert_eq!(matched.parameters.len(), names.len(), "seed {seed}");
            for ((parameter, name), value) in matched.parameters.iter().zip(names).zip(&values) {
                assert_eq!(parameter.name, name);
                let value = value.as_ref().unwrap();
                let is_same = is_value(value, parameter.value);
                assert!(is_same, "seed {seed}: {value:?} {:?}", parameter.value);
            }
            told += 1;
        }
    }
    println!("{told} told by their bytes, {left} left to their values");
    assert!(told > 200 && left > 1_000, "{told} {left}");
}

/// Bytes that are no value, or more than one, are told by nobody.
#[test]
fn cut_and_extended_bytes_tell_nothing() {
    for seed in 0..size::choose(400, 20_000) {
        let mut generator = Generator::new(seed, false);
        let declared = generator.declared();
        let interface = Interface::from_entries(generator.entries(&declared)).unwrap();
        let Some((topics, data)) = generator.event(&declared, None) else { continue };
        let mut bytes: Vec<Vec<u8>> = topics.iter().chain([&data]).map(xdr).collect();
        let told = |bytes: &[Vec<u8>]| {
            let (data, topics) = bytes.split_last().unwrap();
            let topics = topics.iter().map(Vec::as_slice);
            interface.flat_declaration(topics, data, |_, _| ()).is_some()
        };
        if !told(&bytes) {
            continue;
        }
        for part in 0..bytes.len() {
            let whole = bytes[part].clone();
            for end in 0..whole.len() {
                bytes[part] = whole[..end].to_vec();
                assert!(!told(&bytes), "seed {seed}, part {part}, {end} bytes");
            }
            bytes[part] = [whole.as_slice(), &[0; 4]].concat();
            assert!(!told(&bytes), "seed {seed}, part {part}, extended");
            bytes[part] = whole;
        }
    }
}

/// Declarations of one prefix and number of topics, of which an event's data fits some.
#[test]
fn forms_that_the_bytes_tell_apart_are_those_that_the_values_tell_apart() {
    let (mut told, mut left) = (0, 0);
    for seed in 0..size::choose(4_000, 200_000) {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let kinds = [Type::U32, Type::Symbol, Type::Address, Type::Val, option(Type::U32)];
        let formats = [SingleValue, Vector, Map];
        let forms: Vec<ScSpecEntry> = (0..random.random_range(1..7))
            .map(|number| {
                let topics: Vec<_> = ["a", "b"][..random.random_range(0..3)]
                    .iter()
                    .map(|name| (*name, kinds.choose(&mut random).unwrap().clone()))
                    .collect();
                let format = *formats.choose(&mut random).unwrap();
                let most = if format == SingleValue { 2 } else { 3 };
                let data: Vec<_> = ["c", "d"][..random.random_range(0..most)]
                    .iter()
                    .map(|name| (*name, kinds.choose(&mut random).unwrap().clone()))
                    .collect();
                event(&format!("e{number}"), &["x"], &topics, format, &data)
            })
            .collect();
        let interface = Interface::from_entries(forms).unwrap();
        for _ in 0..20 {
            let value = |random: &mut ChaCha8Rng| match random.random_range(0..4) {
                0 => ScVal::U32(random.random()),
                1 => symbol("s"),
                2 => address(&account(1)),
                _ => ScVal::Void,
            };
            let mut topics = vec![symbol("x")];
            (0..random.random_range(0..3)).for_each(|_| topics.push(value(&mut random)));
            let data = match random.random_range(0..3) {
                0 => value(&mut random),
                1 => list((0..random.random_range(0..3)).map(|_| value(&mut random))),
                _ => {
                    let names = ["c", "d", "e"].into_iter().filter(|_| random.random());
                    let entries: Vec<_> = names.collect();
                    fields(entries.into_iter().map(|name| (name, value(&mut random))))
                }
            };
            let bytes: Vec<Vec<u8>> = topics.iter().map(xdr).collect();
            let data_bytes = xdr(&data);
            let bytes = bytes.iter().map(Vec::as_slice);
            let number = interface.flat_declaration(bytes, &data_bytes, |_, _| ());
            let matched = declaration(&[&interface], &topics, &data);
            if let Some(number) = number {
                let matched = matched.unwrap_or_else(|| panic!("seed {seed}: {topics:?} {data:?}"));
                assert_eq!(matched.number, number, "seed {seed}: {topics:?} {data:?}");
                assert!(matched.rest.is_empty(), "seed {seed}: {topics:?} {data:?}");
                told += 1;
            } else {
                left += usize::from(matched.is_some());
            }
        }
    }
    println!("{told} told by their bytes, {left} with a declaration left to their values");
    assert!(told > 1_000 && left > 1_000, "{told} {left}");
}
