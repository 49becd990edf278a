//! Walks bytes that have to be exactly one value.

use super::error::DecodeError;
use super::xdr::{Cursor, Depth, Visit, Xdr};

/// Walks a value of type `T`, and refuses bytes that are not exactly one such value.
pub fn walk<'a, T: Xdr>(bytes: &'a [u8], visitor: &mut impl Visit<'a>) -> Result<(), DecodeError> {
    let mut cursor = Cursor::new(bytes);
    T::walk(&mut cursor, Depth::LIMIT, visitor)
        .and_then(|()| cursor.finish())
        .map_err(|reason| DecodeError::undecodable(bytes, reason, cursor.position()))
}
