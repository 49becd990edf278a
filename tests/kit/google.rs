//! A stand-in for Google's bucket service, as far as objects are written and read through its XML API: objects by name
//! with a number for each version, conditional writes, and listings.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::provider::{Provider, Reply, Request};

/// `Last-Modified` of every object.
const MODIFIED: &str = "Wed, 21 Oct 2026 07:28:00 GMT";

/// Objects with the numbers of their versions.
#[derive(Default)]
struct Bucket {
    objects: BTreeMap<String, (u64, Vec<u8>)>,
    last: u64,
}

/// A running server with one bucket. Stops when dropped.
pub struct GoogleServer {
    provider: Provider,
    bucket: Arc<Mutex<Bucket>>,
}

impl GoogleServer {
    /// Starts a server with an empty bucket, whatever its name.
    pub fn start() -> Self {
        let bucket = Arc::<Mutex<Bucket>>::default();
        let served = Arc::clone(&bucket);
        let provider = Provider::start(move |request| answer(&mut served.lock().unwrap(), request));
        Self { provider, bucket }
    }

    pub fn url(&self) -> String {
        self.provider.url("/")
    }

    /// Names of all objects.
    pub fn names(&self) -> Vec<String> {
        self.bucket.lock().unwrap().objects.keys().cloned().collect()
    }
}

fn answer(bucket: &mut Bucket, request: &Request) -> Reply {
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    let (_, name) = path[1..].split_once('/').unwrap_or((path, ""));
    // The client encodes the slashes.
    let decoded = form_urlencoded::parse(name.as_bytes()).next();
    let name = decoded.map(|(name, _)| name.into_owned()).unwrap_or_default();
    let missing = || Reply::new(404, "application/xml", "<Error><Code>NoSuchKey</Code></Error>");
    match &*request.method {
        "GET" if name.is_empty() => {
            let query = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
            Reply::new(200, "application/xml", listing(bucket, &query))
        }
        "GET" => match bucket.objects.get(&name) {
            Some((version, bytes)) => {
                let reply = Reply::new(200, "application/octet-stream", bytes.clone());
                versioned(reply, *version).header("last-modified", MODIFIED)
            }
            None => missing(),
        },
        "PUT" => {
            let found = bucket.objects.get(&name).map_or(0, |(version, _)| *version);
            let wanted = request.header("x-goog-if-generation-match");
            if wanted.is_some_and(|wanted| wanted.parse() != Ok(found)) {
                let body = "<Error><Code>PreconditionFailed</Code></Error>";
                return Reply::new(412, "application/xml", body);
            }
            bucket.last += 1;
            bucket.objects.insert(name, (bucket.last, request.body.clone()));
            versioned(Reply::new(200, "application/xml", ""), bucket.last)
        }
        "DELETE" => match bucket.objects.remove(&name) {
            Some(_) => Reply::new(204, "application/xml", ""),
            None => missing(),
        },
        other => panic!("{other} {}", request.target),
    }
}

fn versioned(reply: Reply, version: u64) -> Reply {
    reply.header("etag", format!("\"{version}\"")).header("x-goog-generation", version.to_string())
}

/// Lists one page of two objects, so that there are several pages. A token is the name with which the next page begins.
fn listing(bucket: &Bucket, query: &std::collections::HashMap<String, String>) -> String {
    assert_eq!(query["list-type"], "2");
    let given = |name: &str| query.get(name).cloned().unwrap_or_default();
    let (prefix, from) = (given("prefix"), given("continuation-token"));
    let mut names = bucket.objects.range(from..).filter(|(name, _)| name.starts_with(&prefix));
    let page: Vec<_> = names.by_ref().take(2).collect();
    let entries: String = page
        .iter()
        .map(|(name, (version, bytes))| {
            format!(
                "<Contents><Key>{name}</Key><LastModified>2026-10-21T07:28:00Z</LastModified>\
                 <ETag>\"{version}\"</ETag><Size>{}</Size></Contents>",
                bytes.len()
            )
        })
        .collect();
    let next = names
        .next()
        .map(|(name, _)| format!("<NextContinuationToken>{name}</NextContinuationToken>"));
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult>{entries}{}</ListBucketResult>",
        next.unwrap_or_default()
    )
}
