//! Tests ledgers that are run in one turn and written in one batch.

use super::*;
use crate::backfill::State;

#[test]
fn incompatible_rows_fail_the_run_independently_of_the_turn_size() {
    let text: Val = SymbolSmall::try_from_str("text").unwrap().into();
    let code = module_emitting(&format!(
        "(if (result i64) (i32.and (local.get $now) (i32.const 1))
           (then (call $get_ledger_sequence)) (else (i64.const {})))",
        text.get_payload().cast_signed()
    ));
    let one_by_one = Scene::new();
    let id = one_by_one.deploy("ana", "seen", &code, market()).unwrap().id;
    for ledger in FIRST..=LAST {
        one_by_one.add(ledger, Durability::Synced);
        one_by_one.run_until_idle();
    }
    let (expected, status) = (one_by_one.rows(id), one_by_one.status(id));
    assert!(status.errors > 5 && expected.len() > 50, "{status:?}");

    let behind = Scene::new();
    let id = behind.deploy("ana", "seen", &code, market()).unwrap().id;
    behind.add_all(FIRST..=LAST);
    behind.run_until_idle();
    assert_eq!(behind.rows(id), expected);
    assert_eq!(behind.status(id).errors, status.errors);

    let later = Scene::new();
    later.add_all(FIRST..=LAST);
    let id = later.deploy("ana", "seen", &code, market()).unwrap().id;
    later.begin(id, FIRST, LAST).unwrap();
    // When a turn ends in the middle of a ledger, the runs of the next one may have to be repeated,
    // because the tables have grown meanwhile.
    let mut failures = 0;
    loop {
        match later.backfills.turn(id) {
            Turn::Idle => break,
            Turn::Failed(_) => {
                failures += 1;
                assert!(failures < 5, "{:?}", later.trouble.reason(id));
            }
            _ => {}
        }
    }
    let backfill = later.backfill(id);
    assert_eq!(backfill.state, State::Done, "{backfill:?}");
    assert_eq!(later.rows(id), expected);
    assert_eq!(later.status(id).errors, status.errors);
}
