//! The member `decoded` of a transaction: what it called, with names where the interface of the
//! contract is known, what that returned, and who authorized it; or what else it did.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use stellar_xdr::{
    ContractEventBody, HostFunction, InvokeContractArgs, ScAddress, ScError, ScSpecFunctionV0,
    ScSpecTypeDef, ScVal, SorobanAuthorizationEntry, SorobanCredentials,
};

use orrery_executables::{AllTried, InterfaceReader, Tried};
use orrery_interfaces::{Plain, Typed, Types};
use orrery_ledger::domain::{ContractId, NetworkId, text};
use orrery_programs::transaction::{FootprintOperation, HostCall, Operation};
use orrery_store::TransactionRecord;

/// First topic of the diagnostic event about an error.
const ERROR: &[u8] = b"error";

/// A call of a contract.
#[derive(Serialize)]
struct Call<'a> {
    contract: String,
    function: String,
    args: Args<'a>,
    returned: Option<Value<'a>>,
    error: Option<ContractError>,
    auth: Vec<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    names_pending: bool,
}

/// A transaction that calls no contract.
#[derive(Serialize)]
struct Other {
    operation: &'static str,
}

/// An error of a contract.
#[derive(Serialize)]
struct ContractError {
    contract: String,
    code: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

/// Arguments by name, or typed.
enum Args<'a> {
    Named(&'a ScSpecFunctionV0, &'a [ScVal], &'a Types),
    Typed(&'a [ScVal]),
}

/// A value by its declared type, or typed.
#[derive(Serialize)]
#[serde(untagged)]
enum Value<'a> {
    Plain(Plain<'a>),
    Typed(Typed<'a>),
}

impl Serialize for Args<'_> {
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

/// Appends the object of a transaction on this network, or null when it cannot be read.
pub(super) fn write(
    transaction: &TransactionRecord<'_>,
    network: &NetworkId,
    names: &InterfaceReader<'_>,
    out: &mut Vec<u8>,
) {
    let written = match Operation::read(transaction, network) {
        Ok(Some(Operation::Call(call))) => write_call(&call, transaction, names, out),
        Ok(Some(Operation::Footprint(operation))) => {
            let operation = match operation {
                FootprintOperation::Extend => "extend",
                FootprintOperation::Restore => "restore",
            };
            serde_json::to_writer(&mut *out, &Other { operation })
        }
        Ok(None) => serde_json::Serializer::new(&mut *out).serialize_unit(),
        Err(error) => {
            tracing::error!("{error}");
            serde_json::Serializer::new(&mut *out).serialize_unit()
        }
    };
    // Writing texts and numbers to memory cannot fail.
    let _ = written;
}

fn write_call(
    call: &HostCall,
    transaction: &TransactionRecord<'_>,
    names: &InterfaceReader<'_>,
    out: &mut Vec<u8>,
) -> serde_json::Result<()> {
    let InvokeContractArgs { contract_address, function_name, args } = match &call.function {
        HostFunction::InvokeContract(invoked) => invoked,
        HostFunction::UploadContractWasm(_) => {
            return serde_json::to_writer(out, &Other { operation: "upload" });
        }
        HostFunction::CreateContract(_) | HostFunction::CreateContractV2(_) => {
            return serde_json::to_writer(out, &Other { operation: "create" });
        }
    };
    let lacked = names.lacked();
    let interfaces = match contract_address {
        ScAddress::Contract(id) => names.tried(&ContractId(id.0.0), transaction.position),
        _ => AllTried::default(),
    };
    let declared = interfaces.iter().map(Tried::interface).find_map(|interface| {
        let function = interface.function(function_name.as_slice())?;
        let fits = function.inputs.len() == args.len() && has_distinct_names(function);
        fits.then_some((function, interface.types()))
    });
    let returned = call.recorded.return_value.as_ref().filter(|_| call.successful);
    let error = error_of(call, transaction, names);
    let decoded = Call {
        contract: contract_address.to_string(),
        function: text(function_name.as_slice()),
        args: match declared {
            Some((function, types)) => Args::Named(function, args, types),
            None => Args::Typed(args),
        },
        returned: returned.map(|value| match declared {
            Some((function, types)) => {
                let kind = function.outputs.first().unwrap_or(&ScSpecTypeDef::Void);
                Value::Plain(Plain::new(value, kind, types))
            }
            None => Value::Typed(Typed(value)),
        }),
        error,
        auth: authorized_by(call),
        names_pending: names.lacked() > lacked,
    };
    serde_json::to_writer(out, &decoded)
}

fn has_distinct_names(function: &ScSpecFunctionV0) -> bool {
    let mut names: Vec<_> = function.inputs.iter().map(|input| input.name.as_slice()).collect();
    names.sort_unstable();
    names.windows(2).all(|two| two[0] != two[1])
}

/// Returns the first error of a contract that the diagnostic events of a failed transaction name.
fn error_of(
    call: &HostCall,
    transaction: &TransactionRecord<'_>,
    names: &InterfaceReader<'_>,
) -> Option<ContractError> {
    if call.successful {
        return None;
    }
    call.recorded.diagnostics.iter().find_map(|event| {
        let ContractEventBody::V0(body) = &event.body;
        match (body.topics.as_slice(), &event.contract_id) {
            ([ScVal::Symbol(name), ScVal::Error(ScError::Contract(code)), ..], Some(contract))
                if name.as_slice() == ERROR =>
            {
                let contract = ContractId(contract.0.0);
                let interfaces = names.tried(&contract, transaction.position);
                let mut named = interfaces.iter().map(Tried::interface);
                let name = named.find_map(|interface| interface.error_name(*code)).map(text);
                Some(ContractError { contract: contract.to_string(), code: *code, name })
            }
            _ => None,
        }
    })
}

/// Returns the addresses that have authorized the call, each once.
fn authorized_by(call: &HostCall) -> Vec<String> {
    let mut addresses: Vec<String> = Vec::new();
    for SorobanAuthorizationEntry { credentials, .. } in &call.authorization {
        let address = match credentials {
            SorobanCredentials::SourceAccount => call.source_account.to_string(),
            SorobanCredentials::Address(one) | SorobanCredentials::AddressV2(one) => {
                one.address.to_string()
            }
            SorobanCredentials::AddressWithDelegates(one) => {
                one.address_credentials.address.to_string()
            }
        };
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}
