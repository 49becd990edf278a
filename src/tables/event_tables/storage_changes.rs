//! The table of a project with the changes of what its contracts hold.

use orrery_interfaces::names::STORAGE_CHANGES;
use orrery_ledger::domain::{ContractId, Emit, Hash32};
use stellar_xdr::{ScMap, ScMapEntry, ScString, ScSymbol, ScVal};

use crate::schema::TableSchema;
use crate::types::{ColumnType, Field};

pub(crate) const KEY_NAME: &str = "key_name";
pub(crate) const KEY_ARGS: &str = "key_args";
pub(crate) const KEY: &str = "key";
pub(crate) const VALUE: &str = "value";
pub(crate) const CHANGE: &str = "change";
pub(crate) const DURABILITY: &str = "durability";
pub(crate) const LIVE_UNTIL: &str = "live_until";
pub(crate) const KEY_HASH: &str = "key_hash";
/// Column that no query sees: the application order of the transaction, by which changes of one key in one
/// ledger follow each other.
pub(crate) const ORDER: &str = "_order";

/// A change of an entry, as its row has it.
#[derive(Debug, Clone)]
pub struct StorageChange<'a> {
    /// The contract.
    pub contract: ContractId,
    /// Application order of the transaction; the greatest one for evictions.
    pub order: u32,
    /// The symbol by which the key is found.
    pub key_name: Option<String>,
    /// JSON of the elements of the key after the symbol.
    pub key_args: Option<String>,
    /// JSON of the key.
    pub key: Option<String>,
    /// JSON of the value that holds from then on.
    pub value: Option<String>,
    /// What happened.
    pub change: &'a str,
    /// `persistent` or `temporary`.
    pub durability: &'a str,
    /// Last ledger in which the entry is live.
    pub live_until: Option<u32>,
    /// The SHA-256 of the XDR `LedgerKey`.
    pub key_hash: Hash32,
}

impl StorageChange<'_> {
    /// Returns the row.
    pub fn emit(&self) -> Emit {
        let optional = |it: &Option<String>| it.as_ref().map_or(ScVal::Void, |it| text(it));
        // In the order of a map's keys.
        let fields = [
            (ORDER, ScVal::U32(self.order)),
            (CHANGE, text(self.change)),
            (DURABILITY, text(self.durability)),
            (KEY, optional(&self.key)),
            (KEY_ARGS, optional(&self.key_args)),
            (KEY_HASH, text(&self.key_hash.to_string())),
            (KEY_NAME, optional(&self.key_name)),
            (LIVE_UNTIL, self.live_until.map_or(ScVal::Void, ScVal::U32)),
            (VALUE, optional(&self.value)),
        ];
        let field = |(name, val): (&str, ScVal)| {
            // The names have at most 32 letters.
            let name = ScSymbol(name.as_bytes().try_into().unwrap_or_default());
            ScMapEntry { key: ScVal::Symbol(name), val }
        };
        let fields = ScMap(fields.map(field).to_vec().try_into().unwrap_or_default());
        Emit { contract: self.contract, target: STORAGE_CHANGES.to_owned(), fields }
    }
}

fn text(text: &str) -> ScVal {
    // Fails beyond 4 GiB, which no entry has.
    ScVal::String(ScString(text.as_bytes().try_into().unwrap_or_default()))
}

/// The table.
pub(super) fn table() -> TableSchema {
    let columns = [
        (KEY_NAME, ColumnType::Text),
        (KEY_ARGS, ColumnType::JsonText),
        (KEY, ColumnType::JsonText),
        (VALUE, ColumnType::JsonText),
        (CHANGE, ColumnType::Text),
        (DURABILITY, ColumnType::Text),
        (LIVE_UNTIL, ColumnType::UInt32),
        (KEY_HASH, ColumnType::Text),
        (ORDER, ColumnType::UInt32),
    ];
    let field = |(name, kind): (&str, _)| Field { name: name.to_owned(), kind };
    TableSchema::known(STORAGE_CHANGES, columns.map(field).to_vec()).hiding_the_last()
}
