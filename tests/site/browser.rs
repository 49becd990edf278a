//! Runs the scripts that drive the browser.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

/// One browser at a time: several slow each other down until pages take longer than a test waits.
static ONE: Mutex<()> = Mutex::new(());

/// The directory with the browser's library. Prints a message and returns `None` when there is none,
/// because a skipped test must not look like one that ran.
pub fn modules() -> Option<PathBuf> {
    let modules = std::env::var_os("ORRERY_TEST_CHROMIUM").map(PathBuf::from);
    if modules.is_none() {
        println!("skipped: ORRERY_TEST_CHROMIUM names no directory");
    }
    modules
}

/// Runs a script of the directory `browser` and returns what it tells; `None` when there is no Node
/// or no browser. `more` are further members of the script's argument.
pub fn run(script: &str, base: &str, token: &str, more: Value) -> Option<Value> {
    let modules = modules()?;
    let mut argument = json!({ "modules": modules, "base": base, "token": token });
    let members = argument.as_object_mut().unwrap();
    members.extend(more.as_object().unwrap().clone());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/site/browser");
    let mut node = Command::new("node");
    node.arg(folder.join(script)).arg(argument.to_string());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let ran = match node.output() {
        Ok(ran) => ran,
        Err(error) => {
            println!("skipped: Node cannot be run: {error}");
            return None;
        }
    };
    let errors = String::from_utf8_lossy(&ran.stderr);
    if errors.contains("Executable doesn't exist")
        || errors.contains("spawn") && errors.contains("ENOENT")
    {
        println!("skipped: there is no Chromium: {errors}");
        return None;
    }
    assert!(ran.status.success(), "{script}: {errors}");
    Some(serde_json::from_slice(&ran.stdout).unwrap())
}

/// Asserts that nothing was complained of, and that nothing was asked of another server.
#[track_caller]
pub fn assert_quiet(told: &Value) {
    assert_eq!(told["complaints"], json!([]));
    assert!(told.get("foreign").is_none_or(|it| *it == json!([])), "{}", told["foreign"]);
}
