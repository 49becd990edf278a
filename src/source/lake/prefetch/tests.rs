use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::super::simulated::SimulatedLake;
use super::*;

const DOWNLOAD: Duration = Duration::from_millis(100);

async fn lake(per_batch: u32, padding: usize) -> (Arc<SimulatedLake>, Lake) {
    let mut store = SimulatedLake::new(per_batch, 64_000, false, &[(2, 10_000)]);
    (store.takes, store.padding) = (DOWNLOAD, padding);
    let store = Arc::new(store);
    let lake = store.open().await;
    (store, lake)
}

fn sequences(file: File) -> Vec<u32> {
    file.unwrap().unwrap().iter().map(|ledger| ledger.sequence.0).collect()
}

/// Takes files one after the other until `last`, sleeping for `rest` after each.
async fn take(
    ahead: &mut ReadAhead,
    lake: &Lake,
    first: u32,
    last: u32,
    rest: Duration,
) -> Vec<u32> {
    let (mut taken, mut next) = (Vec::new(), first);
    while next <= last {
        taken.extend(sequences(ahead.file(lake, LedgerSeq(next), LedgerSeq(last)).await));
        next = taken.last().unwrap() + 1;
        sleep(rest).await;
    }
    taken
}

#[tokio::test(start_paused = true)]
async fn ten_files_are_prefetched_and_returned_in_order() {
    let (store, lake) = lake(1, 0).await;
    let start = Instant::now();
    let taken = take(&mut ReadAhead::default(), &lake, 100, 500, Duration::ZERO).await;
    assert_eq!(taken, (100..=500).collect::<Vec<_>>());
    assert_eq!(store.most.load(Ordering::SeqCst), FILES_AHEAD);
    // The first alone, then ten at a time.
    assert_eq!(start.elapsed(), DOWNLOAD * 41);

    // A consumer that is slower than the downloads waits only for the first two.
    let start = Instant::now();
    let rest = DOWNLOAD / 5;
    take(&mut ReadAhead::default(), &lake, 100, 200, rest).await;
    assert_eq!(start.elapsed(), DOWNLOAD * 2 + rest * 100);
}

#[tokio::test(start_paused = true)]
async fn prefetched_files_fit_into_the_memory_limit() {
    // Seven files of 9 MiB fit into the limit.
    let (store, lake) = lake(1, 9 << 20).await;
    let rest = DOWNLOAD * 20;
    take(&mut ReadAhead::default(), &lake, 100, 120, rest).await;
    assert_eq!(store.most.load(Ordering::SeqCst), 7);
    // A file that is larger than the limit is downloaded alone.
    let (store, lake) = self::lake(8, 9 << 20).await;
    let taken = take(&mut ReadAhead::default(), &lake, 12, 20, Duration::ZERO).await;
    assert_eq!(taken, (12..=23).collect::<Vec<_>>());
    assert_eq!(store.most.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn at_the_tip_one_file_is_requested() {
    let (store, lake) = lake(1, 0).await;
    let mut ahead = ReadAhead::default();
    take(&mut ahead, &lake, 9_950, 10_000, Duration::ZERO).await;
    store.questions();
    for _ in 0..5 {
        let missing = ahead.file(&lake, LedgerSeq(10_001), LedgerSeq(10_000)).await.unwrap();
        assert_eq!(missing, None);
        assert_eq!(store.questions(), 1);
    }
    store.holds(&[(2, 10_001)]);
    let newest = ahead.file(&lake, LedgerSeq(10_001), LedgerSeq(10_000)).await;
    assert_eq!(sequences(newest), [10_001]);
    assert_eq!(store.questions(), 1);
}

#[tokio::test(start_paused = true)]
async fn dropped_calls_neither_lose_nor_repeat_downloads() {
    let (store, lake) = lake(1, 0).await;
    let mut ahead = ReadAhead::default();
    let (mut next, mut dropped) = (100, 0);
    while next <= 300 {
        let call = ahead.file(&lake, LedgerSeq(next), LedgerSeq(300));
        match timeout(DOWNLOAD / 7, call).await {
            Ok(file) => {
                assert_eq!(sequences(file), [next]);
                next += 1;
            }
            Err(_) => dropped += 1,
        }
    }
    assert!(dropped > 50, "{dropped}");
    assert_eq!(store.questions(), 201, "each file once");
}

#[tokio::test(start_paused = true)]
async fn requesting_another_ledger_restarts_prefetching() {
    let (store, lake) = lake(4, 0).await;
    let mut ahead = ReadAhead::default();
    let last = LedgerSeq(10_000);
    assert_eq!(sequences(ahead.file(&lake, LedgerSeq(41), last).await), [41, 42, 43]);
    assert_eq!(sequences(ahead.file(&lake, LedgerSeq(44), last).await), [44, 45, 46, 47]);
    for from in [2_000, 46, 3, 9_000, 9_008] {
        let file = sequences(ahead.file(&lake, LedgerSeq(from), last).await);
        assert_eq!(file[0], from);
    }
    drop(ahead);
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.now.load(Ordering::SeqCst), 0, "abandoned downloads are cancelled");
}

#[tokio::test(start_paused = true)]
async fn after_a_missing_file_only_that_file_is_polled() {
    let (store, lake) = lake(1, 0).await;
    let mut ahead = ReadAhead::default();
    store.holds(&[(2, 119), (121, 10_000)]);
    let last = LedgerSeq(10_000);
    take(&mut ahead, &lake, 100, 119, Duration::ZERO).await;
    assert_eq!(ahead.file(&lake, LedgerSeq(120), last).await.unwrap(), None);
    store.questions();
    for _ in 0..3 {
        assert_eq!(ahead.file(&lake, LedgerSeq(120), last).await.unwrap(), None);
        assert_eq!(store.questions(), 1);
    }
    store.holds(&[(2, 10_000)]);
    let taken = take(&mut ahead, &lake, 120, 140, Duration::ZERO).await;
    assert_eq!(taken, (120..=140).collect::<Vec<_>>());
}
