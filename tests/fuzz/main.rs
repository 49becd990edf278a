//! Foreign bytes for each parser that meets them. A target is a function that must not panic, hang or
//! break what it asserts, whatever it is given; the harness gives it the files of `corpus/TARGET` and
//! what it makes of them.
//!
//! Small: three seconds for each target; full (`ORRERY_TEST_SIZE=full`): a minute. For hours:
//! `ORRERY_TEST_FUZZ_SECONDS=36000 cargo test --test fuzz ledger`; `ORRERY_TEST_FUZZ_SEED=N` begins
//! elsewhere. An input that fails is written beside the build and named; put into the corpus it is met first
//! from then on.

#[path = "../common"]
mod common {
    pub mod full;
    pub mod size;
}
mod control;
mod harness;
mod ledger;
mod multipart;
#[path = "../../src/tables/worker/ask/tests/pieces.rs"]
mod pieces;
mod records;
mod rpc;
mod sql;
mod tokens;
mod wasm;
mod webhooks;
mod wire;

// One line for each target: a module with `seeds() -> Vec<Vec<u8>>` and `check(&[u8])`.
harness::targets!(ledger, records, tokens, control, sql, wasm, multipart, webhooks, wire, rpc);
