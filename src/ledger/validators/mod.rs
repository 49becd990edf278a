//! The validators that a network's users trust, and what their signatures attest.
//!
//! The signature in the header of ledger N is that of the validator which proposed its value. It
//! covers the transaction set, and the set contains the hash of ledger N−1: so it says that this
//! validator had closed ledger N−1 with this hash, and through the links every ledger before. A
//! range of linked ledgers is attested up to the ledger for which validators of enough organisations
//! have said so.

mod known;
mod signed;

use std::collections::HashMap;
use std::fmt;

use crate::domain::{LedgerRange, LedgerSeq, Network, NodeId};

pub use known::{KnownNetwork, KnownOrganisation, KnownValidator, known};
pub use signed::Signed;

/// An organisation and its validators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Organisation {
    /// Its name, by convention the domain of its home page.
    pub name: String,
    /// Keys of its validators.
    pub validators: Vec<NodeId>,
}

/// Organisations that are trusted, and how many of them must have signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validators {
    organisations: Vec<Organisation>,
    threshold: usize,
    /// Position of each validator's organisation.
    organisation_of: HashMap<NodeId, usize>,
}

/// Why organisations and a threshold cannot be trusted as they are given: a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ValidatorsError(String);

/// Why no ledger of a range is attested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unattested {
    /// Validators of too few organisations have signed ledgers of the range.
    TooFew {
        /// Organisations that have signed.
        signed: usize,
        /// Organisations that must have signed.
        needed: usize,
    },
    /// What they signed attests only ledgers before the range.
    OnlyEarlier,
}

impl fmt::Display for Unattested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFew { signed, needed } => write!(
                f,
                "validators of {signed} trusted organisations have signed ledgers of this range, \
                 and {needed} are needed"
            ),
            Self::OnlyEarlier => {
                f.write_str("the signatures in this range attest only the ledger before it")
            }
        }
    }
}

impl Validators {
    /// Creates the set of trusted validators. `threshold` is the number of organisations that must
    /// have signed.
    ///
    /// # Errors
    /// When no such number of signatures could be reached, or a key would count twice.
    pub fn new(
        organisations: Vec<Organisation>,
        threshold: usize,
    ) -> Result<Self, ValidatorsError> {
        let refused = |sentence: &str| Err(ValidatorsError(sentence.to_owned()));
        let count = organisations.len();
        if count == 0 {
            return refused("no validators are named: name at least one organisation with one key");
        }
        let mut organisation_of: HashMap<NodeId, usize> = HashMap::new();
        for (position, organisation) in organisations.iter().enumerate() {
            let name = &organisation.name;
            if organisation.validators.is_empty() {
                return refused(&format!(
                    "the organisation '{name}' has no validators: name their keys, or leave it out"
                ));
            }
            if organisations[..position].iter().any(|other| other.name == *name) {
                return refused(&format!(
                    "two organisations are named '{name}': put their validators into one"
                ));
            }
            for key in &organisation.validators {
                if let Some(first) = organisation_of.insert(*key, position) {
                    return refused(&format!(
                        "the validator {key} is named twice, in '{}' and in '{name}': a key belongs \
                         to one organisation, once",
                        organisations[first].name
                    ));
                }
            }
        }
        if threshold == 0 || threshold > count {
            return refused(&format!(
                "a threshold of {threshold} does not fit {count}: give 1 to {count}"
            ));
        }
        Ok(Self { organisations, threshold, organisation_of })
    }

    /// Returns the validators of a public network; `None` for other networks. Two thirds of the
    /// organisations, rounded up, must have signed. In a network of one organisation, each validator
    /// counts as one.
    pub fn of_network(network: &Network) -> Option<Self> {
        let known = known(network)?;
        let organisation = |name: &str, keys: &[KnownValidator]| Organisation {
            name: name.to_owned(),
            validators: keys.iter().filter_map(|key| key.key.parse().ok()).collect(),
        };
        let organisations: Vec<_> = match known.organisations {
            [only] => {
                let each = |one: &KnownValidator| organisation(one.name, &[*one]);
                only.validators.iter().map(each).collect()
            }
            several => several.iter().map(|one| organisation(one.domain, one.validators)).collect(),
        };
        let threshold = two_thirds(organisations.len());
        Self::new(organisations, threshold).ok()
    }

    /// Returns the organisations.
    pub fn organisations(&self) -> &[Organisation] {
        &self.organisations
    }

    /// Returns the number of organisations that must have signed.
    pub fn threshold(&self) -> usize {
        self.threshold
    }

