//! Types of single settings: how each is parsed from text and displayed.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use orrery_ledger::domain::{Network, ParseError, StartPoint};
use serde::{Deserialize, Serialize};

use crate::section::{ListItem, Setting};

/// How [`Network::name`] calls a network without a short name.
const CUSTOM: &str = "custom";

/// A text that is never displayed, because it is or may contain a password.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Returns the text itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns the text itself; `None` when it is empty.
    pub fn as_option(&self) -> Option<&str> {
        (!self.0.is_empty()).then_some(&*self.0)
    }
}

impl Setting for Secret {
    const EXPECTED: &'static str = "a text";
    const IS_SECRET: bool = true;
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "Secret()" } else { "Secret(…)" })
    }
}

/// Returns an error message when one half of an access key for S3 is given without the other.
pub(crate) fn half_a_key(section: &str, id: &str, secret: &Secret) -> Option<String> {
    (id.is_empty() != secret.as_option().is_none()).then(|| {
        format!(
            "{section}.s3_access_key_id and {section}.s3_secret_access_key belong together: give both \
             or none"
        )
    })
}

/// An `http://` or `https://` URL that may contain a password; may be empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SecretUrl(Secret);

impl SecretUrl {
    /// Returns the URL; `None` when it is empty.
    pub fn as_option(&self) -> Option<&str> {
        self.0.as_option()
    }
}

impl Setting for SecretUrl {
    const EXPECTED: &'static str = "an address that starts with https:// or http://";
    const IS_SECRET: bool = true;
}

impl TryFrom<String> for SecretUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if !text.is_empty() {
            check_http(&text)?;
        }
        Ok(Self(Secret(text)))
    }
}

impl From<SecretUrl> for String {
    fn from(url: SecretUrl) -> Self {
        url.0.0
    }
}

/// The address of this service's first page, without the `/` at its end; may be empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicUrl(String);

impl PublicUrl {
    /// Returns the address; `None` when it is empty.
    pub fn as_option(&self) -> Option<&str> {
        (!self.0.is_empty()).then_some(&*self.0)
    }
}

impl Setting for PublicUrl {
    const EXPECTED: &'static str = "an address such as \"https://orrery.example.org\"";
}

impl TryFrom<String> for PublicUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self(text));
        }
        check_http(&text)?;
        let has_more =
            |sign: char| matches!(sign, '?' | '#' | '<' | '>' | '"' | '\'' | '`' | '|' | '\\');
        match text.contains(has_more) || text.contains('@') {
            true => Err("it has more than a scheme, a host, a port and a path".to_owned()),
            false => Ok(Self(text.trim_end_matches('/').to_owned())),
        }
    }
}

impl From<PublicUrl> for String {
    fn from(url: PublicUrl) -> Self {
        url.0
    }
}

/// Returns why a text is no `http://` or `https://` URL.
pub(crate) fn check_http(text: &str) -> Result<(), String> {
    if is_http(text) {
        Ok(())
    } else {
        Err("it starts neither with http:// nor with https://".to_owned())
    }
}

/// Whether a text is an `http://` or `https://` URL.
pub(crate) fn is_http(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    host.is_some_and(|host| !host.is_empty() && host.bytes().all(|c| c.is_ascii_graphic()))
}

/// An HTTP header that is sent with every request, `Name: value`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Header {
    /// Name of the header.
    pub name: String,
    /// Value of the header, which may be a password.
    pub value: Secret,
}

impl ListItem for Header {
    const EXPECTED: &'static str = "a list of headers, such as [\"Authorization: Bearer …\"]";
    const IS_SECRET: bool = true;
}

impl TryFrom<String> for Header {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (name, value) = text.split_once(':').ok_or("there is no colon in it")?;
        let token = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
        if name.is_empty() || !name.bytes().all(token) || value.trim().is_empty() {
            return Err("it is not a header".to_owned());
        }
        Ok(Self { name: name.to_owned(), value: Secret(value.trim().to_owned()) })
    }
}

impl From<Header> for String {
    fn from(header: Header) -> Self {
        format!("{}: {}", header.name, header.value.0)
    }
}

/// Clients that may read `/metrics`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MetricsReaders {
    /// Only clients on the same machine.
    #[default]
    Loopback,
    /// All clients.
    All,
    /// No clients.
    Off,
}

impl Setting for MetricsReaders {
    const EXPECTED: &'static str = "loopback, all or off";
    const WORDS: &'static [&'static str] = &["loopback", "all", "off"];
}

/// Contracts of which it is recorded what they hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordedStorage {
    /// All contracts.
    #[default]
    All,
    /// Those that somebody watches.
    Watched,
    /// None.
    Off,
}

impl Setting for RecordedStorage {
    const EXPECTED: &'static str = "all, watched or off";
    const WORDS: &'static [&'static str] = &["all", "watched", "off"];
}

