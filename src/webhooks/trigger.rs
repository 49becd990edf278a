//! What a subscription is told of (`on`), with the values that only some of these take.

use serde::{Deserialize, Serialize};
use stellar_xdr::ScVal;

use super::filter::{FilterError, encode_topic};
use orrery_contract_data::name;
use orrery_ledger::domain::{ENTERED_VALUE, excerpt, scval_from_text};

/// Greatest number of ledgers of `within`.
pub const MOST_WITHIN: u32 = 1_000_000;
/// Maximum number of functions that a subscription names.
pub const MOST_FUNCTIONS: usize = 100;
/// Characters of the longest symbol.
const LONGEST_SYMBOL: usize = 32;
/// The word that names the key of a contract's instance.
const INSTANCE: &str = "instance";

/// What a subscription is told of, as it is stored. Rows of earlier versions have events.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(tag = "on", rename_all = "snake_case")]
pub enum Trigger {
    /// Events that match the filter of the subscription.
    #[default]
    Event,
    /// A contract gets other code.
    Upgrade,
    /// Contract data changes.
    Storage {
        /// Which data.
        #[serde(flatten)]
        keys: Keys,
    },
    /// An entry is about to expire.
    Ttl {
        /// Number of ledgers before the first one in which it is not live.
        within: u32,
        /// Which kinds of entries.
        entries: Entries,
        /// Which contract data, if `entries` has it.
        #[serde(flatten)]
        keys: Keys,
    },
    /// A failed transaction calls the contract.
    FailedCall {
        /// Names of the functions that count; all when empty.
        functions: Vec<String>,
    },
    /// No event that matches the filter of the subscription.
    Silence {
        /// Number of ledgers.
        within: u32,
    },
}

/// Which contract data counts. All that are given must hold; the default counts everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Keys {
    /// The symbol by which the entry is found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_name: Option<String>,
    /// Its key: base64 of the XDR `ScVal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How long it can live, or that it is an item of the instance's map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
}

/// How long contract data can live, or that it lives in the instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Archived after its time to live.
    Persistent,
    /// Gone after its time to live.
    Temporary,
    /// The instance of the contract, and the items of its map.
    Instance,
}

/// Kinds of entries of which a subscription is told that they are about to expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Entries {
    /// The instance of the contract.
    pub instance: bool,
    /// Its code, and the entry by which it refers to that.
    pub code: bool,
    /// Other data of the contract.
    pub data: bool,
}

/// Names of `on`, in the order of [`Trigger`].
pub const NAMES: [&str; 6] = ["event", "upgrade", "storage", "ttl", "failed_call", "silence"];

impl Trigger {
    /// Returns the name, as requests spell it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Upgrade => "upgrade",
            Self::Storage { .. } => "storage",
            Self::Ttl { .. } => "ttl",
            Self::FailedCall { .. } => "failed_call",
            Self::Silence { .. } => "silence",
        }
    }

    /// Whether this is about single events.
    pub fn is_event(&self) -> bool {
        *self == Self::Event
    }

    /// Whether it is found in events, of which the filter says which count.
    pub fn is_by_events(&self) -> bool {
        matches!(self, Self::Event | Self::Silence { .. })
    }

    /// Returns the number of ledgers of a silence.
    pub fn silence(&self) -> Option<u32> {
        match self {
            Self::Silence { within } => Some(*within),
            _ => None,
        }
    }

    /// Whether it is sent for ledgers that are stored after newer ones, if the subscription includes these.
    pub fn may_be_backfilled(&self) -> bool {
        !matches!(self, Self::Ttl { .. } | Self::Silence { .. })
    }

    /// Whether it is found in single transactions.
    pub fn is_of_transactions(&self) -> bool {
        matches!(self, Self::Upgrade | Self::Storage { .. } | Self::FailedCall { .. })
    }

    /// Returns the number of ledgers, where it has one.
    pub fn within(&self) -> Option<u32> {
        match self {
            Self::Ttl { within, .. } | Self::Silence { within } => Some(*within),
            _ => None,
        }
    }

    /// Returns which contract data counts, where that is told of.
    pub fn keys(&self) -> Option<&Keys> {
        match self {
            Self::Storage { keys } | Self::Ttl { keys, .. } => Some(keys),
            _ => None,
        }
    }

    /// Returns the kinds of entries, where it has some.
    pub fn entries(&self) -> Option<Entries> {
        match self {
            Self::Ttl { entries, .. } => Some(*entries),
            _ => None,
        }
    }

    /// Returns the functions that count, where that is told of.
    pub fn functions(&self) -> Option<&[String]> {
        match self {
            Self::FailedCall { functions } => Some(functions),
            _ => None,
        }
    }
}

