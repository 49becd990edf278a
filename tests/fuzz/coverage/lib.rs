//! The checks of `tests/fuzz` for libFuzzer, which keeps inputs that reach new code: each file of `targets`
//! passes its inputs to one check. `make fuzz-coverage` builds and runs one.
//!
//! A workspace of its own: everything is compiled anew, with instrumentation, and by another compiler.

use std::path::PathBuf;
use std::{env, fs};

#[path = "../conditions.rs"]
pub mod conditions;
#[path = "../control.rs"]
pub mod control;
#[path = "../ledger.rs"]
pub mod ledger;
#[path = "../multipart.rs"]
pub mod multipart;
#[path = "../records.rs"]
pub mod records;
#[path = "../rpc.rs"]
pub mod rpc;
#[path = "../sql.rs"]
pub mod sql;
#[path = "../tokens.rs"]
pub mod tokens;
#[path = "../wasm.rs"]
pub mod wasm;
#[path = "../webhooks.rs"]
pub mod webhooks;
#[path = "../wire.rs"]
pub mod wire;

/// Writes seeds into the directory that `ORRERY_FUZZ_SEEDS` names, if it is set. Called before libFuzzer
/// reads its corpus, of which that directory is a part.
///
/// # Panics
/// When they cannot be written.
pub fn add_seeds(seeds: Vec<Vec<u8>>) {
    let Some(directory) = env::var_os("ORRERY_FUZZ_SEEDS").map(PathBuf::from) else { return };
    for (number, seed) in seeds.into_iter().enumerate() {
        let path = directory.join(format!("seed-{number}"));
        fs::write(&path, seed).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
}
