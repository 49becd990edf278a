//! Passes the inputs of libFuzzer to the check of `conditions`.
#![no_main]

use orrery_fuzz::{add_seeds, conditions};

libfuzzer_sys::fuzz_target!(
    init: add_seeds(conditions::seeds()),
    |bytes: &[u8]| conditions::check(bytes)
);
