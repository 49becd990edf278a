//! The owners that wait for a free slot of the attempt budget, each with the servers to which it has
//! something to send.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use orrery_runtime::budget::Holder;

/// Owners that wait for a slot. They come in turns, so that one with many servers delays no other.
#[derive(Default)]
pub struct SlotQueue {
    servers: HashMap<Holder, VecDeque<Arc<str>>>,
    /// Owners in the order of their turns.
    turns: VecDeque<Holder>,
}

impl SlotQueue {
    /// Adds an owner that has something to send to a server.
    pub fn push(&mut self, owner: Holder, server: Arc<str>) {
        let servers = self.servers.entry(owner).or_default();
        if servers.is_empty() {
            self.turns.push_back(owner);
        }
        servers.push_back(server);
    }

    /// Takes the next owner and a server.
    pub fn pop(&mut self) -> Option<(Holder, Arc<str>)> {
        let owner = self.turns.pop_front()?;
        let servers = self.servers.get_mut(&owner)?;
        let server = servers.pop_front()?;
        if servers.is_empty() {
            self.servers.remove(&owner);
        } else {
            self.turns.push_back(owner);
        }
        Some((owner, server))
    }

    /// Number of owners that wait.
    pub fn owners(&self) -> usize {
        self.turns.len()
    }

    /// Removes all.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_come_in_turns() {
        let [ana, bob] = ["ana", "bob"].map(Holder::of);
        let mut queue = SlotQueue::default();
        for server in ["a", "b", "c"] {
            queue.push(ana, server.into());
        }
        queue.push(bob, "a".into());
        assert_eq!(queue.owners(), 2);
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        let expected = [(ana, "a"), (bob, "a"), (ana, "b"), (ana, "c")];
        assert_eq!(order, expected.map(|(owner, server)| (owner, server.into())));
        assert_eq!((queue.owners(), queue.pop()), (0, None));
    }
}
