use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

fn holder(name: &str) -> Holder {
    Holder::of(name)
}

fn budget(all: u64, one: u64, waiting: usize, one_with_waiting: u64) -> Budget {
    Budget::new("tests", Limits { all, one, waiting, one_with_waiting })
}

fn poll<T>(future: std::pin::Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn limits_apply_to_one_holder_and_to_all_together() {
    let budget = budget(4, 2, 0, 2);
    let [ana, bob, eve] = ["ana", "bob", "eve"].map(holder);
    let first = budget.take_now(ana, 1).unwrap();
    let _second = budget.take_now(ana, 1).unwrap();
    assert_eq!(budget.take_now(ana, 1).err(), Some(Refusal::One));
    let _third = budget.take_now(bob, 1).unwrap();
    assert_eq!(budget.take_now(bob, 1).err(), Some(Refusal::One), "half is taken: one each");
    let _fourth = budget.take_now(eve, 1).unwrap();
    assert_eq!(budget.take_now(holder("ivy"), 1).err(), Some(Refusal::All));
    drop(first);
    assert!(budget.take_now(holder("ivy"), 1).is_ok());
    let usage = budget.usage();
    assert_eq!((usage.taken, usage.refused_one, usage.refused_all), (3, 2, 1));
}

#[test]
fn greedy_holders_leave_a_share_for_a_newcomer() {
    let budget = budget(256, 64, 0, 64);
    let mut taken = Vec::new();
    for name in ["a", "b", "c", "d"] {
        while let Ok(share) = budget.take_now(holder(name), 16) {
            taken.push(share);
        }
    }
    assert_eq!(budget.usage().taken, 64 + 64 + 32 + 32);
    assert!(budget.take_now(holder("newcomer"), 64).is_ok());
}

#[test]
fn waiters_are_served_in_order_within_their_limits() {
    let budget = budget(2, 1, 3, 3);
    let [ana, bob, eve] = ["ana", "bob", "eve"].map(holder);
    let of_ana = budget.take_now(ana, 1).unwrap();
    let of_bob = budget.take_now(bob, 1).unwrap();
    let mut first = pin!(budget.take(ana, 1));
    let mut second = pin!(budget.take(eve, 1));
    assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
    assert_eq!(budget.usage().waiting, 2);
    drop(of_bob);
    assert!(poll(first.as_mut()).is_pending(), "it has one already");
    let Poll::Ready(Ok(of_eve)) = poll(second.as_mut()) else { panic!("eve is next") };
    drop(of_ana);
    assert!(matches!(poll(first.as_mut()), Poll::Ready(Ok(_))));
    drop(of_eve);
    assert_eq!((budget.usage().taken, budget.usage().waiting), (0, 0));
}

#[test]
fn a_long_queue_of_one_holder_does_not_delay_others() {
    let budget = budget(1, 1, 10, 10);
    let first = budget.take_now(holder("greedy"), 1).unwrap();
    let mut greedy: Vec<_> = (0..5).map(|_| Box::pin(budget.take(holder("greedy"), 1))).collect();
    assert!(greedy.iter_mut().all(|waiting| poll(waiting.as_mut()).is_pending()));
    let mut newcomer = pin!(budget.take(holder("newcomer"), 1));
    assert!(poll(newcomer.as_mut()).is_pending());
    drop(first);
    let Poll::Ready(Ok(share)) = poll(newcomer.as_mut()) else { panic!("the newcomer is next") };
    drop(share);
    assert!(
        matches!(poll(greedy[0].as_mut()), Poll::Ready(Ok(_))),
        "then the longest waiting holder"
    );
}

#[test]
fn queues_are_bounded_for_one_holder_and_for_all() {
    let budget = budget(1, 1, 3, 2);
    let _taken = budget.take_now(holder("x"), 1).unwrap();
    let mut of_ana = pin!(budget.take(holder("ana"), 1));
    assert!(poll(of_ana.as_mut()).is_pending());
    let mut more_of_ana = Box::pin(budget.take(holder("ana"), 1));
    assert!(poll(more_of_ana.as_mut()).is_pending());
    let refused = poll(pin!(budget.take(holder("ana"), 1)));
    assert!(matches!(refused, Poll::Ready(Err(Refusal::One))));
    let mut of_bob = pin!(budget.take(holder("bob"), 1));
    assert!(poll(of_bob.as_mut()).is_pending());
    let refused = poll(pin!(budget.take(holder("eve"), 1)));
    assert!(matches!(refused, Poll::Ready(Err(Refusal::All))));
    drop(more_of_ana);
    assert_eq!(budget.usage().waiting, 2, "an abandoned request leaves the queue");
    assert!(poll(pin!(budget.take(holder("eve"), 1))).is_pending());
}

#[test]
fn a_granted_share_of_a_dropped_waiter_is_released() {
    let budget = budget(1, 1, 1, 1);
    let taken = budget.take_now(holder("x"), 1).unwrap();
    let mut waiting = Box::pin(budget.take(holder("ana"), 1));
    assert!(poll(waiting.as_mut()).is_pending());
    drop(taken);
    assert_eq!(budget.usage().taken, 1, "it is granted");
    drop(waiting);
    assert_eq!(budget.usage().taken, 0);
}

#[test]
fn shares_grow_within_limits_and_can_be_set_to_their_real_size() {
    let budget = budget(100, 50, 0, 50);
    let mut share = budget.take_now(holder("ana"), 10).unwrap();
    share.grow_to(50).unwrap();
    assert_eq!(share.grow_to(51), Err(Refusal::One));
    assert_eq!((share.amount(), budget.usage().taken), (50, 50));
    share.grow_to(20).unwrap();
    assert_eq!(share.amount(), 50, "growing never shrinks");
    share.set(3);
    assert_eq!(budget.usage().taken, 3);
    share.set(120);
    assert_eq!(budget.usage().taken, 120, "the actual size counts in full");
    drop(share);
    assert_eq!(budget.usage().taken, 0);
}

/// Takes, waits for and releases shares at random, and compares the budget with their sums.
#[test]
fn the_budget_equals_the_sum_of_its_shares() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    for _ in 0..50 {
        let budget = budget(20, 8, 6, 12);
        let names = ["a", "b", "c", "d", "e"];
        let mut held: Vec<(usize, Share)> = Vec::new();
        let mut waiting = Vec::new();
        for _ in 0..200 {
            let who = rng.random_range(0..names.len());
            let amount = rng.random_range(1..5);
            match rng.random_range(0..5) {
                0 => held.extend(budget.take_now(holder(names[who]), amount).map(|s| (who, s))),
                1 => {
                    let budget = budget.clone();
                    waiting.push((
                        who,
                        Box::pin(async move { budget.take(holder(names[who]), amount).await }),
                    ));
                }
                2 if !waiting.is_empty() => {
                    drop(waiting.swap_remove(rng.random_range(0..waiting.len())));
                }
                _ if !held.is_empty() => {
                    drop(held.swap_remove(rng.random_range(0..held.len())));
                }
                _ => {}
            }
            let mut still = Vec::new();
            for (who, mut future) in waiting {
                match poll(future.as_mut()) {
                    Poll::Ready(outcome) => held.extend(outcome.map(|share| (who, share))),
                    Poll::Pending => still.push((who, future)),
                }
            }
            waiting = still;
            let sum = held.iter().map(|(_, share)| share.amount()).sum::<u64>();
            assert_eq!(budget.usage().taken, sum);
            assert!(sum <= 20 && budget.usage().waiting == waiting.len());
            for who in 0..names.len() {
                let own = held.iter().filter(|(of, _)| *of == who).map(|(_, s)| s.amount());
                assert!(own.sum::<u64>() <= 8);
            }
        }
        drop((held, waiting));
        let usage = budget.usage();
        assert_eq!((usage.taken, usage.waiting), (0, 0));
        let state = budget.0.state.lock();
        assert!(state.holders.is_empty() && state.sharing == 0);
    }
}

