//! Compiled modules on disk: loaded again, replaced when they are damaged, and never run unless
//! they were written with the engine's key.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use orrery::programs::engine::{CacheSettings, CheckRules, Engine, EngineSettings};

use orrery_testkit::engine_world::engine_settings;

const CODE: &str = r#"(module (memory (export "memory") 1)
    (func (export "one") (result i64) (i64.const 1)))"#;

fn engine_with(directory: &Path, key: [u8; 32]) -> Engine {
    let cache = CacheSettings { directory: directory.to_owned(), key };
    Engine::new(EngineSettings { cache: Some(cache), ..engine_settings(1) }).unwrap()
}

fn engine(directory: &Path) -> Engine {
    engine_with(directory, [7; 32])
}

fn files(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect()
}

fn only_file(directory: &Path) -> PathBuf {
    let [file] = <[PathBuf; 1]>::try_from(files(directory)).expect("one, and nothing else is left");
    file
}

#[test]
fn compiled_modules_are_cached_on_disk_and_can_be_removed() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("compiled");
    let code = wat::parse_str(CODE).unwrap();
    let first = engine(&directory).load_and_cache(&code, || Some(())).unwrap();
    assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
    let file = only_file(&directory);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let written = fs::metadata(&file).unwrap().modified().unwrap();

    let again = engine(&directory);
    assert_eq!(again.load_and_cache(&code, || Some(())).unwrap().sha256(), first.sha256());
    assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), written, "read, not written");

    again.remove_cached(first.sha256()).unwrap();
    assert!(!file.exists());
    again.remove_cached(first.sha256()).unwrap();
}

#[test]
fn modules_that_are_not_cached_leave_no_files() {
    let directory = tempfile::tempdir().unwrap();
    let code = wat::parse_str(CODE).unwrap();
    let engine = engine(directory.path());
    let module = engine.load(&code).unwrap();
    let rules = CheckRules { must_emit: false, ..CheckRules::default() };
    engine.check_and_load(&code, &rules).unwrap();
    assert_eq!(files(directory.path()), Vec::<PathBuf>::new());
    engine.cache(&module);
    let file = only_file(directory.path());
    fs::write(directory.path().join(format!("{}.compiled", "ab".repeat(32))), b"old").unwrap();
    fs::write(directory.path().join(".tmpXYZ"), b"half").unwrap();
    engine.remove_cached_except(&BTreeSet::from([module.sha256()])).unwrap();
    assert_eq!(files(directory.path()), [file]);
    engine.remove_cached_except(&BTreeSet::new()).unwrap();
    assert_eq!(files(directory.path()), Vec::<PathBuf>::new());
}

#[test]
fn damaged_and_foreign_files_are_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let code = wat::parse_str(CODE).unwrap();
    engine(directory.path()).load_and_cache(&code, || Some(())).unwrap();
    let file = only_file(directory.path());
    let good = fs::read(&file).unwrap();

    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let mut bad: Vec<Vec<u8>> = vec![Vec::new(), b"something else".to_vec(), good[..100].to_vec()];
    bad.push(good[..good.len() - 1].to_vec());
    bad.extend([0, 8, 39, 40, good.len() / 2, good.len() - 1].map(flipped));
    for bytes in bad {
        fs::write(&file, &bytes).unwrap();
        engine(directory.path()).load_and_cache(&code, || Some(())).unwrap();
        assert_eq!(fs::read(&file).unwrap(), good, "{} bytes were replaced", bytes.len());
    }
}

#[test]
fn compiled_code_of_another_module_or_key_is_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let code = wat::parse_str(CODE).unwrap();
    let other = wat::parse_str(CODE.replace("one", "two")).unwrap();
    engine(directory.path()).load_and_cache(&code, || Some(())).unwrap();
    let file = only_file(directory.path());
    let module = engine(directory.path()).load_and_cache(&other, || Some(())).unwrap();
    let others = directory.path().join(format!("{}.compiled", module.sha256()));
    let good = fs::read(&others).unwrap();
    // An intact file that this engine wrote, under the name of another module.
    fs::copy(&file, &others).unwrap();
    engine(directory.path()).load_and_cache(&other, || Some(())).unwrap();
    assert_eq!(fs::read(&others).unwrap(), good, "it was recompiled");
    // An intact file of the module that was written with another key.
    engine_with(directory.path(), [8; 32]).load_and_cache(&other, || Some(())).unwrap();
    let foreign = fs::read(&others).unwrap();
    assert_ne!(foreign, good);
    assert_eq!(foreign[40..], good[40..], "the code itself is the same");
    engine(directory.path()).load_and_cache(&other, || Some(())).unwrap();
    assert_eq!(fs::read(&others).unwrap(), good, "it was recompiled");
}
