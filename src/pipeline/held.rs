//! Ledgers that wait until validators attest them: with `trust.require_attested`, nothing is stored
//! before.
//!
//! A ledger is attested by signatures in ledgers after it, so a chain of ledgers is held in memory.
//! Signatures in the chain itself suffice: those in stored ledgers attest older ones.

use std::collections::VecDeque;
use std::sync::Arc;

use orrery_ledger::domain::{LedgerRange, LedgerSeq, NodeId};
use orrery_ledger::validators::{Signed, Unattested, Validators};
use orrery_ledger::verify::{Link, VerifyError, verify_link};

/// Number of ledgers that may wait for signatures. On the public network, validators of enough
/// organisations sign within 20 ledgers.
pub const MOST_LEDGERS: usize = 100;
/// Bytes of prepared ledgers that may wait.
pub const MOST_BYTES: usize = 512 << 20;

/// Why held ledgers are given up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeldError {
    /// A ledger does not follow the one before.
    #[error("{source}")]
    Chain {
        /// The ledger that is presumably wrong: the one before, if a trusted validator has signed the
        /// one that follows.
        wrong: LedgerSeq,
        /// What does not fit.
        source: VerifyError,
    },
    /// Too many ledgers came without enough signatures.
    #[error(
        "ledgers {first} to {last} are not attested, and only attested ones are stored \
         (trust.require_attested): {reason}; the source may have made them up, so use another one, or \
         check trust.validators"
    )]
    NeverAttested {
        /// First ledger that waits.
        first: LedgerSeq,
        /// Last ledger that waits.
        last: LedgerSeq,
        /// Why they are not attested.
        reason: Unattested,
    },
    /// The ledgers end before those that attest them.
    #[error(
        "ledgers {first} to {last} are not stored: no ledgers after them attest them, and only attested \
         ones are stored (trust.require_attested); give more ledgers after them, or unset it"
    )]
    End {
        /// First ledger that waits.
        first: LedgerSeq,
        /// Last ledger that waits.
        last: LedgerSeq,
    },
}

/// A ledger that waits.
struct Waiting<T> {
    ledger: T,
    /// Memory that it takes, in bytes.
    bytes: usize,
    /// Its sequence; `None` when it waits only for its turn.
    in_chain: Option<LedgerSeq>,
}

/// A chain of ledgers that wait.
pub struct Held<T> {
    validators: Arc<Validators>,
    /// The chain, and between its ledgers those beside it.
    ledgers: VecDeque<Waiting<T>>,
    /// First and last ledger of the chain.
    chain: Option<(LedgerSeq, Link)>,
    bytes: usize,
    signed: Signed,
}

impl<T> Held<T> {
    /// Creates an empty chain.
    pub fn new(validators: Arc<Validators>) -> Self {
        let (ledgers, signed) = (VecDeque::new(), Signed::default());
        Self { validators, ledgers, chain: None, bytes: 0, signed }
    }

    /// Adds the next ledger, with its place in the chain, the trusted validator that has signed it and the
    /// memory that it takes, in bytes. Returns the ledgers that it attests.
    ///
    /// # Errors
    /// When it does not follow the last one, or too much waits. The chain is to be dropped then.
    pub fn push(
        &mut self,
        ledger: T,
        link: Link,
        signer: Option<NodeId>,
        bytes: usize,
    ) -> Result<Vec<T>, HeldError> {
        if let Some((_, last)) = &self.chain {
            let wrong = if signer.is_some() { last.sequence } else { link.sequence };
            verify_link(last, &link).map_err(|source| HeldError::Chain { wrong, source })?;
        }
        if let Some(signer) = signer {
            self.signed.add(signer, link.sequence);
        }
        let first = self.chain.map_or(link.sequence, |(first, _)| first);
        self.chain = Some((first, link));
        self.bytes += bytes;
        self.ledgers.push_back(Waiting { ledger, bytes, in_chain: Some(link.sequence) });
        let range = LedgerRange { first, last: link.sequence };
        match self.validators.attested(range, &self.signed) {
            Ok(attested) => Ok(self.take_up_to(attested)),
            Err(reason) if self.ledgers.len() > MOST_LEDGERS || self.bytes > MOST_BYTES => {
                let LedgerRange { first, last } = range;
                Err(HeldError::NeverAttested { first, last, reason })
            }
            Err(_) => Ok(Vec::new()),
        }
    }

