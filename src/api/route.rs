//! Definition of a route: the requests that it matches, who may call it, how its response is
//! produced ([`Work`]), and how its failures are formatted. Areas declare routes, the router finds
//! them, and the gate runs them.

use futures_util::future::BoxFuture;

use super::answer::Answer;
use super::call::{AsyncCall, CurrentCall, OwnerCall, ReadCall, RelayCall, StreamCall};
use super::cors::AllowedHeaders;
use super::head::Head;
use super::identity::Access;
use super::params::{Parameters, Query};
use super::relay::Relayed;
use super::request_body::LARGEST_BODY;
use super::stored::{DECODED, Stored};
use super::streamed_body::StreamedBody;
use super::streams::context::Streams;
use super::{ApiError, Deps, error};
use orrery_auth::{Area, Right, Scope};
use orrery_executables as executables;
use orrery_settings::Http;

/// A method of a resource.
pub struct Route {
    /// Path as in the API description; a segment in braces matches any value.
    pub template: &'static str,
    /// Name of the HTTP method. GET includes HEAD, and every resource answers OPTIONS.
    pub method: &'static str,
    /// Its query parameters.
    pub(super) parameters: Parameters,
    /// Whether the body holds parameters, too ([`super::body_parameters`]).
    pub(super) has_parameters_in_body: bool,
    /// Maximum size of the body in bytes; `None` when the route takes no body.
    pub(super) body: Option<usize>,
    pub(super) work: Work,
    /// Formats failures, including those before and after the handler.
    pub(super) failure: fn(&ApiError) -> Answer,
    /// Request headers that web pages may send.
    pub(super) allowed_headers: AllowedHeaders,
    /// Whether everyone may call it where `http.public_read` is set. It must tell all callers the same.
    pub is_public_read: bool,
    /// Whether pages which may not read the response must not send the request either: because it changes
    /// something for callers without a token, or because its protocol says so.
    pub(super) refuses_foreign_pages: bool,
    /// Whether the response depends on the time of the request and must not be cached by clients
    /// and proxies.
    pub(super) no_store: bool,
    /// Whether a successful response never changes, so that clients need not ask again. Others are
    /// not cached then.
    pub(super) is_lasting: bool,
    /// Additional headers of every response.
    pub(super) headers: &'static [(&'static str, &'static str)],
}

impl Route {
    /// Creates a route without parameters and body, whose failures have the REST format.
    pub(super) const fn new(method: &'static str, template: &'static str, work: Work) -> Self {
        Self {
            template,
            method,
            parameters: Parameters::Known(&[]),
            has_parameters_in_body: false,
            body: None,
            work,
            failure: error::rest,
            allowed_headers: AllowedHeaders::Requested,
            is_public_read: false,
            refuses_foreign_pages: false,
            no_store: false,
            is_lasting: false,
            headers: &[],
        }
    }

    /// Creates the route of a list of stored events or transactions, which tokens for queries may
    /// read and whose response is cached.
    pub(super) const fn list(
        template: &'static str,
        parameters: &'static [&'static str],
        handler: StoreHandler,
    ) -> Self {
        let access = Access::Token(Right { area: Area::Queries, scope: Scope::Read });
        Self::new("GET", template, Work::cached(access, handler)).with_parameters(parameters)
    }

    /// Returns the route with these query parameters.
    pub(super) const fn with_parameters(mut self, known: &'static [&'static str]) -> Self {
        self.parameters = Parameters::Known(known);
        self
    }

    /// Returns the route with parameters in the query or in a body of at most `largest` bytes.
    pub(super) const fn with_parameters_in_body(mut self, largest: usize) -> Self {
        self.has_parameters_in_body = true;
        self.with_body(largest)
    }

    /// Returns the route so that `http.public_read` opens it to callers without a token.
    pub(super) const fn with_public_read(mut self) -> Self {
        self.is_public_read = true;
        self
    }

    /// Returns a list whose parameters may be longer than what proxies accept of a URI. Its
    /// response is not cached, because the key of a cached one has no body.
    pub(super) const fn posted(mut self) -> Self {
        self.method = "POST";
        self.work.is_cached = false;
        self.with_parameters_in_body(LARGEST_BODY)
    }

    /// Returns the route so that it ignores all query parameters.
    pub(super) const fn ignoring_parameters(mut self) -> Self {
        self.parameters = Parameters::Ignored;
        self
    }

    /// Returns the route so that it reads these query parameters and ignores all others.
    pub(super) const fn choosing_parameters(mut self, known: &'static [&'static str]) -> Self {
        self.parameters = Parameters::Chosen(known);
        self
    }

    /// Returns the route with a body of at most `largest` bytes.
    pub(super) const fn with_body(mut self, largest: usize) -> Self {
        self.body = Some(largest);
        self
    }

    /// Returns the consumers of the feed that must first have processed all ledgers that were stored
    /// when this request arrived.
    pub(super) fn waits_for(&self, query: &Query<'_>) -> &'static [&'static str] {
        let knows = |known: &[&str]| known.contains(&DECODED);
        match self.parameters {
            // What a list of current data lacks of names, it waits for when it has been made.
            Parameters::Known(known)
                if self.work.waits_for.is_empty()
                    && knows(known)
                    && query.get(DECODED) == Some("true") =>
            {
                &[executables::CONSUMER]
            }
            _ => self.work.waits_for,
        }
    }

    /// Returns who may call the route with these settings. Who has a token is its owner nevertheless.
    pub fn access_with(&self, settings: &Http) -> Access {
        if self.is_public_read && settings.public_read { Access::Public } else { self.access() }
    }

    /// Returns who may call the route by default.
    pub fn access(&self) -> Access {
        match self.work.handler {
            Handler::Shared(access, _) => access,
            Handler::Personal(right, _) => Access::Token(right),
        }
    }
}

