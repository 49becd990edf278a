//! Where requests that read the store run.
//!
//! Handing a read to another thread and its answer back costs more than most reads: with a store
//! that answers at once, a request took 18 µs from memory, 20 µs when it read in place and 34 µs
//! when it went through `block_in_place`. So the API has a runtime of its own, whose threads read
//! in place, and which has [`SPARE_THREADS`] threads more than there may be readers: a thread is
//! always left for the sockets; how many read at a time is bounded by the budget of readers
//! ([`super::budgets`]). A runtime does not wake such a thread by itself while another one,
//! busy reading, is the last that looked at the sockets. Hence [`Watch`]: like the
//! monitor of Go's scheduler, it wakes a thread whenever reads last longer than a moment.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

/// Threads of the API's runtime that never read.
pub(super) const SPARE_THREADS: usize = 2;

/// How long a read may keep the sockets unattended.
const MOMENT: Duration = Duration::from_millis(2);

/// Moments without a read after which the watch sleeps until the next one.
const QUIET_MOMENTS: u32 = 50;

/// Knows whether requests read the store.
pub(super) struct Watch {
    reading: AtomicUsize,
    sleeps: AtomicBool,
    wake: Notify,
}

impl Default for Watch {
    fn default() -> Self {
        Self { reading: AtomicUsize::new(0), sleeps: AtomicBool::new(true), wake: Notify::new() }
    }
}

impl Watch {
    /// Runs `work`, which reads, on this thread.
    pub(super) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        let _reading = Counted::one_more(&self.reading);
        if self.sleeps.load(Ordering::Relaxed) {
            self.wake.notify_one();
        }
        work()
    }

    /// Keeps the sockets of `runtime` attended while reads last. Runs outside that runtime.
    pub(super) async fn keep(&self, runtime: &Handle) -> Infallible {
        loop {
            self.sleeps.store(true, Ordering::Relaxed);
            self.wake.notified().await;
            self.sleeps.store(false, Ordering::Relaxed);
            let mut quiet = 0;
            while quiet < QUIET_MOMENTS {
                tokio::time::sleep(MOMENT).await;
                if self.reading.load(Ordering::Relaxed) == 0 {
                    quiet += 1;
                    continue;
                }
                quiet = 0;
                // A thread must wake up to run this, and looks at the sockets afterwards.
                runtime.spawn(async {});
            }
        }
    }
}

/// One more of something, until it is dropped: also when work panics or a client goes away.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn one_more(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;

    use super::*;

    /// The claim that the whole arrangement rests on: while one read lasts, other sockets are
    /// served. Without the watch this test hangs at the first echo.
    #[test]
    fn sockets_are_attended_while_a_read_lasts() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let threads = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1 + SPARE_THREADS)
            .enable_all()
            .build()
            .unwrap();
        let outside = tokio::runtime::Runtime::new().unwrap();
        let watch = Arc::new(Watch::default());
        let (watching, handle) = (Arc::clone(&watch), threads.handle().clone());
        outside.spawn(async move { watching.keep(&handle).await });

        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        threads.spawn(async move {
            let mut socket = tokio::net::TcpStream::from_std(server).unwrap();
            let mut byte = [0];
            while socket.read(&mut byte).await.unwrap() > 0 {
                socket.write_all(&byte).await.unwrap();
            }
        });

        use std::io::{Read, Write};
        let (release, gate) = mpsc::channel::<()>();
        let (started, running) = mpsc::channel();
        threads.spawn(async move {
            let wait = move || {
                started.send(()).unwrap();
                gate.recv().unwrap();
            };
            watch.during(wait);
        });
        running.recv().unwrap();
        for number in 0..50 {
            client.write_all(&[number]).unwrap();
            let mut echo = [0];
            client.read_exact(&mut echo).unwrap();
            assert_eq!(echo, [number]);
        }
        release.send(()).unwrap();
    }
}
