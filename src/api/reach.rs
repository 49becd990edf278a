//! Whom a service is for that listens on its own machine only.
//!
//! Such a service is reached by web pages, too: by those that its users open in their browsers. A page
//! from elsewhere must not read a private network through them, neither by its own origin (CORS) nor
//! under a name of its own that it makes resolve to this machine.

use warp::http::HeaderName;
use warp::http::header::{HOST, ORIGIN};

use super::cors::{self, Origins};
use super::head::Head;
use super::host::{host_of_origin, is_of_this_machine, name_of};
use super::identity::{Access, is_forwarded, is_forwarded_by_trusted};
use super::{ApiError, Deps};
use orrery_ledger::domain::excerpt;
use orrery_settings::CorsOrigin;

/// What browsers say about where a request comes from (the W3C's Fetch Metadata). Pages cannot set it.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whom a service is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reach {
    /// Whether it listens on its own machine only.
    pub is_local: bool,
}

impl Reach {
    /// Checks the name by which a request reaches the service.
    ///
    /// # Errors
    /// [`ApiError::UnknownHost`] where only this machine's programs ask, by another name than they do.
    pub(super) fn check_host(
        self,
        deps: &Deps,
        head: &Head,
        access: Access,
    ) -> Result<(), ApiError> {
        // The metrics have a rule of their own.
        if access == Access::Operator || !self.is_local || is_published(deps, head) {
            return Ok(());
        }
        let configured = &deps.settings.http.cors_origins;
        let is_listed = |name: &str| {
            let of_origin = |origin: &CorsOrigin| {
                let origin = origin.as_str();
                origin == "*" || host_of_origin(origin) == name
            };
            configured.iter().any(of_origin)
        };
        for value in head.headers.get_all(HOST) {
            let name = value.to_str().map(|host| name_of(host).to_ascii_lowercase());
            let name = name.unwrap_or_default();
            if !is_of_this_machine(&name) && !is_listed(&name) {
                return Err(ApiError::UnknownHost(excerpt(&name)));
            }
        }
        Ok(())
    }

    /// Checks that a request which changes something for callers without a token comes from a page that
    /// may read the response: a browser sends it before it knows.
    ///
    /// # Errors
    /// [`ApiError::ForeignPage`].
    pub(super) fn check_page(
        self,
        deps: &Deps,
        head: &Head,
        access: Access,
    ) -> Result<(), ApiError> {
        let origins = self.origins(deps, head, access);
        let is_allowed = match head.headers.get(ORIGIN) {
            Some(_) => {
                cors::allowed(origins, &deps.settings.http.cors_origins, &head.headers).is_some()
            }
            // An image or a link; a page's own requests have an origin.
            None => {
                let site = head.headers.get(FETCH_SITE);
                origins == Origins::Any || site.is_none_or(|site| site != "cross-site")
            }
        };
        if is_allowed { Ok(()) } else { Err(ApiError::ForeignPage) }
    }

    /// Returns the pages that may read the responses of a route.
    pub(super) fn origins(self, deps: &Deps, head: &Head, access: Access) -> Origins {
        if deps.settings.http.cors_origins.iter().any(|origin| origin.as_str() == "*") {
            return Origins::Any;
        }
        match access {
            Access::Public | Access::Probe => {
                let is_open = !self.is_local || deps.network.is_public();
                if is_open || is_published(deps, head) { Origins::Any } else { Origins::Near }
            }
            Access::Operator | Access::Token(_) => Origins::Listed,
        }
    }
}

/// Whether a request came through a proxy, which publishes the service. On a private network the proxy
/// has to be one of the operator's, because a page can send the headers of one.
fn is_published(deps: &Deps, head: &Head) -> bool {
    is_forwarded_by_trusted(deps, head) || deps.network.is_public() && is_forwarded(&head.headers)
}
