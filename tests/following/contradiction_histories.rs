//! Random histories of a store between an honest source, sources that lie, and another chain of the same
//! validators: ledgers from any of them, imports, retention, restarts, and kills at any write. A naive
//! model tells after each step which ledgers are stored and which contradiction is known: one that was
//! shown stays known until the contradicted ledger is attested or gone, until then nothing is stored that
//! is not attested, and no other is ever known.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use orrery::domain::LedgerSeq;
use orrery::pipeline::{Contradiction, Pipeline, PipelineError, Trust};
use orrery::store::{Durability, IndexOptions, Retention, Store};
use orrery_testkit::crash::{Kill, copied};
use orrery_testkit::forged::{Extent, Ledger, hash};
use orrery_testkit::histories;
use orrery_testkit::lake_files::Chain;
use orrery_testkit::scratch::scratch;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

use super::contradicted::{Unobserved, deliver_with, newest_attested, validators};
use super::lying::{drop_event, honest, keys, with_events};

const FIRST: u32 = 2;
const LAST: u32 = 34;
/// Organisations that must have signed after a ledger; their validators sign in turn, one of four.
const THRESHOLD: usize = 3;
/// Ledgers of which the lies are, or those after them that have events.
const LIES: [u32; 5] = [4, 7, 12, 18, 25];
const STEPS: u32 = 16;

/// A source with ledgers [`FIRST`] to [`LAST`].
struct Source {
    name: String,
    chain: Chain,
    /// Hash, hash of the one before, and the organisation that has signed, by sequence.
    known: BTreeMap<u32, Known>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    hash: [u8; 32],
    previous: [u8; 32],
    signer: Option<usize>,
}

impl Source {
    /// `signed` are the ledgers whose signature is that of a validator.
    fn new(name: &str, chain: Chain, signed: impl Fn(u32) -> bool) -> Self {
        let of = |sequence: u32| {
            let ledger = Ledger::read(chain.xdr(sequence)).unwrap();
            let header = &ledger.header.header;
            let known = Known {
                hash: hash(header).0,
                previous: header.previous_ledger_hash.0,
                signer: signed(sequence).then_some(sequence as usize % keys().len()),
            };
            (sequence, known)
        };
        let known = (FIRST..=LAST).map(of).collect();
        Self { name: name.to_owned(), chain, known }
    }
}

/// The honest source first; then one that goes on with its own ledgers after each lie, and another chain of
/// the same validators.
static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| {
    let chain = honest(LAST);
    let lie = |at: u32| {
        let at = with_events(&chain, at);
        let lying = chain.with_lie(at, Extent::HeaderHash, &|ledger| {
            drop_event(ledger);
        });
        // The signature does not cover what the lie is about.
        Source::new(&format!("liar{at}"), lying.forged(at + 1, &|_| ()), move |it| it <= at)
    };
    let mut sources: Vec<Source> = LIES.into_iter().map(lie).collect();
    sources.insert(0, Source::new("honest", chain, |_| true));
    let fork = Chain::with_market(2, LAST).signed_by(&keys());
    sources.push(Source::new("fork", fork, |_| true));
    sources
});

fn open(directory: &Path) -> (Arc<Store>, Pipeline) {
    let store = Arc::new(Store::open(directory, Some(&SOURCES[0].chain.network)).unwrap());
    let trust = Trust { validators: Some(validators()), ..Trust::default() };
    let options = IndexOptions { raw_ledgers: true, ..IndexOptions::default() };
    let pipeline = Pipeline::new(Arc::clone(&store), options, Arc::new(Unobserved));
    (store, pipeline.with_trust(trust))
}

/// What is expected of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Model {
    stored: BTreeMap<u32, Known>,
    contradiction: Option<Shown>,
}

/// A contradiction: its first and its last ledger, how many organisations have signed, and the hash of the
/// stored ledger before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shown {
    first: u32,
    last: u32,
    organisations: usize,
    stored: [u8; 32],
}

impl Model {
    fn latest(&self) -> Option<u32> {
        self.stored.keys().next_back().copied()
    }

    /// The newest ledger that enough organisations have signed after, among the stored ones and `more`.
    fn attested(&self, more: &[(u32, Known)]) -> u32 {
        let signers = |after: u32| -> BTreeSet<usize> {
            let stored = self.stored.iter().map(|(sequence, known)| (*sequence, *known));
            let later = stored.chain(more.iter().copied()).filter(|(it, _)| *it > after);
            later.filter_map(|(_, known)| known.signer).collect()
        };
        (FIRST..=LAST).rev().find(|it| signers(*it).len() >= THRESHOLD).unwrap_or(0)
    }

