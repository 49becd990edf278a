//! The compiler of indexing programs as a program of its own, for tests without the service. Takes
//! the arguments of `orrery compile`, which does the same in the product. It is never installed.

use orrery_engine::compiler::{self, CompileFailure, INSTANCE_MEMORY, VERB};
use orrery_runtime::process::close_inherited_descriptors;

fn main() -> Result<(), CompileFailure> {
    close_inherited_descriptors();
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [VERB, INSTANCE_MEMORY, bytes] => compiler::run(bytes.parse().expect("a number of bytes")),
        _ => panic!("expected the arguments of `orrery {VERB}`: {arguments:?}"),
    }
}
