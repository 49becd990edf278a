//! `[auth]`: the plan of issued tokens, and the keys of other accepted issuers.

use std::path::PathBuf;

use orrery_settings::section;
use orrery_settings::section::{ListItem, Setting};
use serde::{Deserialize, Serialize};

use super::{Plan, PublicKeyAlgorithm};

section! {
    /// `[auth]`
    pub struct Auth {
        /// Plan of a token that is issued without one.
        pub default_plan: Plan = Plan::Pro;
        /// Public keys of other issuers whose tokens are accepted.
        pub public_keys: Vec<PublicKeyFile> = Vec::new();
    }
}

impl Setting for Plan {
    const EXPECTED: &'static str = "dev, builder, pro or protocol";
    const WORDS: &'static [&'static str] = &["dev", "builder", "pro", "protocol"];
}

/// A public key in a PEM file, restricted to one algorithm: `KID:EdDSA:FILE` or `KID:RS256:FILE`. A
/// further colon may introduce the prefix that the `sub` of its tokens must have; without it, any
/// owner is accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKeyFile {
    /// Value of the `kid` header of tokens that this key verifies.
    pub kid: String,
    /// The only algorithm that tokens of this key may use.
    pub algorithm: PublicKeyAlgorithm,
    /// Path of the PEM file, which must not contain a colon.
    pub path: PathBuf,
    /// Prefix that the `sub` of its tokens must have; empty when any owner is accepted.
    pub sub_prefix: String,
}

impl ListItem for PublicKeyFile {
    const EXPECTED: &'static str = "a list of KID:EdDSA:FILE or KID:RS256:FILE, each a public \
        key in PEM form, optionally followed by a colon and a prefix that the owners of its tokens \
        must have";
}

impl TryFrom<String> for PublicKeyFile {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut parts = text.splitn(4, ':');
        let (kid, algorithm, path) = (parts.next(), parts.next(), parts.next());
        let sub_prefix = parts.next();
        let algorithm = match algorithm {
            Some("EdDSA") => PublicKeyAlgorithm::EdDsa,
            Some("RS256") => PublicKeyAlgorithm::Rs256,
            _ => return Err(format!("'{text}' names neither EdDSA nor RS256")),
        };
        if sub_prefix.is_some_and(|prefix| prefix.is_empty() || prefix.contains(['/', '\\'])) {
            return Err(format!(
                "'{text}' has a colon in its file name, or nothing after the last colon"
            ));
        }
        match (kid, path) {
            (Some(kid), Some(path)) if !kid.is_empty() && !path.is_empty() => Ok(Self {
                kid: kid.to_owned(),
                algorithm,
                path: PathBuf::from(path),
                sub_prefix: sub_prefix.unwrap_or_default().to_owned(),
            }),
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
        let colon = if key.sub_prefix.is_empty() { "" } else { ":" };
        format!("{}:{algorithm}:{}{colon}{}", key.kid, key.path.display(), key.sub_prefix)
    }
}
