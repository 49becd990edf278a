//! Reads the primitives of XDR (RFC 4506) from a slice. Never reads past the end of the slice,
//! never allocates.

/// Reason why bytes are not the XDR of a value.
///
/// One byte wide, so that a `Result` of it fits into a register. The position of the failure is
/// `Cursor::position` at that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum XdrError {
    /// The input ends inside a value.
    #[error("the data ends inside a value")]
    UnexpectedEnd,
    /// Bytes are left after the value.
    #[error("bytes are left over after the end")]
    TrailingBytes,
    /// A discriminant, an enum, a flag or a bool has a value that the schema does not define.
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

/// Maximum depth of nested values in one ledger, counted as `stellar-xdr` counts levels. Real
/// ledgers stay below 100, but any transaction can contain deeper values, and no ledger that the
/// network closes may be refused. stellar-core reads 1,500 levels (it sets `marshaling_stack_limit`
/// of xdrpp). It counts structures, unions and lists; where lists nest, three of its levels are
/// four in `stellar-xdr`.
pub const DEEPEST: u32 = 2000;

/// Number of levels of nesting that are still allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Depth(u32);

impl Depth {
    /// Number of levels allowed in one ledger: [`DEEPEST`].
    pub const LIMIT: Self = Self(DEEPEST);

    /// Returns the number of levels allowed one level further down.
    #[inline(always)]
    pub fn enter(self) -> Result<Self, XdrError> {
        self.0.checked_sub(1).map(Self).ok_or(XdrError::TooDeep)
    }

    /// Checks that a value with `levels` levels, including its own, is allowed.
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
    /// Creates a cursor at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, length: bytes.len() }
    }

    /// Returns the number of bytes read so far.
    pub fn position(&self) -> usize {
        self.length - self.rest.len()
    }

    /// Returns the bytes that have not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns an error unless all bytes have been read.
    pub fn finish(&self) -> Result<(), XdrError> {
        if self.rest.is_empty() { Ok(()) } else { Err(XdrError::TrailingBytes) }
    }

    /// Reads the next `count` bytes.
    #[inline(always)]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], XdrError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(XdrError::UnexpectedEnd)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Reads the next `N` bytes.
    #[inline(always)]
    pub fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], XdrError> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(XdrError::UnexpectedEnd)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Skips the padding that follows `count` bytes of opaque data, and checks that it is zero.
    #[inline(always)]
    pub fn padding(&mut self, count: usize) -> Result<(), XdrError> {
        let padding = self.take(count.wrapping_neg() % 4)?;
        if padding.iter().all(|byte| *byte == 0) { Ok(()) } else { Err(XdrError::NonZeroPadding) }
    }

    /// Reads a 32-bit unsigned number.
    #[inline(always)]
    pub fn u32(&mut self) -> Result<u32, XdrError> {
        self.array().copied().map(u32::from_be_bytes)
    }

    /// Reads a 32-bit signed number.
    #[inline(always)]
    pub fn i32(&mut self) -> Result<i32, XdrError> {
        self.array().copied().map(i32::from_be_bytes)
    }

    /// Reads a 64-bit unsigned number.
    #[inline(always)]
    pub fn u64(&mut self) -> Result<u64, XdrError> {
        self.array().copied().map(u64::from_be_bytes)
    }

    /// Reads a 64-bit signed number.
    #[inline(always)]
    pub fn i64(&mut self) -> Result<i64, XdrError> {
        self.array().copied().map(i64::from_be_bytes)
    }

    /// Reads a bool, or the flag before an optional value.
    #[inline(always)]
    pub fn flag(&mut self) -> Result<bool, XdrError> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(XdrError::UnknownValue),
        }
    }

    /// Reads the length of a variable-length value of at most `max` elements.
    #[inline(always)]
    pub fn length(&mut self, max: u32) -> Result<u32, XdrError> {
        let length = self.u32()?;
        if length <= max { Ok(length) } else { Err(XdrError::TooLong) }
    }

    /// Returns the bytes from this position to that of `end`, a later position of the same cursor.
    #[inline(always)]
    pub fn up_to(&self, end: &Self) -> &'a [u8] {
        &self.rest[..self.rest.len() - end.rest.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_stop_at_the_end_of_the_slice() {
        let mut cursor = Cursor::new(&[0, 0, 0, 7, 1, 2]);
        assert_eq!(cursor.u32(), Ok(7));
        assert_eq!(cursor.u32(), Err(XdrError::UnexpectedEnd));
        assert_eq!(cursor.position(), 4);
        assert_eq!(cursor.finish(), Err(XdrError::TrailingBytes));
        assert_eq!(cursor.take(2), Ok(&[1, 2][..]));
        assert_eq!(cursor.finish(), Ok(()));
    }

    #[test]
    fn padding_extends_to_a_multiple_of_four_and_must_be_zero() {
        for (count, padding) in [(0, 0), (1, 3), (2, 2), (3, 1), (4, 0), (5, 3)] {
            let mut cursor = Cursor::new(&[0; 3]);
            cursor.padding(count).unwrap();
            assert_eq!(cursor.position(), padding, "{count}");
        }
        assert_eq!(Cursor::new(&[0, 0, 1]).padding(1), Err(XdrError::NonZeroPadding));
        assert_eq!(Cursor::new(&[0, 0]).padding(1), Err(XdrError::UnexpectedEnd));
    }

    #[test]
    fn a_flag_must_be_zero_or_one() {
        assert_eq!(Cursor::new(&[0, 0, 0, 1]).flag(), Ok(true));
        assert_eq!(Cursor::new(&[0, 0, 0, 2]).flag(), Err(XdrError::UnknownValue));
    }
}
