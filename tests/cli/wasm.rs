//! A compiler for WebAssembly, if one is configured: `ORRERY_TEST_WASM_RUSTC` names it, `WASM_LD`
//! its linker and `LD_LIBRARY_PATH` the directory of its libraries, as in
//! `tests/programs/rebuild.sh`. Projects are built with it as their authors would build them, with
//! cargo and make; their dependencies come from the registry.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use orrery_testkit::binary::Ran;

const NAMED_BY: &str = "ORRERY_TEST_WASM_RUSTC";

/// Wrapper around cargo that also builds the standard library, but only for the WebAssembly target.
const WITH_LIBRARY: &str = "#!/bin/sh
case \" $* \" in *' --target '*) export RUSTC_BOOTSTRAP=1 CARGO_UNSTABLE_BUILD_STD=core,alloc ;; esac
exec cargo \"$@\"
";

/// Environment variables that make cargo and make use the compiler.
pub struct Compiler(Vec<(&'static str, PathBuf)>);

/// Returns the compiler. Without one, prints that the test is skipped and returns `None`.
pub fn compiler() -> Option<Compiler> {
    let Some(rustc) = std::env::var_os(NAMED_BY).map(PathBuf::from) else {
        println!("skipped: {NAMED_BY} names no compiler for wasm32v1-none");
        return None;
    };
    let sysroot = Command::new(&rustc).args(["--print", "sysroot"]).output();
    let sysroot = sysroot.unwrap_or_else(|error| panic!("{}: {error}", rustc.display()));
    let sysroot =
        PathBuf::from(String::from_utf8(sysroot.stdout).unwrap().trim()).join("lib/rustlib");
    // Kept between runs, so that dependencies are built once.
    let own = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wasm");
    fs::create_dir_all(&own).unwrap();
    let mut variables = vec![("RUSTC", rustc), ("CARGO_TARGET_DIR", own.join("target"))];
    if !sysroot.join("wasm32v1-none").exists() {
        assert!(
            sysroot.join("src/rust/library/core/src/lib.rs").exists(),
            "{NAMED_BY} has neither a library for wasm32v1-none nor its source"
        );
        let cargo = own.join("cargo");
        fs::write(&cargo, WITH_LIBRARY).unwrap();
        fs::set_permissions(&cargo, Permissions::from_mode(0o755)).unwrap();
        variables.push(("CARGO", cargo));
    }
    if let Some(linker) = std::env::var_os("WASM_LD") {
        variables.push(("CARGO_TARGET_WASM32V1_NONE_LINKER", linker.into()));
    }
    Some(Compiler(variables))
}

impl Compiler {
    /// Makes the processes that a command starts use the compiler.
    pub fn apply(&self, command: &mut Command) {
        for of_another_build in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "MAKEFLAGS"] {
            command.env_remove(of_another_build);
        }
        for (name, value) in &self.0 {
            command.env(name, value);
        }
    }

    /// Runs `make` in a project.
    pub fn make(&self, project: &Path, arguments: &[&str]) -> Ran {
        let mut make = Command::new("make");
        make.args(arguments).current_dir(project);
        self.apply(&mut make);
        make.output().unwrap().into()
    }
}
