//! A network in which contracts create others, at any depth, with and without events that announce them; in
//! which contracts are upgraded, there and back within one transaction, and references are pointed elsewhere
//! (CAP-85); and in which those that say something keep it. Contracts are really executed.

use std::collections::BTreeMap;

use orrery_ledger::domain::{ContractId, Network};
use orrery_sandbox::network::{Request, Sandbox};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};
use stellar_xdr::{
    ContractDataEntry, ContractEvent, ContractEventBody, ContractEventType, ContractEventV0,
    ContractIdPreimage, ContractIdPreimageFromAddress, DiagnosticEvent, ExtensionPoint, Hash,
    HashIdPreimage, HashIdPreimageContractId, LedgerCloseMeta, LedgerEntryChange, LedgerEntryData,
    LedgerKey, LedgerKeyContractCode, Limits, ReadXdr, ScAddress, ScVal, TransactionMeta, Uint256,
    VecM, WriteXdr,
};

use crate::sandbox::{local, sandbox};
use crate::specs::{SingleValue, Type, event};
use crate::upgraded::{remembering_version, with_interface};
use crate::values::{bytes, string, symbol};
use crate::wasm_text::{Data, env_call, env_imports, sym, vec_of, void, word};

/// Section that the host requires of a contract; it names the newest protocol, 30.
const ENV_META: &str = r#"(@custom "contractenvmetav0" "\00\00\00\00\00\00\00\1e\00\00\00\00")"#;
/// Tag of the reference that each factory holds.
const TAG: &str = "pools";
/// Versions of the code of those that factories create: see [`remembering_version`].
const VERSIONS: u32 = 3;
/// Number of factories that the network begins with: the second one declares nothing.
const FACTORIES: u8 = 2;
/// Number of ledgers with calls.
const CALLED_LEDGERS: usize = 24;

/// The network, and what tests want to know of it.
pub struct Factories {
    /// The network.
    pub network: Network,
    /// Raw ledgers, in order.
    pub ledgers: Vec<Vec<u8>>,
    /// The factories that the network begins with.
    pub factories: Vec<ContractId>,
    /// The hashes of all codes, those of factories last.
    pub codes: Vec<[u8; 32]>,
    /// Contracts that factories created, with the factory. Of every third one nothing stored says it.
    pub made: BTreeMap<ContractId, ContractId>,
}

