//! What is attested of the stored ledgers, and by whom: by the signatures of trusted validators, or
//! by a stellar-core that is followed, which takes part in consensus itself.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::domain::{LedgerRange, LedgerSeq, LedgerSet};
use crate::observe::health::Health;
use crate::store::Store;
use crate::validators::{Organisation, Signed, Unattested, Validators};

/// Name under which attestation reports to health.
pub const ATTESTATION: &str = "attestation";

/// Number of ledgers from the newest attested one to the newest stored one above which health says
/// so. On the public network validators of enough organisations have signed after 5 to 15 ledgers.
pub const ORDINARY_LAG: u32 = 100;

/// Whose word counts for the ledgers of a store.
#[derive(Debug, Default)]
pub struct Attestation {
    validators: Option<Arc<Validators>>,
    /// The newest stored ledger that came from a followed stellar-core; 0 before the first.
    from_core: AtomicU32,
}

/// What is attested of consecutive stored ledgers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attested {
    /// First and last ledger.
    pub ledgers: LedgerRange,
    /// The newest attested ledger, and whose word it is; or why none is attested.
    pub newest: Result<(LedgerSeq, AttestedBy), NotAttested>,
}

/// Whose word attests a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttestedBy {
    /// The stellar-core that is followed.
    Core,
    /// The signatures of trusted validators.
    Validators {
        /// Number of organisations with a signature that attests the ledger.
        organisations: usize,
        /// Number of trusted organisations.
        of: usize,
    },
}

/// Why no ledger of a range is attested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAttested {
    /// No validators are trusted.
    #[error(
        "no validators of this network are trusted: name them in trust.validators to learn which \
         ledgers they attest"
    )]
    NoValidators,
    /// What trusted validators have signed does not suffice.
    #[error("{0}")]
    Unattested(Unattested),
}

impl AttestedBy {
    /// Returns the word for it in answers.
    pub fn word(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Validators { .. } => "validators",
        }
    }
}

impl fmt::Display for AttestedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Core => f.write_str("by the stellar-core that is followed"),
            Self::Validators { organisations, of } => {
                write!(f, "by validators of {organisations} of {of} organisations")
            }
        }
    }
}

impl Attested {
    /// Returns the newest attested ledger.
    pub fn ledger(&self) -> Option<LedgerSeq> {
        self.newest.as_ref().ok().map(|(ledger, _)| *ledger)
    }

    /// Returns the word for whose word it is.
    pub fn by(&self) -> Option<&'static str> {
        self.newest.as_ref().ok().map(|(_, by)| by.word())
    }

    /// Returns why no ledger is attested; `None` when some are.
    pub fn reason(&self) -> Option<String> {
        self.newest.as_ref().err().map(ToString::to_string)
    }

    /// Returns the ledgers that are attested; the range is empty when none are.
    fn attested(&self) -> Option<LedgerRange> {
        Some(LedgerRange { last: self.ledger()?, ..self.ledgers })
    }

    /// Returns what an operator should know: that nothing is attested, or too little. `None` when
    /// all is as it should be.
    fn detail(&self) -> Option<String> {
        let last = self.ledgers.last;
        match &self.newest {
            Err(NotAttested::NoValidators) => self.reason(),
            Err(NotAttested::Unattested(reason)) => Some(format!(
                "no ledger of the newest range, {} to {last}, is attested: {reason}",
                self.ledgers.first
            )),
            Ok((ledger, by)) => {
                let behind = last.0 - ledger.0;
                (behind > ORDINARY_LAG).then(|| {
                    format!(
                        "ledger {ledger} is the newest attested one, {by}: {behind} ledgers \
                             before the newest stored one, {last}"
                    )
                })
            }
        }
    }
}

impl Attestation {
    /// Takes the word of these validators; of none without any.
    pub fn new(validators: Option<Arc<Validators>>) -> Self {
        Self { validators, from_core: AtomicU32::new(0) }
    }

    /// Returns the trusted validators.
    pub fn validators(&self) -> Option<&Validators> {
        self.validators.as_deref()
    }

    /// Records that a ledger is stored as a followed stellar-core has delivered it. Through the links
    /// it attests every ledger before, too.
    pub fn stored_from_core(&self, ledger: LedgerSeq) {
        self.from_core.fetch_max(ledger.0, Ordering::Relaxed);
    }

    /// Returns what is attested of a covered range, in which validators have signed this.
    pub fn of(&self, ledgers: LedgerRange, signed: &Signed) -> Attested {
        let by_validators = self.by_validators(ledgers, signed);
        let from_core = LedgerSeq(self.from_core.load(Ordering::Relaxed));
        let is_newer = by_validators.as_ref().map_or(true, |(ledger, _)| *ledger <= from_core);
        let newest = match ledgers.contains(from_core) && is_newer {
            true => Ok((from_core, AttestedBy::Core)),
            false => by_validators,
        };
        Attested { ledgers, newest }
    }

