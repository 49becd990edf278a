//! `orrery xdr`: XDR as JSON (SEP-51) and back, for the types that answers of the service contain.

use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use serde_json::Value;
use stellar_xdr::{
    ContractEvent, DiagnosticEvent, LedgerCloseMeta, LedgerEntry, LedgerEntryData, LedgerHeader,
    LedgerHeaderHistoryEntry, LedgerKey, Limits, ReadXdr, ScAddress, ScMap, ScSpecEntry, ScVal,
    SorobanAuthorizationEntry, SorobanTransactionData, TransactionEnvelope, TransactionEvent,
    TransactionMeta, TransactionResult, TransactionResultMeta, TransactionResultPair, WriteXdr,
};

use super::{Failure, output};

/// Bytes and depth of a value; a ledger of the public network has some megabytes.
const LIMITS: Limits = Limits { depth: 500, len: 256 << 20 };

/// Show XDR as JSON, and turn JSON into XDR
#[derive(Debug, Args)]
pub struct Xdr {
    #[command(subcommand)]
    verb: XdrVerb,
}

#[derive(Debug, Subcommand)]
enum XdrVerb {
    Decode(Decode),
    Encode(Encode),
}

/// Show values in base64 XDR as JSON
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery xdr decode AAAADwAAAAh0cmFuc2Zlcg==
  orrery xdr decode --type TransactionEnvelope < envelope.txt")]
struct Decode {
    /// Type of the value
    #[arg(long = "type", value_name = "TYPE", default_value = "ScVal", value_parser = known_type)]
    of: &'static str,
    /// Values in base64; those of standard input, one in a line, if none is given
    #[arg(value_name = "XDR")]
    values: Vec<String>,
}

/// Turn a value in JSON, as `decode` shows it, into base64 XDR
#[derive(Debug, Args)]
#[command(after_help = "Example:
  orrery xdr encode '{\"symbol\":\"transfer\"}'")]
struct Encode {
    /// Type of the value
    #[arg(long = "type", value_name = "TYPE", default_value = "ScVal", value_parser = known_type)]
    of: &'static str,
    /// The value in JSON; that of standard input if not given
    #[arg(value_name = "JSON")]
    value: Option<String>,
}

/// Functions of a type.
struct Known {
    name: &'static str,
    decode: fn(&[u8]) -> Result<Value, String>,
    encode: fn(&str) -> Result<Vec<u8>, String>,
}

macro_rules! known {
    ($($name:ident),* $(,)?) => {
        [$(Known {
            name: stringify!($name),
            decode: |bytes| {
                let value = $name::from_xdr(bytes, LIMITS).map_err(|error| error.to_string())?;
                serde_json::to_value(value).map_err(|error| error.to_string())
            },
            encode: |text| {
                let value: $name = serde_json::from_str(text).map_err(|error| error.to_string())?;
                value.to_xdr(LIMITS).map_err(|error| error.to_string())
            },
        }),*]
    };
}

static KNOWN: [Known; 20] = known![
    ContractEvent,
    DiagnosticEvent,
    LedgerCloseMeta,
    LedgerEntry,
    LedgerEntryData,
    LedgerHeader,
    LedgerHeaderHistoryEntry,
    LedgerKey,
    ScAddress,
    ScMap,
    ScSpecEntry,
    ScVal,
    SorobanAuthorizationEntry,
    SorobanTransactionData,
    TransactionEnvelope,
    TransactionEvent,
    TransactionMeta,
    TransactionResult,
    TransactionResultMeta,
    TransactionResultPair,
];

fn known_type(text: &str) -> Result<&'static str, String> {
    let known = KNOWN.iter().find(|known| known.name.eq_ignore_ascii_case(text));
    known.map(|known| known.name).ok_or_else(|| {
        let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
        format!("it is none of {}", names.join(", "))
    })
}

fn known(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.name == name)
}

impl Xdr {
    pub fn run(self) -> Result<(), Failure> {
        match self.verb {
            XdrVerb::Decode(verb) => verb.run(),
            XdrVerb::Encode(verb) => verb.run(),
        }
    }
}

impl Decode {
    fn run(self) -> Result<(), Failure> {
        let values = match self.values.is_empty() {
            true => input()?.lines().map(str::to_owned).collect(),
            false => self.values,
        };
        let values = values.iter().map(|value| value.trim()).filter(|value| !value.is_empty());
        for value in values {
            output::print_json(&decoded(self.of, value)?)?;
        }
        Ok(())
    }
}

fn decoded(of: &str, text: &str) -> Result<Value, Failure> {
    let bytes = STANDARD.decode(text).map_err(|error| {
        Failure::failed(format!("{} is not base64 ({error}): give XDR in base64", excerpt(text)))
    })?;
    let known = known(of).ok_or_else(|| Failure::usage(format!("there is no type {of}")))?;
    (known.decode)(&bytes).map_err(|error| {
        Failure::failed(format!(
            "{} is not XDR of the type {of} ({error}): give its type with --type",
            excerpt(text)
        ))
    })
}

impl Encode {
    fn run(self) -> Result<(), Failure> {
        let text = match self.value {
            Some(text) => text,
            None => input()?,
        };
        let known = known(self.of);
        let known = known.ok_or_else(|| Failure::usage(format!("there is no type {}", self.of)))?;
        let bytes = (known.encode)(&text).map_err(|error| {
            Failure::failed(format!(
                "{} is not JSON of the type {} ({error}): give what `orrery xdr decode` shows",
                excerpt(text.trim()),
                self.of
            ))
        })?;
        output::print(&format!("{}\n", STANDARD.encode(bytes)))
    }
}

fn excerpt(text: &str) -> String {
    orrery::domain::excerpt(text)
}

fn input() -> Result<String, Failure> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| Failure::failed(format!("standard input cannot be read: {error}")))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_the_same_after_both_directions() {
        let json = decoded("ScVal", "AAAADwAAAAh0cmFuc2Zlcg==").unwrap();
        assert_eq!(json, serde_json::json!({ "symbol": "transfer" }));
        let bytes = (known("ScVal").unwrap().encode)(&json.to_string()).unwrap();
        assert_eq!(STANDARD.encode(bytes), "AAAADwAAAAh0cmFuc2Zlcg==");
    }

    #[test]
    fn wrong_input_is_named_with_its_mend() {
        for (of, text, told) in [
            ("ScVal", "!", "! is not base64"),
            ("ScVal", "AAAA", "AAAA is not XDR of the type ScVal"),
            ("ScVal", "AAAADwAAAAh0cmFuc2ZlcgAAAAA=", "--type"),
            ("TransactionResult", "AAAADwAAAAh0cmFuc2Zlcg==", "TransactionResult"),
        ] {
            let failure = decoded(of, text).unwrap_err().to_string();
            assert!(failure.contains(told), "{failure}");
        }
        assert!(
            known_type("scval") == Ok("ScVal") && known_type("x").unwrap_err().contains("ScVal")
        );
    }
}
