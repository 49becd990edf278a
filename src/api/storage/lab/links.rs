//! Links of a page in the form of the Lab.

use serde::Serialize;

use super::cursor;
use super::request::{FILTER_KEY, LIMIT, ORDER, Request, SORT_BY};
use super::sorting::{SortBy, Sorting, direction_name};

/// Links to a page and to those beside it.
#[derive(Serialize)]
pub(super) struct Links {
    #[serde(rename = "self")]
    own: Link,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Link>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prev: Option<Link>,
}

#[derive(Serialize)]
struct Link {
    href: String,
}

impl Links {
    /// Returns the links of a page. `ends` are the cursors for the pages before its first entry and after
    /// its last one; `None` when it has none.
    pub(super) fn of(request: &Request, ends: Option<(String, String)>, is_full: bool) -> Self {
        let given = request.given_cursor.as_deref();
        let (prev, next) = ends.unzip();
        Self {
            own: link(request, given),
            next: next.filter(|_| is_full).map(|next| link(request, Some(&next))),
            prev: prev.filter(|_| given.is_some()).map(|prev| link(request, Some(&prev))),
        }
    }
}

fn link(request: &Request, cursor: Option<&str>) -> Link {
    let Sorting { direction, sort_by, filter_key } = &request.sorting;
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair(ORDER, direction_name(*direction));
    query.append_pair(LIMIT, &request.limit.to_string());
    if *sort_by != SortBy::KeyHash {
        query.append_pair(SORT_BY, sort_by.name());
    }
    if let Some(cursor) = cursor {
        query.append_pair(cursor::NAME, cursor);
    }
    if let Some(filter) = filter_key {
        query.append_pair(FILTER_KEY, filter);
    }
    let query = query.finish();
    Link { href: format!("/api/contract/{}/storage?{query}", request.contract) }
}
