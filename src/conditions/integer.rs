//! Whole numbers of any size. Almost all fit 128 bits; others, among them what is computed from values of
//! 256 bits, have as many digits as they need, so that nothing ever overflows or is rounded. How many
//! that can be is bounded by the number of parts of a condition.

use std::cmp::Ordering;
use std::fmt;

use stellar_xdr::{Int256Parts, UInt256Parts};

/// A whole number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Integer(Repr);

/// A number that fits is always [`Repr::Small`], so that equal ones have one form.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Repr {
    Small(i128),
    Large(Large),
}

/// A number by its sign and its digits of 32 bits, the lowest first, without zeros at the end.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Large {
    is_negative: bool,
    digits: Vec<u32>,
}

/// Number of digits of 128 bits.
const SMALL_DIGITS: usize = 4;
/// Greatest power of ten that fits a digit, and the number of its zeros.
const TENS: (u32, usize) = (1_000_000_000, 9);

impl Integer {
    /// Zero.
    pub const ZERO: Self = Self(Repr::Small(0));

    /// Reads ASCII digits; `None` for other text, and for numbers that 256 bits do not hold.
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let significant = text.trim_start_matches('0');
        let mut digits = Vec::new();
        // 2^256 has 78 decimal digits.
        if significant.len() > 78 {
            return None;
        }
        for digit in significant.bytes() {
            let mut carry = u64::from(digit - b'0');
            for place in &mut digits {
                carry += u64::from(*place) * 10;
                *place = low(carry);
                carry >>= 32;
            }
            if carry > 0 {
                digits.push(low(carry));
            }
        }
        (digits.len() <= 8).then(|| Large { is_negative: false, digits }.normal())
    }

    /// The sum.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        if let (Repr::Small(a), Repr::Small(b)) = (&self.0, &other.0)
            && let Some(sum) = a.checked_add(*b)
        {
            return Self(Repr::Small(sum));
        }
        let (a, b) = (self.large(), other.large());
        if a.is_negative == b.is_negative {
            let digits = sum(&a.digits, &b.digits);
            return Large { is_negative: a.is_negative, digits }.normal();
        }
        let (greater, less) = match compare(&a.digits, &b.digits) {
            Ordering::Less => (b, a),
            Ordering::Equal | Ordering::Greater => (a, b),
        };
        let digits = difference(&greater.digits, &less.digits);
        Large { is_negative: greater.is_negative, digits }.normal()
    }

    /// The difference.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        self.plus(&other.negated())
    }

    /// The product.
    #[must_use]
    pub fn times(&self, other: &Self) -> Self {
        if let (Repr::Small(a), Repr::Small(b)) = (&self.0, &other.0)
            && let Some(product) = a.checked_mul(*b)
        {
            return Self(Repr::Small(product));
        }
        let (a, b) = (self.large(), other.large());
        let digits = product(&a.digits, &b.digits);
        Large { is_negative: a.is_negative != b.is_negative, digits }.normal()
    }

    /// The number with the other sign.
    #[must_use]
    pub fn negated(&self) -> Self {
        if let Repr::Small(number) = &self.0
            && let Some(negated) = number.checked_neg()
        {
            return Self(Repr::Small(negated));
        }
        let own = self.large();
        Large { is_negative: !own.is_negative, ..own }.normal()
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
            Repr::Large(number) => number.is_negative,
        }
    }

    fn large(&self) -> Large {
        match &self.0 {
            Repr::Small(number) => Large {
                is_negative: *number < 0,
                digits: trimmed(digits_of(number.unsigned_abs())),
            },
            Repr::Large(number) => number.clone(),
        }
    }
}

impl Large {
    /// Returns the number in the form that all equal ones have.
    fn normal(self) -> Integer {
        let digits = trimmed(self.digits);
        if digits.len() <= SMALL_DIGITS {
            let magnitude =
                digits.iter().rev().fold(0_u128, |all, digit| all << 32 | u128::from(*digit));
            let small = match self.is_negative {
                true => 0_i128.checked_sub_unsigned(magnitude),
                false => i128::try_from(magnitude).ok(),
            };
            if let Some(small) = small {
                return Integer(Repr::Small(small));
            }
        }
        Integer(Repr::Large(Self { is_negative: self.is_negative, digits }))
    }
}

