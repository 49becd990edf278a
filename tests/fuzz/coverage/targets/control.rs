//! Passes the inputs of libFuzzer to the check of `control`.
#![no_main]

use orrery_fuzz::{add_seeds, control};

libfuzzer_sys::fuzz_target!(
    init: add_seeds(control::seeds()),
    |bytes: &[u8]| control::check(bytes)
);
