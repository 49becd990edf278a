//! Passes the inputs of libFuzzer to the check of `tokens`.
#![no_main]

use orrery_fuzz::{add_seeds, tokens};

libfuzzer_sys::fuzz_target!(
    init: add_seeds(tokens::seeds()),
    |bytes: &[u8]| tokens::check(bytes)
);
