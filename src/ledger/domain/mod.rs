//! Basic types of the project: sequences, hashes, ids, networks and pages, and how each is parsed,
//! displayed, ordered and serialised. Does no I/O.

#[macro_use]
mod serial;

mod asset;
mod close_time;
mod compressed_ledger;
mod contract_id;
mod covered_ledgers;
mod digest;
mod emit;
mod event_id;
mod hash;
mod ledger_seq;
mod ledger_set;
mod ledger_source;
mod network;
mod node;
mod node_id;
mod page;
mod program;
mod raw_ledger;
mod scval;
mod scval_text;
mod seed;
mod start_point;
mod text;

pub use asset::{asset_contract_id, asset_text, parse_asset};
pub use close_time::CloseTime;
pub use compressed_ledger::CompressedLedger;
pub use contract_id::ContractId;
pub use covered_ledgers::{CoveredLedgers, SummedLedgers, range_ends};
pub use digest::Digest;
pub use emit::Emit;
pub use event_id::{EventId, RpcEventId};
pub use hash::{Hash32, LedgerHash, TxHash};
pub use ledger_seq::{LedgerRange, LedgerSeq};
pub use ledger_set::LedgerSet;
pub use ledger_source::{Fetched, LedgerSource, SourceError};
pub use network::{Network, NetworkId};
pub use node::{
    AuthMode, Funding, LiveEntries, LiveEntry, LiveState, NotFunded, Simulation, Submission,
};
pub use node_id::NodeId;
pub use page::{Direction, Page};
pub use program::{Owner, ProgramId};
pub use raw_ledger::{LONGEST_LEDGER, NEWEST_META_VERSION, Origin, RawLedger, sequence_of};
pub use scval::{address_xdr, scval_xdr};
pub use scval_text::scval_from_text;
pub use seed::{is_seed, without_seeds};
pub use start_point::StartPoint;
pub use text::text;

/// Reason why a text is not a valid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The text is not 64 hexadecimal digits.
    #[error("'{0}' is not a hash: give 64 hexadecimal digits")]
    Hash(String),
    /// The text is not a contract strkey (SEP-23).
    #[error("'{0}' is not a contract ID: give a strkey of 56 characters that starts with C")]
    Contract(String),
    /// The text is not the key of a validator (SEP-23).
    #[error(
        "'{0}' is not the key of a validator: give a strkey of 56 characters that starts with G"
    )]
    Validator(String),
    /// The text has the form of a strkey, and its checksum (SEP-23) is wrong.
    #[error(
        "'{0}' is mistyped: the checksum at the end of the address does not fit, so copy it again"
    )]
    Mistyped(String),
    /// The text is a secret seed (SEP-23), which is not shown.
    #[error(
        "it is a secret seed, which nobody else may see: give the public key of it, which starts with G"
    )]
    Seed,
    /// The text is not an address of the network (SEP-23).
    #[error("'{0}' is not an address: give a strkey, such as one that starts with G or C")]
    Address(String),
    /// The text is not the base64 XDR of an `ScVal`.
    #[error("holds '{value}', {what}: give the base64 XDR of an ScVal")]
    ScVal {
        /// The text, shortened.
        value: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The text stands for no contract value.
    #[error(
        "holds '{value}', {what}: give type:value (such as symbol:transfer, u64:5 or address:G…), \
         a symbol, an address, or the base64 XDR of an ScVal"
    )]
    Value {
        /// The text, shortened.
        value: String,
        /// What is wrong with it.
        what: String,
    },
    /// The text is not the id of an event as Stellar RPC returns it.
    #[error("'{0}' is not the id of an event")]
    EventId(String),
    /// The text is not a ledger to start from.
    #[error("'{0}' is not a ledger to start from: give tip, genesis, oldest or a sequence number")]
    StartPoint(String),
}

/// Returns a value in a form fit for quoting in an error message: short and on one line, so that a
/// hostile value can neither flood a log or response nor begin a new line there. Secret seeds are left
/// out.
pub fn excerpt(text: &str) -> String {
    shortened(text, 80)
}

/// Returns at most `most` characters of a text, with control characters replaced by spaces. Appends
/// `…` when it was cut.
pub fn shortened(text: &str, most: usize) -> String {
    let text = without_seeds(text);
    let (shown, end) = match text.char_indices().nth(most) {
        Some((end, _)) => (&text[..end], "…"),
        None => (&*text, ""),
    };
    shown.replace(char::is_control, " ") + end
}

impl ParseError {
    /// Returns the error for a text that is not the strkey that was expected: that it is mistyped, if
    /// it has the form of one that begins with one of `first`, otherwise `other`.
    fn of_strkey(text: &str, first: &[char], other: impl FnOnce(String) -> Self) -> Self {
        if is_seed(text.trim()) {
            return Self::Seed;
        }
        let is_base32 = |letter: u8| letter.is_ascii_uppercase() || (b'2'..=b'7').contains(&letter);
        if text.len() == 56 && text.starts_with(first) && text.bytes().all(is_base32) {
            Self::Mistyped(text.to_owned())
        } else {
            other(excerpt(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_are_short_and_on_one_line() {
        assert_eq!(excerpt("plain, é"), "plain, é");
        assert_eq!(excerpt("a\nb\r\n\0\u{85}c"), "a b    c");
        assert_eq!(excerpt(&"é".repeat(80)), "é".repeat(80));
        assert_eq!(excerpt(&"é".repeat(81)), "é".repeat(80) + "…");
        assert_eq!(shortened("abc", 2), "ab…");
    }
}
