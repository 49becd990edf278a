//! Modules that are designed to be expensive to compile: refused modules are refused before
//! anything is compiled, and all others are compiled within the limits of a separate process, or
//! refused by it.

use std::path::Path;
use std::time::Instant;

use orrery::programs::engine::{CheckRules, Refused};
use rand::seq::IndexedRandom;
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use stellar_xdr::{Limits as XdrLimits, ScSpecEntry, ScSpecUdtStructV0, WriteXdr};

use orrery_testkit::costly::{self, FUNCTION, MODULE, joins, shapes};
use orrery_testkit::engine_world::engine;
use orrery_testkit::size;

/// How the sentence about a module that takes too long to compile ends.
const TOO_COMPLEX: &str = "compiling that takes too long";

fn check(code: &[u8]) -> Result<(), Refused> {
    engine().check(code, &CheckRules::default()).map(drop)
}

#[test]
fn branches_over_many_variables_are_refused_before_compilation() {
    let full = [1, 2, 5, 15].map(|functions| (functions, 4_096, FUNCTION));
    let others = [
        (1, 1_024, FUNCTION / 4),
        (1, 4_096, FUNCTION / 2),
        (15, 512, FUNCTION),
        (60, 256, FUNCTION / 4),
    ];
    for (functions, locals, bytes) in full.into_iter().chain(others) {
        let code = joins(functions, locals, bytes);
        assert!(code.len() <= MODULE);
        let begun = Instant::now();
        let refused = check(&code).unwrap_err().to_string();
        println!("{functions} functions, {locals} variables: refused in {:?}", begun.elapsed());
        assert!(refused.contains(TOO_COMPLEX) && refused.contains("too many"), "{refused}");
    }
}

#[test]
fn branches_to_one_target_and_indirect_calls_are_limited() {
    for name in
        ["branches out of one block", "returns", "calls through a table of what takes nothing"]
    {
        let accepted = |functions, bytes| {
            let shape = shapes(functions, bytes).into_iter().find(|(other, _)| *other == name);
            check(&shape.unwrap().1)
        };
        assert!(accepted(1, FUNCTION / 4).is_ok(), "{name}");
        let refused = accepted(15, FUNCTION).unwrap_err().to_string();
        assert!(refused.contains(TOO_COMPLEX) && refused.contains("too many"), "{name}: {refused}");
    }
}

#[test]
fn accepted_modules_compile_within_the_limits() {
    let functions = size::choose(1, 15) as usize;
    let bytes = size::choose(FUNCTION as u64 / 16, FUNCTION as u64) as usize;
    let mut all = shapes(functions, bytes);
    all.push((
        "as many branches over variables as are allowed",
        joins(1, 64, FUNCTION / size::choose(16, 2) as usize),
    ));
    for (name, code) in all {
        let (begun, length) = (Instant::now(), code.len());
        if length > MODULE {
            panic!("{name} has {length} bytes");
        }
        if let Err(refused) = check(&code) {
            // At their full size, some exceed the limits of WebAssembly itself.
            let sentence = refused.to_string();
            let expected = [TOO_COMPLEX, "this is no valid WebAssembly module for contracts: "];
            assert!(expected.iter().any(|part| sentence.contains(part)), "{name}: {refused}");
            println!("{name}, {length} bytes: refused in {:?}: {refused}", begun.elapsed());
            continue;
        }
        let checked = begun.elapsed();
        let loaded = engine().load(&code);
        let took = begun.elapsed();
        match loaded {
            Ok(_) => {
                println!("{name}, {length} bytes: checked in {checked:?}, compiled in {took:?}")
            }
            Err(error) => {
                println!(
                    "{name}, {length} bytes: checked in {checked:?}, ended in {took:?}: {error}"
                );
                assert!(error.is_about_the_module(), "{name}: {error}");
            }
        }
    }
}

