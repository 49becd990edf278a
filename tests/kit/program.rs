//! Programs that tests start: the binary under test, and those of `examples/`.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The binary under test: that of the tests' cargo, else the one beside the tests.
pub fn orrery() -> PathBuf {
    match std::env::var_os("CARGO_BIN_EXE_orrery") {
        Some(program) => program.into(),
        // Tests are in the directory `deps` beside it.
        None => std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("orrery"),
    }
}

/// Returns the path of a program in `directory` that starts `program` with a foreign file open, as
/// when another thread of the service has one open without close-on-exec.
pub fn with_foreign_file(program: &Path, directory: &Path) -> PathBuf {
    // Links, because a file that was just written cannot be executed while another thread forks.
    symlink(program, directory.join("orrery")).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("with_foreign_file.sh");
    let link = directory.join("with-foreign-file");
    symlink(script, &link).unwrap();
    link
}

/// Builds an example in the profile of the tests and returns the path of its executable, which only
/// cargo's output reveals. With `ORRERY_TEST_EXAMPLES` it is built already, and is in that directory: tests
/// that were copied run without cargo then.
pub fn example(name: &str) -> PathBuf {
    if let Some(directory) = std::env::var_os("ORRERY_TEST_EXAMPLES") {
        return Path::new(&directory).join(name);
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--locked", "--workspace", "--example", name, "--message-format", "json"]);
    // The variables that cargo sets for a test would make the nested cargo rebuild some libraries.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_") && !is_of_the_user(&text) {
            cargo.env_remove(name);
        }
    }
    let tests = std::env::current_exe().unwrap();
    if tests.components().any(|part| part.as_os_str() == "release") {
        cargo.arg("--release");
    }
    let built = cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let lines = String::from_utf8(built.stdout).unwrap();
    let messages = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = messages
        .filter(|message| message["target"]["name"] == name)
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    programs.next().expect("cargo names the program")
}

fn is_of_the_user(variable: &str) -> bool {
    matches!(variable, "CARGO_HOME" | "CARGO_TARGET_DIR" | "CARGO_BUILD_JOBS")
        || variable.starts_with("CARGO_PROFILE_")
}
