//! Settings of what is checked of ledgers, and of the validators that attest them.

use std::collections::BTreeMap;

use orrery_ledger::domain::{NodeId, ParseError};
use orrery_ledger::validators::{Organisation, Validators, two_thirds};
use orrery_ledger::verify::{Events, Policy, Rewritten};
use serde::{Deserialize, Serialize};

use crate::section;
use crate::section::Setting;

section! {
    /// `[trust]`
    pub struct Trust {
        /// What becomes of a ledger whose transactions, results or events its header does not bind.
        pub events: Events = Events::default();
        /// What becomes of a ledger with rewritten events whose earlier form is not found (CAP-67).
        pub rewritten: Rewritten = Rewritten::default();
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

impl Setting for Events {
    const EXPECTED: &'static str = "refuse or report";
    const WORDS: &'static [&'static str] = &["refuse", "report"];
}

impl Setting for Rewritten {
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

/// Why no validators can be trusted as the settings say: a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TrustError(pub String);

impl Trust {
    /// Returns what is done about ledgers that are not as their headers say.
    pub fn policy(&self) -> Policy {
        Policy { events: self.events, rewritten: self.rewritten, ..Policy::default() }
    }

    /// Returns the validators that are named in the settings; `None` when none are.
    ///
    /// # Errors
    /// When a key is invalid, or the organisations and the threshold cannot be used.
    pub fn named(&self) -> Result<Option<Validators>, TrustError> {
        let TrustedValidators(organisations) = &self.validators;
        if organisations.is_empty() {
            let sentence = "trust.threshold is set without trust.validators: name the organisations \
                            of which so many must have signed";
            return if self.threshold == 0 {
                Ok(None)
            } else {
                Err(TrustError(sentence.to_owned()))
            };
        }
        let organisations: Vec<_> =
            organisations.iter().map(organisation).collect::<Result<_, _>>()?;
        let threshold = match self.threshold {
            0 => two_thirds(organisations.len()),
            some => usize::try_from(some).unwrap_or(usize::MAX),
        };
        let validators = Validators::new(organisations, threshold);
        validators
            .map(Some)
            .map_err(|error| TrustError(format!("trust.validators, trust.threshold: {error}")))
    }
}

fn organisation((name, keys): (&String, &Vec<String>)) -> Result<Organisation, TrustError> {
    let of_key = |key: &String| key.trim().parse::<NodeId>();
    let validators = keys.iter().map(of_key).collect::<Result<_, _>>();
    let validators = validators.map_err(|error: ParseError| {
        TrustError(format!("trust.validators, organisation '{name}': {error}"))
    })?;
    Ok(Organisation { name: name.clone(), validators })
}
