//! Tests with several sources: which one is asked when one fails, and when the first is used again.

use std::time::Duration;

use orrery_ledger::domain::{LedgerSeq, StartPoint};

use super::world::*;
use crate::follow::{Followed, Task, WINDOW};

#[tokio::test(start_paused = true)]
async fn another_source_takes_over_until_the_first_recovers() {
    let (first, second) = (provider(100), provider(100));
    let world =
        World::follow(task(50), &[("first", &first), ("second", &second)], Stored::default());
    world.catches_up(&first).await;
    assert_eq!(world.detail(), "first");
    assert!(world.is_active("first") && !world.is_active("second"));
    assert!(second.lock().asked.is_empty(), "the second is unused while the first works");

    first.lock().mode = Mode::Fails;
    seconds(30).await;
    assert_eq!(world.detail(), "second, because first fails");
    assert!(world.is_active("second") && !world.is_active("first"));
    assert!(world.catches_up(&second).await < Duration::from_secs(1), "it never stops");

    first.lock().mode = Mode::Good;
    let asked = first.lock().asked.len();
    seconds(5).await;
    assert_eq!(first.lock().asked.len(), asked, "it must be good for a while");
    seconds(120).await;
    assert_eq!(world.detail(), "first");
    assert!(world.catches_up(&first).await < Duration::from_secs(1));
    world.stored.assert_whole();
}

#[tokio::test(start_paused = true)]
async fn an_unstable_source_does_not_cause_constant_switching() {
    let (first, second) = (provider(100), provider(100));
    let world =
        World::follow(task(100), &[("first", &first), ("second", &second)], Stored::default());
    let mut switches = 0;
    let mut active = true;
    for round in 0..720 {
        // Good for five seconds, bad for five seconds.
        first.lock().mode = if round % 2 == 0 { Mode::Fails } else { Mode::Good };
        for _ in 0..5 {
            seconds(1).await;
            let now = world.is_active("first");
            switches += u32::from(now != active);
            active = now;
        }
    }
    assert!(switches < 180, "{switches} switches in an hour");
    world.catches_up(&second).await;
    world.stored.assert_whole();
}

#[tokio::test(start_paused = true)]
async fn a_gap_is_filled_from_a_source_that_has_it() {
    let (recent, archive) = (provider(100_000), provider(100_000));
    recent.lock().window = Some(1000);
    archive.lock().tip = 99_990;
    let world =
        World::follow(task(98_000), &[("rpc", &recent), ("lake", &archive)], Stored::default());
    seconds(1).await;
    let detail = world.detail();
    assert!(detail.starts_with("lake, because rpc begins at ledger 99001"), "{detail}");
    assert_eq!(
        world.health.network_latest(),
        Some(LedgerSeq(100_000)),
        "the tip is known all along"
    );
    world.catches_up(&recent).await;
    assert_eq!(world.detail(), "rpc");
    let asked = archive.lock().asked.last().unwrap().1;
    assert!((99_000..99_200).contains(&asked), "the lake is used no longer than needed: {asked}");
    world.stored.assert_whole();
}

#[tokio::test(start_paused = true)]
async fn a_ledger_missing_from_one_source_is_fetched_from_another() {
    let (first, second) = (provider(100), provider(100));
    first.lock().missing.extend([60, 61]);
    let world =
        World::follow(task(50), &[("first", &first), ("second", &second)], Stored::default());
    assert!(world.catches_up(&first).await < Duration::from_secs(2));
    let asked: Vec<u32> = second.lock().asked.iter().map(|(_, from)| *from).collect();
    assert_eq!(asked[0], 60);
    seconds(120).await;
    assert_eq!(world.detail(), "first");
    world.stored.assert_whole();
}

#[tokio::test(start_paused = true)]
async fn ledgers_missing_from_all_sources_are_reported_and_retried() {
    let (recent, archive) = (provider(100_000), provider(100_000));
    recent.lock().window = Some(1000);
    archive.lock().missing.extend(98_500..98_510);
    let world =
        World::follow(task(98_000), &[("rpc", &recent), ("lake", &archive)], Stored::default());
    minutes(10).await;
    assert_eq!(world.stored.latest(), Some(98_499), "nothing is written beyond the gap");
    let reason = world.down().unwrap();
    assert!(reason.contains("rpc begins at ledger 99"), "{reason}");
    assert!(reason.contains("lake skips from ledger 98500 to 98510"), "{reason}");
    archive.lock().missing.clear();
    seconds(10).await;
    assert!(world.stored.latest() > Some(98_510), "within ten seconds");
    world.catches_up(&recent).await;
    world.stored.assert_whole();
}

#[tokio::test(start_paused = true)]
async fn a_hanging_source_is_replaced() {
    let (first, second) = (provider(100), provider(100));
    let world =
        World::follow(task(50), &[("first", &first), ("second", &second)], Stored::default());
    world.catches_up(&first).await;
    first.lock().mode = Mode::Hangs;
    seconds(20).await;
    assert_eq!(world.down().unwrap(), "first did not answer within 15 s");
    seconds(60).await;
    assert!(world.detail().starts_with("second, because first did not answer within"));
    // Probing the hanging source takes time, but not much.
    let mut behind = 0;
    for _ in 0..300 {
        seconds(1).await;
        behind += u32::from(world.stored.latest() < Some(second.lock().range().last.0 - 1));
    }
    assert!(behind < 30, "{behind} of 300 seconds behind");
    first.lock().mode = Mode::Good;
    minutes(5).await;
    assert_eq!(world.detail(), "first");
    world.stored.assert_whole();
}