/// Returns the code of a factory.
///
/// `make(hash, salt)` creates a contract, lets it emit an event, announces it, and lets it emit another one;
/// `hide(hash, salt)` creates one and lets it emit an event; `tell(address)` announces an address;
/// `point(tag, hash)` points a reference elsewhere; `pass(factory, hash, salt)` lets another factory make one.
pub fn factory(declares: bool) -> Vec<u8> {
    let arg = |at: usize| format!("(local.get {at})");
    let own = env_call("get_current_contract_address", &[]);
    let create = env_call("create_contract", &[own, arg(0), arg(1)]);
    let say = |of: usize| env_call("call", &[arg(of), sym("say"), vec_of(&[arg(of)])]);
    let announce = |of: usize| env_call("contract_event", &[vec_of(&[sym("made")]), arg(of)]);
    let tag = env_call("create_executable_tag", &[arg(0)]);
    let point = env_call("put_contract_data", &[tag, arg(1), word(1)]);
    let pass = env_call("call", &[arg(0), sym("make"), vec_of(&[arg(1), arg(2)])]);
    let update = |of: usize| env_call("update_current_contract_wasm", &[arg(of)]);
    let text = format!(
        "(module {} {}
         (func (export \"make\") (param i64 i64) (result i64) (local i64)
            (local.set 2 {create}) (drop {}) (drop {}) (drop {}) {})
         (func (export \"hide\") (param i64 i64) (result i64) (local i64)
            (local.set 2 {create}) (drop {}) {})
         (func (export \"tell\") (param i64) (result i64) {})
         (func (export \"say\") (param i64) (result i64) {})
         (func (export \"point\") (param i64 i64) (result i64) {point})
         (func (export \"pass\") (param i64 i64 i64) (result i64) {pass})
         (func (export \"swing\") (param i64 i64) (result i64) (drop {}) {}) {ENV_META})",
        env_imports(),
        Data::default().memory(),
        say(2),
        announce(2),
        say(2),
        void(),
        say(2),
        void(),
        announce(0),
        env_call("contract_event", &[vec_of(&[sym("said")]), arg(0)]),
        update(0),
        update(1),
    );
    let code = wat::parse_str(text).unwrap();
    match declares {
        true => {
            let made = event("PoolMade", &["made"], &[], SingleValue, &[("pool", Type::Address)]);
            with_interface(code, &[made])
        }
        false => code,
    }
}

fn hash(code: &[u8]) -> [u8; 32] {
    Sha256::digest(code).into()
}

fn address(contract: ContractId) -> ScAddress {
    ScAddress::Contract(stellar_xdr::ContractId(Hash(contract.0)))
}

impl Factories {
    /// Makes the network.
    pub fn made(seed: u64) -> Self {
        let (network, sandbox) = (local(), sandbox(seed, 0..=1));
        let codes: Vec<Vec<u8>> =
            (0..VERSIONS).map(remembering_version).chain([true, false].map(factory)).collect();
        let factories = (0..FACTORIES).map(|salt| sandbox.contract([salt; 32]).unwrap()).collect();
        let hashes = codes.iter().map(|code| hash(code)).collect();
        let mut making = Making {
            made: Self {
                network,
                ledgers: Vec::new(),
                factories,
                codes: hashes,
                made: BTreeMap::new(),
            },
            sandbox,
            random: ChaCha8Rng::seed_from_u64(seed),
            salts: 0,
            nested: Vec::new(),
            others: Vec::new(),
        };
        making.begin(&codes);
        (0..CALLED_LEDGERS).for_each(|_| making.close_busy());
        making.made
    }
}

/// Returns the id of a contract that another one creates with this salt.
pub fn child(network: &Network, creator: ContractId, salt: [u8; 32]) -> ContractId {
    let preimage = HashIdPreimage::ContractId(HashIdPreimageContractId {
        network_id: Hash(network.id().0),
        contract_id_preimage: ContractIdPreimage::Address(ContractIdPreimageFromAddress {
            address: address(creator),
            salt: Uint256(salt),
        }),
    });
    ContractId(Sha256::digest(preimage.to_xdr(Limits::none()).unwrap()).into())
}

/// Adds to a ledger what a node with diagnostics says of the constructors of contracts that it creates: those
/// of which `creator` names the contract that created them.
pub fn with_constructors(
    raw: &[u8],
    creator: impl Fn(&ContractId) -> Option<ContractId>,
) -> Vec<u8> {
    let mut ledger = LedgerCloseMeta::from_xdr(raw, Limits::none()).unwrap();
    let LedgerCloseMeta::V2(close) = &mut ledger else { panic!("it is of the newest version") };
    let mut processing = close.tx_processing.to_vec();
    for transaction in &mut processing {
        let TransactionMeta::V4(meta) = &mut transaction.tx_apply_processing else { continue };
        let mut calls = meta.diagnostic_events.to_vec();
        let changes = meta.operations.iter().flat_map(|operation| operation.changes.iter());
        for contract in changes.filter_map(created) {
            calls.extend(creator(&contract).map(|creator| constructor_call(creator, contract)));
        }
        meta.diagnostic_events = VecM::try_from(calls).unwrap();
    }
    close.tx_processing = processing.try_into().unwrap();
    ledger.to_xdr(Limits::none()).unwrap()
}

struct Making {
    made: Factories,
    sandbox: Sandbox,
    random: ChaCha8Rng,
    salts: u64,
    /// Factories that factories made in earlier ledgers.
    nested: Vec<ContractId>,
    /// Other contracts that earlier ledgers created.
    others: Vec<ContractId>,
}

impl Making {
    fn begin(&mut self, codes: &[Vec<u8>]) {
        (2..=6).for_each(|_| self.close(&[]));
        for code in codes {
            self.close(&[Request::Upload { code: code.clone() }]);
        }
        let create = |salt: u8| Request::Create {
            code: codes[VERSIONS as usize + usize::from(salt)].clone(),
            salt: [salt; 32],
            arguments: Vec::new(),
        };
        let requests: Vec<_> = (0..FACTORIES).map(create).collect();
        self.close(&requests);
        for factory in self.made.factories.clone() {
            let hash = self.code(0);
            self.close(&[call(factory, "point", vec![string(TAG), hash])]);
        }
    }

    /// Closes a ledger, adds to its metadata what a node with diagnostics says of constructors, and notes what was
    /// created.
    fn close(&mut self, requests: &[Request]) {
        let raw = self.sandbox.next_ledger_with(requests).unwrap();
        let told = |contract: &ContractId| {
            self.made.made.get(contract).copied().filter(|_| !contract.0[0].is_multiple_of(3))
        };
        let ledger = with_constructors(&raw, told);
        self.made.ledgers.push(ledger);
    }

    fn code(&self, at: usize) -> ScVal {
        bytes(&self.made.codes[at])
    }

    fn any_code(&mut self) -> ScVal {
        let at = self.random.random_range(0..VERSIONS as usize);
        self.code(at)
    }

    fn any_factory(&mut self) -> ContractId {
        let all: Vec<_> = self.made.factories.iter().chain(&self.nested).copied().collect();
        *all.choose(&mut self.random).unwrap()
    }

    /// A salt for a contract of this factory, and the contract.
    fn salt(&mut self, creator: ContractId) -> (ScVal, ContractId) {
        self.salts += 1;
        let mut salt = [7; 32];
        salt[..8].copy_from_slice(&self.salts.to_be_bytes());
        (bytes(&salt), child(&self.made.network, creator, salt))
    }

    fn close_busy(&mut self) {
        let (mut requests, mut new) = (Vec::new(), Vec::new());
        for number in 0..self.random.random_range(1..5) {
            let factory = self.any_factory();
            let request = match self.random.random_range(0..12) {
                0..3 => {
                    let (salt, child) = self.salt(factory);
                    new.push((child, factory, false));
                    call(factory, "make", vec![self.any_code(), salt])
                }
                3 => {
                    let (salt, child) = self.salt(factory);
                    new.push((child, factory, false));
                    call(factory, "hide", vec![self.any_code(), salt])
                }
                4 => {
                    let (salt, child) = self.salt(factory);
                    new.push((child, factory, true));
                    let at = VERSIONS as usize + self.random.random_range(0..2);
                    call(factory, "make", vec![self.code(at), salt])
                }
                5 => {
                    let other = self.any_factory();
                    if other == factory {
                        continue;
                    }
                    let (salt, child) = self.salt(other);
                    new.push((child, other, false));
                    let other = ScVal::Address(address(other));
                    call(factory, "pass", vec![other, self.any_code(), salt])
                }
                6 => {
                    let told = match self.others.choose(&mut self.random) {
                        Some(other) if self.random.random() => address(*other),
                        _ => self.sandbox.accounts()[0].clone(),
                    };
                    call(factory, "tell", vec![ScVal::Address(told)])
                }
                7 => {
                    let code = self.any_code();
                    call(factory, "point", vec![string(TAG), code])
                }
                8 => {
                    let owner = *self.made.factories.choose(&mut self.random).unwrap();
                    self.salts += 1;
                    let salt = [100 + (self.salts % 100) as u8; 32];
                    let contract = self.sandbox.contract(salt).unwrap();
                    if self.others.contains(&contract) || new.iter().any(|it| it.0 == contract) {
                        continue;
                    }
                    new.push((contract, contract, false));
                    let (tag, arguments) = (TAG.to_owned(), Vec::new());
                    Request::CreateFromReference { owner, tag, salt, arguments }
                }
                9 => {
                    let Some(contract) = self.others.choose(&mut self.random).copied() else {
                        continue;
                    };
                    call(contract, "upgrade", vec![self.any_code()])
                }
                _ => {
                    let Some(contract) = self.others.choose(&mut self.random).copied() else {
                        continue;
                    };
                    call(
                        contract,
                        "say",
                        vec![match number % 2 {
                            0 => symbol("word"),
                            _ => ScVal::U32(number),
                        }],
                    )
                }
            };
            let keys =
                self.made.codes.iter().map(|hash| {
                    LedgerKey::ContractCode(LedgerKeyContractCode { hash: Hash(*hash) })
                });
            let keys = keys.collect();
            requests.push(Request::WithExtraKeys { keys, request: Box::new(request) });
        }
        for (contract, creator, _) in &new {
            if contract != creator {
                self.made.made.insert(*contract, *creator);
            }
        }
        self.close(&requests);
        for (contract, _, is_factory) in new {
            let into = if is_factory { &mut self.nested } else { &mut self.others };
            into.push(contract);
        }
    }
}

fn call(contract: ContractId, function: &str, arguments: Vec<ScVal>) -> Request {
    Request::Call { contract, function: function.to_owned(), arguments }
}

fn created(change: &LedgerEntryChange) -> Option<ContractId> {
    let LedgerEntryChange::Created(entry) = change else { return None };
    match &entry.data {
        LedgerEntryData::ContractData(ContractDataEntry {
            contract: ScAddress::Contract(contract),
            key: ScVal::LedgerKeyContractInstance,
            ..
        }) => Some(ContractId(contract.0.0)),
        _ => None,
    }
}

/// The event that a node with diagnostics adds for the call of a constructor (`fn_call_diagnostics` of the host).
pub fn constructor_call(caller: ContractId, called: ContractId) -> DiagnosticEvent {
    let topics = [symbol("fn_call"), bytes(&called.0), symbol("__constructor")];
    DiagnosticEvent {
        in_successful_contract_call: true,
        event: ContractEvent {
            ext: ExtensionPoint::V0,
            contract_id: Some(stellar_xdr::ContractId(Hash(caller.0))),
            type_: ContractEventType::Diagnostic,
            body: ContractEventBody::V0(ContractEventV0 {
                topics: topics.to_vec().try_into().unwrap(),
                data: ScVal::Void,
            }),
        },
    }
}
