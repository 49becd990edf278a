//! Endpoints that users give for deliveries, as far as the text alone shows whether they are
//! usable.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use hyper::Uri;
use hyper::header::HeaderValue;

use super::address::Denied;
use orrery_ledger::domain::excerpt;
use orrery_net::reqwest::Url;

/// Maximum length of an endpoint, in bytes.
const LONGEST_ENDPOINT: usize = 2048;

/// Number of the last characters that are shown of an endpoint that is a secret.
const SHOWN: usize = 4;

/// A URL that is acceptable by its text: HTTP or HTTPS, without user and password. Whether its
/// address is public is checked separately ([`super::Sender::check`]).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The text as it was given.
    text: String,
    url: Url,
    origin: String,
    /// Target and `Host` header of a request, prepared because they are the same for all; `None`
    /// when HTTP cannot express them.
    request: Option<(Uri, HeaderValue)>,
}

/// Why an endpoint is not accepted for deliveries.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Longer than an endpoint may be: its length in bytes.
    #[error("is {0} bytes long: give a URL of at most 2048")]
    TooLong(usize),
    /// Not a URL.
    #[error("is '{0}', which is not a URL: give one such as https://example.com/events")]
    NotAUrl(String),
    /// The scheme is neither HTTP nor HTTPS.
    #[error("has the scheme '{0}': give a URL that begins with https:// or http://")]
    Scheme(String),
    /// The URL contains a user or a password.
    #[error("holds a user or a password: leave them out, and check the signature instead")]
    UserInfo,
    /// The port is 0, on which no server can listen.
    #[error("names port 0: give another, or leave it out")]
    Port,
    /// The address of the host, or one of the addresses of its name, is not public.
    #[error("is not allowed for deliveries: {0}; ask the operator to allow its subnet")]
    Denied(Denied),
}

impl Endpoint {
    /// Returns the endpoint as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns scheme, host and port with the last four characters: what is shown of an endpoint that is a
    /// secret as a whole.
    pub fn hidden(&self) -> String {
        let length = self.text.chars().count();
        let last: String = self.text.chars().skip(length.saturating_sub(SHOWN)).collect();
        format!("{}/…{last}", self.origin)
    }

    /// Returns the parts of path and query that are long enough to be secret.
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        let rest = self.text.splitn(4, '/').nth(3).unwrap_or_default();
        rest.split(['/', '?', '&', '=', ':', '#']).filter(|word| word.len() > SHOWN)
    }

    /// Returns the URL without parts that may be secret, for logs.
    pub fn redacted(&self) -> String {
        orrery_net::http::redacted(&self.url)
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// Returns scheme, host and port. Endpoints with the same origin share a server.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns the target of a request, which is path and query, and the value of its `Host` header;
    /// `None` when HTTP cannot express them.
    pub(super) fn request(&self) -> Option<(Uri, HeaderValue)> {
        self.request.clone()
    }

    /// Returns the host if it is an IP address. The URL standard's parser has normalised all
    /// notations by then: decimal, octal, hexadecimal, with fewer than four parts, with full-width
    /// digits (url.spec.whatwg.org, section 3.5).
    pub(super) fn literal(&self) -> Option<IpAddr> {
        let host = self.url.host_str()?;
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        bare.parse().ok()
    }

    /// Returns the host if it is a name.
    pub(super) fn name(&self) -> Option<&str> {
        self.url.host_str().filter(|_| self.literal().is_none())
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        if text.len() > LONGEST_ENDPOINT {
            return Err(EndpointError::TooLong(text.len()));
        }
        let not_a_url = || EndpointError::NotAUrl(excerpt(text));
        // The parser would remove these characters; the text that is stored and shown must be the
        // URL that is used.
        if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(not_a_url());
        }
        let url = Url::parse(text).map_err(|_| not_a_url())?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(EndpointError::Scheme(excerpt(url.scheme())));
        }
        // The parser accepts `http:example.com`, which is most likely a mistake.
        if !text.get(url.scheme().len()..).is_some_and(|rest| rest.starts_with("://")) {
            return Err(not_a_url());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EndpointError::UserInfo);
        }
        match (url.host_str(), url.port()) {
            (None | Some(""), _) => Err(not_a_url()),
            (_, Some(0)) => Err(EndpointError::Port),
            _ => Ok(Self {
                text: text.to_owned(),
                origin: url.origin().ascii_serialization(),
                request: request(&url),
                url,
            }),
        }
    }
}