    /// Forgets the contradiction when it is settled.
    fn settle(&mut self) {
        let attested = self.attested(&[]);
        self.contradiction = self.contradiction.filter(|shown| {
            let before = shown.first - 1;
            let is_there = self.stored.get(&before).is_some_and(|it| it.hash == shown.stored);
            is_there && attested < before
        });
    }

    /// Delivers consecutive ledgers, which are not stored. Returns whether the source is refused.
    fn deliver(&mut self, ledgers: &[(u32, Known)]) -> Refused {
        let Some((first, begins)) = ledgers.first().copied() else { return Refused::No };
        let before = self.stored.get(&(first - 1)).copied();
        if let Some(before) = before.filter(|before| before.hash != begins.previous) {
            return self.contradict(before, ledgers);
        }
        for position in 0..ledgers.len() {
            let (sequence, known) = ledgers[position];
            // Those of one run are held together, up to where what waits does not follow any more.
            if self.contradiction.is_some() && self.attested(&ledgers[position..]) < sequence {
                return Refused::Unattested;
            }
            self.stored.insert(sequence, known);
            self.settle();
        }
        Refused::No
    }

    fn contradict(&mut self, before: Known, ledgers: &[(u32, Known)]) -> Refused {
        let (first, begins) = ledgers[0];
        // All chains close their ledgers at the same times, so each can be the one that its number says.
        let can_be = self.attested(&[]) < first - 1
            && self.stored.values().all(|it| it.hash != begins.previous);
        if !can_be {
            return Refused::Link;
        }
        let mut signers = BTreeSet::new();
        let mut count = 0;
        for (sequence, known) in ledgers {
            count += usize::from(known.signer.is_some());
            signers.extend(known.signer);
            if count >= 2 && signers.len() >= 2 {
                self.contradiction = Some(Shown {
                    first,
                    last: *sequence,
                    organisations: signers.len(),
                    stored: before.hash,
                });
                return Refused::Contradicted;
            }
        }
        Refused::Link
    }
}

/// Why the ledgers of a source are not all stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    No,
    Link,
    Unattested,
    Contradicted,
}

impl Refused {
    fn of(done: &Result<(), PipelineError>) -> Self {
        match done {
            Ok(()) => Self::No,
            Err(PipelineError::Contradicted(_)) => Self::Contradicted,
            Err(PipelineError::Unattested { .. }) => Self::Unattested,
            Err(PipelineError::Store { .. }) => Self::Link,
            Err(error) => panic!("{error}"),
        }
    }
}

struct World {
    rng: ChaCha8Rng,
    directory: TempDir,
    open: Option<(Arc<Store>, Pipeline)>,
    model: Model,
    /// What was certainly stored when the last synced write was over.
    durable: Option<u32>,
}

impl World {
    fn new(seed: u64) -> Self {
        let directory = scratch();
        let open = Some(open(directory.path()));
        let (rng, model) = (ChaCha8Rng::seed_from_u64(seed), Model::default());
        Self { rng, directory, open, model, durable: None }
    }

    fn store(&self) -> &Arc<Store> {
        &self.open.as_ref().unwrap().0
    }

    fn step(&mut self) {
        match self.rng.random_range(0..12) {
            0..6 => self.deliver(),
            6..9 => self.kill_amid(),
            9 => self.prune(),
            10 => {
                self.open = None;
                self.open = Some(open(self.directory.path()));
            }
            _ => {
                let left = copied(self.directory.path());
                let before = self.model.clone();
                self.go_on_with(left, &before);
            }
        }
        self.check();
    }

    /// The next ledgers of some source: of the one that was stored from last, mostly.
    fn choose(&mut self) -> (&'static Source, Vec<(u32, Known)>) {
        let next = self.model.latest().map_or(FIRST, |latest| latest + 1);
        let tip = self.model.latest().map(|latest| self.model.stored[&latest].hash);
        let of_tip: Vec<&Source> = SOURCES
            .iter()
            .filter(|it| {
                tip.is_none_or(|tip| {
                    it.known.get(&(next - 1)).is_some_and(|known| known.hash == tip)
                })
            })
            .collect();
        let source = match self.rng.random_bool(0.5) {
            true => *of_tip.choose(&mut self.rng).unwrap(),
            false => SOURCES.choose(&mut self.rng).unwrap(),
        };
        let count = self.rng.random_range(1..8);
        let ledgers = source.known.range(next..).take(count);
        (source, ledgers.map(|(sequence, known)| (*sequence, *known)).collect())
    }

