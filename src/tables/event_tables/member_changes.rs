//! The table of a project with the contracts that became members of it, and those that are none any more.

use orrery_interfaces::names::MEMBER_CHANGES;
use orrery_ledger::domain::{ContractId, Emit, Hash32};
use sha2::{Digest, Sha256};
use stellar_xdr::{ScMap, ScMapEntry, ScString, ScSymbol, ScVal};

use crate::schema::TableSchema;
use crate::types::{ColumnType, Field};

pub(crate) const SELECTOR: &str = "selector";
pub(crate) const CHANGE: &str = "change";
pub(crate) const WASM_HASH: &str = "wasm_hash";
/// Column that no query sees: the number of the change among those of a contract by one selector.
pub(crate) const NUMBER: &str = "_number";

/// What happened to a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum MemberChangeKind {
    /// A factory announced it.
    Announced,
    /// It was created, or begins to run the code.
    Joined,
    /// It does not run the code any more.
    Left,
}

impl MemberChangeKind {
    /// All kinds, in the order of their names.
    pub const ALL: [Self; 3] = [Self::Announced, Self::Joined, Self::Left];

    /// Returns the name in the column `change`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Announced => "announced",
            Self::Joined => "joined",
            Self::Left => "left",
        }
    }
}

/// A change of a member, as its row has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberChange {
    /// The contract.
    pub contract: ContractId,
    /// What selects it.
    pub selector: String,
    /// What happened.
    pub kind: MemberChangeKind,
    /// Module that it runs, where that selects it.
    pub wasm: Option<Hash32>,
    /// Number among those of the contract by this selector, in the order of the chain.
    pub number: u32,
}

impl MemberChange {
    /// Returns what tells it from the other changes of its ledger and transaction.
    pub fn key(&self) -> Hash32 {
        let mut digest = Sha256::new_with_prefix(self.contract.as_bytes());
        digest.update(self.selector.as_bytes());
        digest.update([self.kind as u8]);
        Hash32(digest.finalize().into())
    }

    /// Returns the row.
    pub fn emit(&self) -> Emit {
        let wasm = self.wasm.as_ref().map_or(ScVal::Void, |hash| text(&hash.to_string()));
        // In the order of a map's keys.
        let fields = [
            (NUMBER, ScVal::U32(self.number)),
            (CHANGE, text(self.kind.name())),
            (SELECTOR, text(&self.selector)),
            (WASM_HASH, wasm),
        ];
        let field = |(name, val): (&str, ScVal)| {
            // The names have at most 32 letters.
            let name = ScSymbol(name.as_bytes().try_into().unwrap_or_default());
            ScMapEntry { key: ScVal::Symbol(name), val }
        };
        let fields = ScMap(fields.map(field).to_vec().try_into().unwrap_or_default());
        Emit { contract: self.contract, target: MEMBER_CHANGES.to_owned(), fields }
    }
}

fn text(text: &str) -> ScVal {
    // Fails beyond 4 GiB, which no selector has.
    ScVal::String(ScString(text.as_bytes().try_into().unwrap_or_default()))
}

/// The table.
pub(super) fn table() -> TableSchema {
    let columns = [
        (SELECTOR, ColumnType::Text),
        (CHANGE, ColumnType::Text),
        (WASM_HASH, ColumnType::Text),
        (NUMBER, ColumnType::UInt32),
    ];
    let field = |(name, kind): (&str, _)| Field { name: name.to_owned(), kind };
    TableSchema::known(MEMBER_CHANGES, columns.map(field).to_vec()).hiding_the_last()
}
