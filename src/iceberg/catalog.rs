//! The answers of an Iceberg REST catalogue that only reads (Iceberg REST catalogue specification, version
//! 1): a function from a request to a response. It lists tables and hands out their metadata, and neither
//! files nor keys to them. Who may see which namespaces is decided before.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// What the catalogue answers, as `config` lists it.
const ENDPOINTS: [&str; 6] = [
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
];
/// Names on a page of a client that does not say how many it wants, and at most.
const PAGE: usize = 100;
const LARGEST_PAGE: usize = 1000;

/// What the catalogue lists.
pub trait Lake {
    /// Returns the names of all namespaces.
    fn namespaces(&self) -> Vec<String>;

    /// Returns the names of the tables of a namespace; `None` if there is no such namespace.
    fn tables(&self, namespace: &str) -> Option<Vec<String>>;

    /// Returns the address of a table's current metadata; `None` if there is no such table. It is another
    /// one whenever the metadata is.
    fn location(&self, namespace: &str, table: &str) -> Option<String>;

    /// Returns the metadata at this address, as JSON.
    ///
    /// # Errors
    /// When it cannot be read now. The text is shown to the client.
    fn metadata(&self, location: &str) -> Result<String, String>;
}

/// Which namespaces a client may see. For all else there is nothing.
#[derive(Debug, Clone, Copy)]
pub enum Visible<'a> {
    /// All.
    All,
    /// These.
    Only(&'a BTreeSet<String>),
}

impl Visible<'_> {
    fn has(self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(namespace),
        }
    }
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Method: `GET` and so on.
    pub method: &'a str,
    /// Path from `/v1/` on, as the client has encoded it.
    pub path: &'a str,
    /// What follows `?`.
    pub query: Option<&'a str>,
    /// Value of the header `If-None-Match`.
    pub if_none_match: Option<&'a str>,
}

/// A response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Names and values of headers, without `Content-Length`.
    pub headers: Vec<(&'static str, String)>,
    /// Body; empty if there is none.
    pub body: String,
}

impl Response {
    fn json(value: &Value) -> Self {
        Self::text(200, value.to_string())
    }

    fn text(status: u16, body: String) -> Self {
        Self { status, headers: vec![("content-type", "application/json".to_owned())], body }
    }

    fn empty(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: String::new() }
    }
}

/// Returns an error in the form that Iceberg's clients read: `kind` is the name of an exception. Others than
/// the catalogue's own are for whoever answers in its place: 401 `NotAuthorizedException`, 403
/// `ForbiddenException`, 503 `ServiceUnavailableException`.
pub fn error(status: u16, kind: &str, message: &str) -> Response {
    let error = json!({"message": message, "type": kind, "code": status});
    Response::text(status, json!({"error": error}).to_string())
}

/// Answers a request of a client that may see these namespaces.
pub fn answer(
    lake: &(impl Lake + ?Sized),
    visible: Visible<'_>,
    request: &Request<'_>,
) -> Response {
    let answered = Catalog { lake, visible, request }.answer();
    let mut response = answered.unwrap_or_else(|error| error);
    if request.method == "HEAD" {
        response.body.clear();
    }
    response
}

/// An answer, or one that is an error.
type Answered = Result<Response, Response>;

struct Catalog<'a, L: ?Sized> {
    lake: &'a L,
    visible: Visible<'a>,
    request: &'a Request<'a>,
}

