//! Passes the inputs of libFuzzer to the check of `ledger`.
#![no_main]

use orrery_fuzz::{add_seeds, ledger};

libfuzzer_sys::fuzz_target!(
    init: add_seeds(ledger::seeds()),
    |bytes: &[u8]| ledger::check(bytes)
);
