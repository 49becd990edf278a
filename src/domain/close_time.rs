//! When a ledger closed.

/// When a ledger closed, as precisely as its network says: in whole seconds up to protocol 29, in
/// milliseconds from protocol 30 on (CAP-88). UNIX time in both cases.
///
/// It has no order: several ledgers may close in one second, and on a test network time may stand
/// still. What comes first is said by the ledger's sequence number alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CloseTime {
    /// Seconds, from a ledger that says no more (`closeTime`).
    Seconds(u64),
    /// Milliseconds (`closeTimeMs`).
    Milliseconds(u64),
}

impl CloseTime {
    /// Whole seconds, rounded down: what contracts and time bounds are told in either case.
    pub const fn seconds(self) -> u64 {
        match self {
            Self::Seconds(seconds) => seconds,
            Self::Milliseconds(milliseconds) => milliseconds / 1000,
        }
    }

    /// Milliseconds, where the network gives them.
    pub const fn milliseconds(self) -> Option<u64> {
        match self {
            Self::Seconds(_) => None,
            Self::Milliseconds(milliseconds) => Some(milliseconds),
        }
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
    fn milliseconds_are_only_what_the_network_gives() {
        assert_eq!(CloseTime::Milliseconds(1_999).milliseconds(), Some(1_999));
        assert_eq!(CloseTime::Seconds(1).milliseconds(), None);
    }
}
