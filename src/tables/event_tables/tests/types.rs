//! Types of observed values join to the same one in every order and grouping.

use orrery_testkit::random_values;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::event_tables::columns::{joined, observed};
use crate::types::ColumnType::{self, *};

fn pool() -> Vec<ColumnType> {
    let mut types = vec![
        Unknown, Boolean, UInt32, Int32, UInt64, Int64, UInt128, Int128, Digits, Text, Bytes, Json,
    ];
    let scalars = types.clone();
    types.extend(scalars.iter().cloned().map(ColumnType::list));
    types.extend(scalars.iter().cloned().map(ColumnType::list).map(ColumnType::list));
    for keys in [Unknown, UInt32, Int128, Text] {
        types.extend(scalars.iter().map(|of| ColumnType::map(keys.clone(), of.clone())));
        types.push(ColumnType::map(keys, ColumnType::list(Unknown)));
    }
    types
}

#[test]
fn all_pairs_and_triples_of_types_join_alike() {
    let types = pool();
    for a in &types {
        assert_eq!(joined(a, a), *a);
        for b in &types {
            let both = joined(a, b);
            assert_eq!(both, joined(b, a), "{a:?} {b:?}");
            assert_eq!(joined(&both, b), both, "{a:?} {b:?}");
            for c in &types {
                assert_eq!(joined(&both, c), joined(a, &joined(b, c)), "{a:?} {b:?} {c:?}");
            }
        }
    }
}

#[test]
fn types_of_random_values_join_alike_and_hold_them() {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    for _ in 0..3_000 {
        let templates: Vec<_> = (0..2).map(|_| random_values::template(&mut random, 3)).collect();
        let values: Vec<_> = (0..random.random_range(1..6))
            .map(|_| {
                let template = templates.choose(&mut random).unwrap();
                random_values::value(&mut random, template)
            })
            .collect();
        let types: Vec<ColumnType> = values.iter().map(observed).collect();
        let join = |types: &[ColumnType]| types.iter().fold(Unknown, |all, it| joined(&all, it));
        let all = join(&types);
        let (first, second) = types.split_at(random.random_range(0..types.len()));
        assert_eq!(joined(&join(second), &join(first)), all, "{types:?}");
        for value in &values {
            assert!(all.holds(value), "{all:?} {value:?}");
        }
    }
}
