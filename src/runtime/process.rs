//! Settings of this process that only unsafe calls can change: those of the C library's allocator, and
//! inherited descriptors.
#![allow(unsafe_code)]

#[cfg(target_env = "gnu")]
use std::hint::black_box;
#[cfg(target_env = "gnu")]
use std::num::NonZero;
#[cfg(target_env = "gnu")]
use std::sync::mpsc;
#[cfg(target_env = "gnu")]
use std::thread;

#[cfg(target_env = "gnu")]
use parking_lot::Mutex;

/// Size in bytes from which an allocation is mapped separately (`M_MMAP_THRESHOLD`) and returned to
/// the operating system when it is freed. Ledgers are smaller. Long responses and uploaded modules
/// are larger; they must not stay in the heap of every thread that ever held one.
#[cfg(target_env = "gnu")]
const MMAP_THRESHOLD: libc::c_int = 4 << 20;
/// Freed bytes at the end of a heap that are kept instead of returned (`M_TRIM_THRESHOLD`).
#[cfg(target_env = "gnu")]
const TRIM_THRESHOLD: libc::c_int = 128 << 20;

/// Freed bytes at the end of a heap from which they are returned while memory is given back.
#[cfg(target_env = "gnu")]
const GIVEN_BACK: libc::c_int = 1 << 20;
/// Size in bytes of a freed chunk after which glibc looks at the end of its heap: twice the smallest
/// (`FASTBIN_CONSOLIDATION_THRESHOLD` in malloc.c).
#[cfg(target_env = "gnu")]
const FREED_CHUNK: usize = 128 << 10;
/// Maximum number of threads that free such a chunk at the same time.
#[cfg(target_env = "gnu")]
const MOST_THREADS: usize = 64;

/// Configures the allocator to keep up to 128 MiB of freed memory per heap. Buffers of a megabyte
/// are allocated and freed with every ledger; returning them each time means that the kernel clears
/// and maps their pages again, which took a twentieth of the time of an import. Must be called
/// before other threads start. Does nothing where the C library is not glibc.
pub fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in
        [(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD), (libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD)]
    {
        set_allocator(parameter, value);
    }
}

/// Returns freed memory to the operating system: pages between used ones, and what is free at the end
/// of the heaps. Walks all heaps, which takes milliseconds for some hundred MiB. Does nothing where the
/// C library is not glibc.
pub fn give_back_freed_memory() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: malloc_trim takes an integer, touches only pages that no allocation uses, and takes
        // the allocator's locks for it (malloc_trim(3)).
        unsafe {
            libc::malloc_trim(0);
        }
        set_allocator(libc::M_TRIM_THRESHOLD, GIVEN_BACK);
        free_in_each_heap();
        set_allocator(libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD);
    }
}

#[cfg(target_env = "gnu")]
fn set_allocator(parameter: libc::c_int, value: libc::c_int) {
    // SAFETY: mallopt takes two integers, changes only the allocator's own settings, and takes the
    // allocator's lock for it (mallopt(3)). A value that it rejects changes nothing.
    unsafe { libc::mallopt(parameter, value) };
}

/// Frees a chunk in each heap, upon which glibc returns what is free at its end: `malloc_trim` does not
/// for the heaps of threads, each of which would keep up to 64 MiB.
///
/// There are eight heaps for each processor (mallopt(3), `M_ARENA_MAX`). A new thread gets one that no
/// thread has, else a new one, else the next in turn: among twice as many threads are all heaps. With
/// more than four processors a call reaches some of them, and the next call the next ones.
#[cfg(target_env = "gnu")]
fn free_in_each_heap() {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = (2 * 8 * processors).min(MOST_THREADS);
    let (freed, each_freed) = mpsc::channel();
    let until_all_have = Mutex::new(());
    thread::scope(|scope| {
        let all_have = until_all_have.lock();
        let mut started = 0;
        for _ in 0..threads {
            let (freed, until_all_have) = (freed.clone(), &until_all_have);
            let thread = thread::Builder::new().name("give-back".to_owned());
            let has_started = thread.stack_size(FREED_CHUNK).spawn_scoped(scope, move || {
                drop(black_box(Vec::<u8>::with_capacity(FREED_CHUNK)));
                // Nobody receives it only if this thread is late, which changes nothing.
                let _ = freed.send(());
                // A thread that ends leaves its heap to the next one.
                drop(until_all_have.lock());
            });
            if has_started.is_err() {
                break;
            }
            started += 1;
        }
        each_freed.iter().take(started).for_each(drop);
        drop(all_have);
    });
}

/// First descriptor after the standard streams.
#[cfg(target_os = "linux")]
const FIRST_OTHER_DESCRIPTOR: libc::c_uint = 3;

/// Marks all descriptors above standard error as close-on-exec, so that child processes do not
/// inherit what this process inherited: the shell that started it may hold a lock or a log open.
/// Does nothing on kernels before 5.11 (close_range(2), `CLOSE_RANGE_CLOEXEC`).
pub fn keep_descriptors_from_children() {
    #[cfg(target_os = "linux")]
    {
        let last = libc::c_uint::MAX;
        // SAFETY: the call takes three integers and sets a flag of descriptors; it closes none.
        unsafe {
            libc::syscall(
                libc::SYS_close_range,
                FIRST_OTHER_DESCRIPTOR,
                last,
                libc::CLOSE_RANGE_CLOEXEC,
            )
        };
    }
}

/// Closes all descriptors above standard error. For a child process, before it opens any file of
/// its own: RocksDB opens a directory without close-on-exec before it writes a table file, and a
/// child process that is started in that moment inherits it. A child process that finds a foreign
/// file refuses to be confined. Does nothing on kernels before 5.9 (close_range(2)).
pub fn close_inherited_descriptors() {
    #[cfg(target_os = "linux")]
    {
        let (last, no_flags): (libc::c_uint, libc::c_uint) = (libc::c_uint::MAX, 0);
        // SAFETY: the call takes three integers. No value of this process owns one of the
        // descriptors: the process has opened none yet, and nothing of it uses inherited ones.
        unsafe { libc::syscall(libc::SYS_close_range, FIRST_OTHER_DESCRIPTOR, last, no_flags) };
    }
}

#[cfg(test)]
pub(crate) mod raw_calls {
    //! System calls that have no safe interface, for tests of what a confined process may not do.

    use std::io::{Error, Result};
    use std::os::fd::{AsRawFd, BorrowedFd};
    use std::ptr;

    /// Calls `fcntl` with a command that takes a number.
    pub(crate) fn control(
        descriptor: BorrowedFd<'_>,
        command: libc::c_int,
        number: libc::c_int,
    ) -> Result<libc::c_int> {
        let locks = [libc::F_GETLK, libc::F_SETLK, libc::F_SETLKW, libc::F_OFD_SETLK];
        assert!(!locks.contains(&command), "its argument is a pointer");
        // SAFETY: the descriptor is open, and the argument is not a pointer.
        match unsafe { libc::fcntl(descriptor.as_raw_fd(), command, number) } {
            -1 => Err(Error::last_os_error()),
            done => Ok(done),
        }
    }

    /// Maps a page of memory with this protection and unmaps it again.
    pub(crate) fn map_page(protection: libc::c_int) -> Result<()> {
        const PAGE: usize = 4096;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: the kernel chooses an unused address for the new mapping.
        let page = unsafe { libc::mmap(ptr::null_mut(), PAGE, protection, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        // SAFETY: the page was mapped above, and nothing refers to it.
        unsafe { libc::munmap(page, PAGE) };
        Ok(())
    }
}
