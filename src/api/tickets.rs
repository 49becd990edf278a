//! Tickets: words that stand for a token for a minute, in the address of a stream. A browser's
//! `EventSource` cannot send a header, and an address is written to logs and histories, where a token
//! must not be.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

/// Parameter of a stream with a ticket instead of the header with the token.
pub(super) const TICKET: &str = "ticket";
/// Lifetime of a ticket in seconds. Within it, a client may connect again with the same one.
pub const LIFETIME: u64 = 60;
/// Maximum number of tickets of one token; a further one ends the oldest.
const MOST_OF_A_TOKEN: usize = 16;
/// Maximum number of tickets; a further one ends the oldest.
const MOST: usize = 4_096;

/// The tickets that have been given out.
#[derive(Default)]
pub(super) struct Tickets(Mutex<Given>);

#[derive(Default)]
struct Given {
    tickets: HashMap<String, Ticket>,
    /// Tickets of each token by number.
    of_tokens: HashMap<Arc<str>, BTreeMap<u64, String>>,
    /// All tickets by number.
    all: BTreeMap<u64, String>,
    /// Number of the next ticket.
    next: u64,
}

struct Ticket {
    number: u64,
    token: Arc<str>,
    /// The last second of its life, in UNIX seconds.
    until: u64,
}

impl Tickets {
    /// Gives out a ticket for a token, at the time `now` in UNIX seconds.
    pub fn give(&self, token: &str, now: u64) -> String {
        let ticket = format!("{:032x}", rand::random::<u128>());
        let mut given = self.0.lock();
        given.end_expired(now);
        let own = given.of_tokens.get(token);
        let own_oldest = own.filter(|own| own.len() >= MOST_OF_A_TOKEN).and_then(oldest);
        let any_oldest = Some(&given.all).filter(|all| all.len() >= MOST).and_then(oldest);
        if let Some(oldest) = own_oldest.or(any_oldest) {
            given.end(&oldest);
        }
        given.add(ticket.clone(), token, now.saturating_add(LIFETIME));
        ticket
    }

    /// Returns the token for which a ticket was given out, if it has not ended.
    pub fn token(&self, ticket: &str, now: u64) -> Option<Arc<str>> {
        let given = self.0.lock();
        let found = given.tickets.get(ticket).filter(|found| now <= found.until)?;
        Some(found.token.clone())
    }
}

impl Given {
    fn add(&mut self, ticket: String, token: &str, until: u64) {
        let number = self.next;
        self.next += 1;
        // A token may have some kilobytes, and is kept once for all its tickets.
        let known = self.of_tokens.get_key_value(token).map(|(token, _)| Arc::clone(token));
        let token = known.unwrap_or_else(|| token.into());
        self.all.insert(number, ticket.clone());
        self.of_tokens.entry(Arc::clone(&token)).or_default().insert(number, ticket.clone());
        self.tickets.insert(ticket, Ticket { number, token, until });
    }

    fn end_expired(&mut self, now: u64) {
        while let Some(first) = oldest(&self.all) {
            if self.tickets.get(&first).is_some_and(|it| now <= it.until) {
                return;
            }
            self.end(&first);
        }
    }

    fn end(&mut self, ticket: &str) {
        let Some(Ticket { number, token, .. }) = self.tickets.remove(ticket) else { return };
        self.all.remove(&number);
        if let Some(own) = self.of_tokens.get_mut(&token) {
            own.remove(&number);
            if own.is_empty() {
                self.of_tokens.remove(&token);
            }
        }
    }
}

fn oldest(tickets: &BTreeMap<u64, String>) -> Option<String> {
    tickets.values().next().cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_stands_for_its_token_for_a_minute() {
        let tickets = Tickets::default();
        let ticket = tickets.give("a token", 1_000);
        assert_eq!(tickets.token(&ticket, 1_000).as_deref(), Some("a token"));
        assert_eq!(tickets.token(&ticket, 1_060).as_deref(), Some("a token"));
        assert_eq!(tickets.token(&ticket, 1_061), None);
        assert_eq!(tickets.token("", 1_000), None);
        assert_ne!(tickets.give("a token", 1_000), ticket);
    }

    #[test]
    fn tickets_are_limited_and_those_of_one_token_end_no_others() {
        let tickets = Tickets::default();
        let kept = tickets.give("other", 0);
        let own: Vec<String> = (0..100_000).map(|_| tickets.give("busy", 1)).collect();
        assert!(tickets.token(&kept, 1).is_some());
        let last = |ticket: &&String| tickets.token(ticket, 1).is_some();
        assert_eq!(own.iter().filter(last).count(), MOST_OF_A_TOKEN);
        for number in 0..2 * MOST {
            tickets.give(&number.to_string(), 2);
        }
        {
            let given = tickets.0.lock();
            assert!(given.tickets.len() <= MOST && given.of_tokens.len() <= MOST);
            assert_eq!(given.all.len(), given.tickets.len());
        }
        tickets.give("later", 1_000);
        let given = tickets.0.lock();
        assert_eq!((given.tickets.len(), given.of_tokens.len(), given.all.len()), (1, 1, 1));
    }
}