fn request(url: &Url) -> Option<(Uri, HeaderValue)> {
    let target = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let host = url.host_str().unwrap_or_default();
    // The URL has no port if it is the default of the scheme.
    let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    target.try_into().ok().zip(host.try_into().ok())
}

/// Without parts that may be secret.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({})", self.hidden())
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_invalid_endpoint_gets_its_error_message() {
        let long = format!("https://example.com/{}", "a".repeat(LONGEST_ENDPOINT));
        for (text, part) in [
            ("", "not a URL"),
            ("example.com/events", "not a URL"),
            ("https://", "not a URL"),
            ("http:example.com", "not a URL"),
            ("https:/example.com", "not a URL"),
            ("https:\\\\example.com", "not a URL"),
            ("https://exa mple.com", "not a URL"),
            (" https://example.com", "not a URL"),
            ("https://example.com\n", "not a URL"),
            ("https://exa\tmple.com", "not a URL"),
            ("https://1.2.3.4.5/", "not a URL"),
            ("https://256.256.256.256/", "not a URL"),
            ("https://[fe80::1%25eth0]/", "not a URL"),
            ("https://[::1/", "not a URL"),
            ("https://example.com:99999/", "not a URL"),
            ("ftp://example.com", "scheme 'ftp'"),
            ("file:///etc/passwd", "scheme 'file'"),
            ("gopher://example.com", "scheme 'gopher'"),
            ("javascript:alert(1)", "scheme 'javascript'"),
            ("https://me@example.com", "password"),
            ("https://:word@example.com", "password"),
            ("https://example.com@10.0.0.1/", "password"),
            ("https://example.com:0/", "port 0"),
            (&long, "bytes long"),
        ] {
            let error = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        for text in [
            "https://example.com",
            "http://example.com:8080/a/b?c=d",
            "HTTPS://Example.com/",
            "https://[2606:4700::1]/",
            "https://bücher.example/",
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().as_str(), text);
        }
    }

    #[test]
    fn a_hidden_endpoint_shows_its_host_and_four_characters() {
        let endpoint: Endpoint =
            "https://hooks.example/services/T01/B02/XyzSecretAbcd".parse().unwrap();
        assert_eq!(endpoint.hidden(), "https://hooks.example/…Abcd");
        assert_eq!(format!("{endpoint:?}"), "Endpoint(https://hooks.example/…Abcd)");
        let words: Vec<&str> = endpoint.words().collect();
        assert_eq!(words, ["services", "XyzSecretAbcd"]);
        let telegram = "https://api.example:8443/bot12345:TokenToken/sendMessage?chat_id=-1009";
        let telegram: Endpoint = telegram.parse().unwrap();
        assert_eq!(telegram.hidden(), "https://api.example:8443/…1009");
        let words: Vec<&str> = telegram.words().collect();
        assert_eq!(words, ["bot12345", "TokenToken", "sendMessage", "chat_id", "-1009"]);
    }

    #[test]
    fn every_spelling_of_an_ip_address_is_recognised() {
        for host in [
            "127.0.0.1",
            "127.0.0.1.",
            "2130706433",
            "017700000001",
            "0x7f000001",
            "0x7f.1",
            "127.1",
            "127.0.1",
            "0177.0.0.1",
            "0x7f.0.0.0x1",
            "%31%32%37.0.0.1",
            "１２７.0.0.1",
            "127。0。0。1",
            "①②⑦.0.0.1",
        ] {
            let endpoint: Endpoint = format!("http://{host}/").parse().unwrap();
            assert_eq!(endpoint.literal(), Some([127, 0, 0, 1].into()), "{host}");
            assert_eq!(endpoint.name(), None);
        }
        let endpoint: Endpoint = "http://[::ffff:7f00:1]:80/".parse().unwrap();
        assert_eq!(endpoint.literal().map(|it| it.to_canonical()), Some([127, 0, 0, 1].into()));
        let endpoint: Endpoint = "http://localhost./".parse().unwrap();
        assert_eq!((endpoint.literal(), endpoint.name()), (None, Some("localhost.")));
    }
}
