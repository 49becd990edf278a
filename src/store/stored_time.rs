//! Encodes the close time of a ledger in events and transactions: eight bytes at a fixed offset, in
//! seconds or milliseconds according to the layout version of the record. Records of ledgers
//! without milliseconds therefore have the same bytes as before milliseconds existed.

use super::bytes::Malformed;
use crate::domain::CloseTime;

const SECONDS: u8 = 1;
const MILLISECONDS: u8 = 2;

/// Returns the layout version of a record and the eight bytes of its time.
pub(super) fn encode(time: CloseTime) -> (u8, [u8; 8]) {
    match time {
        CloseTime::Seconds(seconds) => (SECONDS, seconds.to_be_bytes()),
        CloseTime::Milliseconds(milliseconds) => (MILLISECONDS, milliseconds.to_be_bytes()),
    }
}

pub(super) fn decode(layout: u8, time: [u8; 8]) -> Result<CloseTime, Malformed> {
    let time = u64::from_be_bytes(time);
    match layout {
        SECONDS => Ok(CloseTime::Seconds(time)),
        MILLISECONDS => Ok(CloseTime::Milliseconds(time)),
        _ => Err(Malformed),
    }
}

/// Replaces the time at offset `at` of a record, whose first byte is its layout version.
pub(super) fn replace(record: &mut [u8], at: usize, time: CloseTime) -> Result<(), Malformed> {
    let (layout, bytes) = encode(time);
    let place = record.get_mut(at..at + bytes.len()).ok_or(Malformed)?;
    place.copy_from_slice(&bytes);
    record[0] = layout;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_survive_a_round_trip() {
        for time in [CloseTime::Seconds(7), CloseTime::Milliseconds(7_001)] {
            let (layout, bytes) = encode(time);
            assert_eq!(decode(layout, bytes), Ok(time));
        }
        assert_eq!(decode(3, [0; 8]), Err(Malformed));
    }

    #[test]
    fn a_time_is_replaced_where_it_stands() {
        let (_, seconds) = encode(CloseTime::Seconds(7));
        let mut record = [&[SECONDS, 0xaa][..], &seconds, &[0xbb]].concat();
        replace(&mut record, 2, CloseTime::Milliseconds(7_001)).unwrap();
        let (_, milliseconds) = encode(CloseTime::Milliseconds(7_001));
        assert_eq!(record, [&[MILLISECONDS, 0xaa][..], &milliseconds, &[0xbb]].concat());
        assert_eq!(replace(&mut record, 4, CloseTime::Seconds(7)), Err(Malformed));
    }
}
