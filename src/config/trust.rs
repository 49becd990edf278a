//! The validators that the settings, or the network, name as trusted.

use std::sync::Arc;

use super::Config;
use crate::domain::Network;
use crate::settings::{SourceKind, TrustError};
use crate::validators::Validators;

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
            return Err(TrustError(format!(
                "trust.require_attested is set, and {network} has no known validators: name them in \
                 trust.validators"
            )));
        }
        Ok(validators.map(Arc::new))
    }

    /// Returns an error message when no validators can be trusted as the settings say.
    pub(super) fn trust_error(&self) -> Option<String> {
        let of_network = |network| self.validators(&network).err().map(|error| error.to_string());
        let unusable = self.trust.named().err().map(|error| error.to_string());
        unusable.or_else(|| self.network().and_then(of_network))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::load_text;
    use super::*;
    use crate::verify::{Events, Policy, Rewritten};

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
        let error = error.to_string();
        assert!(error.starts_with("trust.require_attested is set, and local "), "{error}");
    }
}
