//! Passes the inputs of libFuzzer to the check of `records`.
#![no_main]

use orrery_fuzz::{add_seeds, records};

libfuzzer_sys::fuzz_target!(
    init: add_seeds(records::seeds()),
    |bytes: &[u8]| records::check(bytes)
);
