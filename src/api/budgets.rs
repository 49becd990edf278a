//! Budgets that all requests share, and the errors for requests that exceed them. Does not depend
//! on routes.

use std::sync::Arc;

use bytes::Bytes;

use super::client::{Client, InFlightGuard};
use super::identity::Identity;
use super::{ApiError, ApiSettings};
use orrery_runtime::budget::{Budget, Holder, Limits, Refusal, Share, Usage};

/// Value of `Retry-After` for a request that was refused for lack of a share, in seconds.
pub(super) const RETRY_AFTER: u64 = 1;

/// Maximum number of refused connections that receive an explanation at a time; further ones are
/// closed without one.
const MAX_REJECTION_NOTICES: u64 = 64;

/// Maximum number of simulations on the state of stored ledgers at a time, each of which takes a core for up
/// to some seconds; one client has one of them, and waits for more.
const SIMULATIONS: usize = 2;

/// Budgets that all requests share. Their holders are owners, each with all its tokens, and the
/// addresses of callers without a token.
pub(super) struct Budgets {
    /// Open connections per client address.
    pub connections: Budget,
    /// Refused connections that are being sent an explanation.
    pub rejection_notices: Budget,
    /// Requests whose response has not been sent completely.
    pub requests: Budget,
    /// Bytes of request bodies that were read, and of responses that have not been sent completely.
    pub bytes: Budget,
    /// The part of `bytes` that callers without a token have.
    pub strangers_bytes: Budget,
    /// Bytes of answers of the server to which JSON-RPC calls are forwarded.
    pub forwarded_bytes: Budget,
    /// Slots for simulations on the state of stored ledgers.
    pub simulations: Budget,
    /// Slots for store reads.
    pub readers: Budget,
    /// The part of `readers` that callers without a token have.
    pub strangers_readers: Budget,
    /// Slots for SQL queries.
    pub queries: Budget,
    /// Slots for requests that change programs.
    pub changes: Budget,
    /// Concurrent module uploads, one per owner.
    pub uploads: Budget,
    /// Open event streams.
    pub streams: Budget,
    /// The part of `streams` that callers without a token have.
    pub strangers_streams: Budget,
}

impl Budgets {
    pub(super) fn new(settings: &ApiSettings) -> Self {
        let ApiSettings { limits, queries, tunables, .. } = settings;
        let all_bytes = limits.bytes_in_flight_mib.bytes();
        let one_client = limits.bytes_in_flight_per_token_mib.bytes();
        let slots = |name, slots: usize, one: usize| {
            let (all, one) = (slots.max(1) as u64, one.max(1) as u64);
            let waiting = tunables.waiting_readers;
            let one_with_waiting = one + waiting as u64 / 4;
            Budget::new(name, Limits { all, one, waiting, one_with_waiting })
        };
        let slow = |name, one| {
            // A holder at its limit is refused instead of queued, because such requests take
            // seconds.
            let (all, waiting) = (tunables.slow_requests.max(1) as u64, tunables.waiting_readers);
            Budget::new(name, Limits { all, one, waiting, one_with_waiting: one })
        };
        let part = quarter(tunables.slow_requests);
        // Bytes reserved for query responses must leave room for the holder's other requests.
        let answers = one_client / queries.answer_mib.bytes().max(1);
        let query_slots = part.min(answers.saturating_sub(1)).max(1);
        let instant = |name, all, one| Budget::new(name, Limits::without_waiting(all, one));
        let per_address = limits.connections_per_address.get().into();
        let half = tunables.readers / 2;
        let streams = u64::from(limits.streams.get());
        let own_streams = u64::from(limits.streams_per_token.get());
        Self {
            // The total number of connections is not limited here: the server closes an idle one
            // instead of refusing a new one.
            connections: instant("connections", u64::MAX, per_address),
            rejection_notices: instant("farewells", MAX_REJECTION_NOTICES, MAX_REJECTION_NOTICES),
            requests: instant("requests", u64::MAX, limits.requests_in_flight.get().into()),
            bytes: instant("bytes", all_bytes, one_client),
            strangers_bytes: instant("strangers_bytes", all_bytes / 2, one_client),
            forwarded_bytes: instant("forwarded_bytes", all_bytes / 4, all_bytes / 8),
            simulations: slots("simulations", SIMULATIONS, SIMULATIONS / 2),
            readers: slots("readers", tunables.readers, half),
            strangers_readers: slots("strangers_readers", half, half),
            queries: slow("queries", query_slots),
            changes: slow("changes", part),
            uploads: instant("uploads", tunables.slow_requests.max(1) as u64, 1),
            streams: instant("streams", streams, own_streams),
            strangers_streams: instant("strangers_streams", streams / 2, (own_streams / 4).max(1)),
        }
    }

