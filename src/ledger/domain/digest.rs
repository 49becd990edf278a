//! Digests of ledgers, and their sums.
//!
//! The digest of several ledgers is the sum of their digests modulo 2^256: the order does not
//! matter, each further ledger costs one addition, and adjacent ranges are merged by adding. It
//! detects accidental damage, software that produces different results, and installations that
//! index different content. It is no protection against forgery, because an attacker who chooses
//! the content could find ledgers with the same sum; the chain of ledger hashes serves that
//! purpose.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};
use std::str::FromStr;

use super::{Hash32, ParseError};

/// Digest of a ledger or, as their sum, of several; displayed and serialised as 64 lowercase
/// hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Digest {
    /// The number in little-endian limbs, so that a carry goes to the next limb.
    limbs: [u64; 4],
}

impl Digest {
    /// Number of bytes.
    pub const LEN: usize = 32;

    /// Returns the number as big-endian bytes.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        for (slot, limb) in bytes.chunks_exact_mut(8).zip(self.limbs.iter().rev()) {
            slot.copy_from_slice(&limb.to_be_bytes());
        }
        bytes
    }
}

impl From<[u8; Digest::LEN]> for Digest {
    fn from(bytes: [u8; Self::LEN]) -> Self {
        let mut limbs = [0; 4];
        for (limb, chunk) in limbs.iter_mut().rev().zip(bytes.as_chunks::<8>().0) {
            *limb = u64::from_be_bytes(*chunk);
        }
        Self { limbs }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.limbs.iter().rev().try_for_each(|limb| write!(f, "{limb:016x}"))
    }
}

impl FromStr for Digest {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        text.parse::<Hash32>().map(|bytes| Self::from(bytes.0))
    }
}

serialised_as_text!(Digest);

impl AddAssign for Digest {
    fn add_assign(&mut self, other: Self) {
        let mut carry = false;
        for (limb, other) in self.limbs.iter_mut().zip(other.limbs) {
            let (sum, first) = limb.overflowing_add(other);
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            (*limb, carry) = (sum, first || second);
        }
    }
}

impl Add for Digest {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl Sum for Digest {
    fn sum<I: Iterator<Item = Self>>(digests: I) -> Self {
        digests.fold(Self::default(), Add::add)
    }
}

#[cfg(test)]
mod tests {
    use rand::seq::SliceRandom;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn digest_sums_wrap_and_do_not_depend_on_order() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
        let mut digests: Vec<Digest> =
            (0..40).map(|_| Digest::from(rng.random::<[u8; 32]>())).collect();
        let sum: Digest = digests.iter().copied().sum();
        digests.shuffle(&mut rng);
        let (left, right) = digests.split_at(17);
        assert_eq!(left.iter().copied().sum::<Digest>() + right.iter().copied().sum(), sum);
        let mut one = [0; 32];
        one[31] = 1;
        assert_eq!(Digest::from([0xff; 32]) + Digest::from(one), Digest::default());
        let mut carried = [0; 32];
        carried[23] = 1;
        let mut low = [0; 32];
        low[24..].fill(0xff);
        assert_eq!((Digest::from(low) + Digest::from(one)).to_bytes(), carried);
        assert_eq!(Digest::from(one).to_string(), format!("{:064x}", 1));
    }
}
