//! Calls of a contract that counts deposits, as a network would have recorded them: the state
//! before each call, its return value, events and changes. The contract host's interpreter produces
//! them.

use std::path::{Path, PathBuf};

use orrery::domain::{ContractId, Hash32};
use orrery::programs::engine::{EntryState, PreState};
use orrery::programs::engine::{Invocation, Recorded};
use sha2::{Digest, Sha256};
use stellar_xdr::{
    AccountId, ContractDataDurability, Hash, HostFunction, Int128Parts, LedgerEntry,
    LedgerEntryChange, LedgerEntryChanges, LedgerKey, LedgerKeyContractCode, LedgerKeyContractData,
    PublicKey, ScAddress, ScVal, SorobanAuthorizationEntry, SorobanAuthorizedFunction,
    SorobanAuthorizedInvocation, SorobanCredentials, Uint256, VecM,
};

use super::variation::spread;
use orrery_testkit::engine_world::{LEDGER, World, address, call};
use orrery_testkit::replay::{Replay, instance_key};

/// Number of ledgers for which an entry stays live after a deposit writes it.
const LIFE: u32 = 100_000;

/// Returns the WebAssembly of a built test program.
pub fn built(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/built");
    let file: PathBuf = folder.join(name).with_extension("wasm");
    std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The deposit contract, and its state after the calls made so far.
pub struct Deposits {
    world: World,
    code: Hash,
    pub contract: ContractId,
    calls: u64,
}

impl Deposits {
    /// Creates a contract without any deposits.
    pub fn new() -> Self {
        let code = built("deposit");
        let mut world = World::default();
        let contract = world.contract(42, &code);
        Self { world, code: Hash(Sha256::digest(&code).into()), contract, calls: 0 }
    }

    /// Returns the instance and code entries of the contract.
    pub fn contract_entries(&self) -> Vec<LedgerEntry> {
        let code = LedgerKeyContractCode { hash: self.code.clone() };
        entries_of(&self.world, &[instance_key(&self.contract), LedgerKey::ContractCode(code)])
    }

    /// Returns the current state of the network that holds the contract.
    pub fn state(&self) -> &Replay {
        &self.world.state
    }

    /// Executes one deposit by the next of `accounts` accounts, in turn.
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
        if let HostFunction::InvokeContract(call) = &made.host_function {
            made.authorization.push(SorobanAuthorizationEntry {
                credentials: SorobanCredentials::SourceAccount,
                root_invocation: SorobanAuthorizedInvocation {
                    function: SorobanAuthorizedFunction::ContractFn(call.clone()),
                    sub_invocations: VecM::default(),
                },
            });
        }
        let recorded = self.world.interpret(&made).expect("a deposit succeeds");
        for change in recorded.changes.iter() {
            if let LedgerEntryChange::Created(entry) | LedgerEntryChange::Updated(entry) = change {
                self.world.state.set(entry.clone(), Some(LEDGER + LIFE));
            }
        }
        made.recorded = Some(recorded);
        made
    }
}

/// A contract with a program that loops until it is stopped, and a call that triggers the loop.
pub struct Endless {
    world: World,
    pub contract: ContractId,
}

impl Endless {
    pub fn new() -> Self {
        let mut world = World::default();
        let contract = world.contract(66, &built("heavy"));
        Self { world, contract }
    }

    /// Returns the entries of the contract itself that a program needs.
    pub fn contract_entries(&self) -> Vec<LedgerEntry> {
        entries_of(&self.world, &[instance_key(&self.contract)])
    }

    /// Returns the call that starts the loop.
    pub fn call(&self) -> Invocation {
        let mut endless = call(self.contract, "spin", &[ScVal::U64(u64::MAX)]);
        endless.recorded = Some(Recorded {
            return_value: ScVal::U64(0),
            events: Vec::new(),
            changes: LedgerEntryChanges::default(),
        });
        endless
    }
}

fn entries_of(world: &World, keys: &[LedgerKey]) -> Vec<LedgerEntry> {
    let entry = |key: &LedgerKey| match world.state.entry(key) {
        Ok(EntryState::Present(entry, _)) => (*entry).clone(),
        other => panic!("{key:?} is {other:?}"),
    };
    keys.iter().map(entry).collect()
}