    /// Returns the current usage of each budget except `rejection_notices`.
    pub(super) fn usages(&self) -> [Usage; 13] {
        let Self {
            connections,
            rejection_notices: _,
            requests,
            bytes,
            strangers_bytes,
            forwarded_bytes,
            simulations,
            readers,
            strangers_readers,
            queries,
            changes,
            uploads,
            streams,
            strangers_streams,
        } = self;
        [
            connections,
            requests,
            bytes,
            strangers_bytes,
            forwarded_bytes,
            simulations,
            readers,
            strangers_readers,
            queries,
            changes,
            uploads,
            streams,
            strangers_streams,
        ]
        .map(Budget::usage)
    }

    /// Takes bytes for a request of this caller.
    pub(super) fn take_bytes(&self, caller: &Identity, amount: u64) -> Result<Share, Refusal> {
        let share = self.bytes.take_now(caller.holder, amount)?;
        Ok(match caller.stranger {
            Some(site) => share.joined_with(self.strangers_bytes.take_now(site, amount)?),
            None => share,
        })
    }

    /// Takes a slot for a read of the store on behalf of this caller, or waits for one unless the client
    /// hangs up meanwhile.
    pub(super) async fn read_slot(
        &self,
        caller: &Identity,
        client: &Client,
    ) -> Result<Share, ApiError> {
        const WHAT: &str = "reads";
        let Some(site) = caller.stranger else {
            return acquire_slot(&self.readers, caller.holder, client, WHAT).await;
        };
        // Of callers without a token, only those that have a slot of their part wait among the others.
        let part = acquire_slot(&self.strangers_readers, site, client, WHAT).await?;
        let slot = acquire_slot(&self.readers, caller.holder, client, WHAT).await?;
        Ok(slot.joined_with(part))
    }

    /// Takes a slot for a stream of this caller. One without a token never gets the last.
    pub(super) fn stream_slot(&self, caller: &Identity) -> Result<Share, Refusal> {
        let Some(site) = caller.stranger else { return self.streams.take_now(caller.holder, 1) };
        let slot = self.streams.take_leaving(caller.holder, 1, 1)?;
        Ok(slot.joined_with(self.strangers_streams.take_now(site, 1)?))
    }
}

fn quarter(slots: usize) -> u64 {
    (slots as u64 / 4).max(1)
}

/// Takes a slot of a budget, or waits for one unless the client hangs up meanwhile. `what` names
/// the resource in the error message, after "too many".
pub(super) async fn acquire_slot(
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
        () = client.wait_for_hangup() => Err(ApiError::HungUp),
    }
}

/// Converts a refusal to the error that the client receives.
pub(super) fn refused(refusal: Refusal, what: &'static str) -> ApiError {
    match refusal {
        Refusal::All => ApiError::Busy { retry_after: RETRY_AFTER },
        Refusal::One => ApiError::OverOwnLimit { what, retry_after: RETRY_AFTER },
    }
}

/// Shares that a request holds until its response has been sent completely.
pub(super) struct RequestShares {
    /// Marks the client as waiting for a response.
    pub in_flight: InFlightGuard,
    /// Slot among the requests in flight; `None` for probes.
    pub request: Option<Share>,
    /// Bytes of the body and then of the response; `None` when none were reserved.
    pub bytes: Option<Share>,
}

impl RequestShares {
    /// Begins a request of `client`, which holds nothing yet.
    pub(super) fn begin(client: &Arc<Client>) -> Self {
        Self { in_flight: client.begin(), request: None, bytes: None }
    }

