//! `GET /rest/events/stream`: sends events as they are stored, as server-sent events
//! (html.spec.whatwg.org, section 9.2), until the client disconnects.
//!
//! The id of a message is the event's id, so a client resumes by sending the last one as
//! `Last-Event-ID`. Events after that id are read from the store, through the same indexes as a
//! page and with bounded reads ([`session`]), until the stream has caught up; from then on one
//! thread reads each new ledger for all streams ([`hub`]). Only events that are durable are sent. A
//! `gap` message reports events after an id that retention has removed.
//!
//! A stream does not count as a request in flight, and holds a readers slot only while it reads the
//! store. It holds a slot of its own budget, and a share of bytes for what is produced and not yet
//! sent. A client that reads too slowly is disconnected, and can resume from its last id.

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
use super::flow::StreamedBody;
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

/// Bytes of the budget that a stream holds: the piece that is being sent, and the one before, which
/// the HTTP library may still hold.
pub(super) const RESERVED_BYTES: u64 = 64 << 10;

/// Name of the header, as error messages spell it.
const LAST_EVENT_ID: &str = "Last-Event-ID";

/// Routes of this area.
pub(super) static ROUTES: [Route; 1] = [Route::new(
    "GET",
    "/rest/events/stream",
    Access::Token(Right { area: Area::Queries, scope: Scope::Read }),
    Work::Stream(stream),
)];

/// State that all streams share.
pub(super) struct Streams {
    context: Arc<Context>,
    hub: Hub,
}

/// Dependencies of a stream.
struct Context {
    store: Arc<Store>,
    tokens: Arc<Tokens>,
    clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    budgets: Arc<Budgets>,
    watch: Arc<Watch>,
    heartbeat: Duration,
}

/// What a stream receives from its request.
pub(super) struct Opening {
    /// The client that reads the stream.
    pub client: Arc<Client>,
    /// Budget holder that the stream is charged to.
    pub holder: Holder,
    /// Token of the request; the stream ends when it is no longer valid.
    pub token: Box<str>,
    /// Slot of the streams budget.
    pub _slot: Share,
    /// Share of [`RESERVED_BYTES`] bytes.
    pub bytes: Share,
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

    /// Ends all streams; streams that are opened later end at once.
    pub(super) fn stop(&self) {
        self.hub.stop();
    }
}

fn stream(streams: &Streams, call: &Call<'_>, opening: Opening) -> Result<StreamedBody, ApiError> {
    const KNOWN: [&str; 6] = {
        let [topic1, topic2, topic3, topic4] = TOPIC_FIELDS;
        [CONTRACT_FIELD, topic1, topic2, topic3, topic4, ADDRESS_FIELD]
    };
    let query = Query::parse(call.query, &KNOWN)?;
    let topics = TOPIC_FIELDS.map(|field| query.get(field));
    let filter = Filter::parse(query.get(CONTRACT_FIELD), topics, query.get(ADDRESS_FIELD));
    let filter =
        filter.map_err(|FilterError { field, problem }| ApiError::parameter(field, problem))?;
    // Subscribes before the newest id is read, so that no later event is missed.
    let subscription = streams.hub.subscribe();
    let newest = streams.context.store.last_durable_event();
    let after = call.last_event_id.map(|text| last_seen(text, newest)).transpose()?;
    let session = Session::new(
        Arc::clone(&streams.context),
        subscription,
        filter,
        after.unwrap_or(newest),
        opening,
    );
    let pieces = futures_util::stream::unfold(session, |mut session| async {
        session.next().await.map(|piece| (piece, session))
    });
    Ok(StreamedBody::new(pieces.boxed()))
}

/// Parses the id after which a client resumes.
fn last_seen(text: &str, newest: EventId) -> Result<EventId, ApiError> {
    let problem = |problem| Err(ApiError::parameter(LAST_EVENT_ID, problem));
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse().map(EventId) {
        Ok(id) if digits && id <= newest => Ok(id),
        // The id comes from another server. The client would miss events, which have other ids
        // here.
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
