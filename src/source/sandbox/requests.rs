//! What a sandbox does because it is asked to, beside what chance chooses: modules are uploaded,
//! contracts made of them, and their functions called.

use stellar_xdr::{HostFunction, LedgerKey, ScAddress, ScVal};

use super::plan::{Planner, invocation};
use super::{Sandbox, SandboxError, wasm};
use crate::domain::ContractId;

/// What is asked for the next ledger. Each becomes a transaction of another account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// A module comes onto the network.
    Upload {
        /// Its bytes.
        code: Vec<u8>,
    },
    /// A contract is made of a module that came in an earlier ledger.
    Create {
        /// The module's bytes.
        code: Vec<u8>,
        /// Says which contract it becomes: see [`Sandbox::contract`].
        salt: [u8; 32],
        /// What its constructor is given.
        arguments: Vec<ScVal>,
    },
    /// A contract is made of whatever code a reference points at (CAP-85).
    CreateFromReference {
        /// The contract that keeps the reference.
        owner: ContractId,
        /// Under which tag it does.
        tag: String,
        /// Says which contract it becomes: see [`Sandbox::contract`].
        salt: [u8; 32],
        /// What its constructor is given.
        arguments: Vec<ScVal>,
    },
    /// Another request whose footprint has more than the latest ledger shows to be needed: for what an
    /// earlier transaction of the same ledger changes.
    Reading {
        /// Keys that are read too.
        keys: Vec<LedgerKey>,
        /// The request.
        request: Box<Request>,
    },
    /// A function of a contract of an earlier ledger is called. Whichever of the sandbox's
    /// [accounts](Sandbox::accounts) has to authorise it does.
    Call {
        /// The contract.
        contract: ContractId,
        /// The function's name.
        function: String,
        /// What it is given.
        arguments: Vec<ScVal>,
    },
}

impl Sandbox {
    /// Closes the next ledger as [`Self::next_ledger`] does, with what is asked for in it. The requests
    /// do not see each other, and are applied in an order that their hashes give.
    ///
    /// # Errors
    /// [`SandboxError::Refused`] when a request fails where the latest ledger has left things, or is one
    /// more than there are accounts. No ledger is closed then. Else as [`Self::next_ledger`].
    pub fn next_ledger_with(&mut self, requests: &[Request]) -> Result<Vec<u8>, SandboxError> {
        self.close(0, requests, false)
    }

    /// Id of the contract that a request creates with a salt.
    ///
    /// # Errors
    /// By a defect of the sandbox.
    pub fn contract(&self, salt: [u8; 32]) -> Result<ContractId, SandboxError> {
        wasm::contract_id(self.config.network.id(), &self.cast.root.address(), salt)
    }

    /// The accounts that trade with one another, and that requests may name.
    pub fn accounts(&self) -> Vec<ScAddress> {
        self.cast.traders.iter().map(|trader| trader.address()).collect()
    }
}

/// Plans what is asked for.
pub(super) fn plan(planner: &mut Planner<'_>, requests: &[Request]) -> Result<(), SandboxError> {
    let creator = planner.cast.root.address();
    for request in requests {
        let (request, more) = match request {
            Request::Reading { keys, request } => (&**request, keys.as_slice()),
            request => (request, &[][..]),
        };
        let function = match request {
            Request::Upload { code } => wasm::upload(code)?,
            Request::CreateFromReference { owner, tag, salt, arguments } => {
                let owner = wasm::address(*owner);
                wasm::create_from_reference(&creator, *salt, owner, tag, arguments.clone())?
            }
            Request::Reading { .. } => {
                return Err(SandboxError::Refused(request.name(), "it reads more twice"));
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
            return Err(SandboxError::Refused(request.name(), "every account has sent one"));
        };
        if !planner.invoke_reading(sender, &function, more)? {
            return Err(SandboxError::Refused(request.name(), "it fails when it is simulated"));
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
            Self::Reading { request, .. } => request.name(),
            Self::Call { contract, function, .. } => {
                format!("the call of {function} of {contract}")
            }
        }
    }
}
