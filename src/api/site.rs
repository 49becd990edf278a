//! The routes of the web site ([`orrery_site`]).

use std::sync::LazyLock;

use super::answer::Answer;
use super::health::record;
use super::identity::Access;
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
    let document = site::document(path, &record(deps));
    Ok(Answer { media_type: "text/html; charset=utf-8", ..Answer::json(document.into_bytes()) })
}

fn file(_: &Deps, path: &str) -> Result<Answer, ApiError> {
    let (media_type, bytes) = site::file(path).ok_or_else(|| ApiError::unknown_route(path))?;
    Ok(Answer { media_type, ..Answer::json(bytes.to_vec()) })
}
