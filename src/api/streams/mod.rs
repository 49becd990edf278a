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
pub(super) mod context;
mod frames;
mod hub;
mod members;
mod names;
mod session;

use std::sync::Arc;

use futures_util::StreamExt;
use serde::Serialize;

use super::ApiError;
use super::answer::Answer;
use super::call::StreamCall;
use super::route::{Route, Work};
use super::stored::{DECODED, is_decoded};
use super::streamed_body::StreamedBody;
use super::tickets::{self, TICKET};
use context::Streams;
use members::Members;
use orrery_auth::{Area, Right, Scope, has_programs};
use orrery_conditions::Condition;
use orrery_ledger::domain::{ContractId, EventId, Owner, excerpt};
use orrery_store::RowBounds;
use orrery_webhooks::WebhookError;
use orrery_webhooks::filter::{ADDRESS_FIELD, CONTRACT_FIELD, Filter, FilterError, TOPIC_FIELDS};
use orrery_webhooks::judging::{self, WHERE};
use session::{Session, Wanted};

/// Name of the header, as error messages spell it.
const LAST_EVENT_ID: &str = "Last-Event-ID";

/// Routes of this area.
pub(super) static ROUTES: [Route; 2] = [
    Route::new("GET", "/rest/events/stream", Work::stream(READ, stream))
        .with_parameters(&KNOWN)
        .with_public_read(),
    Route::new("POST", "/rest/events/stream/ticket", Work::ticket(READ, ticket)),
];

const READ: Right = Right { area: Area::Queries, scope: Scope::Read };

/// Number of contracts of a project of which it is looked what they declare.
const MOST_CONTRACTS: usize = 200;

/// Parameter for clients that cannot send the header of almost the same name.
const AFTER: &str = "last_event_id";

const PROJECT: &str = "project";

const KNOWN: [&str; 11] = {
    let [topic1, topic2, topic3, topic4] = TOPIC_FIELDS;
    [
        PROJECT,
        CONTRACT_FIELD,
        topic1,
        topic2,
        topic3,
        topic4,
        ADDRESS_FIELD,
        WHERE,
        DECODED,
        TICKET,
        AFTER,
    ]
};

/// Answer with a ticket.
#[derive(Serialize)]
struct Given {
    ticket: String,
    /// Seconds for which streams may be opened with it.
    expires_in: u64,
}

fn ticket(streams: &Streams, token: &str, now: u64) -> Result<Answer, ApiError> {
    let ticket = streams.tickets.give(token, now);
    Ok(Answer::of(&Given { ticket, expires_in: tickets::LIFETIME }))
}

fn stream(streams: &Streams, call: StreamCall<'_>) -> Result<StreamedBody, ApiError> {
    let query = call.query;
    let topics = TOPIC_FIELDS.map(|field| query.get(field));
    let filter = Filter::parse(query.get(CONTRACT_FIELD), topics, query.get(ADDRESS_FIELD));
    let filter =
        filter.map_err(|FilterError { field, problem }| ApiError::parameter(field, problem))?;
    let project = query.get(PROJECT).map(|name| project(streams, &call, name)).transpose()?;
    let named = project.as_ref().map(|(_, name)| name.as_str());
    let condition =
        query.get(WHERE).map(|text| condition(streams, text, &filter, named)).transpose()?;
    // Subscribes before the newest id is read, so that no later event is missed.
    let subscription = streams.hub.subscribe();
    let newest = streams.context.store.last_durable_event();
    // A browser that connects again by itself sends the header, with a newer id than its address has.
    let header = call.last_event_id.map(|text| (LAST_EVENT_ID, text));
    let parameter = query.get(AFTER).map(|text| (AFTER, text));
    // An empty one is the id of a client that has received nothing (the HTML standard, "server-sent
    // events").
    let last_event_id =
        [header, parameter].into_iter().flatten().find(|(_, text)| !text.is_empty());
    let after = last_event_id.map(|(name, text)| last_seen(name, text, newest)).transpose()?;
    let members = project.map(|project| {
        let (projects, store) = (Arc::clone(&streams.context.projects), &streams.context.store);
        Members::new(projects, project, store, after.is_none_or(|after| after == newest))
    });
    let session = Session::new(
        Arc::clone(&streams.context),
        subscription,
        Wanted { filter, condition, members },
        is_decoded(query)?,
        after.unwrap_or(newest),
        call.opening,
    );
    let pieces = futures_util::stream::unfold(session, |mut session| async {
        session.next().await.map(|piece| (piece, session))
    });
    Ok(StreamedBody::new(pieces.boxed()))
}

/// Returns the owner of a stream's token with the name of a project that the owner reads.
fn project(
    streams: &Streams,
    call: &StreamCall<'_>,
    name: &str,
) -> Result<(Owner, String), ApiError> {
    let claims = call.claims.ok_or(ApiError::NoToken)?;
    has_programs(claims)?;
    if call.query.get(CONTRACT_FIELD).is_some() {
        return Err(ApiError::parameter(
            PROJECT,
            format!("is given beside '{CONTRACT_FIELD}': leave one of them out"),
        ));
    }
    let owner = Owner(claims.sub.clone());
    let found = streams.context.projects.readable(&owner, name);
    let name = found.ok_or_else(|| WebhookError::UnknownProject(excerpt(name)))?;
    Ok((owner, name))
}

/// Reads a condition, and checks whether events of the filter's contract can meet it.
fn condition(
    streams: &Streams,
    text: &str,
    filter: &Filter,
    project: Option<&str>,
) -> Result<Condition, ApiError> {
    let malformed = |problem| ApiError::parameter(WHERE, problem);
    let condition = judging::condition(text).map_err(malformed)?;
    let names = streams.context.names.interfaces().reader(RowBounds::none())?;
    let projects = &streams.context.projects;
    let (contracts, supplied) = match project {
        Some(project) => {
            let contracts = projects.contracts(project, MOST_CONTRACTS);
            let Some(contracts) = contracts else { return Ok(condition) };
            (contracts, projects.supplied(project)?)
        }
        None => (filter.contract.map(ContractId).into_iter().collect(), None),
    };
    let checked = judging::check(&condition, &contracts, supplied.as_ref(), &names);
    // What is not at hand yet may declare what it names.
    let is_known = names.lacked() == 0;
    names.finish()?;
    match checked {
        Err(problem) if is_known => Err(malformed(problem)),
        _ => Ok(condition),
    }
}

/// Parses the id after which a client resumes, the value of the header or parameter `name`.
fn last_seen(name: &'static str, text: &str, newest: EventId) -> Result<EventId, ApiError> {
    let problem = |problem| Err(ApiError::parameter(name, problem));
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
    fn last_event_id_must_be_an_issued_event_id() {
        let seen = |name, text: &str| last_seen(name, text, EventId(20));
        let read = |text: &str| seen(LAST_EVENT_ID, text).map_err(|error| error.to_string());
        assert!(seen(AFTER, "x").unwrap_err().to_string().contains("'last_event_id' is 'x'"));
        for (text, id) in [("0", 0), ("7", 7), ("20", 20), ("007", 7)] {
            assert_eq!(read(text), Ok(EventId(id)));
        }
        for text in [" ", "-1", "+1", "1.0", "0x1", "x", "1,2", "\u{fffd}", &"9".repeat(30)] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with("parameter 'Last-Event-ID' is '"), "{error}");
        }
        assert!(read("21").unwrap_err().contains("is 21, and the newest event here is 20"));
    }
}
