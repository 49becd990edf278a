//! The member `decoded` of a transaction: what it called, with names where the interface of the
//! contract is known, what that returned, and who authorized it; or what else it did.

use serde::{Serialize, Serializer};
use stellar_xdr::{
    HostFunction, InvokeContractArgs, ScAddress, ScSpecTypeDef, SorobanAuthorizationEntry,
    SorobanCredentials,
};

use orrery_executables::{AllTried, CallArgs, CallError, InterfaceReader, declared_function};
use orrery_interfaces::{Plain, Typed};
use orrery_ledger::domain::{ContractId, NetworkId, text};
use orrery_programs::transaction::{FootprintOperation, HostCall, Operation};
use orrery_store::TransactionRecord;

/// A call of a contract.
#[derive(Serialize)]
struct Call<'a> {
    contract: String,
    function: String,
    args: CallArgs<'a>,
    returned: Option<Value<'a>>,
    error: Option<CallError>,
    auth: Vec<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    names_pending: bool,
}

/// A transaction that calls no contract.
#[derive(Serialize)]
struct Other {
    operation: &'static str,
}

/// A value by its declared type, or typed.
#[derive(Serialize)]
#[serde(untagged)]
enum Value<'a> {
    Plain(Plain<'a>),
    Typed(Typed<'a>),
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
    let declared = declared_function(&interfaces, function_name.as_slice(), args.len());
    let returned = call.recorded.return_value.as_ref().filter(|_| call.successful);
    let diagnostics = &call.recorded.diagnostics;
    let failed = !call.successful;
    let error =
        failed.then(|| CallError::of(diagnostics, transaction.position, Some(names))).flatten();
    let decoded = Call {
        contract: contract_address.to_string(),
        function: text(function_name.as_slice()),
        args: CallArgs::new(declared, args),
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