    fn deliver(&mut self) {
        let (source, ledgers) = self.choose();
        let is_import = self.rng.random_bool(0.3);
        let done = self.run(source, &ledgers, is_import);
        let expected = self.model.deliver(&ledgers);
        assert_eq!(Refused::of(&done), expected, "{}: {ledgers:?}: {done:?}", source.name);
        if !is_import || done.is_ok() {
            self.durable = self.model.latest();
        }
    }

    fn run(
        &self,
        source: &Source,
        ledgers: &[(u32, Known)],
        is_import: bool,
    ) -> Result<(), PipelineError> {
        let (_, pipeline) = self.open.as_ref().unwrap();
        let raw = ledgers.iter().map(|(sequence, _)| source.chain.xdr(*sequence).to_vec());
        match is_import {
            true => deliver_with(
                &pipeline.background(),
                &source.name,
                raw.collect(),
                Durability::Deferred,
            ),
            false => deliver_with(pipeline, &source.name, raw.collect(), Durability::Synced),
        }
    }

    /// Is killed while it stores ledgers, or just before or after it records a contradiction.
    fn kill_amid(&mut self) {
        let (source, ledgers) = self.choose();
        let at = (self.rng.random_range(0..4), self.rng.random());
        let is_import = self.rng.random_bool(0.3);
        let kill = Kill::plan(self.store(), self.directory.path(), at, || ());
        let done = self.run(source, &ledgers, is_import);
        let before = self.model.clone();
        let expected = self.model.deliver(&ledgers);
        assert_eq!(Refused::of(&done), expected, "{}: {ledgers:?}: {done:?}", source.name);
        match kill.files(self.store()) {
            Some(files) => self.go_on_with(files, &before),
            None if !is_import || done.is_ok() => self.durable = self.model.latest(),
            None => {}
        }
    }

    /// Opens what a kill has left between the state `before` and that of the model.
    fn go_on_with(&mut self, files: TempDir, before: &Model) {
        self.open = None;
        self.directory = files;
        self.open = Some(open(self.directory.path()));
        let latest = self.store().ends().latest.map(|it| it.0);
        assert!(latest >= self.durable, "{latest:?}, and {:?} was durable", self.durable);
        assert!(latest <= self.model.latest());
        let mut left = self.model.clone();
        left.stored.retain(|sequence, _| latest.is_some_and(|latest| *sequence <= latest));
        let after = left.contradiction;
        left.settle();
        let shown = shown(self.store());
        if shown != left.contradiction {
            // The kill was before the new one was recorded.
            left.contradiction = before.contradiction;
            left.settle();
            assert!(after != before.contradiction, "{before:?}");
        }
        self.model = left;
        self.durable = latest;
    }

    fn prune(&mut self) {
        let mut kept = || self.rng.random_bool(0.7).then(|| self.rng.random_range(0..LAST));
        let (raw_ledgers, events, transactions) = (kept(), kept(), kept());
        let retention = Retention { raw_ledgers, events, transactions, ..Retention::default() };
        while !self.store().prune(&retention).unwrap().is_nothing() {}
    }

    fn check(&self) {
        let store = self.store();
        let latest = store.ends().latest.map(|it| it.0);
        assert_eq!(latest, self.model.latest());
        for (sequence, known) in &self.model.stored {
            let row = store.ledger(LedgerSeq(*sequence)).unwrap().unwrap();
            assert_eq!(row.hash.0, known.hash, "ledger {sequence}");
        }
        assert_eq!(shown(store), self.model.contradiction, "{:?}", self.model);
        let attested = latest.and_then(|_| newest_attested(store).ok());
        assert_eq!(attested.map_or(0, |it| it.0), self.model.attested(&[]));
    }
}

fn shown(store: &Store) -> Option<Shown> {
    let found = Contradiction::of(store, Some(&validators()))?;
    let mut stored = [0; 32];
    for (at, byte) in stored.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&found.stored[2 * at..2 * at + 2], 16).unwrap();
    }
    let (first, last, organisations) = (found.first, found.last, found.signers.len());
    Some(Shown { first, last, organisations, stored })
}

/// Small: 60 histories; full: 20,000.
#[test]
fn a_contradiction_is_known_from_when_it_is_shown_until_it_is_settled() {
    LazyLock::force(&SOURCES);
    histories::run(60, 20_000, |seed| {
        let mut world = World::new(seed);
        (0..STEPS).for_each(|_| world.step());
    });
}
