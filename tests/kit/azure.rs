//! A stand-in for Azure's blob service, as far as lakes are read from it: objects by name, and
//! listings in its XML format (REST API of the blob service, "List Blobs").

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::provider::{Provider, Reply, Request};

pub const CONTAINER: &str = "ledgers";
/// Storage account that owns the key.
pub const ACCOUNT: &str = "accountofthetests";
/// Key of the storage account, in base64.
pub const KEY: &str = "dGhlLXNlY3JldC10aGF0LW5vYm9keS1tYXktc2Vl";
/// `Last-Modified` of every object.
const MODIFIED: &str = "Wed, 21 Oct 2026 07:28:00 GMT";

type Objects = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

pub struct AzureServer {
    provider: Provider,
    objects: Objects,
}

impl AzureServer {
    /// Starts a server with an empty container.
    pub fn start() -> Self {
        let objects = Objects::default();
        let served = Arc::clone(&objects);
        Self { provider: Provider::start(move |request| answer(&served, request)), objects }
    }

    pub fn url(&self) -> String {
        self.provider.url("/")
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.provider.requests()
    }

    pub fn put(&self, name: &str, bytes: Vec<u8>) {
        self.objects.lock().unwrap().insert(name.to_owned(), bytes);
    }
}

fn answer(objects: &Objects, request: &Request) -> Reply {
    let objects = objects.lock().unwrap();
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    let name =
        path.strip_prefix(&format!("/{CONTAINER}")).expect("the request names the container");
    let name = name.trim_start_matches('/');
    if name.is_empty() {
        let query = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        return Reply::new(200, "application/xml", listing(&objects, &query));
    }
    match objects.get(name) {
        Some(bytes) => Reply::new(200, "application/octet-stream", bytes.clone())
            .header("etag", "\"1\"")
            .header("last-modified", MODIFIED),
        None => Reply::new(404, "application/xml", "<Error><Code>BlobNotFound</Code></Error>"),
    }
}

/// Lists one page. A marker is the name with which the next page begins.
fn listing(
    objects: &BTreeMap<String, Vec<u8>>,
    query: &std::collections::HashMap<String, String>,
) -> String {
    assert_eq!(query["comp"], "list");
    let given = |name: &str| query.get(name).cloned().unwrap_or_default();
    let (prefix, from) = (given("prefix"), given("marker").max(given("startFrom")));
    let most = given("maxresults").parse().unwrap_or(5000);
    let mut entries = BTreeMap::new();
    for (name, bytes) in objects.range(from..) {
        let Some(below) = name.strip_prefix(&prefix) else { continue };
        match below.split_once('/').filter(|_| given("delimiter") == "/") {
            Some((directory, _)) => {
                let name = format!("{prefix}{directory}/");
                let entry = format!("<BlobPrefix><Name>{name}</Name></BlobPrefix>");
                entries.insert(name, entry);
            }
            None => {
                let length = bytes.len();
                let entry = format!(
                    "<Blob><Name>{name}</Name><Properties><Last-Modified>{MODIFIED}</Last-Modified>\
                     <Etag>1</Etag><Content-Length>{length}</Content-Length>\
                     <Content-Type>application/octet-stream</Content-Type></Properties></Blob>"
                );
                entries.insert(name.clone(), entry);
            }
        }
    }
    let next = entries.keys().nth(most).cloned().unwrap_or_default();
    let page: String = entries.into_values().take(most).collect();
    format!(
        "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults>\
         <Blobs>{page}</Blobs><NextMarker>{next}</NextMarker></EnumerationResults>"
    )
}
