//! The sandbox's chance: a stream of numbers that depends on the seed and the ledger alone.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use sha2::{Digest, Sha256};

/// Draws for one ledger. Because each ledger has its own stream, a chain can be continued from a
/// snapshot without knowing how many numbers were drawn before.
pub(super) struct Dice(ChaCha8Rng);

impl Dice {
    pub(super) fn for_ledger(seed: u64, ledger: u32) -> Self {
        let mut digest = Sha256::new();
        digest.update(b"orrery sandbox dice");
        digest.update(seed.to_be_bytes());
        digest.update(ledger.to_be_bytes());
        Self(ChaCha8Rng::from_seed(digest.finalize().into()))
    }

    /// A number below `bound`; 0 when `bound` is 0. The bias of the remainder does not matter here.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64().checked_rem(bound).unwrap_or(0)
    }

    /// True once in `chances` draws on average.
    pub(super) fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    /// A number from 1 to `most`, at least 1.
    pub(super) fn amount(&mut self, most: i64) -> i64 {
        let most = u64::try_from(most).unwrap_or(0).max(1);
        i64::try_from(self.below(most) + 1).unwrap_or(i64::MAX)
    }

    /// One of `choices`.
    pub(super) fn pick<'a, T>(&mut self, choices: &'a [T]) -> Option<&'a T> {
        let index = usize::try_from(self.below(choices.len() as u64)).ok()?;
        choices.get(index)
    }

    /// 32 bytes for whoever needs a stream of their own.
    pub(super) fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        self.0.fill_bytes(&mut seed);
        seed
    }
}
