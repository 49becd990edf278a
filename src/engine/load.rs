//! Loads compiled code. wasmtime executes what it loads without checking it, so this is unsafe.
#![allow(unsafe_code)]

/// Loads compiled code of a program. `code` must be bytes that a compiler process started by this
/// process has just returned, or bytes of that kind from an earlier time that the caller has
/// authenticated.
///
/// # Errors
/// When the code was compiled for another version or configuration of wasmtime, which wasmtime
/// checks.
pub fn compiled_module(
    engine: &wasmtime::Engine,
    code: &[u8],
) -> wasmtime::Result<wasmtime::Module> {
    // SAFETY: the bytes were serialised by wasmtime in a process that this program started, and
    // cannot have been changed since: they came through its pipe, or a message authentication code
    // under a secret key proves it.
    unsafe { wasmtime::Module::deserialize(engine, code) }
}
