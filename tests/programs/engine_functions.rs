//! Calls every function of the environment from the same module in the network's interpreter and as
//! a program: both give the same result, events and changes, or the same error.

use std::collections::BTreeSet;

use orrery::programs::engine::{Fidelity, Invocation, Recorded, env_functions};
use soroban_env_host::Val;

use crate::engine_objects::{
    addresses_and_random, calls_and_bytes, curves, hostile_memory, signatures,
};
use crate::engine_values::{Case, context, integers, ledger, maps, vecs};
use orrery_testkit::engine_world::{ENV_META, World, call, module, run};
use orrery_testkit::wasm_text::{Data, env_call, env_imports, error, sym, u32v, val, void, word};

/// Number of the contract that runs the program.
const SELF: u8 = 1;
/// Number of another contract, which runs in the interpreter.
const OTHER: u8 = 2;

/// Results of the comparison over all cases.
#[derive(Default, Debug)]
struct Tally {
    equal_values: usize,
    equal_errors: usize,
    called: BTreeSet<&'static str>,
    succeeded: BTreeSet<&'static str>,
}

impl Tally {
    fn compare(&mut self, data: &Data, (name, body): &Case) {
        let (world, call, code) = world(data, body);
        let expected = world.interpret(&call);
        self.called.insert(name);
        let checked = Invocation { recorded: expected.as_ref().ok().cloned(), ..call };
        let contract = orrery::domain::ContractId([SELF; 32]);
        let outcome = run(&world, &code, &[contract], &checked).unwrap();
        assert!(outcome.entered);
        match expected {
            Ok(value) => {
                let value = value.return_value;
                assert_eq!(outcome.result, Ok(Vec::new()), "{name} is {value:?}: {body}");
                assert_eq!(outcome.fidelity, Fidelity::Exact, "{name}: {body}");
                self.equal_values += 1;
                self.succeeded.insert(name);
            }
            Err(error) => {
                let fault = outcome.result.expect_err(&format!("{name} fails: {body}")).0;
                assert!(same_error(error, &fault), "{name}: {error:?} is '{fault}': {body}");
                self.equal_errors += 1;
            }
        }
    }
}

/// Returns whether a fault states the error that the interpreter returned. Errors that a contract
/// cannot distinguish (recoverable ones that are not a contract's own) may have another code.
fn same_error(error: soroban_env_host::Error, fault: &str) -> bool {
    let text = format!("{error:?}");
    let contract = text.starts_with("Error(Contract");
    let exhausted = fault.contains("as the network counts them");
    match text.as_str() {
        "Error(Budget, ExceededLimit)" => exhausted,
        _ if contract => fault.contains(&text),
        _ if exhausted || fault.contains("Error(Contract") => false,
        _ => fault.contains("Error(") || fault.contains("it returned"),
    }
}

