//! When the endpoints of chats take messages: each as often as its service says, for all subscriptions to
//! it together, and not before a wait that it has asked for is over.

use std::collections::HashMap;

use crate::message::format::Rate;

/// When one endpoint takes messages. Times in which messages use up places follow the generic cell rate
/// algorithm (the theoretical arrival time of ITU-T I.371): with each, a time moves on by that for one message.
#[derive(Debug, Default)]
struct Pace {
    /// UNIX time in milliseconds at which all places that were given are used up.
    used_until: u64,
    /// The same of the messages that were sent, which may have come later than at their places.
    sent_until: u64,
    /// UNIX time in milliseconds before which it wants none.
    paused_until: u64,
}

/// The endpoints of chats that have been sent to of late, by what tells them apart.
#[derive(Debug, Default)]
pub struct Paces(HashMap<String, Pace>);

/// Number of endpoints from which on those that are idle are forgotten.
const MANY: usize = 1024;

impl Paces {
    /// Gives a place for one message to an endpoint: the UNIX time in milliseconds before which it may not be
    /// sent. A place that was given before stays, and moves behind pauses and behind messages that were sent late.
    pub fn place(&mut self, endpoint: &str, rate: Rate, given: Option<u64>, now: u64) -> u64 {
        let (interval, burst) = milliseconds(rate);
        let pace = self.pace(endpoint, now);
        let free = pace.paused_until.max(pace.sent_until.saturating_sub(burst));
        let at = given.unwrap_or_else(|| {
            let at = now.max(pace.used_until.saturating_sub(burst));
            pace.used_until = pace.used_until.max(at).saturating_add(interval);
            at
        });
        if at < free {
            // Later places come behind this one.
            pace.used_until = pace.used_until.max(free.saturating_add(interval));
        }
        at.max(free)
    }

    /// Notes that a message is sent to an endpoint now.
    pub fn sent(&mut self, endpoint: &str, rate: Rate, now: u64) {
        let (interval, _) = milliseconds(rate);
        let pace = self.pace(endpoint, now);
        pace.sent_until = pace.sent_until.max(now).saturating_add(interval);
        pace.used_until = pace.used_until.max(pace.sent_until);
    }

    /// Sends nothing to an endpoint before this UNIX time in milliseconds.
    pub fn pause(&mut self, endpoint: &str, until: u64) {
        let pace = self.0.entry(endpoint.to_owned()).or_default();
        pace.paused_until = pace.paused_until.max(until);
    }

    fn pace(&mut self, endpoint: &str, now: u64) -> &mut Pace {
        if !self.0.contains_key(endpoint) {
            self.forget_idle(now);
        }
        self.0.entry(endpoint.to_owned()).or_default()
    }

    /// Forgets all endpoints.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    fn forget_idle(&mut self, now: u64) {
        if self.0.len() >= MANY {
            self.0.retain(|_, pace| pace.used_until > now || pace.paused_until > now);
        }
    }
}

/// Returns the time for one message, and by how much messages may come before their time after a pause.
fn milliseconds(rate: Rate) -> (u64, u64) {
    let interval = u64::try_from(rate.interval.as_millis()).unwrap_or(u64::MAX);
    (interval, interval.saturating_mul(u64::from(rate.burst.saturating_sub(1))))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    const RATE: Rate = Rate { interval: Duration::from_millis(2000), burst: 3 };

    #[test]
    fn places_keep_the_rate_and_its_burst() {
        let mut paces = Paces::default();
        let mut place = |now| paces.place("a", RATE, None, now);
        assert_eq!([place(100), place(100), place(100)], [100, 100, 100]);
        assert_eq!([place(100), place(100), place(2500)], [2100, 4100, 6100]);
        assert_eq!(paces.place("b", RATE, None, 100), 100, "another endpoint");
        assert_eq!(paces.place("a", RATE, None, 50_000), 50_000, "after a pause");
    }

    #[test]
    fn a_place_that_was_given_stays_unless_it_is_paused_or_others_were_late() {
        let mut paces = Paces::default();
        for _ in 0..3 {
            paces.place("a", RATE, None, 0);
            paces.sent("a", RATE, 0);
        }
        let at = paces.place("a", RATE, None, 0);
        assert_eq!(paces.place("a", RATE, Some(at), 2000), at);
        assert_eq!(paces.place("a", RATE, Some(at), 9000), at);
        paces.pause("a", 20_000);
        assert_eq!(paces.place("a", RATE, Some(at), 12_000), 20_000);
        paces.pause("a", 15_000);
        assert_eq!(paces.place("a", RATE, Some(20_000), 20_000), 20_000, "no pause gets shorter");
        for _ in 0..3 {
            paces.sent("a", RATE, 30_000);
        }
        assert_eq!(paces.place("a", RATE, Some(20_000), 30_000), 32_000, "others were late");
    }

    /// Subscriptions to one chat, some of which come late at their places: what is sent keeps the rate, and
    /// nobody waits for ever.
    #[test]
    fn late_messages_and_pauses_keep_the_rate() {
        for seed in 0..200 {
            let rng = &mut ChaCha8Rng::seed_from_u64(seed);
            let rate =
                Rate { interval: Duration::from_millis(1000), burst: rng.random_range(1..4) };
            let (interval, burst) = milliseconds(rate);
            let mut paces = Paces::default();
            // When each looks again, and its place.
            let mut waiting: Vec<(u64, Option<u64>)> = vec![(0, None); rng.random_range(1..6)];
            let (mut sent, mut of_each) = (Vec::new(), vec![0; waiting.len()]);
            let mut paused_until = 0;
            while sent.len() < 200 {
                let (next, _) = waiting.iter().enumerate().min_by_key(|(_, it)| it.0).unwrap();
                let (now, given) = waiting[next];
                let at = paces.place("a", rate, given, now);
                if at > now {
                    let late = if rng.random_ratio(1, 4) { rng.random_range(0..5000) } else { 0 };
                    waiting[next] = (at + late, Some(at));
                    continue;
                }
                assert!(now >= paused_until, "seed {seed}");
                paces.sent("a", rate, now);
                sent.push(now);
                of_each[next] += 1;
                if rng.random_ratio(1, 20) {
                    paused_until = now + rng.random_range(0..20_000);
                    paces.pause("a", paused_until);
                }
                // Its next message comes once the outcome of this one is known.
                waiting[next] = (now + rng.random_range(1..4), None);
            }
            sent.sort_unstable();
            for (first, last) in sent.iter().zip(&sent[rate.burst as usize..]) {
                assert!(last - first + burst >= interval * u64::from(rate.burst), "seed {seed}");
            }
            assert!(of_each.iter().all(|count| *count > 200 / (10 * of_each.len())), "{of_each:?}");
        }
    }

    #[test]
    fn idle_endpoints_are_forgotten() {
        let mut paces = Paces::default();
        for number in 0..10_000_u64 {
            paces.place(&number.to_string(), RATE, None, number * 10_000);
        }
        assert!(paces.0.len() <= MANY, "{}", paces.0.len());
    }
}
