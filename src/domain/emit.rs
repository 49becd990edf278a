//! What a program emits: one struct of named values, which becomes one row.

use stellar_xdr::ScMap;

use super::ContractId;

/// One emit of a run that was not rolled back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emit {
    /// The contract in whose frame it was made.
    pub contract: ContractId,
    /// The struct's name as the program gives it (`snake_case` when it is derived).
    pub target: String,
    /// Fields by name; keys are symbols, in the order of XDR maps.
    pub fields: ScMap,
}
