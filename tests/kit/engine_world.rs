//! Synthetic networks for tests of the engine: contracts from WebAssembly text, calls of them, and
//! the contract host's own interpreter as the reference.

use std::rc::Rc;
use std::sync::Arc;

use orrery::programs::engine::{
    CheckRules, Engine, EngineSettings, Invocation, Limits, Outcome, Program, Recorded, RunError,
};
use orrery::programs::engine::{EntryState, PreState};
use orrery_ledger::domain::{ContractId, Hash32, LedgerSeq};
use sha2::{Digest, Sha256};
use soroban_env_host::budget::Budget;
use soroban_env_host::e2e_invoke::{
    RecordingInvocationAuthMode, invoke_host_function_in_recording_mode,
};
use soroban_env_host::storage::{EntryWithLiveUntil, SnapshotSource};
use soroban_env_host::{Error, HostError, LedgerInfo, meta};
use stellar_xdr::{
    AccountId, ContractCodeEntry, ContractCodeEntryExt, ContractDataDurability, ContractDataEntry,
    ContractExecutable, ExtensionPoint, Hash, HostFunction, InvokeContractArgs, LedgerEntry,
    LedgerEntryChange, LedgerEntryChanges, LedgerEntryData, LedgerEntryExt, LedgerKey,
    Limits as XdrLimits, PublicKey, ReadXdr, ScAddress, ScContractInstance, ScSymbol, ScVal,
    Uint256,
};

use super::program;
use super::replay::{Replay, instance_key};

/// Ledger in which all calls are made.
pub const LEDGER: u32 = 1_000;

/// Custom section that the host requires of every contract; this one declares protocol 30.
pub const ENV_META: &str =
    r#"(@custom "contractenvmetav0" "\00\00\00\00\00\00\00\1e\00\00\00\00")"#;

/// Returns a module from the text of its fields.
pub fn module(fields: &str) -> Vec<u8> {
    wat::parse_str(format!("(module {fields}\n{ENV_META})")).unwrap()
}

/// Contracts, their code and their data.
#[derive(Clone)]
pub struct World {
    pub state: Replay,
}

impl Default for World {
    fn default() -> Self {
        Self { state: Replay::default().complete() }
    }
}

impl World {
    /// Adds a contract with this code to the network.
    pub fn contract(&mut self, number: u8, code: &[u8]) -> ContractId {
        let id = ContractId([number; 32]);
        let hash = self.code(code);
        let instance = ScContractInstance {
            executable: ContractExecutable::Wasm(Hash(hash.0)),
            storage: None,
        };
        self.data(id, ScVal::LedgerKeyContractInstance, ScVal::ContractInstance(instance));
        id
    }

    /// Adds code to the network.
    pub fn code(&mut self, code: &[u8]) -> Hash32 {
        let hash = Hash32(Sha256::digest(code).into());
        self.state.set(
            entry(LedgerEntryData::ContractCode(ContractCodeEntry {
                ext: ContractCodeEntryExt::V0,
                hash: Hash(hash.0),
                code: code.to_vec().try_into().unwrap(),
            })),
            Some(LEDGER + 100_000),
        );
        hash
    }

    /// Sets persistent data of a contract.
    pub fn data(&mut self, contract: ContractId, key: ScVal, val: ScVal) {
        let data = ContractDataEntry {
            ext: ExtensionPoint::V0,
            contract: address(contract),
            key,
            durability: ContractDataDurability::Persistent,
            val,
        };
        self.state.set(entry(LedgerEntryData::ContractData(data)), Some(LEDGER + 100_000));
    }