impl Ord for Integer {
    fn cmp(&self, other: &Self) -> Ordering {
        if let (Repr::Small(a), Repr::Small(b)) = (&self.0, &other.0) {
            return a.cmp(b);
        }
        match (self.is_negative(), other.is_negative()) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => compare(&self.large().digits, &other.large().digits),
            (true, true) => compare(&other.large().digits, &self.large().digits),
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
        let number = match &self.0 {
            Repr::Small(number) => return number.fmt(out),
            Repr::Large(number) => number,
        };
        let (mut digits, mut groups) = (number.digits.clone(), Vec::new());
        while !digits.is_empty() {
            let mut rest = 0;
            for digit in digits.iter_mut().rev() {
                let value = rest << 32 | u64::from(*digit);
                *digit = low(value / u64::from(TENS.0));
                rest = value % u64::from(TENS.0);
            }
            groups.push(rest);
            digits = trimmed(digits);
        }
        let mut text = String::new();
        for (at, group) in groups.iter().rev().enumerate() {
            let width = if at == 0 { 0 } else { TENS.1 };
            text.push_str(&format!("{group:0width$}"));
        }
        out.pad_integral(!number.is_negative, "", &text)
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
            Err(_) => Large { is_negative: false, digits: digits_of(number) }.normal(),
        }
    }
}

impl From<&UInt256Parts> for Integer {
    fn from(parts: &UInt256Parts) -> Self {
        let UInt256Parts { hi_hi, hi_lo, lo_hi, lo_lo } = parts;
        let digits = digits_of_words([*lo_lo, *lo_hi, *hi_lo, *hi_hi]);
        Large { is_negative: false, digits }.normal()
    }
}

impl From<&Int256Parts> for Integer {
    fn from(parts: &Int256Parts) -> Self {
        let Int256Parts { hi_hi, hi_lo, lo_hi, lo_lo } = parts;
        let (is_negative, words) = (*hi_hi < 0, [*lo_lo, *lo_hi, *hi_lo, hi_hi.cast_unsigned()]);
        if !is_negative {
            return Large { is_negative, digits: digits_of_words(words) }.normal();
        }
        // Two's complement: the magnitude is the number inverted, plus one.
        let inverted = digits_of_words(words.map(|word| !word));
        Large { is_negative, digits: sum(&inverted, &[1]) }.normal()
    }
}

#[allow(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
fn low(value: u64) -> u32 {
    value as u32
}

fn digits_of(number: u128) -> Vec<u32> {
    let low_word = |number: u128| u64::try_from(number & u128::from(u64::MAX)).unwrap_or(0);
    digits_of_words([low_word(number), low_word(number >> 64)])
}

fn digits_of_words<const N: usize>(words: [u64; N]) -> Vec<u32> {
    words.iter().flat_map(|word| [low(*word), low(*word >> 32)]).collect()
}

fn trimmed(mut digits: Vec<u32>) -> Vec<u32> {
    while digits.last() == Some(&0) {
        digits.pop();
    }
    digits
}

/// Compares magnitudes without zeros at the end.
fn compare(a: &[u32], b: &[u32]) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.iter().rev().cmp(b.iter().rev()))
}

fn sum(a: &[u32], b: &[u32]) -> Vec<u32> {
    let mut carry = 0;
    let mut digits = Vec::with_capacity(a.len().max(b.len()) + 1);
    for at in 0..a.len().max(b.len()) {
        carry += u64::from(*a.get(at).unwrap_or(&0)) + u64::from(*b.get(at).unwrap_or(&0));
        digits.push(low(carry));
        carry >>= 32;
    }
    digits.push(low(carry));
    digits
}

/// `a` must not be less than `b`.
fn difference(a: &[u32], b: &[u32]) -> Vec<u32> {
    let mut borrow = false;
    let digit = |(at, digit): (usize, &u32)| {
        let (less, first) = digit.overflowing_sub(*b.get(at).unwrap_or(&0));
        let (less, second) = less.overflowing_sub(borrow.into());
        borrow = first || second;
        less
    };
    a.iter().enumerate().map(digit).collect()
}

fn product(a: &[u32], b: &[u32]) -> Vec<u32> {
    let mut digits = vec![0; a.len() + b.len()];
    for (at, x) in a.iter().enumerate() {
        let mut carry = 0;
        for (y, place) in b.iter().zip(&mut digits[at..]) {
            carry += u64::from(*x) * u64::from(*y) + u64::from(*place);
            *place = low(carry);
            carry >>= 32;
        }
        digits[at + b.len()] = low(carry);
    }
    digits
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
