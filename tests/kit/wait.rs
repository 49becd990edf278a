//! Waits until a condition holds.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// How long a condition may take to come true. Only a hang takes longer, also on a machine that is
/// busy with other builds and tests.
pub const LIMIT: Duration = Duration::from_secs(300);

/// What an attempt to find something returns: a value, or why there is none yet.
pub trait Attempt {
    type Found;
    /// What the failure reports if nothing more is found.
    type Missing: Debug;

    fn outcome(self) -> Result<Self::Found, Self::Missing>;
}

/// Whether a condition holds.
impl Attempt for bool {
    type Found = ();
    type Missing = bool;

    fn outcome(self) -> Result<(), bool> {
        if self { Ok(()) } else { Err(false) }
    }
}

impl<T> Attempt for Option<T> {
    type Found = T;
    type Missing = Option<()>;

    fn outcome(self) -> Result<T, Option<()>> {
        self.ok_or(None)
    }
}

impl<T, E: Debug> Attempt for Result<T, E> {
    type Found = T;
    type Missing = E;

    fn outcome(self) -> Result<T, E> {
        self
    }
}

/// Tries until something is found, and returns it. Panics after [`LIMIT`].
#[track_caller]
pub fn wait_until<A: Attempt>(what: &str, attempt: impl FnMut() -> A) -> A::Found {
    wait_within(LIMIT, what, attempt)
}

/// As [`wait_until`], with another limit.
#[track_caller]
pub fn wait_within<A: Attempt>(
    limit: Duration,
    what: &str,
    mut attempt: impl FnMut() -> A,
) -> A::Found {
    let began = Instant::now();
    loop {
        match attempt().outcome() {
            Ok(found) => return found,
            Err(missing) => std::thread::sleep(pause(what, began, limit, &missing)),
        }
    }
}

/// As [`wait_until`], in a task: other tasks of its thread go on.
#[cfg(feature = "service")]
pub async fn wait_in_task<A: Attempt>(what: &str, mut attempt: impl FnMut() -> A) -> A::Found {
    let began = Instant::now();
    loop {
        match attempt().outcome() {
            Ok(found) => return found,
            Err(missing) => tokio::time::sleep(pause(what, began, LIMIT, &missing)).await,
        }
    }
}

/// How long to rest before the next attempt: a part of the time waited so far, so that what comes
/// soon is noticed at once, and a long wait takes little from the machine. Attempts that are
/// requests stay below the rate limit of a service with the default settings.
#[track_caller]
fn pause(what: &str, began: Instant, limit: Duration, missing: &impl Debug) -> Duration {
    let waited = began.elapsed();
    assert!(waited < limit, "waited {limit:?} until {what}; last seen: {missing:?}");
    (waited / 20).clamp(Duration::from_micros(50), Duration::from_millis(25))
}