    /// Makes a call in the network's own interpreter.
    pub fn interpret(&self, call: &Invocation) -> Result<Recorded, Error> {
        let state = Rc::new(Source(self.state.clone()));
        let account = call.source_account.clone();
        let budget = Budget::default();
        budget.reset_limits(2_000_000_000, 400 << 20).unwrap();
        let outcome = invoke_host_function_in_recording_mode(
            &budget,
            false,
            &call.host_function,
            &account,
            RecordingInvocationAuthMode::recording(false, false),
            ledger_info(),
            state.clone(),
            call.seed(),
            &mut Vec::new(),
        )
        .map_err(|error| error.error)?;
        let return_value = outcome.invoke_result.map_err(|error| error.error)?;
        let mut changes = Vec::new();
        for change in outcome.ledger_changes.iter().filter(|change| !change.read_only) {
            let key = LedgerKey::from_xdr(&change.encoded_key, XdrLimits::none()).unwrap();
            let before = state.get(&Rc::new(key.clone())).unwrap();
            let after = change.encoded_new_value.as_ref();
            let after = after.map(|xdr| LedgerEntry::from_xdr(xdr, XdrLimits::none()).unwrap());
            changes
                .extend(before.as_ref().map(|(was, _)| LedgerEntryChange::State((**was).clone())));
            changes.extend(match (before, after) {
                (Some(_), Some(is)) => Some(LedgerEntryChange::Updated(is)),
                (None, Some(is)) => Some(LedgerEntryChange::Created(is)),
                (Some(_), None) => Some(LedgerEntryChange::Removed(key)),
                (None, None) => None,
            });
        }
        Ok(Recorded {
            return_value,
            events: outcome.contract_events,
            changes: LedgerEntryChanges(changes.try_into().unwrap()),
        })
    }
}

fn ledger_info() -> LedgerInfo {
    LedgerInfo {
        protocol_version: meta::INTERFACE_VERSION.protocol,
        sequence_number: LEDGER,
        timestamp: 1_700_000_000,
        network_id: [9; 32],
        base_reserve: 5_000_000,
        min_temp_entry_ttl: 17_280,
        min_persistent_entry_ttl: 2_073_600,
        max_entry_ttl: 3_110_400,
    }
}

struct Source(Replay);

impl SnapshotSource for Source {
    fn get(&self, key: &Rc<LedgerKey>) -> Result<Option<EntryWithLiveUntil>, HostError> {
        Ok(match self.0.entry(key).unwrap() {
            EntryState::Present(entry, live_until) => Some((entry, live_until)),
            _ => None,
        })
    }
}

fn entry(data: LedgerEntryData) -> LedgerEntry {
    LedgerEntry { last_modified_ledger_seq: 1, data, ext: LedgerEntryExt::V0 }
}

pub fn address(contract: ContractId) -> ScAddress {
    ScAddress::Contract(stellar_xdr::ContractId(Hash(contract.0)))
}

/// Returns a call of a contract's function.
pub fn call(contract: ContractId, function: &str, args: &[ScVal]) -> Invocation {
    Invocation {
        ledger: LedgerSeq(LEDGER),
        closed_at: 1_700_000_000,
        network_id: Hash32([9; 32]),
        protocol: meta::INTERFACE_VERSION.protocol,
        base_reserve: 5_000_000,
        transaction: Hash32([7; 32]),
        application_order: 1,
        source_account: AccountId(PublicKey::PublicKeyTypeEd25519(Uint256([3; 32]))),
        host_function: HostFunction::InvokeContract(InvokeContractArgs {
            contract_address: address(contract),
            function_name: ScSymbol(function.try_into().unwrap()),
            args: args.to_vec().try_into().unwrap(),
        }),
        authorization: Vec::new(),
        footprint: vec![instance_key(&contract)],
        recorded: None,
    }
}

/// Returns settings of an engine that compiles with the binary under test.
pub fn engine_settings(concurrent_runs: usize) -> EngineSettings {
    EngineSettings { concurrent_runs, ..EngineSettings::new(program::orrery()) }
}

/// Returns the engine that the tests of this process share.
pub fn engine() -> Engine {
    static ENGINE: std::sync::OnceLock<Engine> = std::sync::OnceLock::new();
    let settings = engine_settings(4);
    ENGINE.get_or_init(|| Engine::new(settings).unwrap()).clone()
}

/// Makes a call with a program in place of some contracts, within the default limits.
pub fn run(
    world: &World,
    program: &[u8],
    contracts: &[ContractId],
    call: &Invocation,
) -> Result<Outcome, RunError> {
    run_within(world, program, contracts, call, &Limits::default())
}

/// Makes a call with a program in place of some contracts.
pub fn run_within(
    world: &World,
    program: &[u8],
    contracts: &[ContractId],
    call: &Invocation,
    limits: &Limits,
) -> Result<Outcome, RunError> {
    let engine = engine();
    let rules = CheckRules { must_emit: false, ..CheckRules::default() };
    let module = engine.check_and_load(program, &rules).unwrap();
    let program = Program { module: &module, contracts };
    engine.run(&Arc::new(call.clone()), &world.state, program, limits)
}
