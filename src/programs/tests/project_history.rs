//! What random histories of projects of events have in common: ledgers that arrive in any order, turns of the
//! projects while writes fail, and kills at any write.

use orrery_testkit::crash::Kill;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::events::owner;
use super::*;
use orrery_store::Retention;

/// The ledgers of a history as they are taken from the end: in the order of the chain, or, so often, in any.
pub(super) fn arriving(mut ledgers: Vec<u32>, shuffled: f64, rng: &mut ChaCha8Rng) -> Vec<u32> {
    match rng.random_bool(shuffled) {
        true => ledgers.shuffle(rng),
        false => ledgers.reverse(),
    }
    ledgers
}

/// A history of projects in one scene.
pub(super) trait ProjectHistory {
    fn parts(&mut self) -> (&mut Scene, &mut ChaCha8Rng);

    /// Stores so many of the ledgers that are missing at most.
    fn store(&mut self, most: usize);

    fn scene(&mut self) -> &mut Scene {
        self.parts().0
    }

    fn rng(&mut self) -> &mut ChaCha8Rng {
        self.parts().1
    }

    /// Starts again with the files that are there.
    fn go_on(&mut self) {
        self.scene().restart();
        self.scene().begin_reading_all();
    }

    fn any_project(&mut self) -> Option<ProgramId> {
        let ids: Vec<_> = self.scene().registry.all().iter().map(|entry| entry.id).collect();
        ids.choose(self.rng()).copied()
    }

    /// Adds one of these contracts to some project that does not have it; what is refused says why.
    fn append_one_of(&mut self, contracts: &[ContractId]) -> Result<(), ProgramError> {
        let Some(id) = self.any_project() else { return Ok(()) };
        let known = self.scene().manifest(id).contracts;
        let others: Vec<_> = contracts.iter().filter(|it| !known.contains(it)).collect();
        let Some(contract) = others.choose(self.rng()) else { return Ok(()) };
        self.scene().registry.append(&owner(), id, vec![**contract])?;
        self.scene().begin_reading(id);
        Ok(())
    }

    /// Removes raw ledgers, without which everything can still be read.
    fn prune(&mut self) {
        let raw_ledgers = Some(self.rng().random_range(0..30));
        let retention = Retention { raw_ledgers, ..Retention::default() };
        while !self.scene().store.prune(&retention).unwrap().is_nothing() {}
    }

    /// Gives a turn to some project.
    fn turn(&mut self) {
        let Some(id) = self.any_project() else { return };
        if self.rng().random() {
            self.scene().live.turn(id, Lane::Fast);
        } else {
            self.scene().backfills.turn(id);
        }
    }

    fn some_turns(&mut self) {
        for _ in 0..self.rng().random_range(0..10) {
            self.turn();
        }
    }

    /// Gives some turns, in which writes fail.
    fn failing_turns(&mut self) {
        let mut left = self.rng().random_range(0..3);
        let mut rng = ChaCha8Rng::seed_from_u64(self.rng().random());
        self.scene().store.faults().plan(move |_| {
            if left == 0 || rng.random_bool(0.8) {
                return None;
            }
            left -= 1;
            Some(if rng.random() { Fault::NotWritten } else { Fault::Written })
        });
        self.some_turns();
        self.scene().store.faults().clear();
    }

    /// As [`Self::kill_amid_writes`], with all before it on disk.
    fn kill_amid_turns(&mut self) -> bool {
        self.scene().store.flush().unwrap();
        self.kill_amid_writes()
    }

    /// Is killed at one of the writes while ledgers are stored and projects have their turns, and goes on;
    /// false if there are too few writes for that.
    fn kill_amid_writes(&mut self) -> bool {
        let at = (self.rng().random_range(0..6), self.rng().random());
        let scene = self.scene();
        let kill = Kill::plan(&scene.store, scene.directory.path(), at, || ());
        let most = self.rng().random_range(0..4);
        self.store(most);
        self.some_turns();
        let Some(files) = kill.files(&self.scene().store) else { return false };
        self.go_on_with(files);
        true
    }

    /// Goes on with files that a kill has left.
    fn go_on_with(&mut self, files: TempDir) {
        let scene = self.scene();
        scene.parts = None;
        scene.directory = files;
        self.go_on();
    }
}

impl Parts {
    pub(super) fn begin_reading_all(&self) {
        self.registry.all().iter().for_each(|entry| self.begin_reading(entry.id));
    }

    pub(super) fn is_stored(&self, ledger: u32) -> bool {
        self.store.range_of(LedgerSeq(ledger)).is_some()
    }

    /// Adds the ledgers that were stored and are lost, which come again.
    pub(super) fn add_lost(&self, known: impl Iterator<Item = u32>, missing: &mut Vec<u32>) {
        let is_lost = |it: &u32| !self.is_stored(*it) && !missing.contains(it);
        let lost: Vec<u32> = known.filter(is_lost).collect();
        missing.extend(lost);
    }

    /// Gives a turn to each project and its backfill, and returns whether any has more to do at once.
    pub(super) fn turn_all(&self) -> bool {
        let is_over =
            |turn| turn == Turn::Idle || matches!(turn, Turn::Later(wait) if !wait.is_zero());
        let mut busy = false;
        for entry in self.registry.all() {
            let turns = [self.live.turn(entry.id, Lane::Fast), self.backfills.turn(entry.id)];
            busy |= !turns.into_iter().all(is_over);
        }
        busy
    }
}
