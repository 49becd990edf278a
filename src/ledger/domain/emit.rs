//! Output of an indexing program: one struct of named values, which becomes one row.

use stellar_xdr::ScMap;

use super::ContractId;

/// One struct that a run of a program emitted, outside of frames that were rolled back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emit {
    /// Contract in whose frame it was emitted.
    pub contract: ContractId,
    /// Name of the struct, as the program gives it (`snake_case` when it is derived).
    pub target: String,
    /// Fields by name; keys are symbols, in the order of XDR maps.
    pub fields: ScMap,
}
