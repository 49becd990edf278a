//! Fuzzes the parsers that receive untrusted bytes. A target is a function that must not panic,
//! hang or violate its assertions for any input; the harness passes it the files of `corpus/TARGET`
//! and inputs that are generated from them.
//!
//! Small: three seconds per target; full (`ORRERY_TEST_SIZE=full`): a minute. For hours:
//! `ORRERY_TEST_FUZZ_SECONDS=36000 cargo test --test fuzz ledger`; `ORRERY_TEST_FUZZ_SEED=N` starts
//! with another seed. A failing input is written to the build's temporary directory, and its path
//! is printed; once it is added to the corpus, it is tested first.
//!
//! `coverage` is a crate that passes inputs of libFuzzer to the same targets.

use std::collections::BTreeSet;
use std::path::Path;

mod conditions;
mod control;
mod harness;
mod ledger;
mod multipart;
mod records;
mod rpc;
mod sql;
mod tokens;
mod wasm;
mod webhooks;
mod wire;

// One line for each target: a module with `seeds() -> Vec<Vec<u8>>` and `check(&[u8])`.
harness::targets!(
    ledger, records, tokens, control, sql, wasm, multipart, webhooks, wire, rpc, conditions
);

#[test]
fn libfuzzer_has_the_same_targets() {
    let manifest: toml::Table = include_str!("coverage/Cargo.toml").parse().unwrap();
    let targets = manifest["bin"].as_array().unwrap().iter();
    let targets: BTreeSet<_> = targets.map(|target| target["name"].as_str().unwrap()).collect();
    assert_eq!(targets, TARGETS.iter().copied().collect());

    // Its crates are those of the targets, as the workspace has them.
    let workspace: toml::Table = include_str!("../../Cargo.toml").parse().unwrap();
    let dependencies = manifest["dependencies"].as_table().unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz");
    let texts: Vec<_> = TARGETS
        .iter()
        .map(|target| std::fs::read_to_string(folder.join(format!("{target}.rs"))).unwrap())
        .collect();
    let is_named = |name: &str| {
        let path = format!("{}::", name.replace('-', "_"));
        texts.iter().any(|text| {
            text.match_indices(&path).any(|(at, _)| {
                let before = text[..at].chars().next_back();
                !before.is_some_and(|it| it.is_alphanumeric() || matches!(it, '_' | ':'))
            })
        })
    };
    for (name, wanted) in workspace["workspace"]["dependencies"].as_table().unwrap() {
        let found = dependencies.get(name);
        assert_eq!(found.is_some(), is_named(name), "{name} in coverage/Cargo.toml");
        if !name.starts_with("orrery-") {
            assert!(found.is_none_or(|found| found == wanted), "{name}: {found:?}, not {wanted}");
        }
    }
}
