//! Modules that are refused at deploy, each with a sentence that states why; and how long the most
//! expensive accepted ones take to compile.

use std::time::Instant;

use orrery::programs::engine::{CheckRules, ModuleFacts, Refused};

use crate::engine_vault::Vaults;
use orrery_testkit::engine_world::{ENV_META, engine};

const GOOD: &str = "(import \"x\" \"9\" (func $emit (param i64 i64) (result i64)))
    (memory (export \"memory\") 1) (func (export \"test\") (result i64) (i64.const 2))";

fn check(fields: &str) -> Result<ModuleFacts, Refused> {
    let code = wat::parse_str(format!("(module {fields} {ENV_META})")).unwrap();
    engine().check(&code, &CheckRules::default())
}

fn refused(fields: &str, words: &str) {
    let refused = check(fields).expect_err(words).to_string();
    assert!(refused.contains(words), "'{refused}' says '{words}'");
    assert!(!refused.contains('\n'), "one sentence: {refused}");
}

#[test]
fn the_check_returns_facts_about_a_valid_module() {
    let facts = check(GOOD).unwrap();
    assert_eq!(facts.functions, ["test"]);
    assert_eq!((facts.emits, facts.protocol), (true, Some(30)));
    let data = check(&format!("{GOOD} (data (i32.const 0) \"one\") (data \"two\")")).unwrap().data;
    assert_eq!(data, [b"one", b"two"]);
    let silent = CheckRules { must_emit: false, ..CheckRules::default() };
    let code =
        wat::parse_str("(module (memory (export \"memory\") 1) (func (export \"f\")))").unwrap();
    assert!(!engine().check(&code, &silent).unwrap().emits);
}

#[test]
fn the_check_returns_the_structs_of_the_vault_program() {
    let Some(vaults) = Vaults::load() else { return };
    let facts = engine().check(&vaults.program(), &CheckRules::default()).unwrap();
    let structs: Vec<_> = facts
        .spec
        .iter()
        .filter_map(|entry| match entry {
            stellar_xdr::ScSpecEntry::UdtStructV0(udt) => Some(udt.name.to_utf8_string_lossy()),
            _ => None,
        })
        .collect();
    assert_eq!(structs, ["BatchDone", "BalanceChanged"]);
    let data = facts.data.concat();
    for name in ["balance_changed", "batch_done"] {
        assert!(data.windows(name.len()).any(|part| part == name.as_bytes()), "{name}");
    }
    let refused = engine().check(&vaults.contract(), &CheckRules::default()).unwrap_err();
    assert!(refused.to_string().starts_with("the module emits nothing "), "{refused}");
}

#[test]
fn unknown_imports_are_refused_and_listed() {
    refused(
        &format!("(import \"env\" \"now\" (func)) (import \"x\" \"zz\" (func (param i64))) {GOOD}"),
        "functions that contracts do not have: env.now, x.zz",
    );
    refused(
        &format!("(import \"x\" \"3\" (func (param i64) (result i64))) {GOOD}"),
        "every parameter and the one result are i64): x.3",
    );
    refused(&format!("(import \"x\" \"3\" (func (result i32))) {GOOD}"), "other types");
    refused(
        "(import \"x\" \"9\" (func $emit (param i64) (result i64)))
         (memory (export \"memory\") 1) (func (export \"test\"))",
        "other types than they have",
    );
    refused(&format!("(import \"x\" \"3\" (global i64)) {GOOD}"), "x.3");
    refused("(import \"x\" \"memory\" (memory 1)) (func (export \"f\"))", "x.memory");
    // A function that only old protocols have.
    refused(&format!("(import \"t\" \"0\" (func (result i64))) {GOOD}"), "t.0");
    let many: String = (0..40).map(|i| format!("(import \"y\" \"f{i}\" (func))")).collect();
    refused(&format!("{many} {GOOD}"), "y.f9 and 30 more");
}

#[test]
fn missing_exports_and_exceeded_limits_are_named() {
    refused(&format!("{GOOD} (func $s) (start $s)"), "start function");
    refused(
        "(import \"x\" \"9\" (func (param i64 i64) (result i64))) (func (export \"test\"))",
        "no memory named 'memory'",
    );
    refused("(memory 1) (func (export \"memory\"))", "no memory named 'memory'");
    refused("(memory (export \"memory\") 1) (func $f)", "exports no function");
    refused("(memory (export \"memory\") 1) (func (export \"f\"))", "does not import x.9");
    let big = |pages| format!("(memory (export \"memory\") {pages}) (func (export \"f\"))");
    refused(&big(1025), "of memory at its start");
    refused(&big(65536), "of memory at its start");
    refused(&format!("{GOOD} (table 20001 funcref)"), "of a table at its start");
    refused(
        &format!("{GOOD} (table 1 funcref) (table 1 externref) (table 1 funcref)"),
        "a third table",
    );
    let code = wat::parse_str(format!(
        "(module {GOOD} (@custom \"contractspecv0\" \"\\00\\00\\00\\ff\\00\"))"
    ))
    .unwrap();
    let refused = engine().check(&code, &CheckRules::default()).unwrap_err().to_string();
    assert!(refused.contains("'contractspecv0' cannot be read"), "{refused}");
    let large = vec![0; (2 << 20) + 1];
    let refused = engine().check(&large, &CheckRules::default()).unwrap_err().to_string();
    assert!(refused.contains("2097153 bytes") && refused.contains("2 MiB"), "{refused}");
}

#[test]
fn non_modules_and_disallowed_wasm_features_are_refused() {
    for bytes in [b"".as_slice(), b"\0asm", b"\0asm\x01\0\0\0\xff", b"hello", &[0; 100]] {
        let refused = engine().check(bytes, &CheckRules::default()).unwrap_err().to_string();
        assert!(!refused.contains("a program may have"), "{refused}");
        let (is_module, no_module) =
            (bytes.starts_with(b"\0asm\x01"), "this is not a WebAssembly module: ");
        assert_eq!(refused.starts_with(no_module), !is_module, "{refused}");
        assert!(!refused.contains('\n'), "one sentence: {refused}");
    }
    let elf = engine().check(b"\x7fELF\x02\x01\x01\0\0", &CheckRules::default());
    assert_eq!(
        elf.unwrap_err().to_string(),
        "this is not a WebAssembly module: it begins with '7f454c4602010100' where a module has \
         '0061736d01000000'; send the .wasm file as the compiler wrote it"
    );
    for fields in [
        "(memory (export \"memory\") 1 1 shared)",
        "(memory (export \"memory\") i64 1)",
        "(memory (export \"memory\") 1) (memory 1)",
        "(func (export \"f\") (result v128) (v128.const i64x2 0 0))",
        "(func $f (export \"f\") (return_call $f))",
        "(tag $t) (func (export \"f\") (throw $t))",
        "(type (struct (field i32)))",
        "(type $t (func)) (func (param (ref $t)))",
    ] {
        refused(fields, "no valid WebAssembly module");
    }
    // Features that newer compilers use by default are accepted.
    check(&format!(
        "{GOOD} (func (param i32) (result i32 i64) (i32.extend8_s (local.get 0)) (i64.const 0))
         (func (param externref) (memory.fill (i32.const 0) (i32.const 0) (i32.const 0)))
         (func (result i32) (i32.trunc_sat_f64_s (f64.const 1e300)))
         (global i32 (i32.add (i32.const 1) (i32.const 2)))"
    ))
    .unwrap();
}

/// Compiles a module that the check accepts, and prints how long it takes.
fn compile(name: &str, fields: &str) {
    let code = wat::parse_str(format!("(module {fields} {ENV_META})")).unwrap();
    let engine = engine();
    engine
        .check(&code, &CheckRules::default())
        .unwrap_or_else(|refused| panic!("{name}: {refused}"));
    let begun = Instant::now();
    engine.load(&code).unwrap();
    println!("{name}: {} bytes compiled in {:?}", code.len(), begun.elapsed());
}

#[test]
fn modules_expensive_to_compile_are_refused() {
    let huge = "(drop (i64.const 1))".repeat(50_000);
    refused(&format!("{GOOD} (func {huge})"), "has 150002 bytes");
    refused(&format!("{GOOD} (func {})", "(local i64)".repeat(5_000)), "5000 local variables");
    let functions = "(func)".repeat(20_001);
    refused(&format!("{GOOD} {functions}"), "too many functions");

    // The most expensive code that the check accepts, of different kinds: mostly one function of
    // maximum length.
    let chain = "(local.set 0 (i64.mul (i64.add (local.get 0) (i64.const 3)) (local.get 1)))";
    let straight = format!("(func (param i64 i64) {})", chain.repeat(9_000));
    let branches = format!(
        "(func (param i32) {} (br_table {} (local.get 0)) {})",
        "(block ".repeat(1_000),
        (0..1_000).map(|i| i.to_string()).collect::<Vec<_>>().join(" "),
        ")".repeat(1_000),
    );
    let tables = format!(
        "(func (param i32) (block {}))",
        format!("(br_table {} (local.get 0))", "0 ".repeat(5_000)).repeat(20)
    );
    let locals = format!(
        "(func {} {})",
        "(local i64)".repeat(4_000),
        (0..4_000)
            .map(|i| format!(
                "(local.set {i} (i64.add (local.get {}) (local.get {})))",
                (i * 7) % 4_000,
                (i * 13) % 4_000
            ))
            .collect::<String>()
    );
    let nested = |loops: usize| {
        format!(
            "(func (param i64) {} {})",
            "(loop (local.set 0 (i64.add (local.get 0) (i64.const 1)))".repeat(loops),
            "(br_if 0 (i32.wrap_i64 (local.get 0))))".repeat(loops)
        )
    };
    refused(&format!("{GOOD} {}", nested(25)), "25 loops within one another");
    let params = "(param i64 i64 i64 i64 i64 i64 i64 i64)";
    refused(
        &format!("{GOOD} (func {})", params.repeat(5)),
        "a function of 40 parameters (32 are allowed)",
    );
    refused(&format!("{GOOD} (func (result i64 i64 i64 i64 i64) (unreachable))"), "of 5 results");
    refused(&format!("{GOOD} {}", nested(24).repeat(100)), "too many loops within one another");
    let loops = nested(24).repeat(80);
    let loops_of_locals = format!(
        "(func (param i32) {} {} {})",
        "(local i64)".repeat(2_000),
        "(loop".repeat(24),
        format!(
            "{} (br_if 0 (local.get 0)))",
            (1..600)
                .map(|i| format!("(local.set {i} (i64.add (local.get {i}) (i64.const 1)))"))
                .collect::<String>()
        )
        .repeat(1)
            + &"(br_if 0 (local.get 0)))".repeat(23)
    );
    let passing = |values: usize, branches: usize| {
        format!(
            "(type $wide (func (param {0}) (result {0})))
             (func (param i32) {1} (block (type $wide) {2}) {3})",
            "i64 ".repeat(values),
            "(i64.const 1)".repeat(values),
            "(br_if 0 (local.get 0))".repeat(branches),
            "(drop)".repeat(values)
        )
    };
    refused(&format!("{GOOD} {}", passing(3, 1)), "a block over 6 values (4 are allowed)");
    refused(&format!("{GOOD} {}", passing(2, 1_001)), "pass 2002 values on (2000 are allowed)");
    let values_passed = passing(2, 1_000);
    let branches_out = format!(
        "(func (param i32 i64) (block {}) (drop (local.get 1)))",
        "(local.set 1 (i64.add (local.get 1) (i64.const 1))) (br_if 0 (local.get 0))".repeat(3_000)
    );
    let returns = format!(
        "(func (param i32) (result i64) {} (i64.const 1))",
        "(if (local.get 0) (then (return (i64.const 7))))".repeat(3_000)
    );
    let calls = format!(
        "(func $c (param i64 i64 i64 i64)) (func {})",
        "(call $c (i64.const 1) (i64.const 2) (i64.const 3) (i64.const 4))".repeat(12_000)
    );
    let wide = (0..15).map(|_| straight.clone()).collect::<String>();
    // The engine itself aborts the compilation of a module that takes too long; the times are only
    // printed.
    for (name, function) in [
        ("straight code", &straight),
        ("nested blocks", &branches),
        ("branch tables", &tables),
        ("many locals", &locals),
        ("nested loops", &loops),
        ("nested loops over many locals", &loops_of_locals),
        ("branches that pass many values", &values_passed),
        ("branches out of a block", &branches_out),
        ("returns", &returns),
        ("calls", &calls),
        ("fifteen long functions", &wide),
    ] {
        compile(name, &format!("{GOOD} {function}"));
    }
}
