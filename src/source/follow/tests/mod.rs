mod faults;
mod several;
mod world;

use std::collections::VecDeque;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use orrery_ledger::domain::{Fetched, Network, Origin, RawLedger, SourceError, StartPoint};
use orrery_runtime::observe::health::Component;
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::member::MAX_RETRY_AFTER;
use super::*;

/// What the scripted source does when it is asked; the last step repeats.
#[derive(Clone)]
enum Step {
    Yield(Vec<u32>),
    NotYet,
    Ended,
    Fails,
    AsksToWait(u64),
    Dies,
    Hangs,
}

#[derive(Default)]
struct Seen {
    asked: Vec<u32>,
}

struct Scripted {
    steps: VecDeque<Step>,
    range: Option<(u32, u32)>,
    passphrase: Option<String>,
    seen: Arc<Mutex<Seen>>,
}

impl LedgerSource for Scripted {
    fn name(&self) -> String {
        "the script".to_owned()
    }

    fn passphrase(&mut self) -> BoxFuture<'_, Result<Option<String>, SourceError>> {
        std::future::ready(Ok(self.passphrase.clone())).boxed()
    }

    fn range(&mut self) -> BoxFuture<'_, Result<Option<LedgerRange>, SourceError>> {
        let range = self.range.map(|(first, last)| LedgerRange::new(first, last));
        std::future::ready(Ok(range)).boxed()
    }

    fn fetch(&mut self, from: LedgerSeq) -> BoxFuture<'_, Result<Fetched, SourceError>> {
        self.seen.lock().asked.push(from.0);
        let step = match self.steps.len() {
            1 => self.steps[0].clone(),
            _ => self.steps.pop_front().unwrap(),
        };
        async move {
            match step {
                Step::Yield(sequences) => {
                    Ok(Fetched::Ledgers(sequences.into_iter().map(ledger).collect()))
                }
                Step::NotYet => Ok(Fetched::NotYet),
                Step::Ended => Ok(Fetched::Ended),
                Step::Fails => Err(SourceError::Retryable("the script fails".to_owned())),
                Step::AsksToWait(seconds) => Err(SourceError::RetryAfter {
                    reason: "the script is busy".to_owned(),
                    delay: Duration::from_secs(seconds),
                }),
                Step::Dies => Err(SourceError::Fatal("the script is over".to_owned())),
                Step::Hangs => std::future::pending().await,
            }
        }
        .boxed()
    }
}

fn ledger(sequence: u32) -> RawLedger {
    let origin = Origin { name: "script".into(), position: None };
    RawLedger {
        sequence: LedgerSeq(sequence),
        xdr: sequence.to_be_bytes().to_vec(),
        compressed: None,
        origin,
    }
}

struct Run {
    result: Option<Result<Followed, FollowError>>,
    received: Vec<u32>,
    asked: Vec<u32>,
    health: Arc<Health>,
    took: Duration,
}

fn following(source: Scripted, next: Option<u32>, reports: Reports) -> Follower {
    Follower::new(
        vec![Candidate::new("script", Box::new(source))],
        Task { next: next.map(LedgerSeq), start: StartPoint::Oldest, last: None },
        Network::from_passphrase("Apply Load"),
        Arc::new(|_| None),
        reports,
        Timing::default(),
        StdRng::seed_from_u64(7),
    )
}

/// Runs a script for at most one hour of virtual time.
async fn run_from(next: Option<u32>, range: Option<(u32, u32)>, steps: Vec<Step>) -> Run {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let source = Scripted {
        steps: steps.into(),
        range,
        passphrase: Some("Apply Load".to_owned()),
        seen: Arc::clone(&seen),
    };
    let health = Arc::new(Health::default());
    let metrics = Arc::new(Metrics::new().unwrap());
    let reports = Reports { health: Arc::clone(&health), metrics, component: COMPONENT };
    let mut follower = following(source, next, reports);
    let (out, mut ledgers) = mpsc::channel(1000);
    let start = Instant::now();
    let result = timeout(Duration::from_secs(3600), follower.run(out)).await.ok();
    let took = start.elapsed();
    let mut received = Vec::new();
    while let Some(ledger) = ledgers.recv().await {
        received.push(ledger.sequence.0);
    }
    let asked = seen.lock().asked.clone();
    Run { result, received, asked, health, took }
}

fn is_down(health: &Health) -> Option<String> {
    match health.components().remove(COMPONENT) {
        Some(Component::Down { reason }) => Some(reason),
        _ => None,
    }
}

use Step::{AsksToWait, Dies, Ended, Fails, Hangs, NotYet, Yield};

#[tokio::test(start_paused = true)]
async fn ledgers_are_ordered_and_repeats_dropped() {
    let run = run_from(
        Some(5),
        Some((2, 10)),
        vec![Yield(vec![4, 6, 5, 6]), Yield(vec![5, 6, 7]), Yield(vec![9, 8]), Ended],
    )
    .await;
    assert!(matches!(run.result, Some(Ok(Followed::SourceEnded))));
    assert_eq!(run.received, [5, 6, 7, 8, 9]);
    assert_eq!(run.asked, [5, 7, 8, 10]);
    assert_eq!(run.health.network_latest(), Some(LedgerSeq(10)));
}

