use std::sync::Arc;
use std::sync::atomic::Ordering;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::super::others::OTHERS_AT_ONCE;
use super::super::simulated::SimulatedLake;
use super::*;

/// Maximum number of requests: doubling from ledger 2 to any ledger and a binary search, with a
/// margin.
const MAX_QUESTIONS: usize = 70;

/// A lake without gaps: whole files from `first` to `last`.
struct Model {
    per_batch: u32,
    first: u32,
    last: u32,
}

impl Model {
    fn random(chance: &mut StdRng) -> Self {
        let per_batch = [1, 1, 1, 2, 3, 8, 64][chance.random_range(0..7)];
        let files = [1, 2, 10, 1000, 1_000_000, 60_000_000 / per_batch][chance.random_range(0..6)];
        let batches = chance.random_range(1..=files);
        let first = if chance.random_bool(0.5) { 0 } else { chance.random_range(0..=batches) };
        let (first, last) = (first.min(batches) * per_batch, batches * per_batch + per_batch - 1);
        Self { per_batch, first: first.max(2), last: last.max(2) }
    }

    async fn lake(&self, chance: &mut StdRng, lists: bool) -> (Arc<SimulatedLake>, Lake) {
        let per_partition = [1, 2, 8, 64_000][chance.random_range(0..4)];
        let ranges = [(self.first, self.last)];
        let store = Arc::new(SimulatedLake::new(self.per_batch, per_partition, lists, &ranges));
        let lake = store.open().await;
        (store, lake)
    }

    fn any(&self, chance: &mut StdRng) -> LedgerSeq {
        LedgerSeq(chance.random_range(self.first..=self.last))
    }
}

#[tokio::test]
async fn the_ends_of_random_lakes_are_found() {
    let mut chance = StdRng::seed_from_u64(5);
    for case in 0..400 {
        let model = Model::random(&mut chance);
        let lists = chance.random_bool(0.3);
        let (store, lake) = model.lake(&mut chance, lists).await;
        let word = format!("case {case}: {}–{} by {}", model.first, model.last, model.per_batch);

        let near = model.any(&mut chance);
        let newest = lake.newest(near).await.unwrap().unwrap();
        assert_eq!(newest.0, model.last, "{word}, near {near}");
        let questions = store.questions();
        assert!(questions <= if lists { 1 } else { MAX_QUESTIONS }, "{word}: {questions}");

        // From a ledger that the lake does not hold yet, such as the next one wanted.
        let beyond = LedgerSeq(model.last.saturating_add(chance.random_range(1..=5)));
        let found = lake.newest_by_probing(beyond).await;
        let near_enough = model.first == 2 || model.last - model.first > 64;
        assert!(found.is_ok() || !near_enough, "{word}: {found:?} from {beyond}");
        assert!(found.is_err() || found.is_ok_and(|found| found.0 == model.last), "{word}");
        assert!(store.questions() <= MAX_QUESTIONS, "{word}");

        assert_eq!(lake.oldest(newest).await.unwrap().0, model.first, "{word}");
        assert!(store.questions() <= 32, "{word}");

        let limit = model.any(&mut chance);
        assert_eq!(lake.newest_until(limit).await.unwrap(), Some(limit), "{word}");
        assert!(store.questions() <= MAX_QUESTIONS, "{word}");
        let below = LedgerSeq(model.first - 1).max(LedgerSeq::FIRST);
        let there = lake.newest_until(below).await.unwrap();
        let batch = lake.layout().batch_of(below);
        assert_eq!(there.is_some(), batch.contains(LedgerSeq(model.first)), "{word}: {there:?}");
    }
}

#[tokio::test]
async fn surveying_the_whole_public_history_takes_few_requests() {
    let store = Arc::new(SimulatedLake::new(1, 64_000, false, &[(2, 63_092_993)]));
    let lake = store.open().await;
    let mut ends = Ends::default();
    let range = ends.survey(&lake, None).await.unwrap();
    assert_eq!(range, Some(LedgerRange::new(2, 63_092_993)));
    let questions = store.questions();
    assert!(questions <= 60, "{questions}");

    // Starting at the tip needs one listing.
    let store = Arc::new(SimulatedLake::new(1, 64_000, true, &[(2, 63_092_993)]));
    let lake = store.open().await;
    let newest = Ends::default().find_newest(&lake, None).await.unwrap();
    assert_eq!(newest, Some(LedgerSeq(63_092_993)));
    assert_eq!(store.questions(), 1);
}

#[tokio::test]
async fn following_the_tip_takes_one_or_two_requests() {
    for lists in [false, true] {
        let store = Arc::new(SimulatedLake::new(1, 64_000, lists, &[(50_000, 60_000)]));
        let lake = store.open().await;
        let mut ends = Ends::default();
        let wanted = Some(LedgerSeq(59_000));
        assert_eq!(
            ends.survey(&lake, wanted).await.unwrap(),
            Some(LedgerRange::new(50_000, 60_000))
        );
        store.questions();
        for newest in 60_001..60_020 {
            // The previous ledger was requested and read before this survey, and one more exists
            // now.
            ends.record_present(LedgerSeq(newest - 1));
            store.holds(&[(50_000, newest)]);
            let range = ends.survey(&lake, Some(LedgerSeq(newest))).await.unwrap();
            assert_eq!(range, Some(LedgerRange::new(50_000, newest)));
            assert!(store.questions() <= 3);
            ends.record_present(LedgerSeq(newest));
        }
        for _ in 0..8 {
            ends.survey(&lake, Some(LedgerSeq(60_020))).await.unwrap();
            // Every second time, the manifest and some other layouts are looked for as well.
            let questions = store.questions();
            assert!(questions <= 4 + OTHERS_AT_ONCE, "{questions}: few without new ledgers");
        }
        let calm = LedgerSeq(60_019);
        ends.surveyed = None;
        ends.survey(&lake, calm.next()).await.unwrap();
        assert_eq!(store.questions(), 1);
    }
}