impl Default for Entries {
    fn default() -> Self {
        Self { instance: true, code: true, data: false }
    }
}

impl Entries {
    /// Names of the kinds.
    pub const NAMES: [&str; 3] = [INSTANCE, "code", "data"];

    /// Parses a list of kinds; the default where there is none.
    ///
    /// # Errors
    /// [`FilterError`]
    pub fn parse(given: Option<&[String]>) -> Result<Self, FilterError> {
        let Some(given) = given else { return Ok(Self::default()) };
        let mut entries = Self { instance: false, code: false, data: false };
        for kind in given {
            match kind.as_str() {
                INSTANCE => entries.instance = true,
                "code" => entries.code = true,
                "data" => entries.data = true,
                other => {
                    return Err(wrong(
                        "entries",
                        format!(
                            "holds '{}': give instance, code, data, or several of them",
                            excerpt(other)
                        ),
                    ));
                }
            }
        }
        match given.is_empty() {
            true => {
                Err(wrong("entries", "is empty: give instance, code, data, or several of them"))
            }
            false => Ok(entries),
        }
    }

    /// Returns the names of the kinds.
    pub fn names(self) -> Vec<&'static str> {
        let has = [self.instance, self.code, self.data];
        Self::NAMES.into_iter().zip(has).filter(|(_, has)| *has).map(|(name, _)| name).collect()
    }
}

impl Durability {
    /// Returns the name, as requests spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Persistent => "persistent",
            Self::Temporary => "temporary",
            Self::Instance => INSTANCE,
        }
    }

    /// Parses a name.
    ///
    /// # Errors
    /// [`FilterError`]
    pub fn parse(given: &str) -> Result<Self, FilterError> {
        let all = [Self::Persistent, Self::Temporary, Self::Instance];
        all.into_iter().find(|it| it.name() == given).ok_or_else(|| {
            let problem = "give persistent, temporary or instance";
            wrong("durability", format!("is '{}': {problem}", excerpt(given)))
        })
    }
}

impl Keys {
    /// Parses what users give: a symbol, a value in a form that [`scval_from_text`] reads or the word
    /// `instance`, a durability.
    ///
    /// # Errors
    /// [`FilterError`], about the first that is malformed.
    pub fn parse(
        key_name: Option<String>,
        key: Option<&str>,
        durability: Option<&str>,
    ) -> Result<Self, FilterError> {
        if let Some(name) = &key_name {
            symbol("key_name", name)?;
        }
        let key = match key {
            None => None,
            Some(INSTANCE) => Some(encoded(&ScVal::LedgerKeyContractInstance)?),
            Some(text) => {
                let xdr = scval_from_text(text).map_err(|error| wrong("key", error.to_string()))?;
                Some(encode_topic(&xdr))
            }
        };
        Ok(Self { key_name, key, durability: durability.map(Durability::parse).transpose()? })
    }

    /// Whether everything counts.
    pub fn is_any(&self) -> bool {
        *self == Self::default()
    }

    /// Whether an entry counts, or an item of an instance's map; `key` is the XDR `ScVal`.
    pub fn has(&self, key: &[u8], durability: Durability) -> bool {
        let is_named = |wanted: &String| name(key) == Some(wanted.as_bytes());
        let is_it = |wanted: &String| *wanted == encode_topic(key);
        self.durability.is_none_or(|wanted| wanted == durability)
            && self.key_name.as_ref().is_none_or(is_named)
            && self.key.as_ref().is_none_or(is_it)
    }
}

/// Parses the names of functions.
///
/// # Errors
/// [`FilterError`]
pub fn functions(given: Option<Vec<String>>) -> Result<Vec<String>, FilterError> {
    let mut given = given.unwrap_or_default();
    if given.len() > MOST_FUNCTIONS {
        let count = given.len();
        let problem = format!("holds {count} names: give {MOST_FUNCTIONS} at the most");
        return Err(wrong("functions", problem));
    }
    given.iter().try_for_each(|name| symbol("functions", name))?;
    given.sort_unstable();
    given.dedup();
    Ok(given)
}

