//! The tables and rows are a function of the set of events, whatever the order in which they
//! arrive, and rows move only where the tables are refilled.
//!
//! Small: 150 worlds; full: 20,000.

use std::collections::BTreeMap;

use orrery_ledger::domain::Emit;
use orrery_testkit::size;
use rand::Rng;
use rand::seq::SliceRandom;

use super::worlds::World;
use super::{Known, Made, encode, layout, shapes};
use crate::event_tables::{Layout, Rows, Shapes};
use crate::schema::{ProgramSchema, SchemaLimits};

fn rows(layout: &Layout, events: &[Made], known: &[Known]) -> Vec<Rows> {
    events.iter().map(|event| event.rows(layout, known)).collect()
}

fn limits(seed: u64) -> SchemaLimits {
    let usual = SchemaLimits::default();
    match seed % 3 {
        0 => SchemaLimits { tables: 4, columns: 3, absent: 1, ..usual },
        _ => usual,
    }
}

#[test]
fn tables_and_rows_do_not_depend_on_the_order_of_arrival() {
    for seed in 0..size::choose(150, 20_000) {
        let World { known, events, mut random } = World::new(seed);
        let all = shapes(&events, &known);
        let whole = all.tables(limits(seed));
        let expected = rows(&whole, &events, &known);
        let mut arrivals = events.clone();
        arrivals.extend(events.iter().filter(|_| random.random_bool(0.2)).cloned());
        arrivals.shuffle(&mut random);
        assert_eq!(shapes(&arrivals, &known), all, "seed {seed}");
        // In parts that overlap, joined in any order.
        let mut parts: Vec<Shapes> =
            arrivals.chunks(random.random_range(1..9)).map(|part| shapes(part, &known)).collect();
        while parts.len() > 1 {
            let part = parts.swap_remove(random.random_range(0..parts.len()));
            let at = random.random_range(0..parts.len());
            let before = parts[at].clone();
            let changes = parts[at].join(&part);
            assert_eq!(changes, parts[at] != before, "seed {seed}");
            assert!(!part.clone().join(&part));
        }
        // Stored row by row, in two steps.
        let mut stored = BTreeMap::new();
        let half = shapes(&arrivals[..arrivals.len() / 2], &known);
        for (before, now) in [(&Shapes::default(), &half), (&half, &parts[0])] {
            for (key, value) in now.rows_since(before) {
                match value {
                    Some(value) => drop(stored.insert(key, value)),
                    None => drop(stored.remove(&key)),
                }
            }
        }
        let stored = stored.iter().map(|(key, value)| (key.as_slice(), value.as_slice()));
        let joined = Shapes::from_rows(stored).unwrap();
        assert_eq!(joined, all, "seed {seed}");
        assert!(joined.rows_since(&all).is_empty());
        let joined = joined.tables(limits(seed));
        assert_eq!(joined.schema(), whole.schema(), "seed {seed}");
        assert_eq!(rows(&joined, &events, &known), expected, "seed {seed}");
        let text = serde_json::to_string(whole.schema()).unwrap();
        assert_eq!(serde_json::from_str::<ProgramSchema>(&text).unwrap(), *whole.schema());
    }
}

#[test]
fn every_event_has_one_row_that_can_be_encoded() {
    let (mut declared, mut inferred, mut system, mut undeclared) = (0, 0, 0, 0);
    for seed in 0..size::choose(150, 20_000) {
        let World { known, events, .. } = World::new(seed);
        let layout = shapes(&events, &known).tables(limits(seed));
        let mut by_target: BTreeMap<String, Vec<Emit>> = BTreeMap::new();
        for Rows { row, event } in rows(&layout, &events, &known) {
            let cell = |name: &str| {
                crate::show::row(layout.schema().table(&row.target).unwrap(), &row)[name].clone()
            };
            match cell("_declared").as_str() {
                None => undeclared += 1,
                Some("inferred") => inferred += 1,
                Some("system") => system += 1,
                Some(_) => declared += 1,
            }
            assert_eq!(event.target, "events");
            by_target.entry(row.target.clone()).or_default().push(row);
            by_target.entry(event.target.clone()).or_default().push(event);
        }
        assert_eq!(by_target.remove("events").unwrap().len(), events.len());
        let mut sum = 0;
        for table in layout.schema().tables() {
            let emits = by_target.remove(&table.target).unwrap_or_default();
            encode(table, &emits);
            sum += emits.len();
        }
        assert_eq!(sum, events.len());
        assert!(by_target.is_empty());
    }
    println!("{declared} declared, {inferred} inferred, {system} system, {undeclared} undeclared");
    assert!(declared > 3_000 && inferred > 300 && system > 300 && undeclared > 500);
}

/// Rows already in the tables stay right as long as the tables are not refilled.
#[test]
fn rows_change_only_where_tables_are_refilled() {
    let (mut grown, mut refilled) = (0, 0);
    for seed in 0..size::choose(150, 20_000) {
        let World { known, mut events, mut random } = World::new(seed);
        events.shuffle(&mut random);
        let mut all = Shapes::default();
        let mut old = all.tables(limits(seed));
        for (at, event) in events.iter().enumerate() {
            let changes = event.add_to(&mut all, &known);
            let new = all.tables(limits(seed));
            assert!(changes || new.schema() == old.schema(), "seed {seed}");
            if old.grows_into(&new) {
                let before = rows(&old, &events[..at], &known);
                assert_eq!(rows(&new, &events[..at], &known), before, "seed {seed}");
                grown += usize::from(changes);
            } else {
                refilled += 1;
            }
            old = new;
        }
        // Live, in the order of the chain, tables are refilled rarely.
        events.sort_by_key(|event| event.number);
        assert_eq!(layout(&events, &known).schema().tables().last().unwrap().target, "undeclared");
    }
    println!("{grown} grown, {refilled} refilled");
    assert!(grown > 500 && refilled > 500);
}
