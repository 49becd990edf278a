//! Passes the inputs of libFuzzer to the check of `webhooks`.
#![no_main]

use orrery_fuzz::{add_seeds, webhooks};

libfuzzer_sys::fuzz_target!(
    init: add_seeds(webhooks::seeds()),
    |bytes: &[u8]| webhooks::check(bytes)
);
