//! Types of values with a unit. A setting says its unit in its name and its type; those who use it ask
//! for bytes or for a duration.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::section::Setting;

/// Defines a unit: what a value holds, how a number of the unit becomes that, and back.
macro_rules! unit {
    (
        $(#[$attribute:meta])*
        $Unit:ident holds $Held:ty as $held:ident;
        from $number:ident => $of_number:expr;
        to $value:ident => $to_number:expr;
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(from = "NonZeroU32", into = "u32")]
        pub struct $Unit($Held);

        impl $Unit {
            /// Returns the value of so many of the unit.
            pub const fn new($number: NonZeroU32) -> Self {
                let $number = $number.get();
                Self($of_number)
            }

            /// Returns the value of an amount that need not be a whole number of the unit. Only tests
            /// have such ones.
            pub const fn exactly($held: $Held) -> Self {
                Self($held)
            }

            /// Returns the amount.
            pub const fn $held(self) -> $Held {
                self.0
            }
        }

        impl From<NonZeroU32> for $Unit {
            fn from(number: NonZeroU32) -> Self {
                Self::new(number)
            }
        }

        impl From<$Unit> for u32 {
            fn from($Unit($value): $Unit) -> Self {
                // Saturates only for amounts that no setting can give.
                u32::try_from($to_number).unwrap_or(u32::MAX)
            }
        }

        impl fmt::Display for $Unit {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                u32::from(*self).fmt(f)
            }
        }

        impl Setting for $Unit {
            const EXPECTED: &'static str = NonZeroU32::EXPECTED;
        }
    };
}

unit! {
    /// A size in MiB, at least 1.
    Mib holds u64 as bytes;
    from number => (number as u64) << 20;
    to bytes => bytes >> 20;
}

unit! {
    /// A size in KiB, at least 1.
    Kib holds u64 as bytes;
    from number => (number as u64) << 10;
    to bytes => bytes >> 10;
}

unit! {
    /// A duration in seconds, at least 1.
    Seconds holds Duration as duration;
    from number => Duration::from_secs(number as u64);
    to duration => duration.as_secs();
}

unit! {
    /// A duration in milliseconds, at least 1.
    Millis holds Duration as duration;
    from number => Duration::from_millis(number as u64);
    to duration => duration.as_millis();
}
