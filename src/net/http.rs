//! HTTP functions that all network sources share: building a client, reading a response body up to
//! a size limit, and formatting an address without its secrets. Does not depend on what is
//! requested.

use std::error::Error;
use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, ClientBuilder, Response, StatusCode, Url};
use rustls::CertificateError;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

/// Maximum number of consecutive redirects.
const MAX_REDIRECTS: usize = 3;
/// Minimum length of a path segment with letters and digits that may be a key, and of one without
/// digits in which both cases occur.
const SHORTEST_KEY: usize = 20;
const SHORTEST_KEY_OF_LETTERS: usize = 32;

/// Timeouts of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Timeout for establishing a connection, including TLS.
    pub connect: Duration,
    /// Timeout for the first piece of a response, and between two pieces.
    pub idle: Duration,
}

impl Default for Timeouts {
    /// 5 seconds to connect, 8 seconds between two pieces.
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), idle: Duration::from_secs(8) }
    }
}

/// Why a request failed. No variant names the address: the caller adds it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// The client cannot be built, because of the TLS library or the system's settings.
    #[error("no HTTP client can be set up: {0}")]
    Setup(String),
    /// No connection, because of name resolution, routing, port or certificate.
    #[error("no connection: {0}")]
    NoConnection(String),
    /// The server is connected but sends nothing before the timeout.
    #[error("no answer in time")]
    TimedOut,
    /// The response ended too early, or is not HTTP.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The body exceeds this limit in bytes, counted after decompression.
    #[error("the answer is longer than {0} bytes, the most that is read")]
    TooLong(u64),
    /// There is no memory for the body at the moment.
    #[error("there is no memory for its answer at the moment")]
    NoRoom,
}

impl From<reqwest::Error> for HttpError {
    fn from(error: reqwest::Error) -> Self {
        match (error.is_connect(), error.is_timeout()) {
            (true, true) => Self::NoConnection("it was not accepted in time".to_owned()),
            (true, false) => Self::NoConnection(root_cause(&error)),
            (false, true) => Self::TimedOut,
            (false, false) => Self::Broken(root_cause(&error)),
        }
    }
}

/// Builds a client that sends Orrery's `User-Agent`, accepts gzip and trusts the system's
/// certificates. It follows redirects only on the same server, and only those that keep method and
/// body (307 and 308).
pub fn client(timeouts: Timeouts) -> Result<Client, HttpError> {
    build(|| usual(timeouts).gzip(true))
}

/// Like [`client`], for files: takes bodies as the server has them. Some servers declare that their
/// `.gz` files are encoded with gzip.
pub fn client_of_files(timeouts: Timeouts) -> Result<Client, HttpError> {
    build(|| usual(timeouts).gzip(false))
}

fn usual(timeouts: Timeouts) -> ClientBuilder {
    Client::builder()
        .user_agent(concat!("orrery/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(timeouts.connect)
        .read_timeout(timeouts.idle)
        .referer(false)
        .redirect(Policy::custom(
            |attempt| {
                if stays(&attempt) { attempt.follow() } else { attempt.stop() }
            },
        ))
}

/// Builds a client with these settings that trusts the system's certificates. On a system without
/// certificates, the client supports HTTP only.
pub fn build(builder: impl Fn() -> ClientBuilder) -> Result<Client, HttpError> {
    // A crypto provider that was installed before serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    builder().build().or_else(|error| {
        // A system without certificates can still use HTTP; HTTPS then fails with its own reason.
        tracing::warn!(
            "HTTPS will not work before certificates of authorities are installed: {}",
            root_cause(&error)
        );
        let bare = builder().tls_certs_only([]).build();
        bare.map_err(|error| HttpError::Setup(root_cause(&error)))
    })
}

/// Builds a client for a stellar-core on this machine, without proxy and TLS and with one
/// connection per request. Core's query port compares header names case-sensitively and expects the
/// usual HTTP/1.1 spelling, such as `Content-Length` (stellar-core,
/// `lib/httpthreaded/request_parser.cpp`).
pub fn local_client(timeouts: Timeouts) -> Result<Client, HttpError> {
    // A crypto provider that was installed before serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder()
        .no_proxy()
        .connect_timeout(timeouts.connect)
        .read_timeout(timeouts.idle)
        .http1_title_case_headers()
        .pool_max_idle_per_host(0)
        .redirect(Policy::none());
    client.build().map_err(|error| HttpError::Setup(root_cause(&error)))
}

