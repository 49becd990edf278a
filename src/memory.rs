//! What the compiler cannot check about memory: settings of the C library's allocator, and compiled code
//! that is taken into memory. The one module with unsafe code.
#![allow(unsafe_code)]

/// Larger pieces are asked of the operating system one by one, in bytes, and given back one by one. Ledgers
/// are smaller; long answers and modules that clients send are larger, and must not stay in the heaps of
/// all threads that ever held one.
#[cfg(target_env = "gnu")]
const ALONE: libc::c_int = 4 << 20;
/// Freed memory at the end of a heap that is kept, in bytes.
#[cfg(target_env = "gnu")]
const KEPT: libc::c_int = 128 << 20;

/// Lets freed memory stay with the process, up to 128 MiB of each heap. Buffers of a megabyte come and
/// go with every ledger; given back each time, their pages are cleared and mapped anew, which took a
/// twentieth of an import. To be called before other threads begin. Does nothing where the C library
/// is not glibc.
pub fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [(libc::M_MMAP_THRESHOLD, ALONE), (libc::M_TRIM_THRESHOLD, KEPT)] {
        // SAFETY: mallopt takes two numbers, touches nothing but the allocator's own settings, and takes
        // the allocator's lock for it (mallopt(3)). A value that it refuses changes nothing.
        unsafe { libc::mallopt(parameter, value) };
    }
}

/// Gives whole pages of freed memory that lie between used ones back to the operating system. Walks all heaps:
/// milliseconds for some hundred MiB. What is free at the end of a thread's heap stays, up to 64 MiB.
/// Does nothing where the C library is not glibc.
pub fn give_back_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes a number, touches nothing but pages that no allocation uses, and takes
    // the allocator's locks for it (malloc_trim(3)).
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Takes compiled code of a program into memory: bytes that [`wasmtime::Module::serialize`] made in this
/// process or an earlier one, whose digest the caller has compared with the one noted when they were
/// written.
///
/// # Errors
/// When the code is for another version or configuration of wasmtime, which it checks itself.
pub fn compiled_module(
    engine: &wasmtime::Engine,
    code: &[u8],
) -> wasmtime::Result<wasmtime::Module> {
    // SAFETY: the bytes were made by `serialize` and lie in a directory that only this program writes;
    // their digest says that nothing has changed since.
    unsafe { wasmtime::Module::deserialize(engine, code) }
}
