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
harness::targets!(ledger, records, tokens, control, sql, wasm, multipart, webhooks, wire, rpc);

#[test]
fn libfuzzer_has_the_same_targets() {
    let manifest: toml::Table = include_str!("coverage/Cargo.toml").parse().unwrap();
    let targets = manifest["bin"].as_array().unwrap().iter();
    let targets: BTreeSet<_> = targets.map(|target| target["name"].as_str().unwrap()).collect();
    assert_eq!(targets, TARGETS.iter().copied().collect());
}
