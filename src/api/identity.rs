//! Who may call a route: identifies the caller by client address and token, and applies rate limits and
//! rights.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use warp::http::header::AUTHORIZATION;
use warp::http::{HeaderMap, HeaderName};

use super::head::Head;
use super::host::is_asked_by_address;
use super::limits::{Caller, Limits};
use super::tickets::{TICKET, Tickets};
use super::{ApiError, Deps};
use orrery_auth::{Claims, Right, decide};
use orrery_ledger::domain::Owner;
use orrery_runtime::budget::Holder;
use orrery_settings::MetricsReaders;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Headers that proxies add. One of them shows that a request was forwarded.
const FORWARDING: [&str; 6] =
    ["x-forwarded-for", "forwarded", "via", "x-real-ip", "x-forwarded-host", "x-forwarded-proto"];

/// Who may call a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everyone, within the rate limit of the client address.
    Public,
    /// Everyone, without a rate limit, because probes must always succeed.
    Probe,
    /// Clients that may read the metrics, without a rate limit; not open to web pages of any
    /// origin.
    Operator,
    /// Owners of a token with this right, within the rate limit of the owner.
    Token(Right),
}

/// Identity of an admitted caller.
#[derive(Debug, Clone, Copy)]
pub(super) struct Identity {
    /// Budget holder that the request's cost is charged to: the owner of a token, or the address of a
    /// caller without one.
    pub holder: Holder,
    /// Holder within what callers without a token may take together; `None` for one with a token.
    pub stranger: Option<Holder>,
    /// Whether the request is not charged: probes must always succeed.
    pub is_exempt: bool,
}

/// Caller with a valid token.
#[derive(Clone)]
pub(super) struct Bearer<'a> {
    pub identity: Identity,
    /// What the token says.
    pub claims: Arc<Claims>,
    /// Owner of the token.
    pub owner: Owner,
    /// The token as it was sent, or that for which the ticket stands.
    pub token: Cow<'a, str>,
}

/// Returns the budget holder of an owner. All tokens of an owner are one holder, because an owner may
/// have any number of them.
fn holder_of_owner(owner: &Owner) -> Holder {
    Holder::of(&("owner", owner))
}

/// Returns the budget holder of a client address.
pub(super) fn holder_of_address(address: IpAddr) -> Holder {
    Holder::of(&Caller::address(address))
}

/// Returns the holder of the network that a client address belongs to: for IPv6 its /48, which one
/// customer may own, with 65,536 networks of one holder each.
fn holder_of_site(address: IpAddr) -> Holder {
    const SITE_BITS: u32 = 48;
    match address.to_canonical() {
        IpAddr::V6(v6) => Holder::of(&("site", v6.to_bits() >> (u128::BITS - SITE_BITS))),
        v4 => holder_of_address(v4),
    }
}

/// Counts a request that reaches no handler against the rate limit of its address.
pub(super) fn count_unrouted(deps: &Deps, limits: &Limits, head: &Head) -> Result<(), ApiError> {
    limits.count(|| Caller::address(client_address(deps, head)))
}

/// Identifies the caller of a route and checks rate limit, token and right.
pub(super) fn authorize(
    deps: &Deps,
    limits: &Limits,
    head: &Head,
    access: Access,
) -> Result<Identity, ApiError> {
    let by_address = || Caller::address(client_address(deps, head));
    let stranger = |is_exempt| {
        let address = client_address(deps, head);
        let (holder, stranger) = (holder_of_address(address), Some(holder_of_site(address)));
        Identity { holder, stranger, is_exempt }
    };
    match access {
        Access::Probe => Ok(stranger(true)),
        Access::Operator => {
            if may_read_metrics(deps, head)? {
                return Ok(stranger(true));
            }
            limits.count(by_address)?;
            Err(ApiError::MetricsForbidden)
        }
        Access::Public => {
            limits.count(by_address)?;
            Ok(stranger(false))
        }
        Access::Token(right) => {
            authorize_owner(deps, limits, head, right, None).map(|bearer| bearer.identity)
        }
    }
}

/// As [`authorize`], for a route that needs a token with a right, or a ticket that stands for one.
pub(super) fn authorize_owner<'a>(
    deps: &Deps,
    limits: &Limits,
    head: &'a Head,
    right: Right,
    tickets: Option<&Tickets>,
) -> Result<Bearer<'a>, ApiError> {
    let given = match (bearer_token(&head.headers), tickets) {
        (Some(token), _) => Ok(Cow::Borrowed(token)),
        (None, Some(tickets)) => token_of_ticket(deps, head, tickets).map(Cow::Owned),
        (None, None) => Err(ApiError::NoToken),
    };
    let verified =
        given.and_then(|token| verify(deps, limits, head, &token).map(|claims| (token, claims)));
    let (token, claims) = match verified {
        Ok(verified) => verified,
        Err(error @ ApiError::TooManyRequests { .. }) => return Err(error),
        Err(error) => {
            // Failed tokens count against the address, to limit guessing.
            limits.count(|| Caller::address(client_address(deps, head)))?;
            return Err(error);
        }
    };
    let owner = Owner(claims.sub.clone());
    limits.count(|| Caller::Owner(owner.clone()))?;
    decide(&claims, right, &deps.network)?;
    let identity = Identity { holder: holder_of_owner(&owner), stranger: None, is_exempt: false };
    Ok(Bearer { identity, claims, owner, token })
}