    /// Returns the name of the organisation of a validator; `None` if it is not trusted.
    pub fn organisation_of(&self, validator: &NodeId) -> Option<&str> {
        let position = *self.organisation_of.get(validator)?;
        self.organisations.get(position).map(|organisation| organisation.name.as_str())
    }

    /// Returns the newest ledger of a range that is attested by what validators have signed in it.
    ///
    /// # Errors
    /// The reason why none is.
    pub fn attested(&self, range: LedgerRange, signed: &Signed) -> Result<LedgerSeq, Unattested> {
        let newest_of = |organisation: &Organisation| {
            organisation.validators.iter().filter_map(|key| signed.newest(key)).max()
        };
        let mut newest: Vec<_> = self.organisations.iter().filter_map(newest_of).collect();
        newest.sort_unstable_by(|a, b| b.cmp(a));
        let needed = self.threshold;
        let Some(last) = newest.get(needed - 1) else {
            return Err(Unattested::TooFew { signed: newest.len(), needed });
        };
        last.previous().filter(|ledger| range.contains(*ledger)).ok_or(Unattested::OnlyEarlier)
    }
}

/// Returns two thirds of a number, rounded up.
pub fn two_thirds(count: usize) -> usize {
    (2 * count).div_ceil(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn organisation(name: &str, keys: &[u8]) -> Organisation {
        let validators = keys.iter().map(|key| NodeId([*key; 32])).collect();
        Organisation { name: name.to_owned(), validators }
    }

    #[test]
    fn public_networks_have_thresholds_of_two_thirds() {
        for (name, count, threshold) in [("mainnet", 7, 5), ("testnet", 3, 2), ("futurenet", 1, 1)]
        {
            let network = Network::from_name_or_passphrase(name);
            let validators = Validators::of_network(&network).unwrap();
            assert_eq!(validators.organisations().len(), count, "{name}");
            assert_eq!(validators.threshold(), threshold, "{name}");
        }
        assert_eq!(Validators::of_network(&Network::from_name_or_passphrase("local")), None);
    }

    fn refusal(organisations: Vec<Organisation>, threshold: usize) -> String {
        Validators::new(organisations, threshold).unwrap_err().to_string()
    }

    #[test]
    fn what_could_count_twice_or_never_is_refused() {
        let two = || vec![organisation("a", &[1, 2]), organisation("b", &[3])];
        for threshold in [1, 2] {
            assert!(Validators::new(two(), threshold).is_ok());
        }
        for threshold in [0, 3] {
            let sentence = format!("a threshold of {threshold} does not fit 2: give 1 to 2");
            assert_eq!(refusal(two(), threshold), sentence);
        }
        let repeated = vec![organisation("a", &[1]), organisation("b", &[2, 1])];
        assert!(refusal(repeated, 1).contains(" is named twice, in 'a' and in 'b': "));
        let empty = vec![organisation("a", &[1]), organisation("b", &[])];
        assert!(refusal(empty, 1).starts_with("the organisation 'b' has no validators: "));
        let same = vec![organisation("a", &[1]), organisation("a", &[2])];
        assert!(refusal(same, 1).starts_with("two organisations are named 'a': "));
        assert!(refusal(Vec::new(), 1).starts_with("no validators are named: "));
    }

    #[test]
    fn a_ledger_is_attested_by_as_many_organisations_as_the_threshold() {
        let organisations =
            vec![organisation("a", &[1, 2]), organisation("b", &[3]), organisation("c", &[4])];
        let validators = Validators::new(organisations, 2).unwrap();
        let range = LedgerRange::new(LedgerSeq(10), LedgerSeq(30));
        let mut signed = Signed::default();
        let mut sign = |key: u8, ledger: u32| {
            signed.add(NodeId([key; 32]), LedgerSeq(ledger));
            validators.attested(range, &signed)
        };
        assert_eq!(sign(1, 12), Err(Unattested::TooFew { signed: 1, needed: 2 }));
        // Another validator of the same organisation adds nothing, nor does an unknown one.
        assert_eq!(sign(2, 15), Err(Unattested::TooFew { signed: 1, needed: 2 }));
        assert_eq!(sign(9, 15), Err(Unattested::TooFew { signed: 1, needed: 2 }));
        assert_eq!(sign(3, 10), Err(Unattested::OnlyEarlier));
        assert_eq!(sign(3, 14), Ok(LedgerSeq(13)));
        assert_eq!(sign(4, 20), Ok(LedgerSeq(14)));
        assert_eq!(sign(3, 25), Ok(LedgerSeq(19)));
    }
}
