//! Calls of a contract that counts deposits, as a network would have recorded them: what each found, what it
//! returned, published and changed. Made by the contract host's own interpreter.

use std::path::{Path, PathBuf};

use orrery::domain::{ContractId, Hash32};
use orrery::programs::engine::Invocation;
use sha2::{Digest, Sha256};
use stellar_xdr::{
    AccountId, ContractDataDurability, Hash, Int128Parts, LedgerKey, LedgerKeyContractCode,
    LedgerKeyContractData, PublicKey, ScAddress, ScVal, Uint256,
};

use crate::engine_world::{World, address, call};
use crate::replay::{Replay, instance_key};
use crate::variation::spread;

/// A built test program.
pub fn built(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/built");
    let file: PathBuf = folder.join(name).with_extension("wasm");
    std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The contract, and what it holds after the calls so far.
pub struct Deposits {
    world: World,
    code: Hash,
    pub contract: ContractId,
    calls: u64,
}

impl Deposits {
    /// A contract that nobody has called.
    pub fn new() -> Self {
        let code = built("deposit");
        let mut world = World::new();
        let contract = world.contract(42, &code);
        Self { world, code: Hash(Sha256::digest(&code).into()), contract, calls: 0 }
    }

    /// What it holds.
    pub fn state(&self) -> &Replay {
        &self.world.state
    }

    /// One deposit of one of so many accounts.
    pub fn next(&mut self, accounts: u64) -> Invocation {
        self.calls += 1;
        let account = AccountId(PublicKey::PublicKeyTypeEd25519(Uint256(spread(
            self.calls % accounts + (1 << 50),
        ))));
        let depositor = ScVal::Address(ScAddress::Account(account.clone()));
        let amount = Int128Parts { hi: 0, lo: 1_000 + self.calls };
        let mut made = call(self.contract, "deposit", &[depositor.clone(), ScVal::I128(amount)]);
        made.source_account = account;
        made.transaction = Hash32(spread(self.calls + (1 << 51)));
        let code = LedgerKeyContractCode { hash: self.code.clone() };
        made.footprint = vec![
            instance_key(&self.contract),
            LedgerKey::ContractCode(code),
            LedgerKey::ContractData(LedgerKeyContractData {
                contract: address(self.contract),
                key: depositor,
                durability: ContractDataDurability::Persistent,
            }),
        ];
        let recorded = self.world.interpret(&made).expect("a deposit succeeds");
        recorded.changes.iter().for_each(|change| self.world.state.apply(change));
        made.recorded = Some(recorded);
        made
    }
}
