//! First step: decides from the head of a request whether it may reach a handler.

use warp::http::header::ACCEPT;

use super::resources::Resources;
use crate::budgets::{RequestShares, refused};
use crate::call::PathValues;
use crate::head::Head;
use crate::identity::{self, Access, Bearer, Identity};
use crate::route::{Handler, PersonalHandler, Route, SharedHandler};
use crate::router::Match;
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
    Personal(PersonalHandler, Bearer<'a>),
}

/// Decides whether a request may reach a handler; `None` for an OPTIONS request.
pub(super) fn admit<'a>(
    resources: &Resources,
    head: &'a Head,
    found: Match<'a>,
    shares: &mut RequestShares,
) -> Result<Option<Admitted<'a>>, ApiError> {
    let access = found.route().map_or(Access::Public, Route::access);
    if let Err(error) = resources.reach.check_host(&resources.deps, head, access) {
        identity::count_unrouted(&resources.deps, &resources.limits, head)?;
        return Err(error);
    }
    let outcome = match found {
        _ if head.path.len() + head.query.len() > LONGEST_URI => {
            Err(ApiError::UriTooLong(LONGEST_URI))
        }
        Match::Unknown => Err(ApiError::unknown_route(&head.path)),
        Match::Options(_) => Ok(None),
        Match::WrongMethod(resource) => {
            let method = excerpt(head.method.as_str());
            let mut accepts = head.headers.get_all(ACCEPT).iter().filter_map(|it| it.to_str().ok());
            let is_for_page = accepts.any(|kinds| kinds.contains("text/html"));
            Err(ApiError::Method { method, allow: resource.allow.clone(), is_for_page })
        }
        Match::Handle(route, path) => {
            return admit_to(route, path, resources, head, shares).map(Some);
        }
    };
    identity::count_unrouted(&resources.deps, &resources.limits, head)?;
    outcome
}

/// Checks whether the caller may call a route, and counts the request as one in flight.
fn admit_to<'a>(
    route: &'static Route,
    path: PathValues<'a>,
    resources: &Resources,
    head: &'a Head,
    shares: &mut RequestShares,
) -> Result<Admitted<'a>, ApiError> {
    let Resources { deps, limits, budgets, .. } = resources;
    let (identity, handler) = match route.work.handler {
        Handler::Shared(access, handler) => {
            let identity = identity::authorize(deps, limits, head, access)?;
            (identity, BoundHandler::Shared(handler))
        }
        Handler::Personal(right, handler) => {
            let tickets = match handler {
                PersonalHandler::Stream(_) => Some(&resources.streams.tickets),
                PersonalHandler::Owner(_) | PersonalHandler::Ticket(_) => None,
            };
            let bearer = identity::authorize_owner(deps, limits, head, right, tickets)?;
            (bearer.identity, BoundHandler::Personal(handler, bearer))
        }
    };
    if route.acts_for_strangers {
        resources.reach.check_page(deps, head, route.access())?;
    }
    if !identity.is_exempt {
        let share = budgets.requests.take_now(identity.holder, 1);
        shares.request = Some(share.map_err(|refusal| refused(refusal, "requests"))?);
    }
    let wants_gzip = compression::wants_gzip(&head.headers);
    Ok(Admitted { head, route, path, identity, handler, wants_gzip })
}
