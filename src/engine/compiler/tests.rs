use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use super::*;
use crate::settings;

/// Compiles a module in this process, in place of the program that unit tests do not have.
pub fn compile_in_this_process(
    code: &[u8],
    instance_memory: usize,
) -> Result<Vec<u8>, EngineError> {
    let engine = wasmtime::Engine::new(&settings::compiling(instance_memory)).unwrap();
    engine.precompile_module(code).map_err(|error| EngineError::Compile(error.to_string()))
}

fn compile_with(script: &str, timeout: Duration) -> Result<Vec<u8>, EngineError> {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("compiler");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o700)).unwrap();
    let compiler = Compiler { timeout, ..Compiler::new(program, 64 << 20) };
    compiler.compile(&vec![7; 1 << 20])
}

fn answer(kind: ResponseKind, content: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    kind.write_response(&mut answer, content).unwrap();
    answer
}

fn parse_response(answer: Vec<u8>) -> Result<Vec<u8>, EngineError> {
    Compiler::new("compiler".into(), 64 << 20).parse_response(answer)
}

#[test]
fn complete_responses_are_parsed() {
    for kind in [ResponseKind::Compiled, ResponseKind::Unconfined] {
        assert_eq!(parse_response(answer(kind, b"code")).unwrap(), b"code");
    }
    let refused = parse_response(answer(ResponseKind::Refused, b"too\nbad")).unwrap_err();
    assert!(refused.is_about_the_module());
    assert_eq!(refused.to_string(), "the module cannot be compiled: too bad");
    let long =
        parse_response(answer(ResponseKind::Refused, &[b'a'; 5_000])).unwrap_err().to_string();
    assert!(long.len() < LONGEST_REASON + 100, "{}", long.len());
    assert!(
        !parse_response(answer(ResponseKind::Failed, b"no room"))
            .unwrap_err()
            .is_about_the_module()
    );
}

#[test]
fn truncated_and_malformed_responses_are_errors() {
    let whole = answer(ResponseKind::Compiled, b"code");
    let longer = [whole.as_slice(), b"!"].concat();
    let strange = [b"X".as_slice(), &whole[1..]].concat();
    let cut = (0..whole.len()).map(|end| whole[..end].to_vec());
    for bytes in cut.chain([longer, strange]) {
        assert!(matches!(parse_response(bytes), Err(EngineError::CompileLimits)));
    }
}

#[test]
fn failing_and_hanging_compilers_give_one_line_errors() {
    let soon = Duration::from_secs(60);
    let full = ["kill -XCPU $$", "kill -ABRT $$"];
    let others = ["exit 1", "kill -9 $$", "printf garbage", "exec <&-; exec >&-; exec sleep 300"];
    for script in full.into_iter().chain(others) {
        let begun = Instant::now();
        let error = compile_with(script, soon).unwrap_err();
        assert!(matches!(error, EngineError::CompileLimits), "{script}: {error}");
        assert!(error.is_about_the_module() && !error.to_string().contains('\n'), "{error}");
        assert!(begun.elapsed() < soon, "{script}");
    }
    let hangs = compile_with("exec sleep 300", Duration::from_millis(300)).unwrap_err();
    assert!(matches!(hangs, EngineError::CompileTime(_)), "{hangs}");
    let endless = compile_with("exec cat /dev/zero", soon).unwrap_err();
    assert!(matches!(endless, EngineError::CompiledSize(_)), "{endless}");
}

#[test]
fn a_missing_compiler_is_not_an_error_of_the_module() {
    let compiler = Compiler::new("/nonexistent/compiler".into(), 64 << 20);
    let error = compiler.compile(b"").unwrap_err();
    assert!(matches!(error, EngineError::Compiler(_)) && !error.is_about_the_module(), "{error}");
    assert_eq!(compiler.usage().taken, 0, "its place is free again");
}
