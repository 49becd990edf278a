//! What requests may cost, as budgets that all of them share, and what a client is told when there is
//! nothing left. Knows no route.

use bytes::Bytes;

use super::client::{Client, Unfinished};
use super::{ApiError, ApiSettings};
use crate::budget::{Budget, Holder, Limits, Refusal, Share, Usage};

/// Seconds after which it is worth asking again for what was taken.
pub(super) const RETRY_AFTER: u64 = 1;

/// Clients that are told why their connection is refused, at a time; others are only refused.
const FAREWELLS: u64 = 64;

/// What requests share.
pub(super) struct Budgets {
    /// Open connections of one address.
    pub connections: Budget,
    /// Refused connections whose client is being told why.
    pub farewells: Budget,
    /// Requests of one token, or of one address without a token, whose answer has not left whole.
    pub requests: Budget,
    /// Bytes of bodies that were read, and of answers that have not left whole.
    pub bytes: Budget,
    /// Places for reading the store.
    pub readers: Budget,
    /// Places for queries over tables.
    pub queries: Budget,
    /// Places for what changes programs.
    pub changes: Budget,
    /// Modules that are sent at a time, one of each token.
    pub uploads: Budget,
    /// Streams of events.
    pub streams: Budget,
}

impl Budgets {
    pub(super) fn new(settings: &ApiSettings) -> Self {
        let places = |name, places: usize, one: usize| {
            let (all, one) = (places.max(1) as u64, one.max(1) as u64);
            let waiting = settings.waiting_readers;
            let one_with_waiting = one + waiting as u64 / 4;
            Budget::new(name, Limits { all, one, waiting, one_with_waiting })
        };
        let slow = |name, one| {
            // Who has its part does not even wait: what it waits for takes seconds.
            let (all, waiting) = (settings.slow_requests.max(1) as u64, settings.waiting_readers);
            Budget::new(name, Limits { all, one, waiting, one_with_waiting: one })
        };
        let part = quarter(settings.slow_requests);
        // What is reserved for answers of queries leaves room for one's other requests.
        let answers = settings.bytes_in_flight_per_token / settings.largest_answer.max(1);
        let queries = part.min(answers.saturating_sub(1)).max(1);
        let instant = |name, all, one| Budget::new(name, Limits::without_waiting(all, one));
        Self {
            // How many there may be of all addresses is not refused: an idle one is closed instead.
            connections: instant("connections", u64::MAX, settings.connections_per_address),
            farewells: instant("farewells", FAREWELLS, FAREWELLS),
            requests: instant("requests", u64::MAX, settings.requests_in_flight),
            bytes: instant("bytes", settings.bytes_in_flight, settings.bytes_in_flight_per_token),
            readers: places("readers", settings.readers, settings.readers / 2),
            queries: slow("queries", queries),
            changes: slow("changes", part),
            uploads: instant("uploads", settings.slow_requests.max(1) as u64, 1),
            streams: instant("streams", settings.streams, settings.streams_per_token),
        }
    }

    /// What is taken of each.
    pub(super) fn usages(&self) -> [Usage; 8] {
        let Self {
            connections, requests, bytes, readers, queries, changes, uploads, streams, ..
        } = self;
        [connections, requests, bytes, readers, queries, changes, uploads, streams]
            .map(Budget::usage)
    }
}

fn quarter(places: usize) -> u64 {
    (places as u64 / 4).max(1)
}

/// A place of a budget now, or as soon as there is one, unless the client hangs up meanwhile. `what`
/// follows "too many".
pub(super) async fn place(
    budget: &Budget,
    holder: Holder,
    client: &Client,
    what: &'static str,
) -> Result<Share, ApiError> {
    if let Ok(share) = budget.try_take(holder, 1) {
        return Ok(share);
    }
    tokio::select! {
        biased;
        share = budget.take(holder, 1) => share.map_err(|refusal| refused(refusal, what)),
        () = client.gives_up() => Err(ApiError::HungUp),
    }
}

/// What a client is told when there is no share for it.
pub(super) fn refused(refusal: Refusal, what: &'static str) -> ApiError {
    match refusal {
        Refusal::All => ApiError::Busy { retry_after: RETRY_AFTER },
        Refusal::One => ApiError::OwnShare { what, retry_after: RETRY_AFTER },
    }
}

/// What a request holds until its answer has left whole.
pub(super) struct Holding {
    /// That the client waits for an answer.
    pub unfinished: Unfinished,
    /// That it is one of the requests in flight; none for probes.
    pub request: Option<Share>,
    /// The bytes of its body and then of its answer; none where they are few.
    pub bytes: Option<Share>,
}

impl Holding {
    /// The bytes of an answer that is about to leave, and that give back what is held once they have.
    pub(super) fn until_sent(mut self, answer: Bytes) -> Bytes {
        if let Some(share) = &mut self.bytes {
            share.set(answer.len() as u64);
        }
        self.unfinished.answered_with(answer.len());
        Bytes::from_owner(Held { answer, _holding: self })
    }
}

struct Held {
    answer: Bytes,
    _holding: Holding,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.answer
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::super::client::Pace;
    use super::*;

    #[tokio::test]
    async fn a_queued_request_whose_client_is_gone_leaves_the_queue() {
        let settings = ApiSettings { readers: 1, ..ApiSettings::default() };
        let readers = Budgets::new(&settings).readers;
        let _taken = readers.take_now(Holder::of("another"), 1).unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (far, address) = listener.accept().await.unwrap();
        let pace = Pace { grace: Duration::from_secs(1), bytes_per_second: 1 };
        let (client, _write) = Client::new(far, address, pace, &std::sync::Arc::default());
        let waits = place(&readers, Holder::of("somebody"), &client, "reads");
        tokio::pin!(waits);
        assert!(waits.as_mut().now_or_never().is_none());
        assert_eq!(readers.usage().waiting, 1);
        drop(near);
        assert!(matches!(waits.await, Err(ApiError::HungUp)));
        assert_eq!(readers.usage().waiting, 0);
    }

    #[test]
    fn no_owner_has_more_than_a_quarter_of_the_queries_or_waits_for_more() {
        let budgets = Budgets::new(&ApiSettings {
            slow_requests: 16,
            bytes_in_flight_per_token: 100,
            largest_answer: 20,
            ..ApiSettings::default()
        });
        let of = |owner: &str| Holder::of(&("owner", owner));
        let mut taken = Vec::new();
        for owner in ["a", "b", "c", "d"] {
            taken.extend((0..4).filter_map(|_| budgets.queries.take_now(of(owner), 1).ok()));
        }
        assert!(budgets.queries.take_now(of("a"), 1).is_err());
        assert!(budgets.queries.take_now(of("a fifth"), 1).is_ok());
        assert!(budgets.changes.take_now(of("a"), 1).is_ok(), "changes have places of their own");
    }

    #[test]
    fn answers_of_queries_leave_an_owner_room_for_other_requests() {
        for settings in [
            ApiSettings::default(),
            ApiSettings { bytes_in_flight_per_token: 40 << 20, ..ApiSettings::default() },
            ApiSettings { slow_requests: 1000, ..ApiSettings::default() },
        ] {
            let (budgets, owner) = (Budgets::new(&settings), Holder::of("an owner"));
            let mut taken = Vec::new();
            while let Ok(place) = budgets.queries.take_now(owner, 1) {
                let bytes = budgets.bytes.take_now(owner, settings.largest_answer);
                taken.push((place, bytes.unwrap()));
            }
            assert!(!taken.is_empty());
            assert!(budgets.bytes.take_now(owner, settings.largest_answer / 2).is_ok());
        }
    }
}
