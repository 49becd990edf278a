//! Close times of ledgers.

use std::fmt;

use time::OffsetDateTime;
use time::macros::datetime;

/// Last second with a four-digit year, which ISO 8601 requires. A header may hold any time.
const LATEST: OffsetDateTime = datetime!(9999-12-31 23:59:59 UTC);
const LAST_SECOND: u64 = LATEST.unix_timestamp() as u64;

/// Close time of a ledger, as precise as its network states it: in whole seconds up to protocol 29,
/// in milliseconds from protocol 30 on (CAP-88). UNIX time in both cases.
///
/// Not ordered: several ledgers may close in one second, and on a test network time may stand
/// still. Only the sequence number determines the order of ledgers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CloseTime {
    /// Seconds (`closeTime`), from a ledger that has no milliseconds.
    Seconds(u64),
    /// Milliseconds (`closeTimeMs`).
    Milliseconds(u64),
}

impl CloseTime {
    /// Returns whole seconds, rounded down: the time that contracts and time bounds see in either
    /// case.
    pub const fn seconds(self) -> u64 {
        match self {
            Self::Seconds(seconds) => seconds,
            Self::Milliseconds(milliseconds) => milliseconds / 1000,
        }
    }

    /// Returns milliseconds; `None` when the network states only seconds.
    pub const fn milliseconds(self) -> Option<u64> {
        match self {
            Self::Seconds(_) => None,
            Self::Milliseconds(milliseconds) => Some(milliseconds),
        }
    }

    /// Returns microseconds, the unit of query engines. A time beyond the supported range is the last
    /// of the year 9999, as in text.
    pub fn microseconds(self) -> i64 {
        let microseconds = match self {
            Self::Seconds(seconds) => seconds.min(LAST_SECOND) * 1_000_000,
            Self::Milliseconds(time) => time.min(LAST_SECOND * 1000 + 999) * 1000,
        };
        microseconds as i64
    }

    /// Formats the time as `2024-02-20T17:00:00Z`, or with milliseconds as
    /// `2024-02-20T17:00:00.123Z`, and returns the text and its length. A time beyond the supported
    /// range is formatted as the last of the year 9999.
    pub fn iso_8601(self) -> ([u8; 24], usize) {
        let known = i64::try_from(self.seconds())
            .ok()
            .and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
        let time = known.unwrap_or(LATEST);
        let year = u32::try_from(time.year()).unwrap_or(0);
        let (hour, minute, second) = time.to_hms();
        let mut text = *b"0000-00-00T00:00:00.000Z";
        let mut put = |at: usize, value: u32| {
            text[at] = b'0' + (value / 10 % 10) as u8;
            text[at + 1] = b'0' + (value % 10) as u8;
        };
        put(0, year / 100);
        put(2, year);
        put(5, u32::from(u8::from(time.month())));
        put(8, u32::from(time.day()));
        put(11, u32::from(hour));
        put(14, u32::from(minute));
        put(17, u32::from(second));
        match self.milliseconds() {
            None => {
                text[19] = b'Z';
                (text, 20)
            }
            Some(milliseconds) => {
                let part = if known.is_some() { (milliseconds % 1000) as u32 } else { 999 };
                put(21, part);
                text[20] = b'0' + (part / 100) as u8;
                (text, 24)
            }
        }
    }
}

/// Formats as [`CloseTime::iso_8601`] does.
impl fmt::Display for CloseTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, length) = self.iso_8601();
        text[..length].iter().try_for_each(|c| fmt::Write::write_char(f, char::from(*c)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_down() {
        assert_eq!(CloseTime::Milliseconds(1_999).seconds(), 1);
        assert_eq!(CloseTime::Milliseconds(u64::MAX).seconds(), u64::MAX / 1000);
        assert_eq!(CloseTime::Seconds(u64::MAX).seconds(), u64::MAX);
    }

    #[test]
    fn times_are_displayed_with_their_known_precision() {
        assert_eq!(CloseTime::Seconds(1_700_000_000).to_string(), "2023-11-14T22:13:20Z");
        let time = CloseTime::Milliseconds(1_700_000_000_007);
        assert_eq!(time.to_string(), "2023-11-14T22:13:20.007Z");
        assert_eq!(CloseTime::Milliseconds(u64::MAX).to_string(), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn microseconds_end_where_the_text_does() {
        let last = 253_402_300_799_000_000;
        assert_eq!(CloseTime::Seconds(1).microseconds(), 1_000_000);
        assert_eq!(CloseTime::Milliseconds(1_001).microseconds(), 1_001_000);
        for beyond in [LAST_SECOND, LAST_SECOND + 1, i64::MAX as u64, u64::MAX] {
            let time = CloseTime::Seconds(beyond);
            assert_eq!((time.microseconds(), &*time.to_string()), (last, "9999-12-31T23:59:59Z"));
        }
        for beyond in [LAST_SECOND * 1000 + 999, LAST_SECOND * 1000 + 1_000, u64::MAX] {
            let time = CloseTime::Milliseconds(beyond);
            let expected = (last + 999_000, "9999-12-31T23:59:59.999Z");
            assert_eq!((time.microseconds(), &*time.to_string()), expected);
        }
    }

    #[test]
    fn milliseconds_are_known_only_if_the_network_reports_them() {
        assert_eq!(CloseTime::Milliseconds(1_999).milliseconds(), Some(1_999));
        assert_eq!(CloseTime::Seconds(1).milliseconds(), None);
    }
}