/// Returns a world with a contract whose function `test` has this body and with the other contract;
/// also a call of `test`, and the contract's code.
fn world(data: &Data, body: &str) -> (World, Invocation, Vec<u8>) {
    let other_address = format!(
        "(local.set $other (call $strkey_to_address (call $string_new_from_linear_memory {} {})))",
        u32v(512),
        u32v(56)
    );
    let strkey = orrery::domain::ContractId([OTHER; 32]).to_string();
    let bls =
        format!("(local.set $bls (call $symbol_new_from_linear_memory {} {}))", u32v(600), u32v(9));
    let code = wat::parse_str(format!(
        "(module {} {} (data (i32.const 512) \"{strkey}\") (data (i32.const 600) \"BLS12_381\")
         (func (export \"test\") (result i64) (local $a i64) (local $b i64)
            (local $other i64) (local $bls i64) {other_address} {bls} {body}) {ENV_META})",
        env_imports(),
        data.memory()
    ))
    .unwrap();
    let mut world = World::default();
    let contract = world.contract(SELF, &code);
    world.contract(
        OTHER,
        &module(&format!(
            "(import \"x\" \"5\" (func $fail (param i64) (result i64)))
             (memory (export \"memory\") 1)
             (func (export \"add\") (param i64 i64) (result i64)
                (i64.add (local.get 0) (i64.and (local.get 1) (i64.const -4294967296))))
             (func (export \"fail\") (result i64) (call $fail {}))
             (func (export \"panic\") (result i64) (unreachable))",
            error(42)
        )),
    );
    (world, call(contract, "test", &[]), code)
}

#[test]
fn every_host_function_agrees_with_the_interpreter() {
    let mut data = Data::default();
    let mut cases = context(&mut data);
    cases.extend(integers(&mut data));
    cases.extend(maps(&mut data));
    cases.extend(vecs(&mut data));
    cases.extend(ledger(&mut data));
    cases.extend(calls_and_bytes(&mut data));
    cases.extend(signatures(&mut data));
    cases.extend(curves(&mut data));
    cases.extend(addresses_and_random(&mut data));
    let mut tally = Tally::default();
    for case in &cases {
        tally.compare(&data, case);
    }
    let all: BTreeSet<_> = env_functions().iter().map(|function| function.name).collect();
    let gated = BTreeSet::from(["protocol_gated_dummy"]);
    assert_eq!(tally.called, &all - &gated, "every function is called");
    // These always fail: by design, outside of `__check_auth`, or without a valid signature.
    let fails = BTreeSet::from([
        "delegate_account_auth",
        "fail_with_error",
        "get_delegated_signers_for_current_auth_check",
        "verify_sig_ml_dsa_44",
        "verify_sig_ml_dsa_65",
        "verify_sig_ml_dsa_87",
    ]);
    assert_eq!(&tally.called - &tally.succeeded, fails, "all others succeed once");
    println!("{} equal results, {} equal errors", tally.equal_values, tally.equal_errors);
}

#[test]
fn a_program_sees_the_protocol_of_the_ledger() {
    let data = Data::default();
    let (world, call, code) = world(&data, &env_call("get_ledger_version", &[]));
    let recorded = world.interpret(&call).unwrap();
    let contract = orrery::domain::ContractId([SELF; 32]);
    for protocol in [20, 23] {
        let return_value = stellar_xdr::ScVal::U32(protocol);
        let recorded = Some(Recorded { return_value, ..recorded.clone() });
        let old = Invocation { protocol, recorded, ..call.clone() };
        assert_eq!(run(&world, &code, &[contract], &old).unwrap().fidelity, Fidelity::Exact);
        let other = Invocation { protocol: 22, ..old };
        let Fidelity::Diverged(how) = run(&world, &code, &[contract], &other).unwrap().fidelity
        else {
            panic!("22 is {protocol}");
        };
        let expected =
            format!("it returned {{\"u32\":22}}, and {{\"u32\":{protocol}}} on the network");
        assert_eq!(how, expected);
    }
}

#[test]
fn invalid_positions_and_lengths_fail_as_in_the_interpreter() {
    let mut data = Data::default();
    let cases = hostile_memory(&mut data);
    let mut tally = Tally::default();
    for case in &cases {
        tally.compare(&data, case);
    }
    assert_eq!(tally.called.len(), 15, "{:?}", tally.called);
    println!("{} equal results, {} equal errors", tally.equal_values, tally.equal_errors);
}

#[test]
fn invalid_value_words_fail_as_in_the_interpreter() {
    let data = Data::default();
    let mut tally = Tally::default();
    let forged = [
        0,
        1,
        3,
        64,
        72,
        75,
        76,
        77,
        79,
        80,
        0x7f,
        75 | 1 << 32,
        75 | 2 << 32,
        75 | 1 << 8,
        u64::MAX,
    ];
    for word_value in forged {
        let object = word(word_value);
        for name in [
            "vec_len",
            "map_len",
            "bytes_len",
            "string_len",
            "obj_to_u64",
            "address_to_strkey",
            "compute_hash_sha256",
        ] {
            let body = env_call(name, std::slice::from_ref(&object));
            let body = if name == "obj_to_u64" { env_call("obj_from_u64", &[body]) } else { body };
            tally.compare(&data, &(name, body));
        }
        let args = [env_call("map_new", &[]), object.clone(), void()];
        tally.compare(&data, &("map_put", env_call("map_put", &args)));
        tally.compare(
            &data,
            &("get_contract_data", env_call("get_contract_data", &[sym("a"), object])),
        );
    }
    // An object handle of one kind with the tag of another.
    let retagged =
        format!("(i64.or (i64.and {} (i64.const -256)) (i64.const 76))", env_call("vec_new", &[]));
    tally.compare(&data, &("map_len", env_call("map_len", &[retagged])));
    // Results: a valid value, words that are not values, and object handles that were never issued.
    for result in
        [val(Val::from_u32(1)), word(75), word(75 | 1 << 32), word(u64::MAX), word(3 | 99 << 8)]
    {
        tally.compare(&data, &("dummy0", result));
    }
    println!("{} equal results, {} equal errors", tally.equal_values, tally.equal_errors);
    assert!(tally.equal_errors > 100, "{tally:?}");
}