#[tokio::test]
async fn a_gap_at_the_tip_is_detected_without_listing() {
    let store = Arc::new(SimulatedLake::new(1, 64_000, false, &[(2, 100)]));
    let lake = store.open().await;
    let mut ends = Ends::default();
    let wanted = Some(LedgerSeq(101));
    assert_eq!(ends.survey(&lake, wanted).await.unwrap(), Some(LedgerRange::new(2, 100)));
    store.holds(&[(2, 100), (102, 104)]);
    let mut newest = Vec::new();
    for _ in 0..2 {
        newest.push(ends.survey(&lake, wanted).await.unwrap().unwrap().last.0);
    }
    assert!(newest.contains(&104), "{newest:?}");
    let range = ends.survey(&lake, wanted).await.unwrap().unwrap();
    assert_eq!(range, LedgerRange::new(2, 104), "ledgers before a gap are still reported");
    // A wider gap takes a few more surveys.
    store.holds(&[(2, 100), (300, 700)]);
    let mut ends = Ends::default();
    for _ in 0..8 {
        newest.push(ends.survey(&lake, wanted).await.unwrap().unwrap().last.0);
    }
    assert_eq!(newest.last(), Some(&700), "{newest:?}");
}

#[tokio::test]
async fn gaps_do_not_hide_the_ledgers_before_them() {
    for lists in [false, true] {
        let ranges = [(40, 99), (101, 200)];
        let store = Arc::new(SimulatedLake::new(1, 64_000, lists, &ranges));
        let lake = store.open().await;
        // A binary search would hit the gap at ledger 100.
        for wanted in [100, 101, 150] {
            let mut ends = Ends::default();
            ends.record_present(LedgerSeq(200));
            let range = ends.survey(&lake, Some(LedgerSeq(wanted))).await.unwrap().unwrap();
            assert!(range.first.0 <= wanted, "{wanted}: {range}");
            assert_eq!(range.last.0, 200);
        }
        let mut ends = Ends::default();
        ends.record_present(LedgerSeq(200));
        let range = ends.survey(&lake, Some(LedgerSeq(39))).await.unwrap().unwrap();
        assert!(range.first.0 > 39, "it begins later: {range}");
    }
}

#[tokio::test]
async fn removed_and_recreated_files_are_detected() {
    let store = Arc::new(SimulatedLake::new(1, 64_000, false, &[(2, 1000)]));
    let lake = store.open().await;
    let mut ends = Ends::default();
    let wanted = Some(LedgerSeq(1001));
    ends.survey(&lake, wanted).await.unwrap();
    store.holds(&[(2, 30)]);
    ends.survey(&lake, wanted).await.unwrap();
    let range = ends.survey(&lake, wanted).await.unwrap();
    assert_eq!(range, Some(LedgerRange::new(2, 30)));

    // The oldest ledgers are removed while the lake is read.
    store.holds(&[(500, 1000)]);
    let mut ends = Ends { oldest: Some(LedgerSeq::FIRST), ..Ends::default() };
    ends.record_present(LedgerSeq(1000));
    ends.record_missing(LedgerSeq(400));
    let range = ends.survey(&lake, Some(LedgerSeq(400))).await.unwrap();
    assert_eq!(range, Some(LedgerRange::new(500, 1000)));
}

#[tokio::test]
async fn a_server_that_claims_every_file_is_reported() {
    let store = Arc::new(SimulatedLake::new(1, 64_000, false, &[(2, 100)]));
    let lake = store.open().await;
    store.says_yes.store(true, Ordering::SeqCst);
    let error = Ends::default().survey(&lake, Some(LedgerSeq(101))).await.unwrap_err();
    assert!(error.to_string().contains("but does not have one"), "{error}");
    assert!(store.questions() <= MAX_QUESTIONS);
}

#[tokio::test]
async fn most_searches_without_a_nearby_ledger_are_short() {
    let store = Arc::new(SimulatedLake::new(1, 64_000, false, &[]));
    let lake = store.open().await;
    let mut ends = Ends::default();
    let mut questions = Vec::new();
    for _ in 0..=SHORT_SEARCHES {
        let error = ends.survey(&lake, Some(LedgerSeq(1_000_000))).await.unwrap_err();
        assert!(error.to_string().contains("say with which ledger"), "{error}");
        questions.push(store.questions());
    }
    assert!(
        questions[0] <= MAX_QUESTIONS + OTHERS_AT_ONCE
            && questions[1..].iter().all(|count| *count <= 3 + OTHERS_AT_ONCE)
    );
    store.holds(&[(999_000, 1_000_002)]);
    let range = ends.survey(&lake, Some(LedgerSeq(1_000_000))).await.unwrap().unwrap();
    assert_eq!(range, LedgerRange::new(999_000, 1_000_002));
}
