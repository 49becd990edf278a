//! How much of something costly is done at a time, for all owners and for one.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::domain::Owner;

/// Room for so much at a time.
pub(super) struct Room {
    most: usize,
    of_one: usize,
    taken: Arc<Taken>,
}

#[derive(Default)]
struct Taken {
    by: Mutex<Vec<Owner>>,
    /// Somebody has left.
    freed: Condvar,
}

/// Room for one of it, until this is dropped.
pub(super) struct Place {
    owner: Owner,
    taken: Arc<Taken>,
}

impl Room {
    /// For at `most` so many, and so many `of_one` owner.
    pub(super) fn new(most: usize, of_one: usize) -> Self {
        Self { most, of_one, taken: Arc::default() }
    }

    /// A place, if there is one now.
    pub(super) fn place(&self, owner: &Owner) -> Option<Place> {
        self.place_in(&mut self.taken.by.lock(), owner)
    }

    /// A place, if there is one before `until`.
    pub(super) fn wait(&self, owner: &Owner, until: Instant) -> Option<Place> {
        let mut taken = self.taken.by.lock();
        loop {
            if let Some(place) = self.place_in(&mut taken, owner) {
                return Some(place);
            }
            if self.taken.freed.wait_until(&mut taken, until).timed_out() {
                return self.place_in(&mut taken, owner);
            }
        }
    }

    fn place_in(&self, taken: &mut Vec<Owner>, owner: &Owner) -> Option<Place> {
        let own = taken.iter().filter(|other| *other == owner).count();
        if taken.len() >= self.most || own >= self.of_one {
            return None;
        }
        taken.push(owner.clone());
        Some(Place { owner: owner.clone(), taken: Arc::clone(&self.taken) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.taken.by.lock();
        if let Some(place) = taken.iter().position(|owner| *owner == self.owner) {
            taken.swap_remove(place);
        }
        self.taken.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn there_is_room_for_some_of_all_and_fewer_of_one() {
        let room = Room::new(3, 2);
        let [ana, bob, eve] = ["ana", "bob", "eve"].map(|name| Owner(name.to_owned()));
        let first = room.place(&ana).unwrap();
        let _second = room.place(&ana).unwrap();
        assert!(room.place(&ana).is_none());
        let _third = room.place(&bob).unwrap();
        assert!(room.place(&eve).is_none());
        drop(first);
        assert!(room.place(&eve).is_some());
        assert!(room.place(&ana).is_some());
    }

    #[test]
    fn who_waits_gets_a_place_when_one_is_free() {
        let room = Room::new(1, 1);
        let [ana, bob] = ["ana", "bob"].map(|name| Owner(name.to_owned()));
        let first = room.place(&ana);
        assert!(room.wait(&bob, Instant::now()).is_none());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| room.wait(&bob, Instant::now() + Duration::from_secs(60)));
            drop(first);
            assert!(waits.join().unwrap().is_some());
        });
    }
}
