//! The routes of the web site ([`orrery_site`]).

use std::sync::LazyLock;

use warp::http::header::{CACHE_CONTROL, HOST, ORIGIN, VARY};
use warp::http::{HeaderValue, Method, StatusCode};

use super::answer::{Answer, Finished};
use super::head::Head;
use super::health::record;
use super::identity::{Access, is_local_client};
use super::replies::{Reply, success};
use super::route::{LocatedHandler, Route, Work};
use super::{ApiError, Deps};
use orrery_site as site;

/// Routes of this area.
pub(super) static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    let page = |template| Route { no_store: true, ..route(template, page) };
    let files = Route { is_lasting: true, ..route("/site/{*rest}", file) };
    let documents = ["/docs", "/docs/{*rest}"];
    let documents =
        documents.map(|template| Route { no_store: true, ..route(template, documentation) });
    site::PAGES.into_iter().map(page).chain([files]).chain(documents).collect()
});

fn route(template: &'static str, handler: LocatedHandler) -> Route {
    let work = Work::located(Access::Public, handler);
    Route { headers: site::HEADERS, ..Route::new("GET", template, work).ignoring_parameters() }
}

fn told(deps: &Deps) -> site::Told<'_> {
    let (http, data_dir) = (&deps.settings.http, deps.settings.data_dir.as_deref());
    site::Told { is_public_read: http.public_read, data_dir }
}

fn page(deps: &Deps, head: &Head) -> Result<Answer, ApiError> {
    Ok(html(site::document(&head.path, &record(deps), &told(deps))))
}

/// Returns a document. That of a demo has its token for those who try it on this machine: not for the
/// scripts of other pages, whose requests have an origin.
fn documentation(deps: &Deps, head: &Head) -> Result<Answer, ApiError> {
    let host = head.headers.get(HOST).and_then(|host| host.to_str().ok());
    let is_own = !head.headers.contains_key(ORIGIN) && is_local_client(deps, head);
    let base = host.map(|host| format!("http://{host}/rest"));
    let values = match (&deps.example_token, &base) {
        (Some(token), Some(base)) if is_own => Some(site::ExampleValues { base, token }),
        _ => None,
    };
    let document = site::documentation(&head.path, values);
    document.map(html).ok_or_else(|| ApiError::unknown_route(&head.path))
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
    let document = site::missing_page(&head.path, &record(deps), &told(deps));
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

fn file(_: &Deps, head: &Head) -> Result<Answer, ApiError> {
    let found = site::file(&head.path);
    let (media_type, bytes) = found.ok_or_else(|| ApiError::unknown_route(&head.path))?;
    Ok(Answer { media_type, ..Answer::json(bytes.to_vec()) })
}
