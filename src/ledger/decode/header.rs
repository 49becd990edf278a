//! Reads the header of a ledger, and says which protocols this version supports.

use crate::domain::{Hash32, LedgerSeq};

use super::view::HeaderView;
use super::xdr::{self, Cursor, Depth, Part, StellarValueType, Visit, Xdr, XdrError};

/// Newest protocol that this version supports: that of `stellar-xdr`'s definitions. A newer ledger
/// that still decodes is not refused, but causes a warning to upgrade.
pub const MAX_PROTOCOL: u32 = 30;

/// Returns a warning for the operator if a decoded ledger has a protocol that this version does not
/// support: its fields may have changed their meaning. `None` otherwise.
pub fn protocol_warning(header: &HeaderView<'_>) -> Option<String> {
    let HeaderView { sequence, protocol, .. } = header;
    (*protocol > MAX_PROTOCOL).then(|| {
        format!(
            "ledger {sequence} is of protocol {protocol}, and this version of Orrery is made for \
             protocols up to {MAX_PROTOCOL}: upgrade Orrery before a ledger comes that it cannot \
             decode"
        )
    })
}

/// Returns the version of a `LedgerCloseMeta`; `None` when there are too few bytes.
pub fn meta_version(raw: &[u8]) -> Option<u32> {
    raw.first_chunk().copied().map(u32::from_be_bytes)
}

/// Walks a `LedgerCloseMeta` up to the end of its header.
pub fn close_meta_header<'a>(cursor: &mut Cursor<'a>) -> Result<HeaderView<'a>, XdrError> {
    let mut header = HeaderView::default();
    // Of the union and its arm.
    let depth = Depth::LIMIT.enter()?.enter()?;
    match cursor.u32()? {
        0 => {}
        1 | 2 => xdr::LedgerCloseMetaExt::skip(cursor, depth)?,
        _ => return Err(XdrError::UnknownValue),
    }
    xdr::LedgerHeaderHistoryEntry::walk(cursor, depth, &mut header)?;
    Ok(header)
}

impl<'a> Visit<'a> for HeaderView<'a> {
    #[inline(always)]
    fn visit(&mut self, part: Part, xdr: &'a [u8]) -> Result<(), XdrError> {
        let cursor = &mut Cursor::new(xdr);
        match part {
            Part::HeaderHash => self.hash = Hash32(*cursor.array()?),
            Part::CloseTime => self.close_time = cursor.u64()?,
            Part::CloseValue => self.close_time_ms = close_time_ms(cursor)?,
            Part::Sequence => self.sequence = LedgerSeq(cursor.u32()?),
            Part::Header => {
                self.xdr = xdr;
                self.protocol = cursor.u32()?;
                self.previous_hash = Hash32(*cursor.array()?);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Returns the close time in milliseconds of a `StellarValueExt`, if it has one (CAP-88). Other
/// content needs no handling: a dropped transaction set (CAP-83) leaves an ordinary empty ledger.
fn close_time_ms(cursor: &mut Cursor<'_>) -> Result<Option<u64>, XdrError> {
    use StellarValueType as Type;

    match cursor.i32()? {
        // The time is the first field of both arms.
        Type::SIGNED_MS | Type::EMPTY_TX_SET_MS => cursor.u64().map(Some),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_protocol_is_that_of_the_libraries() {
        assert_eq!(soroban_env_host::meta::INTERFACE_VERSION.protocol, MAX_PROTOCOL);
    }
}