/// Whether the caller may read the metrics.
fn may_read_metrics(deps: &Deps, head: &Head) -> Result<bool, ApiError> {
    match deps.settings.http.metrics {
        MetricsReaders::All => Ok(true),
        MetricsReaders::Off => Err(ApiError::unknown_route(&head.path)),
        MetricsReaders::Loopback => Ok(is_local_client(deps, head)),
    }
}

/// Whether a client is on this machine, and asks by an address or as `localhost`. A forwarded request
/// from an untrusted peer may come from anywhere.
pub(super) fn is_local_client(deps: &Deps, head: &Head) -> bool {
    let is_direct = is_forwarded_by_trusted(deps, head) || !is_forwarded(&head.headers);
    let is_local = client_address(deps, head).is_loopback();
    is_local && is_direct && is_asked_by_address(&head.headers)
}

/// Whether a request has a header that proxies add.
pub(super) fn is_forwarded(headers: &HeaderMap) -> bool {
    FORWARDING.into_iter().any(|name| headers.contains_key(name))
}

/// Whether a trusted proxy forwarded a request.
pub(super) fn is_forwarded_by_trusted(deps: &Deps, head: &Head) -> bool {
    deps.settings.http.is_trusted_proxy(head.client.address.ip().to_canonical())
        && head.headers.contains_key(FORWARDED_FOR)
}

fn verify(deps: &Deps, limits: &Limits, head: &Head, token: &str) -> Result<Arc<Claims>, ApiError> {
    let now = (deps.clock)();
    // Verifying a public-key signature costs more than most responses, so it is skipped for an
    // address over its rate limit.
    if let Some(retry_after) = limits.refused_for(|| client_address(deps, head))
        && deps.tokens.is_costly(token)
    {
        return Err(ApiError::TooManyRequests { retry_after });
    }
    deps.tokens.verify_at(token, now).map_err(ApiError::Token)
}

/// Whether a request brings a token or a ticket, valid or not.
pub(super) fn has_token(head: &Head) -> bool {
    let is_ticket = |(name, _): (Cow<'_, str>, Cow<'_, str>)| name == TICKET;
    head.headers.contains_key(AUTHORIZATION)
        || form_urlencoded::parse(head.query.as_bytes()).any(is_ticket)
}

/// Returns the token for which the ticket in the query stands.
fn token_of_ticket(deps: &Deps, head: &Head, tickets: &Tickets) -> Result<String, ApiError> {
    // Two headers with tokens are not overridden by a ticket.
    if head.headers.contains_key(AUTHORIZATION) {
        return Err(ApiError::NoToken);
    }
    let mut parameters = form_urlencoded::parse(head.query.as_bytes());
    let (_, ticket) = parameters.find(|(name, _)| name == TICKET).ok_or(ApiError::NoToken)?;
    let token = tickets.token(&ticket, (deps.clock)());
    token.map(|token| token.as_ref().to_owned()).ok_or(ApiError::Ticket)
}

/// Returns the token of the `Authorization: Bearer …` header, which must occur exactly once.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (given.next(), given.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Returns the address that limits apply to: the peer's, or, behind a trusted proxy, the last one
/// in `X-Forwarded-For` that does not belong to a trusted proxy.
fn client_address(deps: &Deps, head: &Head) -> IpAddr {
    let peer = head.client.address.ip().to_canonical();
    if !deps.settings.http.is_trusted_proxy(peer) {
        return peer;
    }
    let lists = head.headers.get_all(FORWARDED_FOR).iter().rev();
    let hops = lists.filter_map(|value| value.to_str().ok()).flat_map(|list| list.rsplit(','));
    hops.map_while(forwarded_address)
        .find(|hop| !deps.settings.http.is_trusted_proxy(*hop))
        .unwrap_or(peer)
}

/// Parses one address of `X-Forwarded-For`. Some proxies add the port, and IPv6 addresses may be in
/// brackets.
fn forwarded_address(hop: &str) -> Option<IpAddr> {
    let hop = hop.trim();
    let bare = hop.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(hop);
    let address = bare.parse::<IpAddr>().ok();
    let address = address.or_else(|| Some(hop.parse::<SocketAddr>().ok()?.ip()));
    Some(address?.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarded_addresses_may_have_ports_and_brackets() {
        for (hop, address) in [
            ("1.2.3.4", "1.2.3.4"),
            (" 1.2.3.4:5678 ", "1.2.3.4"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("[::ffff:10.0.0.1]:80", "10.0.0.1"),
        ] {
            assert_eq!(forwarded_address(hop), Some(address.parse().unwrap()), "{hop}");
        }
        for other in ["", "unknown", "_hidden", "1.2.3", "1.2.3.4:", "1.2.3.4:99999", "[1.2.3.4"] {
            assert_eq!(forwarded_address(other), None, "{other}");
        }
    }
}
