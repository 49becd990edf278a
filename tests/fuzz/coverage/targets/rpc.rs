//! Passes the inputs of libFuzzer to the check of `rpc`.
#![no_main]

use orrery_fuzz::{add_seeds, rpc};

libfuzzer_sys::fuzz_target!(
    init: add_seeds(rpc::seeds()),
    |bytes: &[u8]| rpc::check(bytes)
);
