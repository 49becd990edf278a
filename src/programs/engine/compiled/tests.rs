use super::super::{Engine, EngineSettings};
use super::*;

const CODE: &str = r#"(module (memory (export "memory") 1)
    (func (export "one") (result i64) (i64.const 1)))"#;

fn engine(directory: &Path) -> Engine {
    let settings = EngineSettings {
        cache: Some(directory.to_owned()),
        concurrent_runs: 1,
        ..EngineSettings::default()
    };
    Engine::new(settings).unwrap()
}

fn only_file(directory: &Path) -> PathBuf {
    let mut files = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    let file = files.next().unwrap();
    assert_eq!(files.next(), None, "nothing else is left behind");
    file
}

#[test]
fn what_was_compiled_is_found_again_and_removed_when_it_is_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let code = wat::parse_str(CODE).unwrap();
    let first = engine(directory.path()).load(&code).unwrap();
    let file = only_file(directory.path());
    let written = fs::metadata(&file).unwrap().modified().unwrap();

    let again = engine(directory.path());
    assert_eq!(again.load(&code).unwrap().sha256(), first.sha256());
    assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), written, "read, not written");

    again.forget(first.sha256()).unwrap();
    assert!(!file.exists());
    again.forget(first.sha256()).unwrap();
}

#[test]
fn damaged_and_foreign_files_are_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let code = wat::parse_str(CODE).unwrap();
    engine(directory.path()).load(&code).unwrap();
    let file = only_file(directory.path());
    let good = fs::read(&file).unwrap();

    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let mut bad: Vec<Vec<u8>> = vec![Vec::new(), b"something else".to_vec(), good[..100].to_vec()];
    bad.push(good[..good.len() - 1].to_vec());
    bad.extend([0, MAGIC.len(), MAGIC.len() + HASH, HEADER, good.len() - 1].map(flipped));
    for bytes in bad {
        fs::write(&file, &bytes).unwrap();
        engine(directory.path()).load(&code).unwrap();
        assert_eq!(fs::read(&file).unwrap(), good, "{} bytes were replaced", bytes.len());
    }
}

#[test]
fn code_for_another_module_is_not_taken() {
    let directory = tempfile::tempdir().unwrap();
    let code = wat::parse_str(CODE).unwrap();
    let other = wat::parse_str(CODE.replace("one", "two")).unwrap();
    let engine_of = |code: &[u8]| engine(directory.path()).load(code).unwrap();
    engine_of(&code);
    let file = only_file(directory.path());
    let module = engine_of(&other);
    let name = format!("{}.compiled", module.sha256());
    fs::copy(&file, directory.path().join(name)).unwrap();
    drop(module);
    assert!(engine_of(&other).signature("two").is_some());
}
