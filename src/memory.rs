//! What the compiler cannot check about memory: settings of the C library's allocator, compiled code
//! that is taken into memory, and those functions of DuckDB's C API that its Rust API does not offer
//! ([`duckdb`]). The one module with unsafe code.
#![allow(unsafe_code)]

pub mod duckdb;

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

/// Takes compiled code of a program into memory: bytes that a compiler which this process started has
/// just answered, or that the caller has authenticated as such bytes of an earlier time.
///
/// # Errors
/// When the code is for another version or configuration of wasmtime, which it checks itself.
pub fn compiled_module(
    engine: &wasmtime::Engine,
    code: &[u8],
) -> wasmtime::Result<wasmtime::Module> {
    // SAFETY: the bytes were made by wasmtime's own serialization, in a process that this program started,
    // and nobody can have changed them since: they came through its pipe, or a code under a secret key
    // says so.
    unsafe { wasmtime::Module::deserialize(engine, code) }
}

#[cfg(test)]
pub(crate) mod raw_calls {
    //! System calls that no safe interface makes, for tests of what a confined process is refused.

    use std::io::{Error, Result};
    use std::os::fd::{AsRawFd, BorrowedFd};
    use std::ptr;

    /// `fcntl` with a command that takes a number.
    pub(crate) fn control(
        descriptor: BorrowedFd<'_>,
        command: libc::c_int,
        number: libc::c_int,
    ) -> Result<libc::c_int> {
        let locks = [libc::F_GETLK, libc::F_SETLK, libc::F_SETLKW, libc::F_OFD_SETLK];
        assert!(!locks.contains(&command), "its argument is a pointer");
        // SAFETY: the descriptor is open, and the argument is no pointer.
        match unsafe { libc::fcntl(descriptor.as_raw_fd(), command, number) } {
            -1 => Err(Error::last_os_error()),
            done => Ok(done),
        }
    }

    /// Maps a page of memory with this protection, and unmaps it.
    pub(crate) fn map_page(protection: libc::c_int) -> Result<()> {
        const PAGE: usize = 4096;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: the kernel chooses where the new mapping is, and nothing else knows of it.
        let page = unsafe { libc::mmap(ptr::null_mut(), PAGE, protection, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        // SAFETY: it was mapped just now, and nobody has seen it.
        unsafe { libc::munmap(page, PAGE) };
        Ok(())
    }
}
