//! Passes the inputs of libFuzzer to the check of `wasm`.
#![no_main]

use orrery_fuzz::{add_seeds, wasm};

libfuzzer_sys::fuzz_target!(
    init: add_seeds(wasm::seeds()),
    |bytes: &[u8]| wasm::check(bytes)
);