    /// Returns the request's share of the bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.as_ref().map_or(0, Share::amount)
    }

    /// Gives back what the request has taken of the bytes beyond `amount`.
    pub(super) fn keep_bytes(&mut self, amount: u64) {
        if let Some(share) = &mut self.bytes {
            share.set(amount);
        }
    }

    /// Enlarges the request's share of the bytes by `more`.
    pub(super) fn take_bytes(
        &mut self,
        budgets: &Budgets,
        caller: &Identity,
        more: u64,
    ) -> Result<&mut Share, ApiError> {
        let refused = |refusal| refused(refusal, "bytes");
        match &mut self.bytes {
            Some(share) => {
                share.grow_to(share.amount() + more).map_err(refused)?;
                Ok(share)
            }
            none => Ok(none.insert(budgets.take_bytes(caller, more).map_err(refused)?)),
        }
    }

    /// Wraps the bytes of a response so that everything held is released once they have been sent
    /// and dropped.
    pub(super) fn hold_until_sent(mut self, answer: Bytes) -> Bytes {
        if let Some(share) = &mut self.bytes {
            share.set(answer.len() as u64);
        }
        self.in_flight.extend_deadline(answer.len());
        Bytes::from_owner(HeldResponse { answer, _shares: self })
    }
}

struct HeldResponse {
    answer: Bytes,
    _shares: RequestShares,
}

