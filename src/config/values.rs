//! Types of single settings: how each is read and shown. Everything here parses from one text.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::auth::PublicKeyAlgorithm;

/// Where ledgers come from while the service runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// Nowhere: what is stored is served, and `orrery import` adds to it.
    None,
    /// A network of its own inside this process, for demonstrations.
    Sandbox,
    /// A ledger lake: in a local directory, behind a web server, or in an S3-compatible store.
    Lake,
    /// An upstream Stellar RPC server.
    Rpc,
    /// A stellar-core that this process runs.
    Core,
}

impl fmt::Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Sandbox => "sandbox",
            Self::Lake => "lake",
            Self::Rpc => "rpc",
            Self::Core => "core",
        })
    }
}

/// An origin of web pages (RFC 6454), or `*` for all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CorsOrigin(String);

impl CorsOrigin {
    /// As browsers send it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for CorsOrigin {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let bare = |host: &str| {
            !host.is_empty() && host.bytes().all(|c| c.is_ascii_graphic() && !b"/?#@,".contains(&c))
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

/// A public key in a PEM file, pinned to one algorithm: `KID:EdDSA:FILE` or `KID:RS256:FILE`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKeyFile {
    /// Value of the `kid` header of tokens that this key verifies.
    pub kid: String,
    /// The only algorithm that tokens of this key may use.
    pub algorithm: PublicKeyAlgorithm,
    /// PEM file.
    pub path: PathBuf,
}

impl TryFrom<String> for PublicKeyFile {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut parts = text.splitn(3, ':');
        let (kid, algorithm, path) = (parts.next(), parts.next(), parts.next());
        let algorithm = match algorithm {
            Some("EdDSA") => PublicKeyAlgorithm::EdDsa,
            Some("RS256") => PublicKeyAlgorithm::Rs256,
            _ => return Err(format!("'{text}' names neither EdDSA nor RS256")),
        };
        match (kid, path) {
            (Some(kid), Some(path)) if !kid.is_empty() && !path.is_empty() => {
                Ok(Self { kid: kid.to_owned(), algorithm, path: PathBuf::from(path) })
            }
            _ => Err(format!("'{text}' lacks the key's id or its file")),
        }
    }
}

impl From<PublicKeyFile> for String {
    fn from(key: PublicKeyFile) -> Self {
        let algorithm = match key.algorithm {
            PublicKeyAlgorithm::EdDsa => "EdDSA",
            PublicKeyAlgorithm::Rs256 => "RS256",
        };
        format!("{}:{algorithm}:{}", key.kid, key.path.display())
    }
}

/// Lists of values that are shown and parsed as text.
pub(super) mod as_text {
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
