//! What a new subscription is told of, and the values that only some of these take.

use clap::Args;
use serde_json::{Value, json};

/// What a subscription is told of.
#[derive(Debug, Args)]
pub struct On {
    /// What to be told of: event (the default), upgrade, storage, ttl, failed_call or silence
    #[arg(long, value_name = "TRIGGER")]
    on: Option<String>,
    /// Number of ledgers: before an entry ends (ttl), or without an event (silence)
    #[arg(long, value_name = "LEDGERS")]
    within: Option<u64>,
    /// Entries whose end is near (ttl): instance, code, data, with commas between them
    #[arg(long, value_name = "ENTRIES", value_delimiter = ',')]
    entries: Vec<String>,
    /// Only data whose key is this symbol, or begins with it (storage, ttl)
    #[arg(long, value_name = "SYMBOL")]
    key_name: Option<String>,
    /// Only data under this key, such as symbol:Admin, or instance (storage, ttl)
    #[arg(long, value_name = "VALUE")]
    key: Option<String>,
    /// Only such data: persistent, temporary or instance (storage, ttl)
    #[arg(long, value_name = "DURABILITY")]
    durability: Option<String>,
    /// Only calls of these functions (failed_call), with commas between them
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    functions: Vec<String>,
}

impl On {
    /// Adds what is given to the body of a request.
    pub fn add_to(&self, body: &mut Value) {
        let Self { on, within, entries, key_name, key, durability, functions } = self;
        let members = [
            ("on", json!(on)),
            ("within", json!(within)),
            ("entries", json!((!entries.is_empty()).then_some(entries))),
            ("key_name", json!(key_name)),
            ("key", json!(key)),
            ("durability", json!(durability)),
            ("functions", json!((!functions.is_empty()).then_some(functions))),
        ];
        for (name, value) in members.into_iter().filter(|(_, value)| !value.is_null()) {
            body[name] = value;
        }
    }
}
