//! Pseudo-random numbers of the sandbox: a stream that depends only on the seed and the ledger.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use sha2::{Digest, Sha256};

/// Pseudo-random numbers for one ledger. Each ledger has its own stream, so that a chain can be
/// continued from a snapshot without the number of earlier draws.
pub(super) struct Dice(ChaCha8Rng);

impl Dice {
    pub(super) fn for_ledger(seed: u64, ledger: u32) -> Self {
        let mut digest = Sha256::new();
        digest.update(b"orrery sandbox dice");
        digest.update(seed.to_be_bytes());
        digest.update(ledger.to_be_bytes());
        Self(ChaCha8Rng::from_seed(digest.finalize().into()))
    }

    /// Returns a number below `bound`; 0 when `bound` is 0. The bias of the remainder does not
    /// matter here.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64().checked_rem(bound).unwrap_or(0)
    }

    /// Returns `true` once in `chances` draws on average.
    pub(super) fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    /// Returns a number from 1 to `most`; 1 when `most` is lower than that.
    pub(super) fn amount(&mut self, most: i64) -> i64 {
        let most = u64::try_from(most).unwrap_or(0).max(1);
        i64::try_from(self.below(most) + 1).unwrap_or(i64::MAX)
    }

    /// Returns one of `choices`; `None` when there are none.
    pub(super) fn pick<'a, T>(&mut self, choices: &'a [T]) -> Option<&'a T> {
        let index = usize::try_from(self.below(choices.len() as u64)).ok()?;
        choices.get(index)
    }

    /// Returns 32 bytes to seed an independent stream.
    pub(super) fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        self.0.fill_bytes(&mut seed);
        seed
    }
}
