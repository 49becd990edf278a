//! Whole numbers as decimal digits, computed as on paper.

use std::cmp::Ordering;

/// A number: whether it is negative, and its digits, the lowest first, without zeros at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decimal {
    is_negative: bool,
    digits: Vec<u8>,
}

impl Decimal {
    pub fn new(text: &str) -> Self {
        let (is_negative, text) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text),
        };
        let digits = text.bytes().rev().map(|digit| digit - b'0').collect();
        Self::normal(is_negative, digits)
    }

    fn normal(is_negative: bool, mut digits: Vec<u8>) -> Self {
        while digits.last() == Some(&0) {
            digits.pop();
        }
        Self { is_negative: is_negative && !digits.is_empty(), digits }
    }

    pub fn negated(&self) -> Self {
        Self::normal(!self.is_negative, self.digits.clone())
    }

    pub fn abs(&self) -> Self {
        Self::normal(false, self.digits.clone())
    }

    pub fn plus(&self, other: &Self) -> Self {
        if self.is_negative != other.is_negative {
            return match magnitude(&self.digits, &other.digits) {
                Ordering::Less => {
                    Self::normal(other.is_negative, less(&other.digits, &self.digits))
                }
                _ => Self::normal(self.is_negative, less(&self.digits, &other.digits)),
            };
        }
        let (mut digits, mut carry) = (Vec::new(), 0);
        for at in 0..=self.digits.len().max(other.digits.len()) {
            let sum = carry + digit(&self.digits, at) + digit(&other.digits, at);
            digits.push(sum % 10);
            carry = sum / 10;
        }
        Self::normal(self.is_negative, digits)
    }

    pub fn times(&self, other: &Self) -> Self {
        let mut places = vec![0_u32; self.digits.len() + other.digits.len() + 1];
        for (at, a) in self.digits.iter().enumerate() {
            for (by, b) in other.digits.iter().enumerate() {
                places[at + by] += u32::from(*a) * u32::from(*b);
            }
        }
        let mut carry = 0;
        let mut digits = Vec::new();
        for place in places {
            let sum = place + carry;
            digits.push(u8::try_from(sum % 10).unwrap());
            carry = sum / 10;
        }
        while carry > 0 {
            digits.push(u8::try_from(carry % 10).unwrap());
            carry /= 10;
        }
        Self::normal(self.is_negative != other.is_negative, digits)
    }

    pub fn order(&self, other: &Self) -> Ordering {
        match (self.is_negative, other.is_negative) {
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => magnitude(&self.digits, &other.digits),
            (true, true) => magnitude(&other.digits, &self.digits),
        }
    }
}

fn digit(digits: &[u8], at: usize) -> u8 {
    digits.get(at).copied().unwrap_or(0)
}

fn magnitude(a: &[u8], b: &[u8]) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.iter().rev().cmp(b.iter().rev()))
}

fn less(a: &[u8], b: &[u8]) -> Vec<u8> {
    let (mut digits, mut borrow) = (Vec::new(), 0);
    for (at, from) in a.iter().enumerate() {
        let (from, take) = (*from, digit(b, at) + borrow);
        borrow = u8::from(from < take);
        digits.push(from + 10 * borrow - take);
    }
    digits
}
