//! `GET /rest/events/stream`: events as they are stored, sent as server-sent events
//! (html.spec.whatwg.org, section 9.2) for as long as the client reads them.
//!
//! The id of a stream's message is that of the event, so a client goes on where it was by sending the last
//! one as `Last-Event-ID`. What follows that id is read from the store, within the same indexes and bounds
//! as a page ([`session`]), until the stream has caught up; from then on one thread reads each new ledger
//! for all streams ([`hub`]). Only events that no crash undoes are sent. What retention has removed behind
//! an id is told by a message `gap`.
//!
//! A stream is no request in flight, and has a place for reading the store only while it reads. It has a
//! place in a budget of its own, and room for what is made and not yet sent; a client that reads too slowly
//! is given up, and goes on from its last id.

mod batch;
mod frames;
mod hub;
mod session;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;

use super::blocking::Watch;
use super::budgets::Budgets;
use super::client::Client;
use super::flow::Flow;
use super::params::Query;
use super::route::{Access, Call, Route, Work};
use super::{ApiError, Deps};
use crate::auth::{Area, Right, Scope, Tokens};
use crate::budget::{Holder, Share};
use crate::domain::{EventId, excerpt};
use crate::store::Store;
use crate::webhooks::filter::{ADDRESS_FIELD, CONTRACT_FIELD, Filter, FilterError, TOPIC_FIELDS};
use hub::Hub;
use session::Session;

/// Bytes that a stream takes of the budget: a piece that is being sent, and what the HTTP library holds of
/// the one before.
pub(super) const ROOM: u64 = 64 << 10;

/// Name of the header, as the sentences about it spell it.
const LAST_EVENT_ID: &str = "Last-Event-ID";

/// Routes of this area.
pub(super) static ROUTES: [Route; 1] = [Route::new(
    "GET",
    "/rest/events/stream",
    Access::Token(Right { area: Area::Queries, scope: Scope::Read }),
    Work::Stream(stream),
)];

/// What all streams share.
pub(super) struct Streams {
    context: Arc<Context>,
    hub: Hub,
}

/// What a stream works with.
struct Context {
    store: Arc<Store>,
    tokens: Arc<Tokens>,
    clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    budgets: Arc<Budgets>,
    watch: Arc<Watch>,
    heartbeat: Duration,
}

/// What a stream has from its request.
pub(super) struct Opening {
    /// Who reads it.
    pub client: Arc<Client>,
    /// Whom it is counted for.
    pub holder: Holder,
    /// With which it ends.
    pub token: Box<str>,
    /// Its place among the streams.
    pub _place: Share,
    /// [`ROOM`].
    pub room: Share,
}

impl Streams {
    pub(super) fn new(
        deps: &Deps,
        budgets: &Arc<Budgets>,
        watch: &Arc<Watch>,
    ) -> Result<Self, ApiError> {
        let context = Context {
            store: Arc::clone(&deps.store),
            tokens: Arc::clone(&deps.tokens),
            clock: Arc::clone(&deps.clock),
            budgets: Arc::clone(budgets),
            watch: Arc::clone(watch),
            heartbeat: deps.settings.stream_heartbeat,
        };
        let hub = Hub::start(&deps.store, &budgets.bytes)?;
        Ok(Self { context: Arc::new(context), hub })
    }

    /// Ends all streams, and those that are opened from now on at once.
    pub(super) fn stop(&self) {
        self.hub.stop();
    }
}

fn stream(streams: &Streams, call: &Call<'_>, opening: Opening) -> Result<Flow, ApiError> {
    const KNOWN: [&str; 6] = {
        let [topic1, topic2, topic3, topic4] = TOPIC_FIELDS;
        [CONTRACT_FIELD, topic1, topic2, topic3, topic4, ADDRESS_FIELD]
    };
    let query = Query::parse(call.query, &KNOWN)?;
    let topics = TOPIC_FIELDS.map(|field| query.get(field));
    let filter = Filter::parse(query.get(CONTRACT_FIELD), topics, query.get(ADDRESS_FIELD));
    let filter =
        filter.map_err(|FilterError { field, problem }| ApiError::parameter(field, problem))?;
    // Before the newest id is looked at: from then on nothing is missed.
    let news = streams.hub.subscribe();
    let newest = streams.context.store.last_durable_event();
    let after = call.last_event_id.map(|text| last_seen(text, newest)).transpose()?;
    let session =
        Session::new(Arc::clone(&streams.context), news, filter, after.unwrap_or(newest), opening);
    let pieces = futures_util::stream::unfold(session, |mut session| async {
        session.next().await.map(|piece| (piece, session))
    });
    Ok(Flow::new(pieces.boxed()))
}

/// The id after which a client wants to go on.
fn last_seen(text: &str, newest: EventId) -> Result<EventId, ApiError> {
    let problem = |problem| Err(ApiError::parameter(LAST_EVENT_ID, problem));
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse().map(EventId) {
        Ok(id) if digits && id <= newest => Ok(id),
        // Whoever has seen it has seen it elsewhere, and would wait for events that have another id here.
        Ok(id) if digits => problem(format!(
            "is {id}, and the newest event here is {newest}: begin again without it, or at 0"
        )),
        _ => problem(format!("is '{}': give the id of an event, or 0", excerpt(text))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_event_id_is_one_that_was_given_out() {
        let read = |text: &str| last_seen(text, EventId(20)).map_err(|error| error.to_string());
        for (text, id) in [("0", 0), ("7", 7), ("20", 20), ("007", 7)] {
            assert_eq!(read(text), Ok(EventId(id)));
        }
        for text in ["", " ", "-1", "+1", "1.0", "0x1", "x", "1,2", "\u{fffd}", &"9".repeat(30)] {
            let told = read(text).unwrap_err();
            assert!(told.starts_with("parameter 'Last-Event-ID' is '"), "{told}");
        }
        assert!(read("21").unwrap_err().contains("is 21, and the newest event here is 20"));
    }
}