/// How the response of a route is produced: by which handler, for whom, what the request needs
/// meanwhile, and whether the response is cached. Made by one of the constructors.
#[derive(Clone, Copy)]
pub(super) struct Work {
    pub handler: Handler,
    pub class: Class,
    /// Consumers of the feed that must first have processed all ledgers that were stored when the
    /// request arrived ([`super::consumer_wait`]).
    pub waits_for: &'static [&'static str],
    /// Whether it answers although they have not processed ledgers that are older than the newest one,
    /// and says so.
    pub may_lack_older: bool,
    /// Whether the finished response is cached until the store changes ([`super::response_cache`]).
    pub is_cached: bool,
}

/// Class of work: which slot it needs, which bytes are reserved for the response, and how long it
/// may occupy a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Answers from memory.
    Memory,
    /// May wait for other services. Needs a readers slot, and blocks its thread, only while it
    /// reads the store.
    Async,
    /// Reads the store, or computes longer than an async task should; needs a readers slot.
    Read,
    /// Queries tables, which may take seconds; needs a queries slot.
    Query,
    /// Makes changes, and may wait for other threads and processes; needs a changes slot.
    Change,
    /// Like `Change`, with a module in its body that is checked and compiled.
    Upload,
    /// Asks other routes, each of which takes what its own class needs.
    Relay,
    /// Opens a stream. An open stream does not count as a request in flight, and never blocks its
    /// thread for long.
    Stream,
}

/// Who may call a route, and the function that produces its responses.
#[derive(Clone, Copy)]
pub(super) enum Handler {
    /// Answers all callers with this access alike.
    Shared(Access, SharedHandler),
    /// Answers the owner of a token with this right.
    Personal(Right, PersonalHandler),
}

/// Handler that does not know the caller.
#[derive(Clone, Copy)]
pub(super) enum SharedHandler {
    Memory(MemoryHandler),
    /// Answers from memory, and depends on the path and headers as they were sent.
    Located(LocatedHandler),
    /// The metrics text, which is cached for a short time.
    Metrics,
    Read(ReadHandler),
    Async(AsyncHandler),
}

/// Handler that reads the store.
#[derive(Clone, Copy)]
pub(super) enum ReadHandler {
    /// Depends on nothing but what is stored and the call.
    Store(StoreHandler),
    Deps(DepsHandler),
    /// Reads rows of consumers.
    Current(CurrentHandler),
}

/// Handler that knows the owner of the token.
#[derive(Clone, Copy)]
pub(super) enum PersonalHandler {
    Owner(OwnerHandler),
    Relay(RelayHandler),
    /// Does not know the owner, but ends the response when the token ends.
    Stream(StreamHandler),
    Ticket(TicketHandler),
}