/// Takes shares of one until there are no more.
fn take_all(budget: &Budget, name: &str) -> Vec<Share> {
    std::iter::from_fn(|| budget.take_now(holder(name), 1).ok()).collect()
}

/// Whatever the limits: a second holder gets nearly half of what it would get alone.
#[test]
fn a_second_holder_gets_half_of_what_it_would_get_alone() {
    for all in 2..200 {
        for one in 1..=all {
            let limits = Limits::without_waiting(all, one);
            let alone = take_all(&Budget::new("tests", limits), "second").len();
            let budget = Budget::new("tests", limits);
            let first = take_all(&budget, "first");
            let second = take_all(&budget, "second").len();
            assert!(20 * second >= 9 * alone, "{second} of {alone} in {limits:?}");
            assert_eq!(first.len(), alone);
        }
    }
}

/// A request that waits for a share.
type Waiting = std::pin::Pin<Box<dyn Future<Output = Result<Share, Refusal>>>>;

/// What one holder is served within some time, in units of time.
struct Client {
    name: &'static str,
    /// How long it has each share.
    time: u64,
    running: Vec<(u64, Share)>,
    waiting: Vec<Waiting>,
    served: u64,
}

impl Client {
    fn new(name: &'static str, time: u64) -> Self {
        Self { name, time, running: Vec::new(), waiting: Vec::new(), served: 0 }
    }

