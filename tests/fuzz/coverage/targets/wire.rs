//! Passes the inputs of libFuzzer to the check of `wire`.
#![no_main]

use orrery_fuzz::{add_seeds, wire};

libfuzzer_sys::fuzz_target!(
    init: add_seeds(wire::seeds()),
    |bytes: &[u8]| wire::check(bytes)
);