    /// Adds a ledger that need not be attested and is not part of the chain. It comes out after those
    /// before it, at once if there are none.
    pub fn push_beside(&mut self, ledger: T, bytes: usize) -> Vec<T> {
        self.bytes += bytes;
        self.ledgers.push_back(Waiting { ledger, bytes, in_chain: None });
        self.take_beside()
    }

    /// Returns the number of ledgers that wait.
    pub fn count(&self) -> usize {
        self.ledgers.len()
    }

    /// Returns the first and the last ledger of the chain; `None` when none waits.
    pub fn range(&self) -> Option<LedgerRange> {
        self.chain.map(|(first, last)| LedgerRange { first, last: last.sequence })
    }

    /// Returns whether a ledger links to the last one that waits, or none waits.
    pub fn fits(&self, link: &Link) -> bool {
        self.chain.is_none_or(|(_, last)| verify_link(&last, link).is_ok())
    }

    /// Returns whether a ledger follows the last one that waits, or none waits.
    pub fn continues_with(&self, next: LedgerSeq) -> bool {
        self.chain.is_none_or(|(_, last)| last.sequence.next() == Some(next))
    }

    /// Returns the ledger that follows the last one that waits.
    pub fn next(&self) -> Option<LedgerSeq> {
        self.chain.and_then(|(_, last)| last.sequence.next())
    }

    /// Ends the chain. Returns the ledgers that wait, if `above` is an attested ledger that follows
    /// them.
    ///
    /// # Errors
    /// When ledgers wait that nothing attests, or `above` does not link to them.
    pub fn finish(&mut self, above: Option<Link>) -> Result<Vec<T>, HeldError> {
        let Some((first, last)) = self.chain else { return Ok(self.take_beside()) };
        match above {
            Some(above) => verify_link(&last, &above)
                .map_err(|source| HeldError::Chain { wrong: last.sequence, source })?,
            None => return Err(HeldError::End { first, last: last.sequence }),
        }
        (self.bytes, self.chain) = (0, None);
        Ok(self.ledgers.drain(..).map(|waiting| waiting.ledger).collect())
    }

    /// Returns all ledgers that wait, because they need not be attested any more.
    pub fn release(self) -> Vec<T> {
        self.ledgers.into_iter().map(|waiting| waiting.ledger).collect()
    }

    fn take_up_to(&mut self, attested: LedgerSeq) -> Vec<T> {
        let mut taken = Vec::new();
        // Those beside the chain have no sequence, which is less than any.
        while let Some(Waiting { ledger, bytes, .. }) =
            self.ledgers.pop_front_if(|waiting| waiting.in_chain <= Some(attested))
        {
            self.bytes = self.bytes.saturating_sub(bytes);
            taken.push(ledger);
        }
        let next = self.ledgers.iter().find_map(|waiting| waiting.in_chain);
        self.chain = self.chain.and_then(|(_, last)| Some((next?, last)));
        taken
    }

    /// Returns the ledgers at the front that are not part of the chain.
    fn take_beside(&mut self) -> Vec<T> {
        self.take_up_to(LedgerSeq(0))
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};

    use super::*;
    use orrery_ledger::domain::Hash32;
    use orrery_ledger::validators::Organisation;

