//! The servers that deliveries go to. The number of concurrent attempts per server is limited, and
//! a server that does not answer is paused, so that it does not take slots from others.
//!
//! Several owners may send to one server. Each has a [`Lane`] there: places and pauses are its own, and
//! a place that is free goes to the owner that has used the server least. So an endpoint that is slow,
//! or does not answer, uses up what its owner has at the server, and not what the others have.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::rows::Class;
use orrery_runtime::budget::Holder;

/// Number of consecutive failures without an answer after which a server is paused.
const FAILURES_UNTIL_PAUSE: u32 = 5;
/// Length of the first and of the longest pause, in milliseconds.
const FIRST_PAUSE: u64 = 15_000;
const LONGEST_PAUSE: u64 = 60_000;
/// Maximum number of concurrent retries in the class `Soon`. They are exempt from the pause and
/// from the other limit.
const MAX_SOON: usize = 64;

/// A subscription that has something to send, and the class.
pub type Unit = (u32, Class);

/// State of a server.
#[derive(Default)]
pub struct Server {
    /// The owners that send to it.
    lanes: HashMap<Holder, Lane>,
    /// Number of turns so far.
    turns: u64,
    /// Whether the dispatcher has queued the server for a turn.
    pub is_queued: bool,
}

/// What one owner sends to a server.
#[derive(Default)]
struct Lane {
    /// Units that wait for their turn.
    waiting: VecDeque<Unit>,
    /// Units of the class `Soon`, which are sent even during a pause.
    soon: VecDeque<Unit>,
    in_flight: usize,
    soon_in_flight: usize,
    /// Number of failures without an answer since the last answer.
    failures: u32,
    /// UNIX time in milliseconds until which the owner's attempts are paused.
    pause_until: u64,
    pause: u64,
    /// Number of the owner's subscriptions that have had something to send.
    subscriptions: usize,
    /// Whether the owner has no slot of the attempt budget.
    lacks_slot: bool,
    /// Milliseconds that its attempts took, or more: an owner that begins to send has no less than
    /// another one that does, so that nobody saves up time.
    used: u64,
    /// Number of its last turn.
    last_turn: u64,
}

/// What may be sent to a server now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// This unit of this owner.
    Now(Holder, Unit),
    /// Nothing before this UNIX time in milliseconds.
    NotBefore(u64),
    /// Nothing until an attempt has ended or a unit is added.
    Later,
}

/// The two kinds of places at a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Soon,
    Other,
}

impl Kind {
    fn of(class: Class) -> Self {
        match class {
            Class::Soon => Self::Soon,
            _ => Self::Other,
        }
    }
}

impl Server {
    /// Queues a unit of an owner.
    pub fn push(&mut self, owner: Holder, unit: Unit) {
        if !self.lanes.get(&owner).is_some_and(Lane::is_in_use) {
            let in_use = self.lanes.values().filter(|lane| lane.is_in_use());
            let least = in_use.map(|lane| lane.used).min().unwrap_or(0);
            let lane = self.lane(owner);
            lane.used = lane.used.max(least);
        }
        self.lane(owner).units(Kind::of(unit.1)).push_back(unit);
    }

    /// Puts back a unit whose owner has no slot of the attempt budget. Nothing more of the owner is
    /// sent until [`Self::retry`].
    pub fn put_back(&mut self, owner: Holder, unit: Unit) {
        let lane = self.lane(owner);
        lane.units(Kind::of(unit.1)).push_front(unit);
        lane.lacks_slot = true;
    }

    /// Notes that the owner may have got a slot of the attempt budget.
    pub fn retry(&mut self, owner: Holder) {
        if let Some(lane) = self.lanes.get_mut(&owner) {
            lane.lacks_slot = false;
        }
    }

    /// Counts a subscription of an owner.
    pub fn subscribed(&mut self, owner: Holder) {
        self.lane(owner).subscriptions += 1;
    }

    /// Counts a subscription of an owner that is gone.
    pub fn unsubscribed(&mut self, owner: Holder) {
        let lane = self.lane(owner);
        lane.subscriptions = lane.subscriptions.saturating_sub(1);
        self.drop_if_idle(owner);
    }

    /// Takes the unit to send now. `most` limits the number of concurrent attempts.
    pub fn take(&mut self, now: u64, most: usize) -> Turn {
        let next = self.next(Kind::Soon, now, MAX_SOON).map(|owner| (owner, Kind::Soon));
        let next = next.or_else(|| Some((self.next(Kind::Other, now, most)?, Kind::Other)));
        self.turns += 1;
        let turn = self.turns;
        if let Some((owner, kind)) = next {
            let lane = self.lane(owner);
            lane.last_turn = turn;
            if let Some(unit) = lane.units(kind).pop_front() {
                return Turn::Now(owner, unit);
            }
        }
        let paused = self.lanes.values().filter(|lane| lane.is_paused(now));
        let waiting = paused.filter(|lane| !lane.waiting.is_empty());
        waiting.map(|lane| lane.pause_until).min().map_or(Turn::Later, Turn::NotBefore)
    }

