//! What is attested of the stored ledgers, and by whom: by the signatures of trusted validators, or
//! by a stellar-core that is followed, which takes part in consensus itself.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Contradiction, WaitingLedgers};
use orrery_ledger::domain::{LedgerRange, LedgerSeq, LedgerSet};
use orrery_ledger::validators::{Organisation, Signed, Unattested, Validators};
use orrery_runtime::observe::health::Health;
use orrery_store::{Marks, Store};

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
    /// The ledgers that wait until they may be stored.
    waiting: Arc<WaitingLedgers>,
}

/// What is attested of consecutive stored ledgers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attested {
    /// First and last ledger.
    pub ledgers: LedgerRange,
    /// The newest attested ledger, and whose word it is; or why none is attested.
    pub newest: Result<(LedgerSeq, AttestedBy), NotAttested>,
    /// The newest ledger that is attested without what a backup says.
    checked: Option<LedgerSeq>,
    /// Ledgers of the range of which less is known than of others.
    pub marks: Marks,
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
    /// The backup from which the ledger was restored: its raw form was not there, so that nothing of it
    /// could be checked.
    Backup,
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
    /// All ledgers up to the newest one that validators attest have a mark.
    #[error(
        "the ledgers that could be attested are not as their headers say, or have events that are not \
         proven"
    )]
    Unbound,
}

impl AttestedBy {
    /// Returns the word for it in answers.
    pub fn word(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Validators { .. } => "validators",
            Self::Backup => "backup",
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
            Self::Backup => f.write_str("as the backup says from which it was restored"),
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

    /// Returns the word for whose word attests a ledger; `None` when it is not attested.
    pub fn by_of(&self, ledger: LedgerSeq) -> Option<&'static str> {
        let (newest, by) = *self.newest.as_ref().ok()?;
        let is_unbound =
            self.marks.reported.contains(ledger) || self.marks.unproven.contains(ledger);
        if ledger > newest || !self.ledgers.contains(ledger) || is_unbound {
            return None;
        }
        let is_checked = self.checked >= Some(ledger) && !self.marks.from_backup.contains(ledger);
        Some(match (is_checked, by) {
            (false, _) => AttestedBy::Backup.word(),
            (true, AttestedBy::Core) => AttestedBy::Core.word(),
            (true, _) => AttestedBy::Validators { organisations: 0, of: 0 }.word(),
        })
    }

    /// Returns the ledgers that are attested, without those of which only a backup says so.
    fn attested(&self) -> LedgerSet {
        let Some(last) = self.ledger().min(self.checked) else { return LedgerSet::default() };
        let mut attested = LedgerSet::from(LedgerRange { last, ..self.ledgers });
        attested.remove_all(&self.marks.unbound());
        attested.remove_all(&self.marks.from_backup);
        attested
    }

    /// Returns what an operator should know: that nothing is attested, or too little, or not everything.
    /// `None` when all is as it should be.
    fn detail(&self) -> Option<String> {
        let Marks { reported, unproven, .. } = &self.marks;
        let stored = [
            (reported, "are stored although they are not as their headers say"),
            (unproven, "have rewritten events that are not proven"),
        ];
        let stored = stored.into_iter().filter(|(set, _)| !set.is_empty());
        let stored = stored
            .map(|(set, what)| format!("{} ledgers of the newest range {what}", set.ledgers()));
        let details: Vec<String> = self.lag().into_iter().chain(stored).collect();
        (!details.is_empty()).then(|| details.join("; "))
    }

