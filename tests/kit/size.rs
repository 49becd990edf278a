//! The size of long suites: small unless `ORRERY_TEST_SIZE=full`.

/// Returns `full` when `ORRERY_TEST_SIZE=full`, else `small`.
pub fn choose(small: u64, full: u64) -> u64 {
    match std::env::var("ORRERY_TEST_SIZE").as_deref() {
        Ok("full") => full,
        _ => small,
    }
}
