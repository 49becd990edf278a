//! The routes of the web site ([`orrery_site`]).

use std::sync::LazyLock;

use warp::http::header::{CACHE_CONTROL, VARY};
use warp::http::{HeaderValue, Method, StatusCode};

use super::answer::{Answer, Finished};
use super::head::Head;
use super::health::record;
use super::identity::Access;
use super::replies::{Reply, success};
use super::route::{LocatedHandler, Route, Work};
use super::{ApiError, Deps};
use orrery_site as site;

/// Routes of this area.
pub(super) static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    let page = |template| Route { no_store: true, ..route(template, page) };
    let files = Route { is_lasting: true, ..route("/site/{*rest}", file) };
    site::PAGES.into_iter().map(page).chain([files]).collect()
});

fn route(template: &'static str, handler: LocatedHandler) -> Route {
    let work = Work::located(Access::Public, handler);
    Route { headers: site::HEADERS, ..Route::new("GET", template, work).ignoring_parameters() }
}

fn page(deps: &Deps, path: &str) -> Result<Answer, ApiError> {
    let is_public_read = deps.settings.http.public_read;
    Ok(html(site::document(path, &record(deps), is_public_read)))
}

fn html(document: String) -> Answer {
    Answer { media_type: "text/html; charset=utf-8", ..Answer::json(document.into_bytes()) }
}

/// Returns the response to a browser that asks for a page which does not exist; `None` for other
/// clients, and for addresses that are no people's.
pub(super) fn missing_page(deps: &Deps, head: &Head) -> Option<Reply> {
    let is_for_people = |path: &str| {
        let first = path.trim_start_matches('/').split('/').next();
        !matches!(first, Some("rest" | "rpc" | "metrics" | "friendbot" | "site"))
    };
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    if !is_read || !head.is_for_page() || !is_for_people(&head.path) {
        return None;
    }
    let is_public_read = deps.settings.http.public_read;
    let document = site::missing_page(&head.path, &record(deps), is_public_read);
    let answer = Answer { status: StatusCode::NOT_FOUND, ..html(document) };
    let mut reply = success(Finished::new(answer, None));
    let headers = reply.headers_mut();
    for (name, value) in site::HEADERS {
        headers.insert(*name, HeaderValue::from_static(value));
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    Some(reply)
}

fn file(_: &Deps, path: &str) -> Result<Answer, ApiError> {
    let (media_type, bytes) = site::file(path).ok_or_else(|| ApiError::unknown_route(path))?;
    Ok(Answer { media_type, ..Answer::json(bytes.to_vec()) })
}