fn stays(attempt: &Attempt<'_>) -> bool {
    let keeps_method = [StatusCode::TEMPORARY_REDIRECT, StatusCode::PERMANENT_REDIRECT]
        .contains(&attempt.status());
    let same_server = attempt.previous().last().is_some_and(|before| {
        before.scheme() == attempt.url().scheme()
            && before.host_str() == attempt.url().host_str()
            && before.port_or_known_default() == attempt.url().port_or_known_default()
    });
    keeps_method && same_server && attempt.previous().len() <= MAX_REDIRECTS
}

/// Reads the whole body, of at most `cap` bytes after decompression. Memory grows with the bytes
/// received.
///
/// # Errors
/// [`HttpError::TooLong`] as soon as the limit is exceeded, otherwise the error of the connection.
pub async fn read_capped(response: Response, cap: u64) -> Result<Bytes, HttpError> {
    read_within(response, cap, &|_| true).await
}

/// Like [`read_capped`], for a body that grows only as far as `has_room` permits: it is called with
/// the length that the body is about to have.
///
/// # Errors
/// Also [`HttpError::NoRoom`].
pub async fn read_within(
    mut response: Response,
    cap: u64,
    has_room: &(dyn Fn(u64) -> bool + Sync),
) -> Result<Bytes, HttpError> {
    // Only a response that is not compressed announces its length here.
    if response.content_length().is_some_and(|length| length > cap) {
        return Err(HttpError::TooLong(cap));
    }
    let mut body = BytesMut::new();
    while let Some(piece) = response.chunk().await? {
        let length = (body.len() as u64).saturating_add(piece.len() as u64);
        if length > cap {
            return Err(HttpError::TooLong(cap));
        }
        if !has_room(length) {
            return Err(HttpError::NoRoom);
        }
        body.extend_from_slice(&piece);
    }
    Ok(body.freeze())
}

/// Returns the delay that the server asks for (`Retry-After`, RFC 9110 section 10.2.3): a number of
/// seconds, or a date, which is compared with the response's own `Date` or, without one, with the
/// clock.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let asked = text(RETRY_AFTER)?;
    if !asked.is_empty() && asked.bytes().all(|byte| byte.is_ascii_digit()) {
        // Only a number that is too large fails to parse here.
        return Some(asked.parse().map_or(Duration::MAX, Duration::from_secs));
    }
    let date = |text| OffsetDateTime::parse(text, &Rfc2822).ok();
    let answered = text(DATE).and_then(date).unwrap_or_else(OffsetDateTime::now_utc);
    Some(Duration::try_from(date(asked)? - answered).unwrap_or_default())
}

/// Formats an address without possible secrets: user, password, query, and path segments that look
/// like keys.
pub fn redacted(url: &Url) -> String {
    let mut shown = format!("{}://{}", url.scheme(), url.host_str().unwrap_or_default());
    if let Some(port) = url.port() {
        shown.push_str(&format!(":{port}"));
    }
    let words = url.path().split('/').map(|word| if may_be_key(word) { "…" } else { word });
    let path = words.collect::<Vec<_>>().join("/");
    if path != "/" {
        shown.push_str(&path);
    }
    shown
}

/// Returns whether a path segment may be a key. Providers put keys into paths; names of buckets and
/// networks are shorter or plain words.
fn may_be_key(word: &str) -> bool {
    let has = |of: fn(&u8) -> bool| word.bytes().any(|c| of(&c));
    let is_mixed = has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
    // A value after its name, and what base64 ends with.
    let has_value = word.contains(['=', '~']) || word.to_ascii_lowercase().contains("%3d");
    has_value
        || (word.len() >= SHORTEST_KEY && has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic))
        || (word.len() >= SHORTEST_KEY_OF_LETTERS && is_mixed)
}

/// Returns the innermost cause, which is the most specific.
pub fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = inner_cause(cause) {
        cause = inner;
    }
    match cause.downcast_ref() {
        Some(tls) => tls_reason(tls),
        None => {
            let text = cause.to_string();
            text.split(" (os error ").next().unwrap_or_default().to_owned()
        }
    }
}

