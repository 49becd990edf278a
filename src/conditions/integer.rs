//! Whole numbers of any size. Almost all fit 128 bits; others, among them what is computed from values of
//! 256 bits, have as many digits as they need, so that nothing ever overflows or is rounded. How many
//! that can be is bounded by the number of parts of a condition.

use std::cmp::Ordering;
use std::fmt;

use num_bigint::{BigInt, Sign};
use stellar_xdr::{Int256Parts, UInt256Parts};

/// A whole number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Integer(Repr);

/// A number that fits is always [`Repr::Small`], so that equal ones have one form.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Repr {
    Small(i128),
    Large(BigInt),
}

/// Number of decimal digits of 2^256.
const MOST_DIGITS: usize = 78;
/// Largest number of bits of a number that is written in a condition.
const MOST_BITS: u64 = 256;

impl Integer {
    /// Zero.
    pub const ZERO: Self = Self(Repr::Small(0));

    /// Reads ASCII digits; `None` for other text, and for numbers that 256 bits do not hold.
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let significant = text.trim_start_matches('0');
        if significant.is_empty() {
            return Some(Self::ZERO);
        }
        if significant.len() > MOST_DIGITS {
            return None;
        }
        if let Ok(small) = significant.parse() {
            return Some(Self(Repr::Small(small)));
        }
        let large = BigInt::parse_bytes(significant.as_bytes(), 10)?;
        (large.bits() <= MOST_BITS).then(|| Self::of(large))
    }

    /// The sum.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.computed(other, i128::checked_add, |a, b| a + b)
    }

    /// The difference.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        self.computed(other, i128::checked_sub, |a, b| a - b)
    }

    /// The product.
    #[must_use]
    pub fn times(&self, other: &Self) -> Self {
        self.computed(other, i128::checked_mul, |a, b| a * b)
    }

    /// The number with the other sign.
    #[must_use]
    pub fn negated(&self) -> Self {
        Self::ZERO.minus(self)
    }

    /// The number without its sign.
    #[must_use]
    pub fn abs(&self) -> Self {
        if self.is_negative() { self.negated() } else { self.clone() }
    }

    /// Whether it is less than zero.
    pub fn is_negative(&self) -> bool {
        match &self.0 {
            Repr::Small(number) => *number < 0,
            Repr::Large(number) => number.sign() == Sign::Minus,
        }
    }

    /// Computes with two numbers: in 128 bits, unless these do not hold the result.
    fn computed(
        &self,
        other: &Self,
        small: fn(i128, i128) -> Option<i128>,
        large: fn(BigInt, BigInt) -> BigInt,
    ) -> Self {
        if let (Repr::Small(a), Repr::Small(b)) = (&self.0, &other.0)
            && let Some(computed) = small(*a, *b)
        {
            return Self(Repr::Small(computed));
        }
        Self::of(large(self.large(), other.large()))
    }

    fn large(&self) -> BigInt {
        match &self.0 {
            Repr::Small(number) => (*number).into(),
            Repr::Large(number) => number.clone(),
        }
    }

    /// Returns the number in the form that all equal ones have.
    fn of(number: BigInt) -> Self {
        match i128::try_from(&number) {
            Ok(small) => Self(Repr::Small(small)),
            Err(_) => Self(Repr::Large(number)),
        }
    }
}

impl Ord for Integer {
    fn cmp(&self, other: &Self) -> Ordering {
        // A number that does not fit 128 bits is beyond all that do.
        let beyond = |number: &BigInt| match number.sign() {
            Sign::Minus => Ordering::Less,
            Sign::NoSign | Sign::Plus => Ordering::Greater,
        };
        match (&self.0, &other.0) {
            (Repr::Small(a), Repr::Small(b)) => a.cmp(b),
            (Repr::Large(a), Repr::Large(b)) => a.cmp(b),
            (Repr::Large(a), Repr::Small(_)) => beyond(a),
            (Repr::Small(_), Repr::Large(b)) => beyond(b).reverse(),
        }
    }
}

impl PartialOrd for Integer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Integer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Small(number) => number.fmt(out),
            Repr::Large(number) => number.fmt(out),
        }
    }
}

