//! Failed transactions that call a contract.

use stellar_xdr::{
    HostFunction, InvokeContractArgs, ScAddress, SorobanAuthorizedFunction,
    SorobanAuthorizedInvocation,
};

use super::Sources;
use super::body::{self, Scene};
use crate::trigger::Trigger;
use orrery_executables::transaction::{HostCall, RecordError};
use orrery_executables::{CallArgs, CallError, declared_function};
use orrery_ledger::domain::{ContractId, text};

/// A call that a transaction wants to make.
pub(super) struct Called<'c> {
    /// The contract.
    pub contract: ContractId,
    /// Its 1-based number among all calls that the transaction names.
    pub number: u64,
    args: &'c InvokeContractArgs,
}

impl Called<'_> {
    /// Whether a function that is called counts.
    pub fn is_of(&self, functions: &[String]) -> bool {
        let name = self.args.function_name.as_slice();
        functions.is_empty() || functions.iter().any(|wanted| wanted.as_bytes() == name)
    }
}

/// Returns the calls that a transaction names: that of the operation, then those of the authorization
/// entries, depth first.
pub(super) fn calls(call: &HostCall) -> Vec<Called<'_>> {
    let mut found = Vec::new();
    let mut add = |args| {
        let number = found.len() as u64 + 1;
        if let Some(contract) = contract_of(args) {
            found.push(Called { contract, number, args });
        }
    };
    if let HostFunction::InvokeContract(args) = &call.function {
        add(args);
    }
    for entry in &call.authorization {
        let mut open: Vec<&SorobanAuthorizedInvocation> = vec![&entry.root_invocation];
        while let Some(invocation) = open.pop() {
            if let SorobanAuthorizedFunction::ContractFn(args) = &invocation.function {
                add(args);
            }
            open.extend(invocation.sub_invocations.iter().rev());
        }
    }
    found
}

fn contract_of(args: &InvokeContractArgs) -> Option<ContractId> {
    match &args.contract_address {
        ScAddress::Contract(id) => Some(ContractId(id.0.0)),
        _ => None,
    }
}

/// Returns the body about a call of a failed transaction.
pub(super) fn body(
    sources: &Sources<'_>,
    trigger: &Trigger,
    scene: &Scene,
    (call, called): (&HostCall, &Called<'_>),
) -> Result<Vec<u8>, RecordError> {
    let names = sources.names;
    let lacked = || names.map_or(0, |names| names.lacked());
    let before = lacked();
    let tried = names.map(|names| names.tried(&called.contract, call.position));
    let InvokeContractArgs { function_name, args, .. } = called.args;
    let declared = tried
        .as_ref()
        .and_then(|tried| declared_function(tried, function_name.as_slice(), args.len()));
    let members = body::FailedCall {
        function: text(function_name.as_slice()),
        args: CallArgs::new(declared, args),
        error: CallError::of(&call.recorded.diagnostics, call.position, names),
        names_pending: lacked() > before,
    };
    body::body(trigger, scene, members).map_err(super::upgrade::no_json)
}