/// Returns the cause of an error. The source of an [`io::Error`] skips the error that it wraps, so
/// the wrapped error is returned instead.
fn inner_cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    wrapped.map(|wrapped| wrapped as &(dyn Error + 'static)).or_else(|| error.source())
}

fn tls_reason(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "its certificate is not signed by an authority that this system trusts; the variable \
             SSL_CERT_FILE may name a file with other certificates"
                .to_owned()
        }
        rustls::Error::InvalidMessage(_) => {
            "it does not speak TLS; its address may have to begin with http://".to_owned()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_displayed_without_their_secrets() {
        for (address, shown) in [
            ("https://rpc.example/", "https://rpc.example"),
            ("https://rpc.example", "https://rpc.example"),
            ("http://127.0.0.1:8000/soroban/rpc", "http://127.0.0.1:8000/soroban/rpc"),
            ("https://me:word@rpc.example/v1?key=abc#part", "https://rpc.example/v1"),
            ("https://rpc.example/v2/8f2c41d09aab47e7b6d3", "https://rpc.example/v2/…"),
            // A JSON Web Token, base64 of both alphabets, and a value after its name.
            (
                "https://rpc.example/v1/eyJhbGciOiJI.eyJzdWIiOiJh.c2lnbmF0dXJl",
                "https://rpc.example/v1/…",
            ),
            ("https://rpc.example/k/abc.def==", "https://rpc.example/k/…"),
            ("https://rpc.example/k/YWJj%3D%3d/x", "https://rpc.example/k/…/x"),
            ("https://rpc.example/QUJDREVGR0hJSktMTU5PUA~/x", "https://rpc.example/…/x"),
            ("https://rpc.example/a1b2c3:d4e5+f6g7,h8i9!j0", "https://rpc.example/…"),
            ("https://rpc.example/;key=s3cret/rpc", "https://rpc.example/…/rpc"),
            ("https://rpc.example/QwErTyUiOpAsDfGhJkLzXcVbNmQwErTyUi", "https://rpc.example/…"),
            (
                "https://rpc.example/soroban-mainnet.public-archives/rpc",
                "https://rpc.example/soroban-mainnet.public-archives/rpc",
            ),
            (
                "https://lakes.example/v1.1/stellar/ledgers/pubnet/",
                "https://lakes.example/v1.1/stellar/ledgers/pubnet/",
            ),
            (
                "https://lakes.example/aws-public-blockchain/x",
                "https://lakes.example/aws-public-blockchain/x",
            ),
        ] {
            assert_eq!(redacted(&Url::parse(address).unwrap()), shown);
        }
    }

    #[test]
    fn retry_after_is_parsed() {
        let date = "Wed, 21 Oct 2026 07:28:00 GMT";
        for (asked, answered_at, wait) in [
            ("120", "", Some(120)),
            (" 0 ", "", Some(0)),
            ("Wed, 21 Oct 2026 07:29:30 GMT", date, Some(90)),
            ("Wed, 21 Oct 2026 07:20:00 GMT", date, Some(0)),
            ("Wed, 21 Oct 2015 07:29:30 GMT", "", Some(0)),
            ("Wed, 21 Oct 2015 07:29:30 GMT", "never", Some(0)),
            ("18446744073709551615", "", Some(u64::MAX)),
            ("-1", "", None),
            ("", "", None),
            ("soon", date, None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, asked.parse().unwrap());
            if !answered_at.is_empty() {
                headers.insert(DATE, answered_at.parse().unwrap());
            }
            assert_eq!(retry_after(&headers), wait.map(Duration::from_secs), "{asked}");
        }
        assert_eq!(retry_after(&HeaderMap::new()), None);
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, "9".repeat(100).parse().unwrap());
        assert_eq!(retry_after(&headers), Some(Duration::MAX));
        let hour = OffsetDateTime::now_utc() + Duration::from_secs(3600);
        let hour = hour.format(&Rfc2822).unwrap();
        headers.insert(RETRY_AFTER, hour.parse().unwrap());
        let wait = retry_after(&headers).unwrap().as_secs();
        assert!((3500..=3600).contains(&wait), "{wait}");
    }
}