    /// Returns the owner that may send something of this kind now: of those with a free place, one
    /// with the fewest attempts in progress, and of these the one that has used the server least.
    fn next(&self, kind: Kind, now: u64, most: usize) -> Option<Holder> {
        let taken = self.lanes.values().map(|lane| lane.count(kind)).sum::<usize>();
        if taken >= most {
            return None;
        }
        let share = self.share(kind, now, most, taken);
        let ready = self.lanes.iter().filter(|(_, lane)| {
            lane.has_ready(kind, now) && lane.count(kind) < share && !lane.is_probing(kind)
        });
        ready
            .min_by_key(|(_, lane)| (lane.count(kind), lane.used, lane.last_turn))
            .map(|(owner, _)| *owner)
    }

    /// Returns how many places one owner may have while `taken` of them are: as many as each of those
    /// that send something now, where those that only might count as one more. So the attempts of an
    /// owner that is alone for the moment, and that may take long, leave a place for the next event of
    /// another one.
    fn share(&self, kind: Kind, now: u64, most: usize, taken: usize) -> usize {
        let is_active = |lane: &&Lane| lane.count(kind) > 0 || lane.has_ready(kind, now);
        let active = self.lanes.values().filter(is_active).count();
        let others = self.lanes.values().any(|lane| !is_active(&lane) && lane.is_known());
        let (others, parts) = (usize::from(others), (active + usize::from(others)).max(1));
        // What cannot be divided goes to some of them.
        let has_rest = taken + others < most;
        if has_rest { most.div_ceil(parts) } else { (most / parts).max(1) }
    }

    /// Counts a job of an owner that begins, which has one attempt in progress at a time.
    pub fn job_started(&mut self, owner: Holder, class: Class) {
        *self.lane(owner).count_mut(Kind::of(class)) += 1;
    }

    /// Counts a job that has ended.
    pub fn job_ended(&mut self, owner: Holder, class: Class) {
        let count = self.lane(owner).count_mut(Kind::of(class));
        *count = count.saturating_sub(1);
        self.drop_if_idle(owner);
    }

    /// Records whether the server has answered an attempt of an owner, which took so long: false when
    /// it did not, or failed slowly.
    pub fn answered(&mut self, owner: Holder, has_answered: bool, took: Duration, now: u64) {
        let lane = self.lane(owner);
        let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
        lane.used = lane.used.saturating_add(took);
        if has_answered {
            (lane.failures, lane.pause) = (0, 0);
            return;
        }
        lane.failures = lane.failures.saturating_add(1);
        if lane.failures >= FAILURES_UNTIL_PAUSE && now >= lane.pause_until {
            lane.pause = (2 * lane.pause).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            lane.pause_until = now.saturating_add(lane.pause);
        }
    }

    /// Whether its state can be dropped: no owner has anything to send there, or failures.
    pub fn is_idle(&self) -> bool {
        self.is_unused() && self.lanes.values().all(|lane| lane.failures == 0)
    }

    /// Whether nothing is being sent to it or queued for it, and nobody has a subscription to it.
    pub fn is_unused(&self) -> bool {
        !self.is_queued && self.lanes.values().all(|lane| !lane.is_in_use() && !lane.is_known())
    }

    fn lane(&mut self, owner: Holder) -> &mut Lane {
        self.lanes.entry(owner).or_default()
    }

    fn drop_if_idle(&mut self, owner: Holder) {
        if let Some(lane) = self.lanes.get(&owner)
            && !lane.is_in_use()
            && !lane.is_known()
            && lane.failures == 0
        {
            self.lanes.remove(&owner);
        }
    }
}

impl Lane {
    fn units(&mut self, kind: Kind) -> &mut VecDeque<Unit> {
        match kind {
            Kind::Soon => &mut self.soon,
            Kind::Other => &mut self.waiting,
        }
    }

    fn count(&self, kind: Kind) -> usize {
        match kind {
            Kind::Soon => self.soon_in_flight,
            Kind::Other => self.in_flight,
        }
    }