    /// A ledger that `key` has signed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Made {
        sequence: u32,
        key: u8,
    }

    impl Made {
        fn link(self) -> Link {
            let hash = |sequence: u32| Hash32([sequence as u8; 32]);
            Link {
                sequence: LedgerSeq(self.sequence),
                hash: hash(self.sequence),
                previous_hash: hash(self.sequence - 1),
            }
        }

        fn push_to(self, held: &mut Held<Self>) -> Result<Vec<Self>, HeldError> {
            held.push(self, self.link(), (self.key > 0).then_some(NodeId([self.key; 32])), 1000)
        }
    }

    fn validators(organisations: u8, threshold: usize) -> Arc<Validators> {
        let organisation = |key: u8| Organisation {
            name: key.to_string(),
            validators: vec![NodeId([key; 32]), NodeId([key + 100; 32])],
        };
        let organisations = (1..=organisations).map(organisation).collect();
        Arc::new(Validators::new(organisations, threshold).unwrap())
    }

    /// Every ledger comes out once, in order, and as soon as the ledgers after it that have come are
    /// signed by enough organisations; a model counts them anew each time.
    #[test]
    fn ledgers_come_out_as_soon_as_enough_organisations_have_signed_after_them() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(7);
        for _ in 0..200 {
            let organisations = rng.random_range(1..6);
            let threshold = rng.random_range(1..=organisations);
            let mut held = Held::new(validators(organisations, threshold.into()));
            let chain: Vec<Made> = (10..90)
                .map(|sequence| {
                    let key = rng.random_range(0..=organisations + 1);
                    let second = if rng.random() { 100 } else { 0 };
                    let key = if key == 0 || key > organisations { 0 } else { key + second };
                    Made { sequence, key }
                })
                .collect();
            let mut out = Vec::new();
            for (at, ledger) in chain.iter().enumerate() {
                out.extend(ledger.push_to(&mut held).unwrap());
                let is_attested = |ledger: &Made| {
                    let mut after: Vec<u8> = chain[..=at]
                        .iter()
                        .filter(|later| later.sequence > ledger.sequence && later.key > 0)
                        .map(|later| later.key % 100)
                        .collect();
                    after.sort_unstable();
                    after.dedup();
                    after.len() >= usize::from(threshold)
                };
                let by_model = chain[..=at].iter().filter(|ledger| is_attested(ledger)).count();
                assert_eq!(out, chain[..by_model]);
            }
            let next = Made { sequence: 90, key: 0 };
            match held.finish(Some(next.link())) {
                Ok(rest) => out.extend(rest),
                Err(error) => panic!("{error}"),
            }
            assert_eq!(out, chain);
        }
    }

    #[test]
    fn what_is_never_attested_is_given_up() {
        let mut held = Held::new(validators(3, 2));
        for sequence in 10..10 + MOST_LEDGERS as u32 {
            assert_eq!(Made { sequence, key: 1 }.push_to(&mut held), Ok(Vec::new()));
        }
        let last = 10 + MOST_LEDGERS as u32;
        let error = Made { sequence: last, key: 1 }.push_to(&mut held).unwrap_err();
        assert!(matches!(error, HeldError::NeverAttested { .. }), "{error}");
    }

    #[test]
    fn ledgers_beside_the_chain_keep_their_turn() {
        let mut held = Held::new(validators(3, 2));
        let repeat = Made { sequence: 4, key: 0 };
        assert_eq!(held.push_beside(repeat, 1000), [repeat]);
        let chain: Vec<Made> =
            (10..14).map(|sequence| Made { sequence, key: (sequence % 3 + 1) as u8 }).collect();
        assert_eq!(chain[0].push_to(&mut held), Ok(Vec::new()));
        assert_eq!(held.push_beside(repeat, 1000), Vec::new());
        assert_eq!(chain[1].push_to(&mut held), Ok(Vec::new()));
        assert_eq!(chain[2].push_to(&mut held), Ok(vec![chain[0], repeat]));
        assert_eq!(held.next(), Some(LedgerSeq(13)));
        assert_eq!(chain[3].push_to(&mut held), Ok(vec![chain[1]]));
    }

    #[test]
    fn breaks_in_the_chain_and_ends_without_signatures_are_refused() {
        let mut held = Held::new(validators(3, 2));
        Made { sequence: 10, key: 1 }.push_to(&mut held).unwrap();
        assert!(held.continues_with(LedgerSeq(11)) && !held.continues_with(LedgerSeq(12)));
        assert!(matches!(
            Made { sequence: 12, key: 2 }.push_to(&mut held),
            Err(HeldError::Chain { .. })
        ));
        let error = held.finish(None).unwrap_err();
        assert_eq!(error, HeldError::End { first: LedgerSeq(10), last: LedgerSeq(10) });
        let foreign =
            Link { previous_hash: Hash32([0; 32]), ..Made { sequence: 11, key: 0 }.link() };
        assert!(matches!(held.finish(Some(foreign)), Err(HeldError::Chain { .. })));
    }
}
