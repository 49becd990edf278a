//! When the endpoints of chats take messages: each as often as its service says, for all subscriptions to
//! it together, and not before a wait that it has asked for is over.

use std::collections::HashMap;

use crate::message::format::Rate;

/// When one endpoint takes messages.
#[derive(Debug, Default)]
struct Pace {
    /// UNIX time in milliseconds at which all places that were given are used up: with each, it moves on by
    /// the time for one message (the theoretical arrival time of the generic cell rate algorithm, ITU-T
    /// I.371).
    used_until: u64,
    /// UNIX time in milliseconds before which it wants none.
    paused_until: u64,
}

/// The endpoints of chats that have been sent to of late, by what tells them apart.
#[derive(Debug, Default)]
pub struct Paces(HashMap<String, Pace>);

/// Number of endpoints from which on those that are idle are forgotten.
const MANY: usize = 1024;

impl Paces {
    /// Gives a place for one message to an endpoint: the UNIX time in milliseconds at which it may be sent.
    /// A place that was given before, and is neither too old nor within a pause, stays.
    pub fn place(&mut self, endpoint: &str, rate: Rate, given: Option<u64>, now: u64) -> u64 {
        let interval = milliseconds(rate);
        if !self.0.contains_key(endpoint) {
            self.forget_idle(now);
            self.0.insert(endpoint.to_owned(), Pace::default());
        }
        let pace = self.0.entry(endpoint.to_owned()).or_default();
        let is_good = |at: &u64| *at >= pace.paused_until && at.saturating_add(interval) > now;
        if let Some(at) = given.filter(is_good) {
            return at;
        }
        let burst = interval.saturating_mul(u64::from(rate.burst.saturating_sub(1)));
        let at = now.max(pace.paused_until).max(pace.used_until.saturating_sub(burst));
        pace.used_until = pace.used_until.max(at).saturating_add(interval);
        at
    }

    /// Sends nothing to an endpoint before this UNIX time in milliseconds.
    pub fn pause(&mut self, endpoint: &str, until: u64) {
        let pace = self.0.entry(endpoint.to_owned()).or_default();
        pace.paused_until = pace.paused_until.max(until);
        // Places behind the pause are given anew.
        pace.used_until = pace.used_until.min(until);
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

fn milliseconds(rate: Rate) -> u64 {
    u64::try_from(rate.interval.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
    fn a_place_that_was_given_stays_unless_it_is_too_old_or_paused() {
        let mut paces = Paces::default();
        for _ in 0..3 {
            paces.place("a", RATE, None, 0);
        }
        let at = paces.place("a", RATE, None, 0);
        assert_eq!(paces.place("a", RATE, Some(at), 1999), at);
        assert_eq!(paces.place("a", RATE, Some(at), 2000), at);
        assert_eq!(paces.place("a", RATE, Some(at), 9000), 9000);
        paces.pause("a", 20_000);
        assert_eq!(paces.place("a", RATE, Some(12_000), 12_000), 20_000);
        paces.pause("a", 15_000);
        assert_eq!(paces.place("a", RATE, Some(20_000), 20_000), 20_000, "no pause gets shorter");
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
