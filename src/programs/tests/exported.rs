//! Rows of programs in an export that goes on.

use std::time::{Duration, Instant};

use super::*;
use crate::export::{AddedNow, Continuous, Interrupt, Place, Taken};

#[test]
fn rows_that_no_ledgers_follow_are_exported_after_a_while() {
    let scene = Scene::new();
    let id = scene.deploy("ana", "seen", &module(""), market()).unwrap().id;
    scene.add_all(FIRST..=LAST);
    scene.settle();
    let rows = scene.rows(id).len() as u64;
    assert!(rows > 50);
    let lake = TempDir::new().unwrap();
    // The portion of these ledgers is never complete.
    let export = |programs| {
        let taken = Taken { portion: u32::MAX, programs };
        let (store, place) = (Arc::clone(&scene.store), Place::directory(lake.path().join("x")));
        Continuous::new(store, place, taken, Interrupt::default())
    };
    let (begun, minutes) = (Instant::now(), |count: u64| Duration::from_secs(60 * count));
    let mut without = export(false);
    let mut with = export(true);
    for minute in 0..10 {
        for export in [&mut without, &mut with] {
            let added = export.step(begun + minutes(minute), |_| {}).unwrap();
            assert_eq!(added, AddedNow::default(), "{minute}");
        }
    }
    let added = with.step(begun + minutes(10), |_| {}).unwrap();
    assert_eq!((added.programs.rows, added.ledgers.ledgers), (rows, 0));
    assert_eq!(with.progress().rows, rows);
    for export in [&mut without, &mut with] {
        let added = export.step(begun + minutes(30), |_| {}).unwrap();
        assert_eq!(added, AddedNow::default());
    }
}
