//! A sandbox network with a test's own contracts: uploads, creates and calls them as on any other
//! network, and imports the ledgers into a data directory.

use std::collections::BTreeSet;
use std::path::Path;

use orrery::domain::{ContractId, Network};
use orrery::sandbox::network::{Request, Sandbox, SandboxConfig};
use stellar_xdr::{LedgerCloseMeta, Limits, ReadXdr, ScAddress, ScVal, TransactionMeta};

use crate::service::{PASSPHRASE, Scene};

/// A network in which the only transactions are those that a test requests.
pub struct Chain {
    sandbox: Sandbox,
    uploaded: BTreeSet<Vec<u8>>,
    created: u8,
    /// Ledgers that no data directory has imported yet.
    unsaved: Vec<Vec<u8>>,
}

impl Chain {
    pub fn new() -> Self {
        let config = SandboxConfig {
            network: Network::from_passphrase(PASSPHRASE),
            seed: 11,
            start_time: 1_700_000_000,
            close_interval: 5,
            transactions_per_ledger: 0..=0,
        };
        let sandbox = Sandbox::new(config).unwrap();
        let mut chain =
            Self { sandbox, uploaded: BTreeSet::new(), created: 0, unsaved: Vec::new() };
        // The sandbox's bootstrap, which creates accounts and assets, takes ledgers 2 to 6.
        (2..=6).for_each(|_| drop(chain.close(&[])));
        chain
    }

    /// Creates a contract from a built module.
    pub fn create(&mut self, module: &str, arguments: Vec<ScVal>) -> ContractId {
        self.create_of(&built(module), arguments)
    }

    /// Creates a contract from WASM code, uploading the code if it is new.
    pub fn create_of(&mut self, code: &[u8], arguments: Vec<ScVal>) -> ContractId {
        if self.uploaded.insert(code.to_vec()) {
            self.close(&[Request::Upload { code: code.to_vec() }]);
        }
        self.created += 1;
        let salt = [self.created; 32];
        self.close(&[Request::Create { code: code.to_vec(), salt, arguments }]);
        self.sandbox.contract(salt).unwrap()
    }

    /// Calls a function in a ledger of its own and returns the call's return value.
    pub fn call(&mut self, contract: ContractId, function: &str, arguments: Vec<ScVal>) -> ScVal {
        let returned = self.close(&[call(contract, function, arguments)]);
        let [value] = <[ScVal; 1]>::try_from(returned).unwrap();
        value
    }

    /// Closes a ledger and returns what its calls returned, in the order of application. All calls
    /// must succeed.
    pub fn close(&mut self, requests: &[Request]) -> Vec<ScVal> {
        let returned = self.close_allowing_failures(requests);
        returned.into_iter().map(|value| value.expect("it succeeds")).collect()
    }

    /// Closes a ledger and returns what its calls returned, with `None` for each failed call.
    pub fn close_allowing_failures(&mut self, requests: &[Request]) -> Vec<Option<ScVal>> {
        let xdr = self.sandbox.next_ledger_with(requests).unwrap();
        self.unsaved.push(xdr.clone());
        let LedgerCloseMeta::V2(meta) = LedgerCloseMeta::from_xdr(xdr, Limits::none()).unwrap()
        else {
            panic!("another version")
        };
        let metas = meta.tx_processing.iter().map(|it| match &it.tx_apply_processing {
            TransactionMeta::V4(meta) => meta.soroban_meta.as_ref(),
            other => panic!("{}", other.name()),
        });
        metas.flatten().map(|meta| meta.return_value.clone()).collect()
    }

    pub fn accounts(&self) -> Vec<ScAddress> {
        self.sandbox.accounts()
    }

    pub fn latest(&self) -> u32 {
        self.sandbox.latest_ledger().0
    }

    /// Returns the new ledgers, which count as imported.
    pub fn take_unsaved(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.unsaved)
    }

    /// Imports the new ledgers into the service of a scene.
    pub fn import_into(&mut self, scene: &Scene) {
        scene.import_ledgers(&self.take_unsaved());
    }
}

/// A call request for [`Chain::close`].
pub fn call(contract: ContractId, function: &str, arguments: Vec<ScVal>) -> Request {
    Request::Call { contract, function: function.to_owned(), arguments }
}

/// Reads a compiled module from the repository.
pub fn built(module: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/built");
    let path = folder.join(format!("{module}.wasm"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub fn address(contract: ContractId) -> ScVal {
    let id = stellar_xdr::ContractId(stellar_xdr::Hash(contract.0));
    ScVal::Address(ScAddress::Contract(id))
}
