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
mod lifetime;
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
pub use lifetime::{has_lifetime, instance_key, instance_key_at, is_temporary, ttl_hash, ttl_key};
pub use network::{Network, NetworkId};
pub use node::{
    AuthMode, Funding, LiveEntries, LiveEntry, LiveState, NotFunded, Simulation, Submission,
};
pub use node_id::NodeId;
pub use page::{Direction, Page};
pub use program::{Owner, ProgramId};
pub use raw_ledger::{
    LAST_FRAGMENT, LONGEST_LEDGER, NEWEST_META_VERSION, Origin, RawLedger, sequence_of,
};
pub use scval::{DEEPEST_VALUE, ENTERED_VALUE, address_xdr, scval_xdr};
pub use scval_text::scval_from_text;
pub use seed::without_seeds;
pub use start_point::StartPoint;
pub use text::text;

use seed::is_seed;

/// Reason why a text is not a valid value: a sentence that quotes it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

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
    /// Returns the error for a text that is not the strkey that was expected (SEP-23): that it is
    /// mistyped, if it has the form of one that begins with one of `first`, otherwise that it is not
    /// `expected`. A secret seed is not shown.
    fn of_strkey(text: &str, first: &[char], expected: &str) -> Self {
        if is_seed(text.trim()) {
            return Self(
                "it is a secret seed, which nobody else may see: give the public key of it, which \
                 starts with G"
                    .to_owned(),
            );
        }
        let is_base32 = |letter: u8| letter.is_ascii_uppercase() || (b'2'..=b'7').contains(&letter);
        if text.len() == 56 && text.starts_with(first) && text.bytes().all(is_base32) {
            Self(format!(
                "'{text}' is mistyped: the checksum at the end of the address does not fit, so copy \
                 it again"
            ))
        } else {
            Self(format!("'{}' is not {expected}", excerpt(text)))
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
