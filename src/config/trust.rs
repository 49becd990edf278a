//! Settings of what is checked of ledgers, and of the validators that attest them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::section::{Setting, section};
use super::{Config, SourceKind};
use crate::domain::{Network, NodeId, ParseError};
use crate::validators::{Organisation, Validators, ValidatorsError, two_thirds};
use crate::verify::{Events, Policy, Rewritten};

section! {
    /// `[trust]`
    pub struct Trust {
        /// What becomes of a ledger whose transactions, results or events its header does not bind.
        pub events: UnboundEvents = UnboundEvents::default();
        /// What becomes of a ledger with rewritten events whose earlier form is not found (CAP-67).
        pub rewritten: RewrittenEvents = RewrittenEvents::default();
        /// Organisations with the keys of their validators; empty for those of the network, if it
        /// is a public one.
        pub validators: TrustedValidators = TrustedValidators::default();
        /// Number of the organisations in `validators` that must have signed; 0 for two thirds of
        /// them, rounded up.
        pub threshold: u32 = 0,
            "a number of organisations from 1, or 0 for two thirds of them";
        /// Whether ledgers are stored only once they are attested.
        pub require_attested: bool = false;
    }
}

/// What becomes of a ledger whose transactions, results or events its header does not bind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnboundEvents {
    /// It is refused.
    #[default]
    Refuse,
    /// It is stored and reported.
    Report,
}

impl Setting for UnboundEvents {
    const EXPECTED: &'static str = "refuse or report";
    const WORDS: &'static [&'static str] = &["refuse", "report"];
}

/// What becomes of a ledger with rewritten events whose earlier form is not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RewrittenEvents {
    /// It is stored and counted.
    #[default]
    Store,
    /// It is refused.
    Refuse,
}

impl Setting for RewrittenEvents {
    const EXPECTED: &'static str = "store or refuse";
    const WORDS: &'static [&'static str] = &["store", "refuse"];
}

/// Organisations by their names, each with the keys of its validators. The keys are checked
/// together with the other settings, so that an error names the wrong one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TrustedValidators(pub BTreeMap<String, Vec<String>>);

impl Setting for TrustedValidators {
    const EXPECTED: &'static str = "a table of organisations, each with a list of the keys of its \
        validators, such as { \"example.org\" = [\"G…\"] }";
}

/// Why no validators can be trusted as the settings say.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    /// A key is none.
    #[error("trust.validators, organisation '{organisation}': {error}")]
    Key {
        /// The organisation that names it.
        organisation: String,
        /// What is wrong with it.
        error: ParseError,
    },
    /// The organisations, or the threshold, cannot be used.
    #[error("trust.validators, trust.threshold: {0}")]
    Validators(#[from] ValidatorsError),
    /// A threshold without validators.
    #[error(
        "trust.threshold is set without trust.validators: name the organisations of which so many \
         must have signed"
    )]
    Threshold,
    /// Attestation is required, and no validators are known.
    #[error(
        "trust.require_attested is set, and {0} has no known validators: name them in \
         trust.validators"
    )]
    Required(Network),
}

impl Trust {
    /// Returns what is done about ledgers that are not as their headers say.
    pub fn policy(&self) -> Policy {
        Policy {
            events: match self.events {
                UnboundEvents::Refuse => Events::Refuse,
                UnboundEvents::Report => Events::Report,
            },
            rewritten: match self.rewritten {
                RewrittenEvents::Store => Rewritten::Store,
                RewrittenEvents::Refuse => Rewritten::Refuse,
            },
            ..Policy::default()
        }
    }

    /// Returns the validators that are named in the settings; `None` when none are.
    ///
    /// # Errors
    /// When a key is invalid, or the organisations and the threshold cannot be used.
    fn named(&self) -> Result<Option<Validators>, TrustError> {
        let TrustedValidators(organisations) = &self.validators;
        if organisations.is_empty() {
            return if self.threshold == 0 { Ok(None) } else { Err(TrustError::Threshold) };
        }
        let organisations: Vec<_> =
            organisations.iter().map(organisation).collect::<Result<_, _>>()?;
        let threshold = match self.threshold {
            0 => two_thirds(organisations.len()),
            some => usize::try_from(some).unwrap_or(usize::MAX),
        };
        Ok(Some(Validators::new(organisations, threshold)?))
    }

    /// Returns an error message when the settings cannot be used for any network.
    fn validation_error(&self) -> Option<String> {
        self.named().err().map(|error| error.to_string())
    }
}

fn organisation((name, keys): (&String, &Vec<String>)) -> Result<Organisation, TrustError> {
    let of_key = |key: &String| key.trim().parse::<NodeId>();
    let validators = keys.iter().map(of_key).collect::<Result<_, _>>();
    let organisation = name.clone();
    let validators = validators.map_err(|error| TrustError::Key { organisation, error })?;
    Ok(Organisation { name: name.clone(), validators })
}

