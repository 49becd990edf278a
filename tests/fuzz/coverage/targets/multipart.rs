//! Passes the inputs of libFuzzer to the check of `multipart`.
#![no_main]

use orrery_fuzz::{add_seeds, multipart};

libfuzzer_sys::fuzz_target!(
    init: add_seeds(multipart::seeds()),
    |bytes: &[u8]| multipart::check(bytes)
);
