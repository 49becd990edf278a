//! Nothing but tests: see `tests/rows.rs`.
