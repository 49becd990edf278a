//! How a source is named in one text.

use serde::{Deserialize, Serialize};

use super::section::Setting;
use super::source_kinds::SourceKind;
use super::values::{Secret, is_http};

/// A source given by its kind, or by kind and address: `rpc`, `lake`, `lake:https://…`,
/// `rpc:https://…`, `s3://…`, `/srv/lake`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SourceAddress {
    /// The configured source of this kind, or the public ones of the network.
    Kind(SourceKind),
    /// The source of this kind at an address, which may contain a password.
    At(SourceKind, Secret),
}

impl Setting for SourceAddress {
    const EXPECTED: &'static str = "a kind of source, or its address";
}

impl TryFrom<String> for SourceAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if let Some(kind) = SourceKind::ALL.iter().find(|kind| kind.word() == text) {
            return Ok(Self::Kind(*kind));
        }
        for kind in SourceKind::ALL {
            let Some(setting) = kind.address() else { continue };
            let address = text.strip_prefix(kind.word()).and_then(|rest| rest.strip_prefix(':'));
            let Some(address) = address else { continue };
            if address.is_empty() {
                return Err(nameless());
            }
            (setting.check)(address)?;
            return Ok(Self::At(*kind, address.into()));
        }
        if is_http(&text) {
            // The text is not quoted, because it may contain a password.
            return Err("its kind is not clear: write lake: or rpc: before the address".to_owned());
        }
        // A word without a slash is more likely a typing error than a directory.
        if text.contains('/') {
            Ok(Self::At(SourceKind::Lake, text.as_str().into()))
        } else {
            Err(nameless())
        }
    }
}

impl SourceAddress {
    /// Returns the kind of the source.
    pub fn kind(&self) -> SourceKind {
        match self {
            Self::Kind(kind) | Self::At(kind, _) => *kind,
        }
    }

    /// Returns `text`, which should name a source, in a form fit for a message: addresses are
    /// replaced, because they may contain passwords.
    pub fn redacted(text: &str) -> &str {
        if text.contains("://") { "that address" } else { text }
    }

    /// Returns the settings with addresses that this source replaces as the only one: the key of
    /// each, its value, and the keys of lists that belong to it. A kind without an address keeps
    /// the configured source of the kind.
    pub fn replaced_addresses(&self) -> Vec<(&'static str, String, &'static [&'static str])> {
        let others = SourceKind::ALL.iter().filter(|kind| Self::Kind(**kind) != *self);
        others
            .filter_map(|kind| {
                let setting = kind.address()?;
                let address = match self {
                    Self::At(own, address) if own == kind => address.reveal().to_owned(),
                    _ => String::new(),
                };
                Some((setting.key, address, setting.belongings))
            })
            .collect()
    }
}

fn nameless() -> String {
    "it names neither a kind of source nor an address".to_owned()
}

impl From<SourceAddress> for String {
    fn from(source: SourceAddress) -> Self {
        match source {
            SourceAddress::Kind(kind) => kind.word().to_owned(),
            SourceAddress::At(kind, address) => format!("{kind}:{}", address.reveal()),
        }
    }
}
