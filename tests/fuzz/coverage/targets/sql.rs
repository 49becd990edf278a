//! Passes the inputs of libFuzzer to the check of `sql`.
#![no_main]

use orrery_fuzz::{add_seeds, sql};

libfuzzer_sys::fuzz_target!(
    init: add_seeds(sql::seeds()),
    |bytes: &[u8]| sql::check(bytes)
);