/// What becomes of a request with a parameter that its route does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnknownParameters {
    /// It is refused, because a mistyped filter would silently select everything.
    #[default]
    Refuse,
    /// It is answered as if the parameter were not there.
    Ignore,
}

impl Setting for UnknownParameters {
    const EXPECTED: &'static str = "refuse or ignore";
    const WORDS: &'static [&'static str] = &["refuse", "ignore"];
}

/// Ledger at which an empty data directory begins; `None` stands for the usual start of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "String")]
pub struct Start(pub Option<StartPoint>);

/// A start as it is written in a file: a ledger needs no quotes.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Ledger(u64),
}

impl Setting for Start {
    const EXPECTED: &'static str =
        "tip, genesis, oldest, a ledger from 1 to 4294967295, or nothing";
}

impl TryFrom<Written> for Start {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let text = match written {
            Written::Text(text) => text,
            Written::Ledger(ledger) => ledger.to_string(),
        };
        if text.is_empty() {
            return Ok(Self(None));
        }
        text.parse().map(|start| Self(Some(start))).map_err(|error: ParseError| error.to_string())
    }
}

impl From<Start> for String {
    fn from(start: Start) -> Self {
        start.0.map(|start| start.to_string()).unwrap_or_default()
    }
}

/// Name of a network in any case, or a passphrase that has the form of the known ones; empty for none.
/// Any other text is more likely a mistyped name than a passphrase, and a data directory belongs to
/// its network for ever.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NetworkName(String);

impl NetworkName {
    /// Returns the network; `None` when none is named.
    pub fn network(&self) -> Option<Network> {
        (!self.0.is_empty()).then(|| Network::from_name_or_passphrase(&self.0))
    }
}

impl Setting for NetworkName {
    const EXPECTED: &'static str = "testnet, mainnet, futurenet or local, or the passphrase of another network as \
                                    network_passphrase (--network-passphrase)";
    const WORDS: &'static [&'static str] = &["testnet", "mainnet", "futurenet", "local"];
}

impl TryFrom<String> for NetworkName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        /// Stands in all known passphrases before the date.
        const BEFORE_DATE: &str = " ; ";
        let name = text.trim().to_ascii_lowercase();
        if name.is_empty() || Network::from_name_or_passphrase(&name).name() != CUSTOM {
            return Ok(Self(name));
        }
        if text.contains(BEFORE_DATE) { Ok(Self(text)) } else { Err("unknown network".to_owned()) }
    }
}

impl From<NetworkName> for String {
    fn from(name: NetworkName) -> Self {
        name.0
    }
}

/// A proxy or a subnet of proxies, written as an IP address or in CIDR notation (RFC 4632).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Proxies(pub IpNet);

impl ListItem for Proxies {
    const EXPECTED: &'static str =
        "a list of IP addresses and subnets, such as [\"10.0.0.1\", \"10.1.0.0/16\"]";
}

impl TryFrom<String> for Proxies {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let address = text.parse().map(|address: IpAddr| Self(address.into()));
        address.or_else(|_| text.parse().map(Self)).map_err(|error| error.to_string())
    }
}

impl From<Proxies> for String {
    fn from(Proxies(subnet): Proxies) -> Self {
        match subnet.prefix_len() == subnet.max_prefix_len() {
            true => subnet.addr().to_string(),
            false => subnet.to_string(),
        }
    }
}

/// An origin of web pages (RFC 6454), or `*` for all origins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CorsOrigin(String);

impl CorsOrigin {
    /// Returns the origin as browsers send it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ListItem for CorsOrigin {
    const EXPECTED: &'static str = "a list of origins, each a scheme and a whole host without a path, such as \
        [\"https://app.example.org\", \"http://localhost:*\"], or [\"*\"]";
}

impl TryFrom<String> for CorsOrigin {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        // Only a whole port may be left open: hosts with a star would match nothing.
        let bare = |host: &str| {
            let named = host.strip_suffix(":*").unwrap_or(host);
            !named.is_empty()
                && named.bytes().all(|c| c.is_ascii_graphic() && !b"/?#@,*".contains(&c))
        };
        if text == "*" || host.is_some_and(bare) {
            Ok(Self(text))
        } else {
            Err(format!("'{text}' is not an origin"))
        }
    }
}

impl From<CorsOrigin> for String {
    fn from(origin: CorsOrigin) -> Self {
        origin.0
    }
}

/// Serialises lists of values as lists of texts, through `Display` and `FromStr`.
pub(crate) mod as_text {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<T: Display, S: Serializer>(list: &[T], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(list.iter().map(T::to_string))
    }

    pub fn deserialize<'de, T, D>(from: D) -> Result<Vec<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let texts = Vec::<String>::deserialize(from)?;
        texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
    }
}