    fn count_mut(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Soon => &mut self.soon_in_flight,
            Kind::Other => &mut self.in_flight,
        }
    }

    /// Whether a unit of this kind waits, and nothing of its owner's prevents it from being sent.
    fn has_ready(&self, kind: Kind, now: u64) -> bool {
        !self.lacks_slot
            && match kind {
                Kind::Soon => !self.soon.is_empty(),
                Kind::Other => !self.waiting.is_empty() && !self.is_paused(now),
            }
    }

    fn is_failing(&self) -> bool {
        self.failures >= FAILURES_UNTIL_PAUSE
    }

    fn is_paused(&self, now: u64) -> bool {
        self.is_failing() && now < self.pause_until
    }

    /// Whether a single attempt is to show whether the server answers again, and is under way.
    fn is_probing(&self, kind: Kind) -> bool {
        kind == Kind::Other && self.is_failing() && self.in_flight > 0
    }

    /// Whether something is being sent or waits.
    fn is_in_use(&self) -> bool {
        let is_empty = self.waiting.is_empty() && self.soon.is_empty();
        !is_empty || self.in_flight > 0 || self.soon_in_flight > 0
    }

    /// Whether the owner has a subscription to the server.
    fn is_known(&self) -> bool {
        self.subscriptions > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_millis(3);

    fn owner(name: &str) -> Holder {
        Holder::of(name)
    }

    fn fail(server: &mut Server, class: Class, now: u64) {
        server.job_started(owner("ana"), class);
        server.job_ended(owner("ana"), class);
        server.answered(owner("ana"), false, QUICK, now);
    }

    fn now(unit: u32, class: Class) -> Turn {
        Turn::Now(owner("ana"), (unit, class))
    }

    #[test]
    fn an_unresponsive_server_is_paused_except_for_prompt_retries() {
        let (mut server, ana) = (Server::default(), owner("ana"));
        for unit in 0..10 {
            server.push(ana, (unit, Class::First));
        }
        for unit in 0..5 {
            assert_eq!(server.take(0, 8), now(unit, Class::First));
            fail(&mut server, Class::First, 1000);
        }
        assert_eq!(server.take(1000, 8), Turn::NotBefore(16_000));
        server.push(ana, (7, Class::Soon));
        assert_eq!(server.take(1000, 8), now(7, Class::Soon));
        fail(&mut server, Class::Soon, 1001);
        // The failed retry does not extend the pause.
        assert_eq!(server.take(15_999, 8), Turn::NotBefore(16_000));
        assert_eq!(server.take(16_000, 8), now(5, Class::First));
        server.job_started(ana, Class::First);
        assert_eq!(server.take(16_000, 8), Turn::Later, "one attempt shows whether it is back");
        server.job_ended(ana, Class::First);
        server.answered(ana, false, QUICK, 16_000);
        assert_eq!(server.take(16_000, 8), Turn::NotBefore(46_000));
        for pause in [46_000, 106_000, 166_000] {
            assert!(matches!(server.take(pause, 8), Turn::Now(..)));
            fail(&mut server, Class::Later, pause);
        }
        assert_eq!(server.take(166_000, 8), Turn::NotBefore(226_000));
        server.job_started(ana, Class::Soon);
        server.job_ended(ana, Class::Soon);
        server.answered(ana, true, QUICK, 170_000);
        assert_eq!(server.take(170_000, 8), now(9, Class::First));
        assert!(server.is_idle());
    }

    #[test]
    fn concurrent_attempts_per_server_are_limited() {
        let (mut server, ana) = (Server::default(), owner("ana"));
        for unit in 0..4 {
            server.push(ana, (unit, Class::Later));
        }
        for unit in 0..3 {
            assert_eq!(server.take(0, 3), now(unit, Class::Later));
            server.job_started(ana, Class::Later);
        }
        assert_eq!(server.take(0, 3), Turn::Later);
        server.job_ended(ana, Class::Later);
        assert_eq!(server.take(0, 3), now(3, Class::Later));
        assert_eq!(server.take(0, 3), Turn::Later);
        assert!(!server.is_idle());
    }

    #[test]
    fn the_pause_of_one_owner_is_none_of_another() {
        let mut server = Server::default();
        for unit in 0..9 {
            server.push(owner("ana"), (unit, Class::First));
        }
        for _ in 0..5 {
            assert!(matches!(server.take(0, 8), Turn::Now(..)));
            fail(&mut server, Class::First, 0);
        }
        assert_eq!(server.take(0, 8), Turn::NotBefore(15_000));
        server.push(owner("bob"), (20, Class::First));
        assert_eq!(server.take(0, 8), Turn::Now(owner("bob"), (20, Class::First)));
        assert_eq!(server.take(0, 8), Turn::NotBefore(15_000));
    }

    #[test]
    fn an_owner_without_a_slot_holds_up_no_other() {
        let (mut server, ana, bob) = (Server::default(), owner("ana"), owner("bob"));
        server.push(ana, (1, Class::First));
        server.push(ana, (2, Class::Soon));
        let Turn::Now(_, unit) = server.take(0, 8) else { panic!("something waits") };
        server.put_back(ana, unit);
        assert_eq!(server.take(0, 8), Turn::Later);
        server.push(bob, (3, Class::First));
        assert_eq!(server.take(0, 8), Turn::Now(bob, (3, Class::First)));
        server.retry(ana);
        assert_eq!(server.take(0, 8), Turn::Now(ana, unit));
    }

    /// What an owner sends, in a simulation: how long each attempt takes, and between which times it
    /// has something to send.
    struct Sender {
        owner: Holder,
        units: u32,
        took: u64,
        /// It pauses for as long as it sends, if this is set.
        period: Option<u64>,
        running: Vec<(u64, u32)>,
        waiting: Vec<u32>,
        served: u64,
        longest_wait: u64,
        since: Option<u64>,
    }

    impl Sender {
        fn new(name: &str, units: u32, took: u64, period: Option<u64>) -> Self {
            let waiting = (0..units).collect();
            let (running, owner) = (Vec::new(), owner(name));
            let (served, longest_wait, since) = (0, 0, None);
            Self { owner, units, took, period, running, waiting, served, longest_wait, since }
        }

        fn ends(&mut self, server: &mut Server, now: u64) {
            let ended = self.running.extract_if(.., |(end, _)| *end <= now);
            for (_, unit) in ended.collect::<Vec<_>>() {
                server.job_ended(self.owner, Class::First);
                server.answered(self.owner, true, Duration::from_millis(self.took), now);
                self.served += 1;
                self.waiting.push(unit);
            }
        }

        fn begins(&mut self, server: &mut Server, now: u64) {
            if self.period.is_none_or(|period| now / period % 2 == 1) {
                for unit in self.waiting.drain(..) {
                    server.push(self.owner, (unit, Class::First));
                    self.since.get_or_insert(now);
                }
            }
        }
    }

    /// Lets owners send for two minutes, and returns how many attempts each made and how long it
    /// waited at most with nothing in progress.
    fn simulate(mut senders: Vec<Sender>, most: usize) -> Vec<(u64, u64)> {
        let mut server = Server::default();
        for sender in &senders {
            (0..sender.units).for_each(|_| server.subscribed(sender.owner));
        }
        for now in 0..120_000 {
            senders.iter_mut().for_each(|sender| sender.ends(&mut server, now));
            senders.iter_mut().for_each(|sender| sender.begins(&mut server, now));
            while let Turn::Now(owner, (unit, _)) = server.take(now, most) {
                let sender = senders.iter_mut().find(|it| it.owner == owner).unwrap();
                sender.running.push((now + sender.took, unit));
                server.job_started(owner, Class::First);
                if let Some(since) = sender.since.take() {
                    sender.longest_wait = sender.longest_wait.max(now - since);
                }
            }
            assert!(senders.iter().map(|it| it.running.len()).sum::<usize>() <= most);
        }
        senders.into_iter().map(|it| (it.served, it.longest_wait)).collect()
    }

    /// However slow the answers to one owner are, and however many subscriptions it has: another one is
    /// served nearly half as often as alone, whether it always has something to send or now and then.
    #[test]
    fn an_owner_is_served_half_as_often_beside_another_as_alone() {
        for most in [1, 2, 3, 8, 32] {
            for (units, period) in [(1, None), (1, Some(500)), (20, None), (20, Some(500))] {
                let other = || Sender::new("alice", units, 50, period);
                let [(alone, _)] = simulate(vec![other()], most)[..] else { unreachable!() };
                let slow = Sender::new("mallory", 100, 14_000, None);
                let [_, (beside, wait)] = simulate(vec![slow, other()], most)[..] else {
                    unreachable!()
                };
                let case = format!("{beside} of {alone}, {units} units, {period:?}, {most} places");
                // A single place goes by turns, and whoever sends now and then finds it taken.
                if most > 1 {
                    assert!(20 * beside >= 9 * alone, "{case}");
                    assert!(wait < 100, "{wait} ms: {case}");
                } else if units > 1 && period.is_none() {
                    assert!(20 * beside >= 8 * alone, "{case}");
                }
            }
        }
    }

    #[test]
    fn places_are_shared_among_all_that_send() {
        let slow = |name| Sender::new(name, 100, 14_000, None);
        let served =
            simulate(vec![slow("eve"), slow("mallory"), Sender::new("alice", 1, 50, Some(500))], 8);
        let [(alone, _)] = simulate(vec![Sender::new("alice", 1, 50, Some(500))], 8)[..] else {
            unreachable!()
        };
        let (beside, wait) = served[2];
        assert!(20 * beside >= 9 * alone && wait < 100, "{beside} of {alone}, {wait} ms");
    }
}
