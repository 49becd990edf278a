//! What is known of a program between its runs: its manifest, which changes when its owner says so or
//! a table grows, and its progress, which changes with every write of rows.

use serde::{Deserialize, Serialize};

use crate::domain::{ContractId, Owner, ProgramId};
use crate::tables::schema::ProgramSchema;

/// Everything about a program but its module and how far it has got.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Its number.
    pub id: ProgramId,
    /// Whose it is.
    pub owner: Owner,
    /// The name that its owner gave it; unique on the network.
    pub project_name: String,
    /// The contracts whose transactions it is run on, in the order in which they were registered.
    #[serde(with = "strkeys")]
    pub contracts: Vec<ContractId>,
    /// SHA-256 of its module.
    #[serde(with = "hexadecimal")]
    pub module: [u8; 32],
    /// Whether everyone may subscribe to its tables.
    pub public: bool,
    /// Whether it is run on new ledgers.
    pub running: bool,
    /// Why it was stopped, unless its owner paused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_because: Option<String>,
    /// When it was deployed, UNIX seconds.
    pub deployed_at: u64,
    /// Its tables as they are now.
    pub schema: ProgramSchema,
}

impl Manifest {
    /// Names of its tables, in order.
    pub fn table_names(&self) -> Vec<String> {
        let tables = self.schema.tables().iter();
        tables.map(|table| format!("program_{}_{}", self.id, table.target)).collect()
    }
}

/// How far a program has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// The place in the feed up to which it has seen ledgers: its cursor, which the store keeps.
    #[serde(skip)]
    pub place: u64,
    /// Number of the last run with rows.
    pub log: u64,
    /// Number of the last record of a run.
    pub executions: u64,
    /// Bytes of all rows.
    pub row_bytes: u64,
    /// Runs on new ledgers that failed since the last one that did not.
    pub errors_in_a_row: u32,
    /// The part of a ledger that is not done, when the part before it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// Runs for which state was missing and which were too many to be kept for later.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub given_up: u64,
}

/// What is left of a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The ledger's place in the feed.
    pub place: u64,
    /// Application order of the first transaction that is left.
    pub from: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A digest as hexadecimal digits.
mod hexadecimal {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(digest: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&hex::encode(digest))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(from)?;
        let mut digest = [0; 32];
        hex::decode_to_slice(&text, &mut digest).map_err(D::Error::custom)?;
        Ok(digest)
    }
}

/// Contract ids as people write them.
mod strkeys {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use crate::domain::ContractId;

    pub(super) fn serialize<S: Serializer>(ids: &[ContractId], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(ids.iter().map(ToString::to_string))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<ContractId>, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
    }
}
