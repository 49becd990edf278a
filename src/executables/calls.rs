//! Calls of contracts as answers show them: arguments with the names that the contract's interface gives
//! them, and the error of one that failed.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use stellar_xdr::{ContractEvent, ContractEventBody, ScError, ScSpecFunctionV0, ScVal};

use super::reader::{InterfaceReader, Tried};
use orrery_interfaces::{Plain, Typed, Types};
use orrery_ledger::domain::{ContractId, text};
use orrery_store::TransactionPosition;

/// First topic of the diagnostic event about an error.
const ERROR: &[u8] = b"error";

/// The arguments of a call: by name where a function is declared that has them, else typed.
pub enum CallArgs<'a> {
    /// Those of this function.
    Named(&'a ScSpecFunctionV0, &'a [ScVal], &'a Types),
    /// In their order.
    Typed(&'a [ScVal]),
}

/// An error of a contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallError {
    /// The contract whose error it is, which may be another one than was called.
    pub contract: String,
    /// Its number.
    pub code: u32,
    /// Its name, where the contract's interface has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Returns the function of this name that takes so many arguments, with the types of its interface.
pub fn declared_function<'t>(
    tried: &'t [Tried],
    function: &[u8],
    arguments: usize,
) -> Option<(&'t ScSpecFunctionV0, &'t Types)> {
    tried.iter().map(Tried::interface).find_map(|interface| {
        let function = interface.function(function)?;
        let fits = function.inputs.len() == arguments && has_distinct_names(function);
        fits.then_some((function, interface.types()))
    })
}

fn has_distinct_names(function: &ScSpecFunctionV0) -> bool {
    let mut names: Vec<_> = function.inputs.iter().map(|input| input.name.as_slice()).collect();
    names.sort_unstable();
    names.windows(2).all(|two| two[0] != two[1])
}

impl<'a> CallArgs<'a> {
    /// Returns the arguments of a call of a function that is declared like this, if it is.
    pub fn new(declared: Option<(&'a ScSpecFunctionV0, &'a Types)>, args: &'a [ScVal]) -> Self {
        match declared {
            Some((function, types)) => Self::Named(function, args, types),
            None => Self::Typed(args),
        }
    }
}

impl Serialize for CallArgs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Typed(values) => serializer.collect_seq(values.iter().map(Typed)),
            Self::Named(function, values, types) => {
                let mut object = serializer.serialize_map(Some(values.len()))?;
                for (input, value) in function.inputs.iter().zip(*values) {
                    let value = Plain::new(value, &input.type_, types);
                    object.serialize_entry(&text(input.name.as_slice()), &value)?;
                }
                object.end()
            }
        }
    }
}

impl CallError {
    /// Returns the first error of a contract that the diagnostic events of a failed transaction name.
    pub fn of(
        diagnostics: &[ContractEvent],
        at: TransactionPosition,
        names: Option<&InterfaceReader<'_>>,
    ) -> Option<Self> {
        diagnostics.iter().find_map(|event| {
            let ContractEventBody::V0(body) = &event.body;
            match (body.topics.as_slice(), &event.contract_id) {
                (
                    [ScVal::Symbol(name), ScVal::Error(ScError::Contract(code)), ..],
                    Some(contract),
                ) if name.as_slice() == ERROR => {
                    let contract = ContractId(contract.0.0);
                    let name = names.and_then(|names| {
                        let tried = names.tried(&contract, at);
                        let mut each = tried.iter().map(Tried::interface);
                        each.find_map(|interface| interface.error_name(*code)).map(text)
                    });
                    Some(Self { contract: contract.to_string(), code: *code, name })
                }
                _ => None,
            }
        })
    }
}
