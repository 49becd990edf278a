//! Contracts that are created in the replayed transaction: a constructor is the program's first
//! call, and unregistered contracts with the same code keep their own code.

use orrery::domain::ContractId;
use orrery::programs::engine::{Fidelity, Invocation, Outcome};
use sha2::{Digest, Sha256};
use stellar_xdr::{
    AccountId, ContractExecutable, ContractIdPreimage, ContractIdPreimageFromAddress,
    CreateContractArgsV2, Hash, HashIdPreimage, HashIdPreimageContractId, HostFunction,
    Limits as XdrLimits, PublicKey, ScAddress, ScVal, Uint256, WriteXdr,
};

use orrery_testkit::engine_world::{ENV_META, World, address, call, run};
use orrery_testkit::wasm_text::{
    Data, env_call, env_imports, imports, map_of, seq, sym, u32v, vec_of,
};

/// Returns the code of a contract that stores its constructor's argument; its function `kept`
/// returns it. `note` is further code of the constructor.
fn keeper(imports: &str, note: &str) -> Vec<u8> {
    keeper_with(imports, note, "")
}

/// Like `keeper`, with further module fields.
fn keeper_with(imports: &str, note: &str, more: &str) -> Vec<u8> {
    let put = env_call(
        "put_contract_data",
        &[sym("kept"), "(local.get 0)".to_owned(), "(i64.const 2)".to_owned()],
    );
    let get = env_call("get_contract_data", &[sym("kept"), "(i64.const 2)".to_owned()]);
    wat::parse_str(format!(
        "(module {imports} (memory (export \"memory\") 1)
        (func (export \"__constructor\") (param i64) (result i64) (drop {put}) {note} (i64.const 2))
        (func (export \"kept\") (result i64) {get}) {more} {ENV_META})"
    ))
    .unwrap()
}

fn program() -> Vec<u8> {
    let row = map_of(&[("value", "(local.get 0)".to_owned())]);
    keeper(&imports(), &format!("(drop (call $emit {} {row}))", sym("made")))
}

fn created_by(deployer: ScAddress, salt: u8) -> (ContractIdPreimage, ContractId) {
    let preimage = ContractIdPreimage::Address(ContractIdPreimageFromAddress {
        address: deployer,
        salt: Uint256([salt; 32]),
    });
    let full = HashIdPreimage::ContractId(HashIdPreimageContractId {
        network_id: Hash([9; 32]),
        contract_id_preimage: preimage.clone(),
    });
    let id = Sha256::digest(full.to_xdr(XdrLimits::none()).unwrap());
    (preimage, ContractId(id.into()))
}

/// Runs a call, either with the interpreter's result as the network's record, or without a record.
fn run_again(
    world: &World,
    code: &[u8],
    contracts: &[ContractId],
    call: &Invocation,
    recorded: bool,
) -> Outcome {
    let recorded = recorded.then(|| world.interpret(call).unwrap());
    run(world, code, contracts, &Invocation { recorded, ..call.clone() }).unwrap()
}

fn rows(outcome: &Outcome) -> Vec<(ContractId, ScVal)> {
    let emits = outcome.result.as_ref().unwrap();
    emits.iter().map(|emit| (emit.contract, emit.fields[0].val.clone())).collect()
}

#[test]
fn a_creation_runs_the_constructor_of_the_program() {
    let mut world = World::default();
    let own = keeper(&env_imports(), "");
    let hash = world.code(&own);
    let source = AccountId(PublicKey::PublicKeyTypeEd25519(Uint256([3; 32])));
    let (preimage, id) = created_by(ScAddress::Account(source), 1);
    let creation = Invocation {
        host_function: HostFunction::CreateContractV2(CreateContractArgsV2 {
            contract_id_preimage: preimage,
            executable: ContractExecutable::Wasm(Hash(hash.0)),
            constructor_args: vec![ScVal::U32(77)].try_into().unwrap(),
        }),
        ..call(id, "kept", &[])
    };
    for recorded in [true, false] {
        let outcome = run_again(&world, &program(), &[id], &creation, recorded);
        assert!(outcome.entered);
        assert_eq!(rows(&outcome), [(id, ScVal::U32(77))]);
        let fidelity = if recorded { Fidelity::Exact } else { Fidelity::Unchecked };
        assert_eq!(outcome.fidelity, fidelity);
    }
    // The registered contract is another one.
    let outcome = run_again(&world, &program(), &[ContractId([8; 32])], &creation, true);
    assert!(!outcome.entered);
}

#[test]
fn a_creation_does_not_enter_a_program_without_a_constructor() {
    let mut world = World::default();
    let own = orrery_testkit::engine_world::module(
        "(memory (export \"memory\") 1) (func (export \"kept\") (result i64) (i64.const 2))",
    );
    let hash = world.code(&own);
    let source = AccountId(PublicKey::PublicKeyTypeEd25519(Uint256([3; 32])));
    let (preimage, id) = created_by(ScAddress::Account(source), 1);
    let creation = Invocation {
        host_function: HostFunction::CreateContractV2(CreateContractArgsV2 {
            contract_id_preimage: preimage,
            executable: ContractExecutable::Wasm(Hash(hash.0)),
            constructor_args: Default::default(),
        }),
        ..call(id, "kept", &[])
    };
    let outcome = run_again(&world, &own, &[id], &creation, true);
    assert!(!outcome.entered);
    assert_eq!((outcome.result, outcome.fuel), (Ok(Vec::new()), 0));
}

/// Returns a world with a factory, which creates three contracts of this code and returns what each
/// of them stores; also the ids of the three, and the call of the factory.
fn factory_of(own: &[u8]) -> (World, [ContractId; 3], Invocation) {
    let mut world = World::default();
    let hash = world.code(own);
    let mut data = Data::default();
    let code = data.bytes(&hash.0);
    let make = |data: &mut Data, salt: u8, value: u32| {
        env_call(
            "create_contract_with_constructor",
            &[
                env_call("get_current_contract_address", &[]),
                code.clone(),
                data.bytes(&[salt; 32]),
                vec_of(&[u32v(value)]),
            ],
        )
    };
    let kept =
        |contract: String| env_call("call", &[contract, sym("kept"), env_call("vec_new", &[])]);
    let body = vec_of(&[
        kept(make(&mut data, 1, 10)),
        kept(make(&mut data, 2, 20)),
        kept(make(&mut data, 3, 30)),
    ]);
    let factory = wat::parse_str(format!(
        "(module {} {} (func (export \"make\") (result i64) {}) {ENV_META})",
        env_imports(),
        data.memory(),
        seq(&[body])
    ))
    .unwrap();
    let factory = world.contract(5, &factory);
    let ids = [1, 2, 3].map(|salt| created_by(address(factory), salt).1);
    (world, ids, call(factory, "make", &[]))
}

#[test]
fn contracts_created_by_a_factory_run_the_program_only_if_registered() {
    let (world, ids, making) = factory_of(&keeper(&env_imports(), ""));
    let outcome = run_again(&world, &program(), &[ids[0], ids[2]], &making, true);
    assert_eq!(rows(&outcome), [(ids[0], ScVal::U32(10)), (ids[2], ScVal::U32(30))]);
    assert_eq!(outcome.fidelity, Fidelity::Exact);
    let outcome = run_again(&world, &program(), &[ids[1]], &making, true);
    assert_eq!(rows(&outcome), [(ids[1], ScVal::U32(20))]);
    assert_eq!(outcome.fidelity, Fidelity::Exact);
}

#[test]
fn creating_a_contract_with_too_expensive_code_fails_the_run() {
    let costly = format!(
        "(func (param i32) (local {}) {})",
        "i32 ".repeat(2_000),
        "(if (local.get 0) (then))".repeat(3_000)
    );
    let (world, ids, making) = factory_of(&keeper_with(&env_imports(), "", &costly));
    let outcome = run_again(&world, &program(), &[ids[0], ids[2]], &making, true);
    let fault = outcome.result.unwrap_err().to_string();
    assert!(fault.contains("of a contract that is created cannot be run"), "{fault}");
    assert!(fault.contains("branches over 2001 variables") && !fault.contains('\n'), "{fault}");
    // When all contracts of the code run the program, their own code is not needed.
    let outcome = run_again(&world, &program(), &ids, &making, true);
    assert_eq!(rows(&outcome).len(), 3);
}