    /// Returns that nothing is attested, or too little.
    fn lag(&self) -> Option<String> {
        let last = self.ledgers.last;
        match &self.newest {
            Err(NotAttested::NoValidators) => self.reason(),
            Err(reason) => Some(format!(
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
        Self { validators, ..Self::default() }
    }

    /// Returns the ledgers that wait until they may be stored, for the pipelines.
    pub fn waiting(&self) -> &Arc<WaitingLedgers> {
        &self.waiting
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

    /// Returns what is attested of a covered range, in which validators have signed this, and some of
    /// whose ledgers have marks.
    pub fn of(&self, ledgers: LedgerRange, signed: &Signed, marks: &Marks) -> Attested {
        let marks = marks.within(ledgers);
        let from_core = LedgerSeq(self.from_core.load(Ordering::Relaxed));
        let from_core = Some(from_core).filter(|ledger| ledgers.contains(*ledger));
        let (by_validators, checked) = self.by_validators(ledgers, signed, &marks);
        let checked = checked.max(from_core);
        let newest = match (from_core, by_validators) {
            (Some(core), Ok((ledger, _))) if ledger > core => by_validators,
            (Some(core), _) => Ok((core, AttestedBy::Core)),
            (None, _) => by_validators,
        };
        let newest = newest.and_then(|(ledger, by)| {
            let ledger = last_outside(&marks.unbound(), ledger).filter(|it| ledgers.contains(*it));
            let ledger = ledger.ok_or(NotAttested::Unbound)?;
            let is_checked = checked >= Some(ledger) && !marks.from_backup.contains(ledger);
            Ok((ledger, if is_checked { by } else { AttestedBy::Backup }))
        });
        Attested { ledgers, newest, checked, marks }
    }

    /// Returns the newest ledger that validators attest, and the newest one that they attest with
    /// signatures which were checked here.
    fn by_validators(
        &self,
        ledgers: LedgerRange,
        signed: &Signed,
        marks: &Marks,
    ) -> (Result<(LedgerSeq, AttestedBy), NotAttested>, Option<LedgerSeq>) {
        let Some(validators) = &self.validators else {
            return (Err(NotAttested::NoValidators), None);
        };
        let ledger = match validators.attested(ledgers, signed) {
            Ok(ledger) => ledger,
            Err(reason) => return (Err(NotAttested::Unattested(reason)), None),
        };
        let here = signed.only(|_, ledger| !marks.from_backup.contains(ledger));
        let attests = |organisation: &&Organisation| {
            let mut newest = organisation.validators.iter().filter_map(|key| signed.newest(key));
            newest.any(|newest| newest > ledger)
        };
        let all = validators.organisations();
        let organisations = all.iter().filter(attests).count();
        let by = AttestedBy::Validators { organisations, of: all.len() };
        (Ok((ledger, by)), validators.attested(ledgers, &here).ok())
    }

    /// Returns what is attested of each covered range, in ascending order.
    pub fn ranges(&self, store: &Store) -> Vec<Attested> {
        let marks = store.marks();
        store.signed().iter().map(|(range, signed)| self.of(*range, signed, &marks)).collect()
    }

    /// Returns what is attested of the newest covered range; `None` when nothing is stored.
    pub fn newest(&self, store: &Store) -> Option<Attested> {
        let marks = store.marks();
        let (range, signed) = store.newest_signed()?;
        Some(self.of(range, &signed, &marks))
    }

    /// Returns all stored ledgers that are attested, without those of which only a backup says so.
    pub fn ledgers(&self, store: &Store) -> LedgerSet {
        let mut all = LedgerSet::default();
        self.ranges(store).iter().for_each(|range| all.insert_all(&range.attested()));
        all
    }

    /// Reports the newest covered range to health, and returns what is attested of it. Attestation is
    /// down while validators contradict stored ledgers.
    pub fn report(&self, store: &Store, health: &Health) -> Option<Attested> {
        let newest = self.newest(store);
        if let Some(contradiction) = Contradiction::of(store, self.validators()) {
            health.down(ATTESTATION, contradiction.to_string());
            return newest;
        }
        let detail = match (&newest, &self.validators) {
            (Some(newest), _) => newest.detail(),
            (None, Some(_)) => {
                Some("nothing is attested, because no ledgers are stored".to_owned())
            }
            (None, None) => Some(NotAttested::NoValidators.to_string()),
        };
        let waiting = self.waiting.ranges();
        let waiting = waiting.iter().map(|LedgerRange { first, last }| {
            format!("ledgers {first} to {last} have arrived, and wait until validators attest them")
        });
        let details: Vec<String> = detail.into_iter().chain(waiting).collect();
        match details.is_empty() {
            false => health.up_with(ATTESTATION, details.join("; ")),
            true => health.up(ATTESTATION),
        }
        newest
    }
}

/// Returns the newest ledger up to `ledger` that is not in a set; `None` if all are.
fn last_outside(set: &LedgerSet, ledger: LedgerSeq) -> Option<LedgerSeq> {
    let containing = set.ranges().iter().find(|range| range.contains(ledger));
    containing.map_or(Some(ledger), |range| range.first.previous())
}

#[cfg(test)]
mod tests {
    use super::*;
    use orrery_ledger::domain::NodeId;

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
        let of = |ledgers: &[(u8, u32)]| attestation.of(range, &signed(ledgers), &Marks::default());
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
            let before = attestation.of(range, &Signed::default(), &Marks::default());
            assert!(before.newest.is_err(), "it is from another range");
            assert_eq!(before.reason().unwrap().contains("trust.validators"), validators.is_none());
            attestation.stored_from_core(LedgerSeq(20));
            attestation.stored_from_core(LedgerSeq(15));
            let after = attestation.of(range, &Signed::default(), &Marks::default());
            assert_eq!(after.newest, Ok((LedgerSeq(20), AttestedBy::Core)));
            assert_eq!((after.by(), after.detail()), (Some("core"), None));
        }
        let attestation = Attestation::new(Some(validators()));
        attestation.stored_from_core(LedgerSeq(15));
        let signed = signed(&[(1, 20), (2, 19)]);
        let later = attestation.of(LedgerRange::new(10, 20), &signed, &Marks::default());
        assert_eq!((later.ledger(), later.by()), (Some(LedgerSeq(18)), Some("validators")));
    }
}