    /// Ends what has taken its time, and asks for as much as it may.
    fn step(&mut self, budget: &Budget, now: u64) {
        let before = self.running.len();
        self.running.retain(|(end, _)| *end > now);
        self.served += (before - self.running.len()) as u64;
        loop {
            let (budget, who) = (budget.clone(), holder(self.name));
            let mut next = Box::pin(async move { budget.take(who, 1).await });
            match poll(next.as_mut()) {
                Poll::Ready(Ok(share)) => self.running.push((now + self.time, share)),
                Poll::Pending => self.waiting.push(next),
                Poll::Ready(Err(_)) => break,
            }
        }
        self.poll_waiting(now);
    }

    fn poll_waiting(&mut self, now: u64) {
        let (time, running) = (self.time, &mut self.running);
        self.waiting.retain_mut(|waiting| match poll(waiting.as_mut()) {
            Poll::Ready(share) => {
                running.extend(share.map(|share| (now + time, share)));
                false
            }
            Poll::Pending => true,
        });
    }
}

/// One holder always wants more than there is, for longer or for shorter: another one with short
/// work is served nearly half as often as alone.
#[test]
fn waiting_holders_are_served_half_as_often_as_alone() {
    const TIME: u64 = 2000;
    for slots in 1..=24 {
        for (greedy_time, time) in [(1, 1), (50, 1), (50, 7), (3, 40)] {
            let limits = Limits {
                all: slots,
                one: (slots / 2).max(1),
                waiting: 64,
                one_with_waiting: (slots / 2).max(1) + 16,
            };
            let served = |with_greedy: bool| {
                let budget = Budget::new("tests", limits);
                let (mut greedy, mut other) =
                    (Client::new("greedy", greedy_time), Client::new("other", time));
                for now in 0..TIME {
                    if with_greedy {
                        greedy.step(&budget, now);
                    }
                    // It comes when the first one has taken everything.
                    if now > 0 {
                        other.step(&budget, now);
                    }
                    greedy.poll_waiting(now);
                }
                other.served
            };
            let (alone, beside) = (served(false), served(true));
            // The only slot there is goes by turns.
            let turns = if slots == 1 { greedy_time / time } else { 0 };
            assert!(
                20 * beside * (1 + turns) >= 9 * alone,
                "{beside} of {alone} with {slots} slots, {greedy_time} and {time}"
            );
        }
    }
}