type Answered = Result<Answer, ApiError>;
pub(super) type MemoryHandler = fn(&Deps) -> Answered;
/// Receives the head of the request.
pub(super) type LocatedHandler = fn(&Deps, &Head) -> Answered;
pub(super) type StoreHandler = fn(&Stored<'_>, &ReadCall<'_>) -> Answered;
pub(super) type DepsHandler = fn(&Deps, &ReadCall<'_>) -> Answered;
pub(super) type CurrentHandler = fn(&Deps, &CurrentCall<'_>) -> Answered;
pub(super) type OwnerHandler = fn(&Deps, &OwnerCall<'_>) -> Answered;
pub(super) type RelayHandler = for<'a> fn(&RelayCall<'a>) -> Result<Relayed<'a>, ApiError>;
/// Takes the token, and the time in UNIX seconds.
pub(super) type TicketHandler = fn(&Streams, &str, u64) -> Answered;
pub(super) type StreamHandler = fn(&Streams, StreamCall<'_>) -> Result<StreamedBody, ApiError>;
/// Must reserve the bytes of the response ([`super::reading::Reading::reserve`]).
pub(super) type AsyncHandler = for<'a> fn(&'a Deps, AsyncCall<'a>) -> BoxFuture<'a, Answered>;

impl Work {
    const fn new(class: Class, handler: Handler) -> Self {
        Self { handler, class, waits_for: &[], may_lack_older: false, is_cached: false }
    }

    /// Answers from memory.
    pub(super) const fn memory(access: Access, handler: MemoryHandler) -> Self {
        Self::new(Class::Memory, Handler::Shared(access, SharedHandler::Memory(handler)))
    }

    /// Answers from memory, depending on the head of the request.
    pub(super) const fn located(access: Access, handler: LocatedHandler) -> Self {
        Self::new(Class::Memory, Handler::Shared(access, SharedHandler::Located(handler)))
    }

    /// Serves the metrics.
    pub(super) const fn metrics() -> Self {
        Self::new(Class::Memory, Handler::Shared(Access::Operator, SharedHandler::Metrics))
    }

    /// Answers asynchronously.
    pub(super) const fn asynchronous(access: Access, handler: AsyncHandler) -> Self {
        Self::new(Class::Async, Handler::Shared(access, SharedHandler::Async(handler)))
    }

    const fn reading(access: Access, handler: ReadHandler) -> Self {
        Self::new(Class::Read, Handler::Shared(access, SharedHandler::Read(handler)))
    }

    /// Reads the store, or computes.
    pub(super) const fn read(access: Access, handler: DepsHandler) -> Self {
        Self::reading(access, ReadHandler::Deps(handler))
    }

    /// Reads the store; the response depends only on the store and the call, and is cached.
    pub(super) const fn cached(access: Access, handler: StoreHandler) -> Self {
        Self { is_cached: true, ..Self::reading(access, ReadHandler::Store(handler)) }
    }

    /// Reads rows of these consumers of the feed.
    pub(super) const fn current(
        access: Access,
        consumers: &'static [&'static str],
        handler: CurrentHandler,
    ) -> Self {
        Self { waits_for: consumers, ..Self::reading(access, ReadHandler::Current(handler)) }
    }

    /// Like [`Self::current`], for a response that depends only on the store, the call and the
    /// settings, and is cached.
    pub(super) const fn current_cached(
        access: Access,
        consumers: &'static [&'static str],
        handler: CurrentHandler,
    ) -> Self {
        Self { is_cached: true, ..Self::current(access, consumers, handler) }
    }

    /// Returns the work that answers although its consumers have not processed older ledgers yet.
    pub(super) const fn that_may_lack_older(self) -> Self {
        Self { may_lack_older: true, ..self }
    }

    const fn own(class: Class, right: Right, handler: OwnerHandler) -> Self {
        Self::new(class, Handler::Personal(right, PersonalHandler::Owner(handler)))
    }

    /// Reads what belongs to the owner of the token.
    pub(super) const fn own_read(right: Right, handler: OwnerHandler) -> Self {
        Self::own(Class::Read, right, handler)
    }

    /// Queries tables on behalf of the owner of the token.
    pub(super) const fn query(right: Right, handler: OwnerHandler) -> Self {
        Self::own(Class::Query, right, handler)
    }

    /// Changes what belongs to the owner of the token.
    pub(super) const fn change(right: Right, handler: OwnerHandler) -> Self {
        Self::own(Class::Change, right, handler)
    }

    /// Like [`Self::change`], with a module in the body.
    pub(super) const fn upload(right: Right, handler: OwnerHandler) -> Self {
        Self::own(Class::Upload, right, handler)
    }

    /// Answers the owner of a token from the answers of other routes.
    pub(super) const fn relay(right: Right, handler: RelayHandler) -> Self {
        Self::new(Class::Relay, Handler::Personal(right, PersonalHandler::Relay(handler)))
    }

    /// Gives out a ticket for a stream.
    pub(super) const fn ticket(right: Right, handler: TicketHandler) -> Self {
        Self::new(Class::Memory, Handler::Personal(right, PersonalHandler::Ticket(handler)))
    }

    /// Opens a stream.
    pub(super) const fn stream(right: Right, handler: StreamHandler) -> Self {
        Self::new(Class::Stream, Handler::Personal(right, PersonalHandler::Stream(handler)))
    }
}
