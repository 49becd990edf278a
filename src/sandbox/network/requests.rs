//! Explicitly requested transactions, beside the random ones: module uploads, contract creations
//! and calls.

use orrery_ledger::domain::ContractId;
use stellar_xdr::{HostFunction, LedgerKey, ScVal};

use super::error::{Result, SandboxError};
use super::plan::{Planner, invocation};
use super::wasm;

/// A transaction requested for the next ledger. Each is sent by a different account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Upload of a WASM module.
    Upload {
        /// Bytes of the module.
        code: Vec<u8>,
    },
    /// Creation of a contract from a module that an earlier ledger uploaded.
    Create {
        /// Bytes of the module.
        code: Vec<u8>,
        /// Determines the id of the contract: see [`Sandbox::contract`](super::Sandbox::contract).
        salt: [u8; 32],
        /// Arguments of the constructor.
        arguments: Vec<ScVal>,
    },
    /// Creation of a contract from the code that a reference points at (CAP-85).
    CreateFromReference {
        /// Contract that holds the reference.
        owner: ContractId,
        /// Tag of the reference in that contract.
        tag: String,
        /// Determines the id of the contract: see [`Sandbox::contract`](super::Sandbox::contract).
        salt: [u8; 32],
        /// Arguments of the constructor.
        arguments: Vec<ScVal>,
    },
    /// Another request with additional keys in its footprint, which it needs only after an earlier
    /// transaction of the same ledger.
    WithExtraKeys {
        /// Additional keys, added to the read-only footprint.
        keys: Vec<LedgerKey>,
        /// The request; must not be `WithExtraKeys` itself.
        request: Box<Request>,
    },
    /// Call of a function of a contract that an earlier ledger created. Those of the sandbox's
    /// [accounts](super::Sandbox::accounts) whose authorisation the call requires sign it.
    Call {
        /// Contract to call.
        contract: ContractId,
        /// Name of the function.
        function: String,
        /// Arguments of the function.
        arguments: Vec<ScVal>,
    },
}

/// Plans the requested transactions.
pub(super) fn plan(planner: &mut Planner<'_>, requests: &[Request]) -> Result<()> {
    let refused = |request: &Request, reason: &str| {
        let name = request.name();
        SandboxError(format!("the sandbox cannot add {name} to its next ledger: {reason}"))
    };
    let creator = planner.permanent.root.address();
    for request in requests {
        let (request, more) = match request {
            Request::WithExtraKeys { keys, request } => (&**request, keys.as_slice()),
            request => (request, &[][..]),
        };
        let function = match request {
            Request::Upload { code } => wasm::upload(code)?,
            Request::CreateFromReference { owner, tag, salt, arguments } => {
                let owner = wasm::address(*owner);
                wasm::create_from_reference(&creator, *salt, owner, tag, arguments.clone())?
            }
            Request::WithExtraKeys { .. } => {
                return Err(refused(request, "extra keys are given twice"));
            }
            Request::Create { code, salt, arguments } => {
                wasm::create(&creator, *salt, code, arguments.clone())?
            }
            Request::Call { contract, function, arguments } => {
                let contract = wasm::address(*contract);
                HostFunction::InvokeContract(invocation(contract, function, arguments.clone())?)
            }
        };
        let Some(sender) = planner.idle_trader() else {
            return Err(refused(request, "every account has sent one"));
        };
        if !planner.invoke_with_extra_keys(sender, &function, more)? {
            return Err(refused(request, "it fails when it is simulated"));
        }
    }
    Ok(())
}

impl Request {
    fn name(&self) -> String {
        match self {
            Self::Upload { code } => format!("the upload of a module of {} bytes", code.len()),
            Self::Create { .. } | Self::CreateFromReference { .. } => {
                "the creation of a contract".to_owned()
            }
            Self::WithExtraKeys { request, .. } => request.name(),
            Self::Call { contract, function, .. } => {
                format!("the call of {function} of {contract}")
            }
        }
    }
}