impl<L: Lake + ?Sized> Catalog<'_, L> {
    fn answer(&self) -> Answered {
        let segments = segments(self.request.path)?;
        let segments: Vec<&str> = segments.iter().map(AsRef::as_ref).collect();
        match (self.request.method, &segments[..]) {
            ("GET", ["v1", "config"]) => Ok(Response::json(&config())),
            ("GET", ["v1", "namespaces"]) => self.namespaces(),
            ("GET", ["v1", "namespaces", namespace]) => self.namespace(namespace),
            ("HEAD", ["v1", "namespaces", namespace]) => {
                self.tables_of(namespace).map(|_| Response::empty(204))
            }
            ("GET", ["v1", "namespaces", namespace, "tables"]) => self.tables(namespace),
            ("GET", ["v1", "namespaces", namespace, "tables", table]) => {
                self.table(namespace, table)
            }
            ("HEAD", ["v1", "namespaces", namespace, "tables", table]) => {
                self.location(namespace, table).map(|_| Response::empty(204))
            }
            ("GET" | "HEAD", _) => {
                Err(error(404, "NotFoundException", "the catalogue has no such path"))
            }
            _ => Err(error(
                406,
                "UnsupportedOperationException",
                "the catalogue can only be read: tables are written by the export",
            )),
        }
    }

    fn namespaces(&self) -> Answered {
        let parameters = self.parameters();
        let has_parent = parameters.get("parent").is_some_and(|parent| !parent.is_empty());
        let mut names = if has_parent { Vec::new() } else { self.lake.namespaces() };
        names.retain(|name| self.visible.has(name));
        let (names, next) = page(names, &parameters)?;
        let names: Vec<Value> = names.into_iter().map(|name| json!([name])).collect();
        Ok(Response::json(&json!({"namespaces": names, "next-page-token": next})))
    }

    fn namespace(&self, namespace: &str) -> Answered {
        self.tables_of(namespace)?;
        Ok(Response::json(&json!({"namespace": [namespace], "properties": {}})))
    }

    fn tables(&self, namespace: &str) -> Answered {
        let (names, next) = page(self.tables_of(namespace)?, &self.parameters())?;
        let identifier = |name: String| json!({"namespace": [namespace], "name": name});
        let tables: Vec<Value> = names.into_iter().map(identifier).collect();
        Ok(Response::json(&json!({"identifiers": tables, "next-page-token": next})))
    }

    fn table(&self, namespace: &str, table: &str) -> Answered {
        let location = self.location(namespace, table)?;
        let tag = entity_tag(&location);
        if self.request.if_none_match.is_some_and(|tags| matches(tags, &tag)) {
            let headers = vec![("etag", tag)];
            return Ok(Response { headers, ..Response::empty(304) });
        }
        let metadata = self.lake.metadata(&location);
        let metadata = metadata.map_err(|text| error(503, "ServiceUnavailableException", &text))?;
        let location = json!(location);
        let body =
            format!(r#"{{"metadata-location":{location},"metadata":{metadata},"config":{{}}}}"#);
        let mut response = Response::text(200, body);
        response.headers.push(("etag", tag));
        Ok(response)
    }

    fn tables_of(&self, namespace: &str) -> Result<Vec<String>, Response> {
        let tables = self.lake.tables(namespace).filter(|_| self.visible.has(namespace));
        tables.ok_or_else(|| {
            let message = format!("Namespace does not exist: {namespace}");
            error(404, "NoSuchNamespaceException", &message)
        })
    }

    fn location(&self, namespace: &str, table: &str) -> Result<String, Response> {
        let location = self.lake.location(namespace, table);
        location.filter(|_| self.visible.has(namespace)).ok_or_else(|| {
            let message = format!("Table does not exist: {namespace}.{table}");
            error(404, "NoSuchTableException", &message)
        })
    }

    /// Returns the parameters of the query. Unknown ones do no harm: the specification gains some.
    fn parameters(&self) -> BTreeMap<Cow<'_, str>, Cow<'_, str>> {
        form_urlencoded::parse(self.request.query.unwrap_or_default().as_bytes()).collect()
    }
}

fn config() -> Value {
    json!({"defaults": {}, "overrides": {}, "endpoints": ENDPOINTS})
}

/// Returns the parts of a path, decoded.
fn segments(path: &str) -> Result<Vec<Cow<'_, str>>, Response> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let decoded = path.split('/').map(|part| percent_decode_str(part).decode_utf8());
    let decoded: Result<Vec<_>, _> = decoded.collect();
    decoded.map_err(|_| error(400, "BadRequestException", "the path is not UTF-8"))
}

/// Returns those of these names that are on the page which the parameters ask for, ascending, and the token of the
/// next page. Without a token in the request, all are on one (REST specification, *Pagination*).
fn page(
    mut names: Vec<String>,
    parameters: &BTreeMap<Cow<'_, str>, Cow<'_, str>>,
) -> Result<(Vec<String>, Option<String>), Response> {
    let wrong = |message: &str| error(400, "BadRequestException", message);
    names.sort_unstable();
    let size = match parameters.get("pageSize") {
        None => PAGE,
        Some(size) => match size.parse() {
            Ok(size) if size > 0 => LARGEST_PAGE.min(size),
            _ => return Err(wrong("pageSize is not a number above 0")),
        },
    };
    let Some(token) = parameters.get("pageToken") else { return Ok((names, None)) };
    if !token.is_empty() {
        let last = hex::decode(token.as_bytes()).ok().and_then(|it| String::from_utf8(it).ok());
        let last = last.ok_or_else(|| wrong("pageToken is not one that the catalogue gave"))?;
        names.retain(|name| *name > last);
    }
    let has_more = names.len() > size;
    names.truncate(size);
    let next = names.last().filter(|_| has_more).map(hex::encode);
    Ok((names, next))
}

/// Returns the entity tag of a table with its metadata at this address, which no other metadata has.
fn entity_tag(location: &str) -> String {
    format!("\"{}\"", hex::encode(&Sha256::digest(location)[..16]))
}

/// Returns whether a tag is among those of a header (RFC 9110, section 13.1.2).
fn matches(tags: &str, tag: &str) -> bool {
    tags.trim() == "*"
        || tags.split(',').map(str::trim).any(|it| it.strip_prefix("W/").unwrap_or(it) == tag)
}

#[cfg(test)]
mod tests;