impl Config {
    /// Returns the trusted validators of a network: those in the settings, or else the known ones
    /// of a public network; `None` for other networks. A sandbox network has a validator of its
    /// own, which is not a setting.
    ///
    /// # Errors
    /// When those in the settings cannot be used, or there are none although attestation is
    /// required.
    pub fn validators(&self, network: &Network) -> Result<Option<Arc<Validators>>, TrustError> {
        let named = self.trust.named()?;
        let validators = named.or_else(|| Validators::of_network(network));
        let is_sandbox = self.source.kind == SourceKind::Sandbox;
        if validators.is_none() && self.trust.require_attested && !is_sandbox {
            return Err(TrustError::Required(network.clone()));
        }
        Ok(validators.map(Arc::new))
    }

    /// Returns an error message when no validators can be trusted as the settings say.
    pub(super) fn trust_error(&self) -> Option<String> {
        let of_network = |network| self.validators(&network).err().map(|error| error.to_string());
        self.trust.validation_error().or_else(|| self.network().and_then(of_network))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::load_text;
    use super::*;

    const KEY: &str = "GCGB2S2KGYARPVIA37HYZXVRM2YZUEXA6S33ZU5BUDC6THSB62LZSTYH";
    const OTHER: &str = "GCM6QMP3DLRPTAZW2UZPCPX2LF3SXWXKPMP3GKFZBDSF3QZGV2G5QSTK";

    fn network(name: &str) -> Network {
        Network::from_name_or_passphrase(name)
    }

    #[test]
    fn validators_are_those_in_the_settings_or_of_the_network() {
        let config = load_text("").unwrap().config;
        assert_eq!(config.validators(&network("mainnet")).unwrap().unwrap().threshold(), 5);
        assert_eq!(config.validators(&network("local")), Ok(None));
        assert_eq!(config.trust.policy(), Policy::default());
        let text = format!(
            "[trust]\nevents = 'report'\nrewritten = 'refuse'\n[trust.validators]\n\
             'a.example' = ['{KEY}']\n'b.example' = ['{OTHER}']\n"
        );
        let settings = load_text(&text).unwrap();
        let config = &settings.config;
        let policy =
            Policy { events: Events::Report, rewritten: Rewritten::Refuse, ..Policy::default() };
        assert_eq!(config.trust.policy(), policy);
        for name in ["local", "mainnet"] {
            let validators = config.validators(&network(name)).unwrap().unwrap();
            assert_eq!((validators.organisations().len(), validators.threshold()), (2, 2));
            let key = KEY.parse().unwrap();
            assert_eq!(validators.organisation_of(&key), Some("a.example"));
        }
        assert_eq!(load_text(&settings.to_string()).unwrap().config, *config);
    }

    #[test]
    fn what_cannot_be_trusted_is_refused_with_a_sentence() {
        let one = format!("validators = {{ 'a' = ['{KEY}'] }}");
        for (text, sentence) in [
            ("events = 'ignore'", "trust.events cannot be \"ignore\": give refuse or report"),
            ("rewritten = 'refused'", "(did you mean \"refuse\"?): give store or refuse"),
            ("validators = ['a']", "trust.validators cannot be"),
            ("validators = { a = 'G' }", "give a table of organisations"),
            ("threshold = 1", "trust.threshold is set without trust.validators"),
            ("validators = { a = ['GABC'] }", "trust.validators, organisation 'a': "),
            ("validators = { a = [] }", "the organisation 'a' has no validators"),
            (&format!("{one}\nthreshold = 2"), "a threshold of 2 does not fit 1: give 1 to 1"),
            (
                &format!("validators = {{ 'a' = ['{KEY}'], 'b' = ['{KEY}'] }}"),
                "is named twice, in 'a' and in 'b'",
            ),
        ] {
            let error = load_text(&format!("[trust]\n{text}")).unwrap_err().to_string();
            assert!(error.contains(sentence) && !error.contains('\n'), "{error}");
        }
        let required = "[trust]\nrequire_attested = true";
        let error = load_text(&format!("network = 'local'\n{required}")).unwrap_err().to_string();
        assert!(error.contains("trust.require_attested is set, and local"), "{error}");
        for allowed in [
            &format!("network = 'testnet'\n{required}"),
            &format!("network = 'local'\n{required}\n{one}"),
            &format!("network = 'local'\nsource.kind = 'sandbox'\n{required}"),
            required,
        ] {
            assert!(load_text(allowed).is_ok(), "{allowed}");
        }
        let error = load_text(required).unwrap().config.validators(&network("local")).unwrap_err();
        assert!(matches!(error, TrustError::Required(_)), "{error}");
    }
}