/// Parses a number of ledgers.
///
/// # Errors
/// [`FilterError`]
pub fn within(given: Option<u64>) -> Result<u32, FilterError> {
    let Some(given) = given else {
        return Err(wrong("within", "is missing: give a number of ledgers"));
    };
    let number = u32::try_from(given).ok().filter(|it| (1..=MOST_WITHIN).contains(it));
    let problem = || format!("is {given}: give a number of ledgers from 1 to {MOST_WITHIN}");
    number.ok_or_else(|| wrong("within", problem()))
}

fn symbol(field: &'static str, given: &str) -> Result<(), FilterError> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    match !given.is_empty() && given.len() <= LONGEST_SYMBOL && given.bytes().all(is_part) {
        true => Ok(()),
        false => Err(wrong(
            field,
            format!(
                "holds '{}': give a symbol, 1 to {LONGEST_SYMBOL} letters, digits and underscores",
                excerpt(given)
            ),
        )),
    }
}

fn encoded(key: &ScVal) -> Result<String, FilterError> {
    use stellar_xdr::WriteXdr;
    let xdr = key.to_xdr(ENTERED_VALUE).map_err(|error| wrong("key", error.to_string()))?;
    Ok(encode_topic(&xdr))
}

fn wrong(field: &'static str, problem: impl Into<String>) -> FilterError {
    FilterError { field, problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(trigger: &Trigger) -> String {
        serde_json::to_string(trigger).unwrap()
    }

    /// Stores of earlier versions have these bytes.
    #[test]
    fn stored_forms_are_as_ever() {
        let keys = Keys {
            key_name: Some("Balance".to_owned()),
            key: None,
            durability: Some(Durability::Temporary),
        };
        let entries = Entries { instance: false, code: true, data: true };
        let ttl = Trigger::Ttl { within: 9, entries, keys: keys.clone() };
        let storage = Trigger::Storage { keys };
        for (trigger, expected) in [
            (Trigger::Event, r#"{"on":"event"}"#),
            (Trigger::Upgrade, r#"{"on":"upgrade"}"#),
            (storage, r#"{"on":"storage","key_name":"Balance","durability":"temporary"}"#),
            (
                ttl,
                r#"{"on":"ttl","within":9,"entries":{"instance":false,"code":true,"data":true},"key_name":"Balance","durability":"temporary"}"#,
            ),
            (
                Trigger::FailedCall { functions: vec!["swap".to_owned()] },
                r#"{"on":"failed_call","functions":["swap"]}"#,
            ),
            (Trigger::Silence { within: 700 }, r#"{"on":"silence","within":700}"#),
        ] {
            assert_eq!(stored(&trigger), expected);
            assert_eq!(serde_json::from_str::<Trigger>(expected).unwrap(), trigger);
            assert!(NAMES.contains(&trigger.name()));
        }
    }

    #[test]
    fn what_is_malformed_is_named_in_one_sentence() {
        let sentence = |error: FilterError| error.to_string();
        for (given, expected) in [(0, "is 0"), (1_000_001, "is 1000001"), (u64::MAX, "from 1 to")] {
            let error = sentence(within(Some(given)).unwrap_err());
            assert!(error.starts_with("'within' ") && error.contains(expected), "{error}");
        }
        assert_eq!(within(Some(1)).unwrap(), 1);
        assert_eq!(within(Some(1_000_000)).unwrap(), 1_000_000);
        assert!(sentence(within(None).unwrap_err()).contains("missing"));
        let words = |words: &[&str]| words.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        assert!(sentence(Entries::parse(Some(&words(&["tag"]))).unwrap_err()).contains("'tag'"));
        assert!(Entries::parse(Some(&[])).is_err());
        assert_eq!(Entries::parse(None).unwrap().names(), ["instance", "code"]);
        assert_eq!(functions(Some(words(&["b", "a", "b"]))).unwrap(), ["a", "b"]);
        assert!(functions(Some(words(&["a b"]))).is_err());
        assert!(functions(Some(vec!["a".to_owned(); 101])).is_err());
        assert!(Keys::parse(Some("x y".to_owned()), None, None).is_err());
        assert!(Keys::parse(None, Some("?"), None).is_err());
        assert!(Keys::parse(None, None, Some("eternal")).is_err());
    }
}