fn later() -> Option<Instant> {
    Some(Instant::now() + std::time::Duration::from_secs(60))
}

#[test]
fn a_blocked_thread_gets_a_share_when_one_is_released() {
    let budget = Budget::new("tests", Limits::with_any_waiting(1, 1));
    let [ana, bob] = ["ana", "bob"].map(holder);
    for until in [later(), None] {
        let first = budget.take_now(ana, 1);
        assert!(budget.take_blocking(bob, 1, Some(Instant::now())).is_err());
        assert_eq!(budget.usage().waiting, 0, "an abandoned request leaves the queue");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| budget.take_blocking(bob, 1, until).is_ok());
            budget.wait_until_missing(later().unwrap());
            assert_eq!(budget.missing(), 1);
            drop(first);
            assert!(waits.join().unwrap());
        });
        assert_eq!((budget.usage().taken, budget.missing()), (0, 0));
    }
    let refused = Budget::new("tests", Limits::without_waiting(1, 1));
    let _first = refused.take_now(ana, 1).unwrap();
    assert_eq!(refused.take_blocking(bob, 1, None).err(), Some(Refusal::All));
}

/// Waiting threads are served in order of arrival, and never more than the limit at a time.
#[test]
fn blocked_threads_are_served_in_order_of_arrival() {
    let budget = Budget::new("tests", Limits::with_any_waiting(2, 1));
    let held = ["ana", "bob"].map(|name| budget.take_now(holder(name), 1).unwrap());
    let (served, order) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for number in 0..3 {
            let (budget, served) = (&budget, served.clone());
            scope.spawn(move || {
                let share = budget.take_blocking(Holder::of(&number), 1, later());
                served.send((number, share)).unwrap();
            });
            // The next thread starts only after this one waits in the queue.
            while budget.missing() != number + 1 {
                std::thread::yield_now();
            }
        }
        let [first, _second] = held;
        drop(first);
        for number in 0..3 {
            let (who, share) = order.recv().unwrap();
            assert_eq!((who, budget.usage().taken), (number, 2));
            drop(share);
        }
    });
    assert_eq!(budget.usage().taken, 0);
}

#[test]
fn threads_that_take_shares_repeatedly_all_get_them() {
    const TIMES: usize = 200;
    let budget = Budget::new("tests", Limits::with_any_waiting(3, 1));
    let had = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (budget, had) = (&budget, &had);
            scope.spawn(move || {
                for _ in 0..TIMES {
                    let _share = budget.take_blocking(Holder::of(&number), 1, None).unwrap();
                    assert!(budget.usage().taken <= 3);
                    std::thread::yield_now();
                    had.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!((had.into_inner(), budget.usage().taken), (8 * TIMES as u64, 0));
}

#[test]
fn joined_shares_grow_and_shrink_together() {
    let all = Budget::new("all", Limits::without_waiting(100, 100));
    let some = Budget::new("some", Limits::without_waiting(40, 40));
    let holder = Holder::of("somebody");
    let mut share = all.take_now(holder, 4).unwrap().joined_with(some.take_now(holder, 4).unwrap());
    let taken = || (all.usage().taken, some.usage().taken);
    assert_eq!(share.most(), 40);
    share.grow_to(5).unwrap();
    assert_eq!(taken(), (5, 5));
    assert_eq!(share.grow_to(50), Err(Refusal::One));
    assert_eq!((share.amount(), taken()), (5, (5, 5)), "a refused growth changes nothing");
    let other = all.take_now(Holder::of("another"), 95).unwrap();
    assert_eq!(share.grow_to(6), Err(Refusal::All), "the other budget has room");
    assert_eq!(taken(), (100, 5));
    drop(other);
    share.set(2);
    assert_eq!(taken(), (2, 2));
    drop(share);
    assert_eq!(taken(), (0, 0));
}
