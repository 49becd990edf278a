//! Injects panics in tests, into the threads and tasks of one service by their names. No setting, flag
//! or request can plan a panic, only a program that holds the service's health, as tests do. Without
//! a plan the cost is one atomic load.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// Planned panics; none unless a test plans some.
#[derive(Debug, Default)]
pub struct Injected {
    /// Whether a panic was ever planned.
    any: AtomicBool,
    /// Names of the threads and tasks that are to panic.
    planned: watch::Sender<BTreeSet<String>>,
}

impl Injected {
    /// Makes a thread or task panic once, at its next opportunity.
    pub fn plan(&self, name: &str) {
        // First, because those that the plan wakes look at it.
        self.any.store(true, Ordering::SeqCst);
        self.planned.send_modify(|planned| {
            planned.insert(name.to_owned());
        });
    }

    /// Returns whether a planned panic has not happened yet.
    pub fn is_planned(&self, name: &str) -> bool {
        self.planned.borrow().contains(name)
    }

    /// Panics if that is planned for `name`.
    pub fn panic_if(&self, name: &str) {
        if self.any.load(Ordering::SeqCst)
            && self.planned.send_if_modified(|planned| planned.remove(name))
        {
            panic!("injected into '{name}'");
        }
    }

    /// Panics as soon as that is planned for `name`; never ends otherwise.
    pub async fn panic_when(&self, name: &str) -> Infallible {
        let mut planned = self.planned.subscribe();
        loop {
            let is_planned = planned.borrow_and_update().contains(name);
            if is_planned {
                self.panic_if(name);
            }
            // Never fails: `self` keeps the sender.
            let _ = planned.changed().await;
        }
    }
}
