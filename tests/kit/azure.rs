//! A stand-in for Azure's blob service, as far as it is used: objects by name, conditional writes, listings in its
//! XML format and batches of deletions (REST API of the blob service, "List Blobs" and "Blob Batch").

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use sha2::Digest;

use super::provider::{Provider, Reply, Request};

pub const CONTAINER: &str = "ledgers";
/// Storage account that owns the key.
pub const ACCOUNT: &str = "accountofthetests";
/// Key of the storage account, in base64.
pub const KEY: &str = "dGhlLXNlY3JldC10aGF0LW5vYm9keS1tYXktc2Vl";
/// `Last-Modified` of every object.
const MODIFIED: &str = "Wed, 21 Oct 2026 07:28:00 GMT";

type Objects = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;
/// Separates the parts of a batch's answer.
const BOUNDARY: &str = "batchresponse_of_the_tests";

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

    /// Names of all objects.
    pub fn names(&self) -> Vec<String> {
        self.objects.lock().unwrap().keys().cloned().collect()
    }

    pub fn put(&self, name: &str, bytes: Vec<u8>) {
        self.objects.lock().unwrap().insert(name.to_owned(), bytes);
    }
}

fn answer(objects: &Objects, request: &Request) -> Reply {
    let mut objects = objects.lock().unwrap();
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    let name =
        path.strip_prefix(&format!("/{CONTAINER}")).expect("the request names the container");
    let name = name.trim_start_matches('/');
    match &*request.method {
        "PUT" => return put(&mut objects, name, request),
        "POST" => return delete_all(&mut objects, &request.body),
        _ => {}
    }
    if name.is_empty() {
        let query = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        return Reply::new(200, "application/xml", listing(&objects, &query));
    }
    match objects.get(name) {
        Some(bytes) => Reply::new(200, "application/octet-stream", bytes.clone())
            .header("etag", tag(bytes))
            .header("last-modified", MODIFIED),
        None => Reply::new(404, "application/xml", "<Error><Code>BlobNotFound</Code></Error>"),
    }
}

/// The tag of an object with this content.
fn tag(bytes: &[u8]) -> String {
    format!("\"{}\"", hex::encode(sha2::Sha256::digest(bytes)))
}

/// Writes an object, if the conditions of the request hold.
fn put(objects: &mut BTreeMap<String, Vec<u8>>, name: &str, request: &Request) -> Reply {
    assert_eq!(request.header("x-ms-blob-type"), Some("BlockBlob"));
    let found = objects.get(name).map(|bytes| tag(bytes));
    if request.header("if-none-match") == Some("*") && found.is_some() {
        return Reply::new(409, "application/xml", "<Error><Code>BlobAlreadyExists</Code></Error>");
    }
    if request.header("if-match").is_some_and(|wanted| found.as_deref() != Some(wanted)) {
        return Reply::new(412, "application/xml", "<Error><Code>ConditionNotMet</Code></Error>");
    }
    objects.insert(name.to_owned(), request.body.clone());
    Reply::new(201, "application/xml", "").header("etag", tag(&request.body))
}

/// Deletes the objects that the parts of a batch name.
fn delete_all(objects: &mut BTreeMap<String, Vec<u8>>, body: &[u8]) -> Reply {
    let text = String::from_utf8_lossy(body);
    let mut answers = String::new();
    let paths = text.lines().filter_map(|line| line.strip_prefix("DELETE "));
    for (number, path) in paths.enumerate() {
        let path = path.split_once(' ').unwrap().0;
        let (_, name) = path.split_once(&format!("/{CONTAINER}/")).unwrap();
        let status = match objects.remove(name) {
            Some(_) => "202 Accepted",
            None => "404 The specified blob does not exist.",
        };
        answers += &format!(
            "--{BOUNDARY}\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\n\
             HTTP/1.1 {status}\r\nx-ms-version: 2018-11-09\r\n\r\n\r\n"
        );
    }
    answers += &format!("--{BOUNDARY}--\r\n");
    Reply::new(202, &format!("multipart/mixed; boundary={BOUNDARY}"), answers)
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
