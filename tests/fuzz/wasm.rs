//! Modules that are submitted as programs, and the tables that their specifications ask for: a
//! module is refused in one sentence, or the facts about it match its bytes. Nothing is compiled.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use orrery::domain::Hash32;
use orrery::programs::engine::{CheckRules, Engine, EngineSettings, ModuleFacts};
use orrery::tables::schema::{ProgramSchema, SchemaError, SchemaLimits};
use sha2::{Digest, Sha256};

use orrery_testkit::data::project;

/// Time after which a check counts as a hang.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Upper bound on the length of an error sentence, in characters.
const LONGEST_SENTENCE: usize = 1200;

static ENGINE: LazyLock<Engine> =
    LazyLock::new(|| Engine::new(EngineSettings::new("compiles nothing".into())).unwrap());

fn folder() -> PathBuf {
    project().join("tests/programs/built")
}

/// Returns the tables of one of the programs that other tests run.
pub fn schema(program: &str) -> ProgramSchema {
    let code = fs::read(folder().join(program)).unwrap();
    tables(&ENGINE.check(&code, &CheckRules::default()).unwrap()).unwrap()
}

fn tables(facts: &ModuleFacts) -> Result<ProgramSchema, SchemaError> {
    let may_emit = |target: &str| facts.targets.may_emit_to(target);
    ProgramSchema::from_spec(&facts.spec, may_emit, SchemaLimits::default())
}

pub fn seeds() -> Vec<Vec<u8>> {
    let entries = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> =
        entries.filter(|it| it.extension().is_some_and(|e| e == "wasm")).collect();
    paths.sort();
    let built = paths.iter().map(|path| fs::read(path).unwrap());
    let text = |fields: &str| {
        let emit = r#"(import "x" "9" (func $emit (param i64 i64) (result i64)))"#;
        wat::parse_str(format!("(module {emit} {fields})")).unwrap()
    };
    let memory = r#"(memory (export "memory") 1)"#;
    built
        .chain([
            text(&format!(r#"{memory} (func (export "f") (result i64) i64.const 2)"#)),
            text(&format!(
                r#"{memory} (table 3 funcref) (table 2 externref) (elem (i32.const 0) $emit)
                   (global (mut i64) (i64.const 7)) (data (i32.const 8) "one") (data "two")
                   (func (export "f") (param i32) (result i64) (local i64 i64)
                     (block (block (loop (br_table 0 1 2 (local.get 0)))))
                     (call_indirect (param i64 i64) (result i64)
                       (local.get 1) (local.get 2) (local.get 0)))"#
            )),
            text(
                &format!(
                    r#"{memory} (func (export "f") (param i32) (result i32 i64)
                     (memory.fill (local.get 0) (i32.const 1) (i32.const 2))
                     (if (result i64) (local.get 0) (then (i64.const 1)) (else (i64.const 2)))
                     (local.set 0 (i32.wrap_i64)) (local.get 0) (i64.const 3)) (start 0)"#
                )
                .replace("(start 0)", ""),
            ),
        ])
        .collect()
}

pub fn check(bytes: &[u8]) {
    let begun = Instant::now();
    let checked = ENGINE.check(bytes, &CheckRules::default());
    let silent = CheckRules { must_emit: false, ..CheckRules::default() };
    let as_contract = ENGINE.check(bytes, &silent);
    match (&checked, &as_contract) {
        (Ok(one), Ok(other)) => assert!(one.emits && one == other),
        (Err(refused), Ok(other)) => {
            assert!(refused.to_string().starts_with("the module emits nothing "), "{refused}");
            assert!(!other.emits);
        }
        (Err(_), Err(refused)) => is_one_sentence(&refused.to_string()),
        (one, other) => panic!("{:?} and {:?}", one.as_ref().err(), other.as_ref().err()),
    }
    if let Err(refused) = &checked {
        is_one_sentence(&refused.to_string());
    }
    let Ok(facts) = as_contract else { return };
    assert_eq!(facts.sha256, Hash32(Sha256::digest(bytes).into()));
    assert!(!facts.functions.is_empty());
    let data = facts.data.iter().map(Vec::len).sum::<usize>();
    assert!(data <= bytes.len(), "{data} bytes of data in {}", bytes.len());
    let small = CheckRules { size: bytes.len() - 1, ..silent };
    let refused = ENGINE.check(bytes, &small).unwrap_err().to_string();
    assert!(refused.starts_with(&format!("the module has {} bytes; ", bytes.len())), "{refused}");
    match tables(&facts) {
        Ok(schema) => assert!(schema.tables().len() <= SchemaLimits::default().tables),
        Err(error) => is_one_sentence(&error.to_string()),
    }
    assert!(begun.elapsed() < TIMEOUT, "{:?}", begun.elapsed());
}

fn is_one_sentence(text: &str) {
    assert!(text.chars().count() < LONGEST_SENTENCE, "{} bytes: {text}", text.len());
    assert!(!text.contains(char::is_control), "{text:?}");
}
