//! The servers that deliveries go to. The number of concurrent attempts per server is limited, and
//! a server that does not answer is paused, so that it does not take slots from others.

use std::collections::VecDeque;

use crate::webhooks::rows::Class;

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
    /// Units that wait for their turn.
    waiting: VecDeque<Unit>,
    /// Units of the class `Soon`, which are sent even during a pause.
    soon: VecDeque<Unit>,
    in_flight: usize,
    soon_in_flight: usize,
    /// Number of failures without an answer since the last answer.
    failures: u32,
    /// UNIX time in milliseconds until which the server is paused.
    pause_until: u64,
    pause: u64,
    /// Whether the dispatcher has queued the server for a turn or for a free slot.
    pub is_queued: bool,
}

/// What may be sent to a server now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// This unit.
    Now(Unit),
    /// Nothing before this UNIX time in milliseconds.
    NotBefore(u64),
    /// Nothing until an attempt has ended or a unit is added.
    Later,
}

impl Server {
    /// Queues a unit.
    pub fn push(&mut self, unit: Unit) {
        match unit.1 {
            Class::Soon => self.soon.push_back(unit),
            _ => self.waiting.push_back(unit),
        }
    }

    /// Takes the unit to send now. `most` limits the number of concurrent attempts.
    pub fn take(&mut self, now: u64, most: usize) -> Turn {
        if self.soon_in_flight < MAX_SOON
            && let Some(unit) = self.soon.pop_front()
        {
            return Turn::Now(unit);
        }
        if self.waiting.is_empty() {
            return Turn::Later;
        }
        if self.failures >= FAILURES_UNTIL_PAUSE {
            if now < self.pause_until {
                return Turn::NotBefore(self.pause_until);
            }
            // A single attempt shows whether the server answers again.
            if self.in_flight > 0 {
                return Turn::Later;
            }
        }
        if self.in_flight >= most {
            return Turn::Later;
        }
        self.waiting.pop_front().map_or(Turn::Later, Turn::Now)
    }

    /// Counts a job that begins, which has one attempt in progress at a time.
    pub fn job_started(&mut self, class: Class) {
        *self.count(class) += 1;
    }

    /// Counts a job that has ended.
    pub fn job_ended(&mut self, class: Class) {
        let count = self.count(class);
        *count = count.saturating_sub(1);
    }

    /// Records whether the server has answered an attempt: false when it did not, or failed slowly.
    pub fn answered(&mut self, has_answered: bool, now: u64) {
        if has_answered {
            (self.failures, self.pause) = (0, 0);
            return;
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures >= FAILURES_UNTIL_PAUSE && now >= self.pause_until {
            self.pause = (2 * self.pause).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            self.pause_until = now.saturating_add(self.pause);
        }
    }

    /// Whether its state can be dropped: it is unused and has no failures.
    pub fn is_idle(&self) -> bool {
        self.is_unused() && self.failures == 0
    }

    /// Whether nothing is being sent to it or queued for it.
    pub fn is_unused(&self) -> bool {
        let is_empty = self.waiting.is_empty() && self.soon.is_empty();
        is_empty && self.in_flight == 0 && self.soon_in_flight == 0 && !self.is_queued
    }

    fn count(&mut self, class: Class) -> &mut usize {
        match class {
            Class::Soon => &mut self.soon_in_flight,
            _ => &mut self.in_flight,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(server: &mut Server, class: Class, now: u64) {
        server.job_started(class);
        server.job_ended(class);
        server.answered(false, now);
    }

    #[test]
    fn an_unresponsive_server_is_paused_except_for_prompt_retries() {
        let mut server = Server::default();
        for unit in 0..10 {
            server.push((unit, Class::First));
        }
        for unit in 0..5 {
            assert_eq!(server.take(0, 8), Turn::Now((unit, Class::First)));
            fail(&mut server, Class::First, 1000);
        }
        assert_eq!(server.take(1000, 8), Turn::NotBefore(16_000));
        server.push((7, Class::Soon));
        assert_eq!(server.take(1000, 8), Turn::Now((7, Class::Soon)));
        fail(&mut server, Class::Soon, 1001);
        // The failed retry does not extend the pause.
        assert_eq!(server.take(15_999, 8), Turn::NotBefore(16_000));
        assert_eq!(server.take(16_000, 8), Turn::Now((5, Class::First)));
        server.job_started(Class::First);
        assert_eq!(server.take(16_000, 8), Turn::Later, "one attempt shows whether it is back");
        server.job_ended(Class::First);
        server.answered(false, 16_000);
        assert_eq!(server.take(16_000, 8), Turn::NotBefore(46_000));
        for pause in [46_000, 106_000, 166_000] {
            assert!(matches!(server.take(pause, 8), Turn::Now(_)));
            fail(&mut server, Class::Later, pause);
        }
        assert_eq!(server.take(166_000, 8), Turn::NotBefore(226_000));
        server.job_started(Class::Soon);
        server.job_ended(Class::Soon);
        server.answered(true, 170_000);
        assert_eq!(server.take(170_000, 8), Turn::Now((9, Class::First)));
        assert!(server.is_idle());
    }

    #[test]
    fn concurrent_attempts_per_server_are_limited() {
        let mut server = Server::default();
        for unit in 0..4 {
            server.push((unit, Class::Later));
        }
        for unit in 0..3 {
            assert_eq!(server.take(0, 3), Turn::Now((unit, Class::Later)));
            server.job_started(Class::Later);
        }
        assert_eq!(server.take(0, 3), Turn::Later);
        server.job_ended(Class::Later);
        assert_eq!(server.take(0, 3), Turn::Now((3, Class::Later)));
        assert_eq!(server.take(0, 3), Turn::Later);
        assert!(!server.is_idle());
    }
}
