//! How settings describe themselves. A type of values says what it accepts and whether it is
//! secret. [`section!`] defines a section: one line for each setting with its type, its default and,
//! where the type does not say enough, a description of its own.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use ipnet::IpNet;
use orrery_ledger::domain::ContractId;
use orrery_runtime::observe::logs::{LogFormat, LogLevel};

/// A type of single values.
pub trait Setting {
    /// Description of the valid values; it follows "give" in an error message.
    const EXPECTED: &'static str;
    /// Words among the valid values, of which one may be meant by a word that is none.
    const WORDS: &'static [&'static str] = &[];
    /// Whether a value is never shown, because it is or may contain a secret.
    const IS_SECRET: bool = false;
}

/// A type of the values in a list.
pub trait ListItem {
    /// As [`Setting::EXPECTED`], of the list.
    const EXPECTED: &'static str;
    /// Whether the list is never shown, because it is or may contain a secret.
    const IS_SECRET: bool = false;
}

impl<T: ListItem> Setting for Vec<T> {
    const EXPECTED: &'static str = T::EXPECTED;
    const IS_SECRET: bool = T::IS_SECRET;
}

/// What is known of a setting besides its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Description {
    /// As [`Setting::EXPECTED`].
    pub expected: &'static str,
    /// As [`Setting::WORDS`].
    pub words: &'static [&'static str],
    /// As [`Setting::IS_SECRET`].
    pub is_secret: bool,
}

impl Description {
    /// Returns the description of a setting that accepts other values than its type.
    pub fn expecting(self, expected: &'static str) -> Self {
        Self { expected, ..self }
    }
}

/// A single value, or a section of settings.
pub trait Describe {
    /// Returns the description of the setting with the key `below` in this section, or of this
    /// value when there is no such key.
    fn describe(below: Option<&str>) -> Option<Description>;
}

impl<S: Setting> Describe for S {
    fn describe(below: Option<&str>) -> Option<Description> {
        let (expected, words) = (S::EXPECTED, S::WORDS);
        let description = Description { expected, words, is_secret: S::IS_SECRET };
        below.is_none().then_some(description)
    }
}

/// Defines a section. Each setting has a type, a default and, if the values are not those of
/// [`Setting::EXPECTED`](crate::section::Setting::EXPECTED), a description of the valid ones.
#[macro_export]
macro_rules! section {
    (
        $(#[$attribute:meta])*
        pub struct $Section:ident {
            $($(#[$of_key:meta])* pub $key:ident: $Type:ty = $default:expr $(, $expected:literal)?;)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub struct $Section {
            $($(#[$of_key])* pub $key: $Type,)*
        }

        impl Default for $Section {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }

        impl $crate::section::Describe for $Section {
            fn describe(below: Option<&str>) -> Option<$crate::section::Description> {
                use $crate::section::Describe;
                let (key, below) = match below?.split_once('.') {
                    Some((key, below)) => (key, Some(below)),
                    None => (below?, None),
                };
                match key {
                    $(stringify!($key) => {
                        <$Type as Describe>::describe(below)$(.map(|it| it.expecting($expected)))?
                    })*
                    _ => None,
                }
            }
        }
    };
}

/// A number other than zero, which the compiler checks.
#[macro_export]
macro_rules! nonzero {
    ($number:expr) => {
        const { std::num::NonZeroU32::new($number).unwrap() }
    };
}

macro_rules! settings {
    ($($Type:ty: $expected:literal $(, $words:expr)?;)*) => {
        $(impl Setting for $Type {
            const EXPECTED: &'static str = $expected;
            $(const WORDS: &'static [&'static str] = &$words;)?
        })*
    };
}

settings! {
    bool: "true or false";
    u8: "a whole number from 0 to 255";
    u16: "a whole number from 0 to 65535";
    u32: "a whole number from 0 to 4294967295";
    u64: "a whole number from 0 to 9223372036854775807";
    NonZeroU32: "a whole number from 1 to 4294967295";
    String: "a text";
    PathBuf: "a path";
    SocketAddr: "an IP address and a port, such as \"127.0.0.1:8484\"";
    LogFormat: "auto, human or json", ["auto", "human", "json"];
    LogLevel: "error, warn, info, debug or trace", ["error", "warn", "info", "debug", "trace"];
}

impl ListItem for IpNet {
    const EXPECTED: &'static str = "a list of subnets, such as [\"10.0.0.0/8\", \"fd00::/8\"]";
}

impl ListItem for ContractId {
    const EXPECTED: &'static str =
        "a list of contract IDs, strkeys of 56 characters that start with C";
}
