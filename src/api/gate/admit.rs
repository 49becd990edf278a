//! First step: decides from the head of a request whether it may reach a handler.

use super::resources::Resources;
use crate::budgets::{RequestShares, refused};
use crate::call::PathValues;
use crate::head::Head;
use crate::identity::{self, Access, Bearer, Identity};
use crate::route::{
    Handler, OwnerHandler, PersonalHandler, RelayHandler, Route, SharedHandler, StreamHandler,
    TicketHandler,
};
use crate::router::{Match, Router};
use crate::{ApiError, LONGEST_URI, compression};
use orrery_ledger::domain::excerpt;

/// A request that may reach its handler.
pub(super) struct Admitted<'a> {
    pub head: &'a Head,
    pub route: &'static Route,
    pub path: PathValues<'a>,
    pub identity: Identity,
    pub handler: BoundHandler<'a>,
    pub wants_gzip: bool,
}

/// The handler of a request, with the caller that it has to know.
pub(super) enum BoundHandler<'a> {
    Shared(SharedHandler),
    Owner(OwnerHandler, Bearer<'a>),
    Relay(RelayHandler, Bearer<'a>),
    Ticket(TicketHandler, Bearer<'a>),
    /// The caller is `None` where everyone may open the stream, and no token was given.
    Stream(StreamHandler, Option<Bearer<'a>>),
}

/// Decides whether a request may reach a handler; `None` for an OPTIONS request.
pub(super) fn admit<'a>(
    router: &Router,
    resources: &Resources,
    head: &'a Head,
    found: Match<'a>,
    shares: &mut RequestShares,
) -> Result<Option<Admitted<'a>>, ApiError> {
    let settings = &resources.deps.settings.http;
    let access = found.route().map_or(Access::Public, |route| route.access_with(settings));
    if let Err(error) = resources.reach.check_host(&resources.deps, head, access) {
        identity::count_unrouted(&resources.deps, &resources.limits, head)?;
        return Err(error);
    }
    let is_too_long = head.path.len() + head.query.len() > LONGEST_URI;
    let refused = match found {
        Match::Handle(route, path) if !is_too_long => {
            return admit_to(route, path, resources, head, shares).map(Some);
        }
        refused => refused,
    };
    // Before the nearest routes are looked for, which is work.
    identity::count_unrouted(&resources.deps, &resources.limits, head)?;
    match refused {
        Match::Handle(..) => Err(ApiError::UriTooLong(LONGEST_URI)),
        _ if is_too_long => Err(ApiError::UriTooLong(LONGEST_URI)),
        Match::Unknown => Err(ApiError::UnknownRoute {
            path: excerpt(&head.path),
            nearest: router.nearest(&head.path),
        }),
        Match::Options(_) => Ok(None),
        Match::WrongMethod(resource) => {
            let method = excerpt(head.method.as_str());
            let (allow, is_for_page) = (resource.allow.clone(), head.is_for_page());
            Err(ApiError::Method { method, allow, is_for_page })
        }
    }
}

/// Identifies the caller of a route, and gives its handler what it has to know of the caller.
fn identify<'a>(
    route: &'static Route,
    resources: &Resources,
    head: &'a Head,
) -> Result<(Identity, BoundHandler<'a>), ApiError> {
    let Resources { deps, limits, streams, .. } = resources;
    let owner = |right, tickets| identity::authorize_owner(deps, limits, head, right, tickets);
    // A token that is given counts, so a wrong one is refused everywhere.
    let access = match route.is_public_read && !identity::has_token(head) {
        true => route.access_with(&deps.settings.http),
        false => route.access(),
    };
    Ok(match route.work.handler {
        Handler::Shared(_, handler) => {
            let identity = identity::authorize(deps, limits, head, access)?;
            (identity, BoundHandler::Shared(handler))
        }
        Handler::Personal(right, PersonalHandler::Owner(handler)) => {
            let bearer = owner(right, None)?;
            (bearer.identity, BoundHandler::Owner(handler, bearer))
        }
        Handler::Personal(right, PersonalHandler::Relay(handler)) => {
            let bearer = owner(right, None)?;
            (bearer.identity, BoundHandler::Relay(handler, bearer))
        }
        Handler::Personal(right, PersonalHandler::Ticket(handler)) => {
            let bearer = owner(right, None)?;
            (bearer.identity, BoundHandler::Ticket(handler, bearer))
        }
        Handler::Personal(right, PersonalHandler::Stream(handler)) => match access {
            Access::Token(_) => {
                let bearer = owner(right, Some(&streams.tickets))?;
                (bearer.identity, BoundHandler::Stream(handler, Some(bearer)))
            }
            access => {
                let identity = identity::authorize(deps, limits, head, access)?;
                (identity, BoundHandler::Stream(handler, None))
            }
        },
    })
}

/// Checks whether the caller may call a route, and counts the request as one in flight.
fn admit_to<'a>(
    route: &'static Route,
    path: PathValues<'a>,
    resources: &Resources,
    head: &'a Head,
    shares: &mut RequestShares,
) -> Result<Admitted<'a>, ApiError> {
    let Resources { deps, budgets, .. } = resources;
    let (identity, handler) = identify(route, resources, head)?;
    if route.refuses_foreign_pages {
        resources.reach.check_page(deps, head, route.access())?;
    }
    if !identity.is_exempt {
        let share = budgets.requests.take_now(identity.holder, 1);
        shares.request = Some(share.map_err(|refusal| refused(refusal, "requests"))?);
    }
    let wants_gzip = compression::wants_gzip(&head.headers);
    Ok(Admitted { head, route, path, identity, handler, wants_gzip })
}