#[tokio::test(start_paused = true)]
async fn a_lagging_source_is_not_used_while_another_works() {
    let (first, second) = (provider(100), provider(1000));
    let world =
        World::follow(task(500), &[("first", &first), ("second", &second)], Stored::default());
    assert!(world.catches_up(&second).await < Duration::from_secs(10));
    assert!(world.detail().starts_with("second, because first ends at ledger 100"));
    world.stored.assert_whole();
}

#[tokio::test(start_paused = true)]
async fn many_ledgers_between_two_surveys_do_not_count_as_lag() {
    let only = provider(100);
    only.lock().close_interval = Duration::from_millis(80);
    let world = World::follow(task(50), &[("first", &only)], Stored::default());
    world.catches_up(&only).await;
    let begun = world.stored.latest();
    for _ in 0..1200 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(world.down(), None);
    }
    assert!(world.stored.latest() > begun.map(|ledger| ledger + 700));
    world.stored.assert_whole();
}

#[tokio::test(start_paused = true)]
async fn a_warning_precedes_leaving_the_source_window() {
    let only = provider(100_000);
    only.lock().window = Some(1000);
    let world = World::follow(task(99_100), &[("rpc", &only)], Stored::default());
    world.catches_up(&only).await;
    *world.stalled.lock() = true;
    // The store hangs; 1000 ledgers are 83 minutes.
    minutes(5).await;
    assert!(!world.health.is_down(WINDOW), "there is time");
    let tip = only.lock().range().last;
    let known = world.health.network_latest().unwrap();
    assert!(known.0 + 3 >= tip.0, "the tip is known while nothing is stored");
    minutes(60).await;
    assert!(world.health.is_down(WINDOW));
    let alarm = world.health.first_down().unwrap().1;
    assert!(alarm.contains("the next one needed, is only"), "{alarm}");
    assert!(world.metrics.render().unwrap().contains("\norrery_source_window_alarm 1\n"));
    *world.stalled.lock() = false;
    world.catches_up(&only).await;
    minutes(2).await;
    assert!(!world.health.is_down(WINDOW));
    assert!(world.metrics.render().unwrap().contains("\norrery_source_window_alarm 0\n"));
    world.stored.assert_whole();
}

#[tokio::test(start_paused = true)]
async fn stored_ledgers_are_not_requested() {
    let only = provider(300);
    let stored = Stored::default();
    stored.insert(100..=149);
    stored.insert(180..=260);
    let world = World::follow(task(120), &[("only", &only)], stored);
    world.catches_up(&only).await;
    let asked: Vec<u32> = only.lock().asked.iter().map(|(_, from)| *from).collect();
    assert_eq!(asked[0], 150);
    assert!(
        asked.contains(&261) && !asked.iter().any(|from| (181..=260).contains(from)),
        "{asked:?}"
    );
    world.stored.assert_whole();
}

#[tokio::test(start_paused = true)]
async fn an_empty_store_starts_at_the_configured_point() {
    for (start, expected) in [
        (StartPoint::Tip, 5000),
        (StartPoint::Oldest, 4001),
        (StartPoint::Genesis, 2),
        (StartPoint::At(LedgerSeq(3000)), 3000),
    ] {
        let (recent, archive) = (provider(5000), provider(4800));
        recent.lock().window = Some(1000);
        let task = Task { next: None, start, last: None };
        let world = World::follow(task, &[("rpc", &recent), ("lake", &archive)], Stored::default());
        world.catches_up(&recent).await;
        world.stored.assert_whole();
        assert_eq!(world.stored.oldest(), Some(expected), "{start}");
        world.following.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_bounded_task_ends_or_reports_what_is_missing() {
    let task = |next: u32, last: u32| Task {
        next: Some(LedgerSeq(next)),
        start: StartPoint::Tip,
        last: Some(LedgerSeq(last)),
    };
    let (recent, archive) = (provider(5000), provider(4800));
    recent.lock().window = Some(1000);
    let sources = [("rpc", &recent), ("lake", &archive)];
    let world = World::follow(task(3990, 4100), &sources, Stored::default());
    assert_eq!(world.following.await.unwrap().unwrap(), Followed::Done);
    assert_eq!(world.stored.latest(), Some(4100));
    world.stored.assert_whole();

    archive.lock().missing.insert(3500);
    let world = World::follow(task(3490, 3600), &sources, Stored::default());
    let error = world.following.await.unwrap().unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("no source has ledger 3500: "), "{text}");
    assert!(
        text.contains("rpc begins at") && text.contains("lake skips from ledger 3500"),
        "{text}"
    );
    assert_eq!(world.stored.latest(), Some(3499));

    // No source has ledgers beyond the tip.
    let world = World::follow(task(4990, 9000), &sources[..1], Stored::default());
    let error = world.following.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("does not have ledger 50"), "{error}");
}