#[tokio::test(start_paused = true)]
async fn following_stops_at_a_gap_and_resumes_when_it_is_filled() {
    let run = run_from(
        Some(5),
        Some((2, 4)),
        vec![Yield(vec![5, 7]), Yield(vec![7]), Yield(vec![8]), Yield(vec![6, 7, 8]), Ended],
    )
    .await;
    assert_eq!(run.received, [5, 6, 7, 8]);
    assert_eq!(run.asked, [5, 6, 6, 6, 9]);
    assert_eq!(is_down(&run.health), None);

    let run = run_from(Some(5), Some((2, 4)), vec![Yield(vec![5, 7]), Yield(vec![7])]).await;
    assert!(run.result.is_none(), "it keeps asking");
    assert_eq!(run.received, [5]);
    let reason = is_down(&run.health).unwrap();
    assert_eq!(reason, "the script skips from ledger 6 to 7");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_announces_a_ledger_must_have_it() {
    let run = run_from(Some(5), Some((2, 9)), vec![NotYet]).await;
    assert_eq!(is_down(&run.health).unwrap(), "the script has ledger 9 but not ledger 5");
    assert!(run.received.is_empty());
}

#[tokio::test(start_paused = true)]
async fn waiting_at_the_tip_is_not_a_failure() {
    let mut steps = vec![NotYet; 20];
    steps.extend([Yield(vec![5]), Ended]);
    let run = run_from(Some(5), Some((2, 4)), steps).await;
    assert_eq!(run.received, [5]);
    assert_eq!(run.took, Timing::default().poll * 20);
    assert_eq!(is_down(&run.health), None);
}

#[tokio::test(start_paused = true)]
async fn failures_are_retried_with_backoff() {
    let run = run_from(Some(5), None, vec![Fails, Fails, Yield(vec![5]), Ended]).await;
    assert_eq!(run.received, [5]);
    assert_eq!(is_down(&run.health), None);
    let timing = Timing::default();
    assert!(run.took >= timing.first_retry / 2 * 3 && run.took <= timing.first_retry * 3);

    let run = run_from(Some(5), None, vec![Fails]).await;
    assert!(run.result.is_none());
    assert_eq!(is_down(&run.health).unwrap(), "the script fails");
    // One hour of retries, in the end four to eight seconds apart.
    assert!((450..920).contains(&run.asked.len()), "{}", run.asked.len());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_counts_as_a_failure() {
    let run = run_from(Some(5), None, vec![Hangs, Yield(vec![5]), Ended]).await;
    assert_eq!(run.received, [5]);
    assert!(run.took >= Timing::default().call);
    let run = run_from(Some(5), None, vec![Hangs]).await;
    assert!(is_down(&run.health).unwrap().starts_with("the script did not answer within"));
}

#[tokio::test(start_paused = true)]
async fn fatal_errors_and_missing_ledgers_are_reported() {
    let run = run_from(Some(5), None, vec![Yield(vec![5]), Dies]).await;
    assert_eq!(run.result.unwrap().unwrap_err().to_string(), "the script is over");
    assert_eq!(run.received, [5]);
    assert_eq!(is_down(&run.health).unwrap(), "the script is over");

    let run = run_from(Some(5), Some((7, 9)), vec![NotYet]).await;
    assert!(run.result.is_none() && run.asked.is_empty(), "the missing ledgers may be imported");
    let reason = is_down(&run.health).unwrap();
    assert!(reason.contains("begins at ledger 7, but the next ledger needed is 5"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn an_empty_store_starts_at_the_oldest_ledger() {
    let run = run_from(None, Some((30, 31)), vec![Yield(vec![30, 31]), Ended]).await;
    assert_eq!(run.received, [30, 31]);
}

#[tokio::test(start_paused = true)]
async fn a_source_far_behind_is_suspected_of_a_reset() {
    let run = run_from(Some(1000), Some((2, 40)), vec![NotYet]).await;
    assert!(run.asked.is_empty());
    assert!(is_down(&run.health).unwrap().contains("its network was reset"));
}

#[tokio::test(start_paused = true)]
async fn following_ends_when_the_receiver_is_dropped() {
    let source = Scripted {
        steps: vec![Yield((5..500).collect())].into(),
        range: None,
        passphrase: None,
        seen: Arc::default(),
    };
    let reports = Reports {
        health: Arc::default(),
        metrics: Arc::new(Metrics::new().unwrap()),
        component: COMPONENT,
    };
    let mut follower = following(source, Some(5), reports);
    let (out, mut ledgers) = mpsc::channel(2);
    let task = tokio::spawn(async move { follower.run(out).await });
    assert_eq!(ledgers.recv().await.unwrap().sequence, LedgerSeq(5));
    drop(ledgers);
    assert_eq!(task.await.unwrap().unwrap(), Followed::ReceiverClosed);
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured_up_to_a_maximum() {
    let run = run_from(Some(5), None, vec![AsksToWait(7), Yield(vec![5]), Ended]).await;
    assert_eq!(run.received, [5]);
    assert_eq!(run.took, Duration::from_secs(7));
    let run = run_from(Some(5), None, vec![AsksToWait(86_400), Yield(vec![5]), Ended]).await;
    assert_eq!(run.took, MAX_RETRY_AFTER);
    // A source that hangs after a long wait is reported.
    let run = run_from(Some(5), None, vec![AsksToWait(86_400), Hangs]).await;
    assert!(is_down(&run.health).unwrap().starts_with("the script did not answer within"));
}

#[tokio::test(start_paused = true)]
async fn the_duration_of_a_failed_call_counts_towards_the_backoff() {
    let run = run_from(Some(5), None, vec![Hangs, Hangs, Yield(vec![5]), Ended]).await;
    assert_eq!(run.took, Timing::default().call * 2);
}
