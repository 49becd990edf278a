//! The servers that deliveries go to. A server gets a few at a time, and one that does not answer is left
//! alone for a while, so that it keeps no places from others.

use std::collections::VecDeque;

use crate::webhooks::rows::Class;

/// Failures without an answer, one after the other, after which a server is left alone.
const FAILURES: u32 = 5;
/// For how long, in milliseconds: at first, and at the most.
const FIRST_PAUSE: u64 = 15_000;
const LONGEST_PAUSE: u64 = 60_000;
/// Attempts after the first, short waits that may be made at a time. They wait for nothing else.
const MOST_SOON: usize = 64;

/// A subscription that has something to send, of a class.
pub type Unit = (u32, Class);

/// A server.
#[derive(Default)]
pub struct Server {
    /// What waits for its turn.
    waiting: VecDeque<Unit>,
    /// The same, of the class that waits for nothing else.
    soon: VecDeque<Unit>,
    in_flight: usize,
    soon_in_flight: usize,
    /// Failures without an answer since the last answer.
    failures: u32,
    /// Until when it is left alone, in UNIX milliseconds.
    pause_until: u64,
    pause: u64,
    /// Whether it stands in the row of those whose turn it may be.
    pub in_row: bool,
}

/// Whether something may be sent to a server now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// This.
    Now(Unit),
    /// Nothing before that time, in UNIX milliseconds.
    NotBefore(u64),
    /// Nothing before an attempt has ended, or something new is to be sent.
    Later,
}

impl Server {
    /// Something is to be sent.
    pub fn push(&mut self, unit: Unit) {
        match unit.1 {
            Class::Soon => self.soon.push_back(unit),
            _ => self.waiting.push_back(unit),
        }
    }

    /// Takes what is to be sent now. `most` is how many attempts it gets at a time.
    pub fn take(&mut self, now: u64, most: usize) -> Turn {
        if self.soon_in_flight < MOST_SOON
            && let Some(unit) = self.soon.pop_front()
        {
            return Turn::Now(unit);
        }
        if self.waiting.is_empty() {
            return Turn::Later;
        }
        if self.failures >= FAILURES {
            if now < self.pause_until {
                return Turn::NotBefore(self.pause_until);
            }
            // One attempt shows whether it answers again.
            if self.in_flight > 0 {
                return Turn::Later;
            }
        }
        if self.in_flight >= most {
            return Turn::Later;
        }
        self.waiting.pop_front().map_or(Turn::Later, Turn::Now)
    }

    /// An attempt begins.
    pub fn begins(&mut self, class: Class) {
        *self.count(class) += 1;
    }

    /// An attempt has ended. `answered` says whether there was an answer, whatever it was; nothing when it
    /// was broken off.
    pub fn ended(&mut self, class: Class, answered: Option<bool>, now: u64) {
        let count = self.count(class);
        *count = count.saturating_sub(1);
        match answered {
            None => {}
            Some(true) => (self.failures, self.pause) = (0, 0),
            Some(false) => {
                self.failures = self.failures.saturating_add(1);
                if self.failures >= FAILURES && now >= self.pause_until {
                    self.pause = (2 * self.pause).clamp(FIRST_PAUSE, LONGEST_PAUSE);
                    self.pause_until = now.saturating_add(self.pause);
                }
            }
        }
    }

    /// Whether nothing need be remembered of it.
    pub fn is_idle(&self) -> bool {
        self.is_unused() && self.failures == 0
    }

    /// Whether nothing is sent to it, nor waits to be.
    pub fn is_unused(&self) -> bool {
        let is_empty = self.waiting.is_empty() && self.soon.is_empty();
        is_empty && self.in_flight == 0 && self.soon_in_flight == 0 && !self.in_row
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
        server.begins(class);
        server.ended(class, Some(false), now);
    }

    #[test]
    fn a_server_that_does_not_answer_is_left_alone_but_for_prompt_retries() {
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
        // It makes the pause no longer.
        assert_eq!(server.take(15_999, 8), Turn::NotBefore(16_000));
        assert_eq!(server.take(16_000, 8), Turn::Now((5, Class::First)));
        server.begins(Class::First);
        assert_eq!(server.take(16_000, 8), Turn::Later, "one attempt shows whether it is back");
        server.ended(Class::First, Some(false), 16_000);
        assert_eq!(server.take(16_000, 8), Turn::NotBefore(46_000));
        for pause in [46_000, 106_000, 166_000] {
            assert!(matches!(server.take(pause, 8), Turn::Now(_)));
            fail(&mut server, Class::Later, pause);
        }
        assert_eq!(server.take(166_000, 8), Turn::NotBefore(226_000));
        server.begins(Class::Soon);
        server.ended(Class::Soon, Some(true), 170_000);
        assert_eq!(server.take(170_000, 8), Turn::Now((9, Class::First)));
        assert!(server.is_idle());
    }

    #[test]
    fn a_server_gets_a_few_attempts_at_a_time() {
        let mut server = Server::default();
        for unit in 0..4 {
            server.push((unit, Class::Later));
        }
        for unit in 0..3 {
            assert_eq!(server.take(0, 3), Turn::Now((unit, Class::Later)));
            server.begins(Class::Later);
        }
        assert_eq!(server.take(0, 3), Turn::Later);
        server.ended(Class::Later, None, 0);
        assert_eq!(server.take(0, 3), Turn::Now((3, Class::Later)));
        assert_eq!(server.take(0, 3), Turn::Later);
        assert!(!server.is_idle());
    }
}