    fn by_validators(
        &self,
        ledgers: LedgerRange,
        signed: &Signed,
    ) -> Result<(LedgerSeq, AttestedBy), NotAttested> {
        let validators = self.validators.as_ref().ok_or(NotAttested::NoValidators)?;
        let ledger = validators.attested(ledgers, signed).map_err(NotAttested::Unattested)?;
        let attests = |organisation: &&Organisation| {
            let mut newest = organisation.validators.iter().filter_map(|key| signed.newest(key));
            newest.any(|newest| newest > ledger)
        };
        let all = validators.organisations();
        let organisations = all.iter().filter(attests).count();
        Ok((ledger, AttestedBy::Validators { organisations, of: all.len() }))
    }

    /// Returns what is attested of each covered range, in ascending order.
    pub fn ranges(&self, store: &Store) -> Vec<Attested> {
        match &self.validators {
            Some(validators) => {
                let ranges = store.attested(validators);
                ranges.iter().map(|range| self.of(range.ledgers, &range.signed)).collect()
            }
            None => {
                let ranges = store.status().ranges;
                ranges.into_iter().map(|range| self.of(range, &Signed::default())).collect()
            }
        }
    }

    /// Returns what is attested of the newest covered range; `None` when nothing is stored.
    pub fn newest(&self, store: &Store) -> Option<Attested> {
        match &self.validators {
            Some(validators) => {
                let range = store.newest_attested(validators)?;
                Some(self.of(range.ledgers, &range.signed))
            }
            None => {
                let newest = store.range_of(store.ends().latest?)?;
                Some(self.of(newest, &Signed::default()))
            }
        }
    }

    /// Returns all stored ledgers that are attested.
    pub fn ledgers(&self, store: &Store) -> LedgerSet {
        self.ranges(store).iter().filter_map(Attested::attested).collect()
    }

    /// Reports the newest covered range to health, and returns what is attested of it.
    pub fn report(&self, store: &Store, health: &Health) -> Option<Attested> {
        let newest = self.newest(store);
        let detail = match (&newest, &self.validators) {
            (Some(newest), _) => newest.detail(),
            (None, Some(_)) => {
                Some("nothing is attested, because no ledgers are stored".to_owned())
            }
            (None, None) => Some(NotAttested::NoValidators.to_string()),
        };
        match detail {
            Some(detail) => health.up_with(ATTESTATION, detail),
            None => health.up(ATTESTATION),
        }
        newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::NodeId;

    fn validators() -> Arc<Validators> {
        let organisation =
            |key: u8| Organisation { name: key.to_string(), validators: vec![NodeId([key; 32])] };
        Arc::new(Validators::new((1..=3).map(organisation).collect(), 2).unwrap())
    }

    fn signed(ledgers: &[(u8, u32)]) -> Signed {
        let mut signed = Signed::default();
        for (key, ledger) in ledgers {
            signed.add(NodeId([*key; 32]), LedgerSeq(*ledger));
        }
        signed
    }

    #[test]
    fn the_organisations_that_attest_a_ledger_are_counted() {
        let attestation = Attestation::new(Some(validators()));
        let range = LedgerRange::new(10, 200);
        let of = |ledgers: &[(u8, u32)]| attestation.of(range, &signed(ledgers));
        let by = |organisations| AttestedBy::Validators { organisations, of: 3 };
        assert_eq!(of(&[(1, 150), (2, 140)]).newest, Ok((LedgerSeq(139), by(2))));
        assert_eq!(of(&[(1, 150), (2, 140), (3, 140)]).newest, Ok((LedgerSeq(139), by(3))));
        assert_eq!(of(&[(1, 150), (2, 140), (3, 139)]).newest, Ok((LedgerSeq(139), by(2))));
        assert_eq!(of(&[(1, 150), (2, 140)]).detail(), None);
        let late = of(&[(1, 150), (2, 100)]).detail().unwrap();
        assert!(late.contains("ledger 99 ") && late.contains("101 ledgers before"), "{late}");
        assert_eq!(of(&[(1, 150), (2, 101)]).detail(), None, "100 ledgers are ordinary");
        let none = of(&[(1, 150)]).detail().unwrap();
        assert!(
            none.starts_with("no ledger of the newest range, 10 to 200, is attested: "),
            "{none}"
        );
    }

    #[test]
    fn a_followed_core_attests_what_is_stored_of_it() {
        for validators in [None, Some(validators())] {
            let attestation = Attestation::new(validators.clone());
            let range = LedgerRange::new(10, 20);
            attestation.stored_from_core(LedgerSeq(9));
            let before = attestation.of(range, &Signed::default());
            assert!(before.newest.is_err(), "it is from another range");
            assert_eq!(before.reason().unwrap().contains("trust.validators"), validators.is_none());
            attestation.stored_from_core(LedgerSeq(20));
            attestation.stored_from_core(LedgerSeq(15));
            let after = attestation.of(range, &Signed::default());
            assert_eq!(after.newest, Ok((LedgerSeq(20), AttestedBy::Core)));
            assert_eq!((after.by(), after.detail()), (Some("core"), None));
        }
        let attestation = Attestation::new(Some(validators()));
        attestation.stored_from_core(LedgerSeq(15));
        let later = attestation.of(LedgerRange::new(10, 20), &signed(&[(1, 20), (2, 19)]));
        assert_eq!((later.ledger(), later.by()), (Some(LedgerSeq(18)), Some("validators")));
    }
}
