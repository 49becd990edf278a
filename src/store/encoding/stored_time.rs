//! Encodes the close time of a ledger in events and transactions: eight bytes, in seconds or
//! milliseconds according to the layout version of the record.

use orrery_ledger::domain::CloseTime;

use super::bytes::Malformed;

const SECONDS: u8 = 1;
const MILLISECONDS: u8 = 2;

/// Returns the layout version of a record and the eight bytes of its time.
pub(crate) fn encode(time: CloseTime) -> (u8, [u8; 8]) {
    match time {
        CloseTime::Seconds(seconds) => (SECONDS, seconds.to_be_bytes()),
        CloseTime::Milliseconds(milliseconds) => (MILLISECONDS, milliseconds.to_be_bytes()),
    }
}

pub(crate) fn decode(layout: u8, time: [u8; 8]) -> Result<CloseTime, Malformed> {
    let time = u64::from_be_bytes(time);
    match layout {
        SECONDS => Ok(CloseTime::Seconds(time)),
        MILLISECONDS => Ok(CloseTime::Milliseconds(time)),
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_milliseconds_round_trip() {
        for time in [CloseTime::Seconds(7), CloseTime::Milliseconds(7_001)] {
            let (layout, bytes) = encode(time);
            assert_eq!(decode(layout, bytes), Ok(time));
        }
        assert_eq!(decode(3, [0; 8]), Err(Malformed));
    }
}
