//! Covered ledgers, in forms that two installations can compare.

use serde::{Deserialize, Serialize};

use super::{Digest, LedgerHash, LedgerRange};

/// Consecutive stored ledgers, and how they are linked with the ledgers around them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoveredLedgers {
    /// First and last ledger.
    #[serde(flatten, with = "range_ends")]
    pub ledgers: LedgerRange,
    /// Hash of the first ledger.
    pub first_hash: LedgerHash,
    /// Hash of the last ledger.
    pub last_hash: LedgerHash,
    /// Hash of the ledger before the first one, according to the first ledger's header.
    pub previous_hash: LedgerHash,
    /// Number of events that were stored, including those that retention has removed since.
    pub events: u64,
    /// Sum of the ledgers' digests.
    pub digest: Digest,
}

/// Consecutive ledgers as they are found on disk, where their hashes are not looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummedLedgers {
    /// First and last ledger.
    #[serde(flatten, with = "range_ends")]
    pub ledgers: LedgerRange,
    /// Number of events that were stored, including those that retention has removed since.
    pub events: u64,
    /// Sum of the ledgers' digests.
    pub digest: Digest,
}

/// Serialises a range with the members `first_ledger` and `last_ledger`.
pub mod range_ends {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::domain::{LedgerRange, LedgerSeq};

    #[derive(Serialize, Deserialize)]
    struct Ends {
        first_ledger: LedgerSeq,
        last_ledger: LedgerSeq,
    }

    /// Serialises the two members.
    pub fn serialize<S: Serializer>(range: &LedgerRange, to: S) -> Result<S::Ok, S::Error> {
        Ends { first_ledger: range.first, last_ledger: range.last }.serialize(to)
    }

    /// Reads the two members.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<LedgerRange, D::Error> {
        let Ends { first_ledger, last_ledger } = Ends::deserialize(from)?;
        Ok(LedgerRange { first: first_ledger, last: last_ledger })
    }
}
