//! Reads the primitives of XDR (RFC 4506) from a slice. Never reads past its end, never allocates.

use super::Xdr;

/// Why bytes are not the XDR of a value.
///
/// One byte wide, so that a `Result` of it travels in a register; the place is
/// `Cursor::position` at the time of the failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum XdrError {
    /// The input ends inside a value.
    #[error("the data ends inside a value")]
    UnexpectedEnd,
    /// Bytes are left after the value.
    #[error("bytes are left over after the end")]
    TrailingBytes,
    /// A discriminant, an enum, a flag or a bool has a value that the schema does not have.
    #[error("a type or flag has a value that is not known")]
    UnknownValue,
    /// A variable-length value is longer than the schema allows.
    #[error("a list or text is longer than the format allows")]
    TooLong,
    /// A padding byte is not zero.
    #[error("a padding byte is not zero")]
    NonZeroPadding,
    /// Values are nested too deeply.
    #[error("values are nested more than {DEEPEST} levels deep")]
    TooDeep,
}

/// Levels that values may nest in one ledger, counted as `stellar-xdr` counts them. Real ledgers stay below 100, but
/// whoever pays for a transaction decides how deep it is, and no ledger that the network closes may be refused. A core
/// reads 1,500 levels (`marshaling_stack_limit` of xdrpp, as stellar-core sets it). It counts structures, unions and
/// lists, of which `stellar-xdr` makes four levels of three where lists nest.
pub const DEEPEST: u32 = 2000;

/// How many levels of nesting are still allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Depth(u32);

impl Depth {
    /// Levels allowed in one ledger: [`DEEPEST`].
    pub const LIMIT: Self = Self(DEEPEST);

    /// The allowance one level further down.
    #[inline(always)]
    pub fn enter(self) -> Result<Self, XdrError> {
        self.0.checked_sub(1).map(Self).ok_or(XdrError::TooDeep)
    }

    /// Checks that a value with `levels` levels of its own fits.
    #[inline(always)]
    pub fn allow(self, levels: u32) -> Result<(), XdrError> {
        if levels <= self.0 { Ok(()) } else { Err(XdrError::TooDeep) }
    }
}

/// A position in a slice of XDR.
#[derive(Debug, Clone, Copy)]
pub struct Cursor<'a> {
    rest: &'a [u8],
    length: usize,
}

impl<'a> Cursor<'a> {
    /// Stands at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, length: bytes.len() }
    }

    /// Bytes read so far.
    pub fn position(&self) -> usize {
        self.length - self.rest.len()
    }

    /// Fails unless everything is read.
    pub fn finish(&self) -> Result<(), XdrError> {
        if self.rest.is_empty() { Ok(()) } else { Err(XdrError::TrailingBytes) }
    }

    /// The next `count` bytes.
    #[inline(always)]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], XdrError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(XdrError::UnexpectedEnd)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next `N` bytes.
    #[inline(always)]
    pub fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], XdrError> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(XdrError::UnexpectedEnd)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Passes over the padding that follows `count` bytes of opaque data.
    #[inline(always)]
    pub fn padding(&mut self, count: usize) -> Result<(), XdrError> {
        let padding = self.take(count.wrapping_neg() % 4)?;
        if padding.iter().all(|byte| *byte == 0) { Ok(()) } else { Err(XdrError::NonZeroPadding) }
    }

    /// A 32-bit number.
    #[inline(always)]
    pub fn u32(&mut self) -> Result<u32, XdrError> {
        self.array().copied().map(u32::from_be_bytes)
    }

    /// A 32-bit signed number.
    #[inline(always)]
    pub fn i32(&mut self) -> Result<i32, XdrError> {
        self.array().copied().map(i32::from_be_bytes)
    }

    /// A 64-bit number.
    #[inline(always)]
    pub fn u64(&mut self) -> Result<u64, XdrError> {
        self.array().copied().map(u64::from_be_bytes)
    }

    /// A 64-bit signed number.
    #[inline(always)]
    pub fn i64(&mut self) -> Result<i64, XdrError> {
        self.array().copied().map(i64::from_be_bytes)
    }

    /// A bool, or the flag before an optional value.
    #[inline(always)]
    pub fn flag(&mut self) -> Result<bool, XdrError> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(XdrError::UnknownValue),
        }
    }

    /// The length of a variable-length value of at most `max` elements.
    #[inline(always)]
    pub fn length(&mut self, max: u32) -> Result<u32, XdrError> {
        let length = self.u32()?;
        if length <= max { Ok(length) } else { Err(XdrError::TooLong) }
    }

    /// The bytes of the next value.
    #[inline]
    pub fn value<T: Xdr>(&mut self, depth: Depth) -> Result<&'a [u8], XdrError> {
        let start = *self;
        T::skip(self, depth)?;
        Ok(start.up_to(self))
    }

    /// The bytes from here to where `end`, a later position of the same cursor, stands.
    pub fn up_to(&self, end: &Self) -> &'a [u8] {
        &self.rest[..self.rest.len() - end.rest.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_at_the_end() {
        let mut cursor = Cursor::new(&[0, 0, 0, 7, 1, 2]);
        assert_eq!(cursor.u32(), Ok(7));
        assert_eq!(cursor.u32(), Err(XdrError::UnexpectedEnd));
        assert_eq!(cursor.position(), 4);
        assert_eq!(cursor.finish(), Err(XdrError::TrailingBytes));
        assert_eq!(cursor.take(2), Ok(&[1, 2][..]));
        assert_eq!(cursor.finish(), Ok(()));
    }

    #[test]
    fn pads_to_a_multiple_of_four() {
        for (count, padding) in [(0, 0), (1, 3), (2, 2), (3, 1), (4, 0), (5, 3)] {
            let mut cursor = Cursor::new(&[0; 3]);
            cursor.padding(count).unwrap();
            assert_eq!(cursor.position(), padding, "{count}");
        }
        assert_eq!(Cursor::new(&[0, 0, 1]).padding(1), Err(XdrError::NonZeroPadding));
        assert_eq!(Cursor::new(&[0, 0]).padding(1), Err(XdrError::UnexpectedEnd));
    }

    #[test]
    fn a_flag_is_zero_or_one() {
        assert_eq!(Cursor::new(&[0, 0, 0, 1]).flag(), Ok(true));
        assert_eq!(Cursor::new(&[0, 0, 0, 2]).flag(), Err(XdrError::UnknownValue));
    }
}