impl AsRef<[u8]> for HeldResponse {
    fn as_ref(&self) -> &[u8] {
        &self.answer
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::super::Tunables;
    use super::super::client::Pace;
    use super::*;
    use orrery_settings::{Mib, nonzero};

    fn with(tunables: Tunables) -> ApiSettings {
        ApiSettings { tunables, ..ApiSettings::default() }
    }

    #[tokio::test]
    async fn a_queued_request_is_removed_when_its_client_disconnects() {
        let settings = with(Tunables { readers: 1, ..Tunables::default() });
        let readers = Budgets::new(&settings).readers;
        let _taken = readers.take_now(Holder::of("another"), 1).unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (far, address) = listener.accept().await.unwrap();
        let pace = Pace { grace: Duration::from_secs(1), bytes_per_second: 1 };
        let (client, _write) = Client::new(far, address, pace, &std::sync::Arc::default());
        let waits = acquire_slot(&readers, Holder::of("somebody"), &client, "reads");
        tokio::pin!(waits);
        assert!(waits.as_mut().now_or_never().is_none());
        assert_eq!(readers.usage().waiting, 1);
        drop(near);
        assert!(matches!(waits.await, Err(ApiError::HungUp)));
        assert_eq!(readers.usage().waiting, 0);
    }

    #[test]
    fn an_owner_gets_at_most_a_quarter_of_the_query_slots() {
        let mut settings = with(Tunables { slow_requests: 16, ..Tunables::default() });
        settings.limits.bytes_in_flight_per_token_mib = Mib::exactly(100);
        settings.queries.answer_mib = Mib::exactly(20);
        let budgets = Budgets::new(&settings);
        let of = |owner: &str| Holder::of(&("owner", owner));
        let mut taken = Vec::new();
        for owner in ["a", "b", "c", "d"] {
            taken.extend((0..4).filter_map(|_| budgets.queries.take_now(of(owner), 1).ok()));
        }
        assert!(budgets.queries.take_now(of("a"), 1).is_err());
        assert!(budgets.queries.take_now(of("a fifth"), 1).is_ok());
        assert!(budgets.changes.take_now(of("a"), 1).is_ok(), "changes have places of their own");
    }

    /// An owner takes all that it can get of each budget, and then another one comes: it gets nearly
    /// half of what it would get alone.
    #[test]
    fn each_budget_leaves_another_owner_half_of_what_it_would_have_alone() {
        const MIB: u64 = 1 << 20;
        let take = |budget: &Budget, owner: &str, unit: u64| -> Vec<Share> {
            let holder = Holder::of(owner);
            std::iter::from_fn(|| budget.take_now(holder, unit).ok()).collect()
        };
        for cores in [1, 2, 3, 4, 6, 8, 16, 64] {
            let settings = with(Tunables { readers: 2 * cores, ..Tunables::default() });
            let all = |budgets: &Budgets| {
                let Budgets { requests, bytes, forwarded_bytes, readers, queries, .. } = budgets;
                let Budgets { changes, uploads, streams, .. } = budgets;
                let bytes = [bytes, forwarded_bytes].map(|it| (it.clone(), MIB));
                let slots = [requests, readers, queries, changes, uploads, streams];
                [bytes.to_vec(), slots.map(|it| (it.clone(), 1)).to_vec()].concat()
            };
            let both = all(&Budgets::new(&settings)).into_iter().zip(all(&Budgets::new(&settings)));
            for ((shared, unit), (own, _)) in both {
                let alone = take(&own, "other", unit).len();
                let _greedy = take(&shared, "greedy", unit);
                let other = take(&shared, "other", unit).len();
                assert!(20 * other >= 9 * alone, "{}: {other} of {alone}", shared.usage().name);
            }
        }
    }

    #[test]
    fn strangers_leave_half_of_the_bytes() {
        let budgets = Budgets::new(&ApiSettings::default());
        let stranger = |network: u64, subnet: u64| Identity {
            holder: Holder::of(&(network, subnet)),
            stranger: Some(Holder::of(&network)),
            is_exempt: false,
        };
        // 256 networks of /64 within one /48, and then many customers.
        let within = (0..256).map(|subnet| stranger(0, subnet));
        let taken: Vec<_> = within.filter_map(|it| budgets.take_bytes(&it, 1 << 20).ok()).collect();
        assert!(taken.len() <= 64, "{}", taken.len());
        let others = (1..4096).map(|network| stranger(network, 0));
        let more: Vec<_> = others.filter_map(|it| budgets.take_bytes(&it, 1 << 20).ok()).collect();
        assert!(!more.is_empty(), "another customer is not held up by the first");
        assert_eq!(budgets.strangers_bytes.usage().taken, 128 << 20);
        assert_eq!(budgets.bytes.usage().taken, 128 << 20);
        let owner = Identity { holder: Holder::of("an owner"), stranger: None, is_exempt: false };
        let mut share = budgets.take_bytes(&owner, 1 << 20).unwrap();
        assert!(share.grow_to(32 << 20).is_ok());
        drop((taken, more));
        assert_eq!(budgets.bytes.usage().taken, 32 << 20);
        assert_eq!(budgets.strangers_bytes.usage().taken, 0);
    }

    #[test]
    fn strangers_get_half_of_the_streams_and_never_the_last() {
        let stranger = |network: u64| Identity {
            holder: Holder::of(&network),
            stranger: Some(Holder::of(&network)),
            is_exempt: false,
        };
        let owner =
            |name: &str| Identity { holder: Holder::of(name), stranger: None, is_exempt: false };
        for (streams, most) in [(1, 0), (2, 1), (3, 1), (8, 4)] {
            let mut settings = ApiSettings::default();
            settings.limits.streams = streams.try_into().unwrap();
            let budgets = Budgets::new(&settings);
            let taken = (0..9).filter_map(|network| budgets.stream_slot(&stranger(network)).ok());
            let taken: Vec<_> = taken.collect();
            assert_eq!(taken.len(), most, "{streams}");
            assert!(budgets.stream_slot(&owner("a")).is_ok());
            drop(taken);
            let names = (0..streams - 1).map(|number| format!("owner {number}"));
            let owners: Vec<_> = names.map(|name| budgets.stream_slot(&owner(&name))).collect();
            assert!(owners.iter().all(Result::is_ok));
            assert!(budgets.stream_slot(&stranger(1)).is_err(), "the last of {streams}");
            assert!(budgets.stream_slot(&owner("a")).is_ok());
        }
    }

    #[test]
    fn query_responses_leave_bytes_for_other_requests_of_the_owner() {
        let mut small = ApiSettings::default();
        small.limits.bytes_in_flight_per_token_mib = Mib::new(nonzero!(40));
        for settings in [
            ApiSettings::default(),
            small,
            with(Tunables { slow_requests: 1000, ..Tunables::default() }),
        ] {
            let largest = settings.queries.answer_mib.bytes();
            let (budgets, owner) = (Budgets::new(&settings), Holder::of("an owner"));
            let mut taken = Vec::new();
            while let Ok(place) = budgets.queries.take_now(owner, 1) {
                let bytes = budgets.bytes.take_now(owner, largest);
                taken.push((place, bytes.unwrap()));
            }
            assert!(!taken.is_empty());
            assert!(budgets.bytes.take_now(owner, largest / 2).is_ok());
        }
    }
}