macro_rules! from_small {
    ($($kind:ty),*) => {$(
        impl From<$kind> for Integer {
            fn from(number: $kind) -> Self {
                Self(Repr::Small(number.into()))
            }
        }
    )*};
}
from_small!(u32, i32, u64, i64, i128);

impl From<u128> for Integer {
    fn from(number: u128) -> Self {
        match i128::try_from(number) {
            Ok(small) => Self(Repr::Small(small)),
            Err(_) => Self(Repr::Large(number.into())),
        }
    }
}

impl From<&UInt256Parts> for Integer {
    fn from(parts: &UInt256Parts) -> Self {
        let UInt256Parts { hi_hi, hi_lo, lo_hi, lo_lo } = *parts;
        let bytes = [hi_hi, hi_lo, lo_hi, lo_lo].map(u64::to_be_bytes).concat();
        Self::of(BigInt::from_bytes_be(Sign::Plus, &bytes))
    }
}

impl From<&Int256Parts> for Integer {
    fn from(parts: &Int256Parts) -> Self {
        let Int256Parts { hi_hi, hi_lo, lo_hi, lo_lo } = *parts;
        let words = [hi_hi.cast_unsigned(), hi_lo, lo_hi, lo_lo];
        Self::of(BigInt::from_signed_bytes_be(&words.map(u64::to_be_bytes).concat()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integer(text: &str) -> Integer {
        match text.strip_prefix('-') {
            Some(digits) => Integer::parse(digits).unwrap().negated(),
            None => Integer::parse(text).unwrap(),
        }
    }

    const GREATEST: &str =
        "115792089237316195423570985008687907853269984665640564039457584007913129639935";
    const LEAST: &str =
        "-57896044618658097711785492504343953926634992332820282019728792003956564819968";

    #[test]
    fn numbers_round_trip_through_text() {
        for text in [
            "0",
            "-1",
            "170141183460469231731687303715884105727",
            "170141183460469231731687303715884105728",
            "-170141183460469231731687303715884105728",
            "-170141183460469231731687303715884105729",
            "1000000000000000000000000000000000000000000",
            GREATEST,
            LEAST,
        ] {
            assert_eq!(integer(text).to_string(), text);
        }
        assert_eq!(integer("0007"), Integer::from(7));
        let too_great =
            "115792089237316195423570985008687907853269984665640564039457584007913129639936";
        for text in ["", "x", "1x", "+1", "١", too_great, &"9".repeat(100)] {
            assert_eq!(Integer::parse(text), None, "{text}");
        }
    }

    #[test]
    fn parts_of_256_bits_are_read() {
        let all =
            UInt256Parts { hi_hi: u64::MAX, hi_lo: u64::MAX, lo_hi: u64::MAX, lo_lo: u64::MAX };
        assert_eq!(Integer::from(&all).to_string(), GREATEST);
        let least = Int256Parts { hi_hi: i64::MIN, hi_lo: 0, lo_hi: 0, lo_lo: 0 };
        assert_eq!(Integer::from(&least).to_string(), LEAST);
        let minus_one =
            Int256Parts { hi_hi: -1, hi_lo: u64::MAX, lo_hi: u64::MAX, lo_lo: u64::MAX };
        assert_eq!(Integer::from(&minus_one), Integer::from(-1_i32));
    }

    #[test]
    fn results_have_as_many_digits_as_they_need() {
        let (greatest, least) = (integer(GREATEST), integer(LEAST));
        assert_eq!(greatest.plus(&Integer::from(1)).minus(&greatest), Integer::from(1));
        let square = greatest.times(&greatest);
        assert_eq!(square.to_string().len(), 155);
        // (2^256 - 1)^2 = 2^512 - 2 * 2^256 + 1.
        let power = greatest.plus(&Integer::from(1));
        let again =
            power.times(&power).minus(&power.times(&Integer::from(2))).plus(&Integer::from(1));
        assert_eq!(square, again);
        assert_eq!(least.times(&Integer::from(-1)), least.negated());
        assert_eq!(least.abs().plus(&least), Integer::ZERO);
        assert!(least < Integer::from(i128::MIN) && Integer::from(u128::MAX) < greatest);
        assert!(least.minus(&Integer::from(1)) < least);
        assert_eq!(least.times(&Integer::ZERO), Integer::ZERO);
        assert_eq!(Integer::from(u128::MAX).to_string(), u128::MAX.to_string());
    }
}
