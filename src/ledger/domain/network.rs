//! Networks and their passphrases.

use std::fmt;

use sha2::{Digest, Sha256};

use super::Hash32;

/// `SHA-256(passphrase)`, which is part of every signature payload and transaction hash of a
/// network.
pub type NetworkId = Hash32;

const PASSPHRASES: [(&str, &str); 4] = [
    ("testnet", "Test SDF Network ; September 2015"),
    ("mainnet", "Public Global Stellar Network ; September 2015"),
    ("futurenet", "Test SDF Future Network ; October 2022"),
    ("local", "Standalone Network ; February 2017"),
];

/// A Stellar network, identified by its passphrase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    passphrase: String,
    id: NetworkId,
}

impl Network {
    /// Creates the network that has this passphrase.
    pub fn from_passphrase(passphrase: impl Into<String>) -> Self {
        let passphrase = passphrase.into();
        let id = Hash32(Sha256::digest(passphrase.as_bytes()).into());
        Self { passphrase, id }
    }

    /// Returns the network with a short name (`testnet`, `mainnet` or its alias `pubnet`,
    /// `futurenet`, `local` or its alias `standalone`); any other text is taken as a passphrase.
    pub fn from_name_or_passphrase(text: &str) -> Self {
        let name = match text {
            "pubnet" => "mainnet",
            "standalone" => "local",
            other => other,
        };
        let known = PASSPHRASES.iter().find(|(short, _)| *short == name);
        Self::from_passphrase(known.map_or(text, |(_, passphrase)| passphrase))
    }

    /// Returns the networks that have a short name.
    pub fn well_known() -> impl Iterator<Item = Self> {
        PASSPHRASES.iter().map(|(_, passphrase)| Self::from_passphrase(*passphrase))
    }

    /// Returns the short name, or `custom`.
    pub fn name(&self) -> &'static str {
        PASSPHRASES
            .iter()
            .find(|(_, passphrase)| *passphrase == self.passphrase)
            .map_or("custom", |(name, _)| name)
    }

    /// Whether it is one of the public networks, whose ledgers everybody can read elsewhere.
    pub fn is_public(&self) -> bool {
        matches!(self.name(), "testnet" | "mainnet" | "futurenet")
    }

    /// Returns the exact passphrase.
    pub fn passphrase(&self) -> &str {
        &self.passphrase
    }

    /// Returns `SHA-256(passphrase)`.
    pub fn id(&self) -> &NetworkId {
        &self.id
    }
}

impl fmt::Display for Network {
    /// Formats the network as its short name, or as the passphrase in quotes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            "custom" => write!(f, "\"{}\"", self.passphrase),
            name => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_networks_are_known_by_name() {
        for (name, id) in [
            ("mainnet", "7ac33997544e3175d266bd022439b22cdb16508c01163f26e5cb2a3e1045a979"),
            ("pubnet", "7ac33997544e3175d266bd022439b22cdb16508c01163f26e5cb2a3e1045a979"),
            ("testnet", "cee0302d59844d32bdca915c8203dd44b33fbb7edc19051ea37abedf28ecd472"),
            ("futurenet", "a3a1c6a78286713e29be0e9785670fa838d13917cd8eaeb4a3579ff1debc7fd5"),
            ("local", "baefd734b8d3e48472cff83912375fedbc7573701912fe308af730180f97d74a"),
        ] {
            let network = Network::from_name_or_passphrase(name);
            assert_eq!(network.id().to_string(), id);
            assert_eq!(network.is_public(), name != "local");
        }
    }

    #[test]
    fn any_other_text_is_a_passphrase() {
        let network = Network::from_name_or_passphrase("Apply Load");
        assert_eq!(network.passphrase(), "Apply Load");
        assert_eq!((network.name(), network.is_public()), ("custom", false));
        assert_eq!(network.to_string(), "\"Apply Load\"");
    }
}
