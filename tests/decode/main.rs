//! Decoding: the borrowing walk is compared with the full decode, on real ledgers, on mutated ones,
//! and on ledgers built for what real ones do not contain. Also checks the naive model of what
//! contracts hold, which the product is compared with: on real ledgers, and against the truth of
//! generated histories.

mod builder;
mod changes;
mod limits;
mod made;
mod mutations;
mod newest;
mod real;
mod storage_model;
mod storage_truth;
mod variants;

use orrery_ledger::decode::{DecodeError, decode, ledger_length};
use orrery_ledger::domain::Network;
use orrery_testkit::full;

/// The verdict on which both implementations agree.
#[derive(Debug)]
enum Verdict {
    Ledger(Box<full::Ledger>),
    /// Decodes, but its parts contradict each other.
    Inconsistent(DecodeError),
    /// Is not a `LedgerCloseMeta`.
    Malformed(DecodeError),
}

/// Decodes with both implementations and fails the test, naming `case`, unless they agree; also
/// checks `ledger_length`, which only finds the end of a ledger.
fn compare(raw: &[u8], network: &Network, case: &dyn std::fmt::Display) -> Verdict {
    let verdict = compare_decodes(raw, network, case);
    match (&verdict, ledger_length(raw)) {
        (Verdict::Malformed(_), end) => {
            // Bytes that follow a complete ledger are left for the caller to judge.
            assert_ne!(end, Ok(raw.len()), "{case}");
        }
        (_, end) => assert_eq!(end, Ok(raw.len()), "{case}"),
    }
    verdict
}

fn compare_decodes(raw: &[u8], network: &Network, case: &dyn std::fmt::Display) -> Verdict {
    match (decode(raw, network.id()), full::decode(raw, network.id())) {
        (Ok(view), Ok(ledger)) => {
            let walked = full::Ledger::from(&view);
            assert!(walked == ledger, "{case}: {walked:#?} is not {ledger:#?}");
            changes::compare_changes(raw, &ledger, case);
            Verdict::Ledger(Box::new(ledger))
        }
        (Err(error), Err(full::Error::Ledger(other))) => {
            assert_eq!(error, other, "{case}");
            Verdict::Inconsistent(error)
        }
        (
            Err(
                error @ (DecodeError::Malformed { .. }
                | DecodeError::NewerProtocol(..)
                | DecodeError::NewerMetadata(..)),
            ),
            Err(full::Error::Xdr(_) | full::Error::NotCanonical),
        ) => Verdict::Malformed(error),
        (walk, full) => panic!("{case}: the walk says {walk:?}, the full decode {full:?}"),
    }
}