/// Returns the built modules of the repository.
fn modules() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/built");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let modules = files.filter(|file| file.extension().is_some_and(|it| it == "wasm"));
    let mut modules: Vec<_> = modules.map(|file| std::fs::read(file).unwrap()).collect();
    modules.sort();
    assert!(modules.len() > 20);
    modules
}

/// Returns a module with random pieces overwritten, changed by one bit, repeated, or replaced by
/// pieces of another module.
fn mutated(code: &[u8], other: &[u8], rng: &mut ChaCha8Rng) -> Vec<u8> {
    let piece = |code: &[u8], rng: &mut ChaCha8Rng| {
        let from = rng.random_range(0..code.len());
        from..(from + rng.random_range(1..=16)).min(code.len())
    };
    let mut code = code.to_vec();
    for _ in 0..rng.random_range(1..=4) {
        let at = piece(&code, rng);
        match rng.random_range(0..4) {
            0 => rng.fill_bytes(&mut code[at]),
            1 => code[at.start] ^= 1 << rng.random_range(0..8),
            2 => {
                let copy = code[at.clone()].to_vec();
                code.splice(at.end..at.end, copy);
            }
            _ => {
                let taken = other[piece(other, rng)].to_vec();
                code.splice(at, taken);
            }
        }
        if code.is_empty() {
            break;
        }
    }
    code
}

#[test]
fn random_modules_are_refused_with_one_line_errors_or_compiled() {
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    let modules = modules();
    let rules = CheckRules { must_emit: false, ..CheckRules::default() };
    let (mut refused, mut compiled) = (0, 0);
    let most_compiled = size::choose(20, 2_000);
    for _ in 0..size::choose(3_000, 500_000) {
        let (code, other) = (modules.choose(&mut rng).unwrap(), modules.choose(&mut rng).unwrap());
        let code = match rng.random_range(0..20) {
            0 => {
                let mut bytes = b"\0asm\x01\0\0\0".to_vec();
                bytes.resize(rng.random_range(8..200), 0);
                rng.fill_bytes(&mut bytes[8..]);
                bytes
            }
            _ => mutated(code, other, &mut rng),
        };
        match engine().check(&code, &rules) {
            Err(why) => {
                refused += 1;
                assert!(!why.to_string().contains('\n'), "one sentence: {why}");
            }
            Ok(_) if compiled < most_compiled => {
                compiled += 1;
                let loaded = engine().load(&code);
                assert!(loaded.is_ok(), "{}", loaded.unwrap_err());
            }
            Ok(_) => {}
        }
    }
    println!("{refused} modules were refused, {compiled} compiled");
    assert!(refused > 0 && compiled == most_compiled);
}

#[test]
fn many_struct_names_over_large_data_are_refused() {
    let module = |structs: usize, bytes: usize| {
        let structs = (0..structs).map(|number| {
            ScSpecEntry::UdtStructV0(ScSpecUdtStructV0 {
                doc: "".try_into().unwrap(),
                lib: "".try_into().unwrap(),
                name: format!("S{number}").try_into().unwrap(),
                fields: Default::default(),
            })
        });
        let spec: Vec<u8> =
            structs.flat_map(|entry| entry.to_xdr(XdrLimits::none()).unwrap()).collect();
        costly::module_with_spec(&spec, bytes)
    };
    check(&module(1_000, 100_000)).unwrap();
    check(&module(20_000, 5_000)).unwrap();
    let refused = check(&module(20_000, 1_000_000)).unwrap_err().to_string();
    assert!(refused.contains("20000 structs and 1000000 bytes of data"), "{refused}");
}

#[test]
fn a_compiler_over_its_limits_is_killed_and_the_module_refused() {
    if size::choose(0, 1) == 0 {
        return; // It uses a minute of a processor.
    }
    // The check is skipped: a module that it accepted by mistake ends like this.
    let error = engine().load(&joins(15, 4_096, FUNCTION)).unwrap_err();
    assert!(error.is_about_the_module(), "{error}");
    println!("{error}");
}
