//! Random histories of a store whose ledgers several validators have signed: any order with gaps and
//! joins, ledgers that are stored again, other trusted validators, prunes, restarts and crashes.
//! After each step, what is attested is what a naive model says, which keeps every signature.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use orrery_ledger::decode::decode;
use orrery_ledger::domain::{LedgerRange, LedgerSeq, NodeId};
use orrery_ledger::validators::{Organisation, Signed, Unattested, Validators};
use orrery_ledger::verify::{Policy, verify};
use orrery_store::{Committed, Durability, PreparedLedger, Retention, Store};
use orrery_testkit::crash::copied;
use orrery_testkit::forged::{Extent, Ledger, forgers_key};
use orrery_testkit::histories;
use orrery_testkit::sandbox::{ledgers, local, sandbox};
use orrery_testkit::scratch::scratch;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

use crate::everything;

/// Sequences of the chain.
const FIRST: u32 = 2;
const LEDGERS: u32 = 26;
const LAST: u32 = FIRST + LEDGERS - 1;

/// Number of keys that sign; the last two are never trusted.
const KEYS: u8 = 8;

/// Number of steps of a history.
const STEPS: u32 = 30;

/// The ledgers before they are signed again.
static CHAIN: LazyLock<Vec<Ledger>> = LazyLock::new(|| {
    let made = ledgers(sandbox(5, 0..=1).with_milliseconds(LedgerSeq(9), 3), LEDGERS);
    made.iter().map(|raw| Ledger::read(raw).unwrap()).collect()
});

fn key(number: u8) -> NodeId {
    NodeId(forgers_key(number).verifying_key().to_bytes())
}

/// Signs each ledger with any key, and links them.
fn signed_chain(rng: &mut ChaCha8Rng) -> Vec<Vec<u8>> {
    let mut previous = None;
    let sign = |ledger: &Ledger| {
        let mut ledger = ledger.clone();
        if let Some(hash) = &previous {
            ledger.link_to(hash);
        }
        let key = forgers_key(rng.random_range(0..KEYS));
        ledger.make_right(Extent::Signature, local().id(), &key);
        previous = Some(ledger.header.hash.clone());
        ledger.encode()
    };
    CHAIN.iter().map(sign).collect()
}

/// Trusts some of the first six keys, in organisations of one to three.
fn any_validators(rng: &mut ChaCha8Rng) -> Validators {
    let mut organisations: Vec<Organisation> = Vec::new();
    for number in 0..KEYS - 2 {
        if rng.random_bool(0.2) && !organisations.is_empty() {
            continue;
        }
        match organisations.last_mut() {
            Some(last) if last.validators.len() < 3 && rng.random_bool(0.4) => {
                last.validators.push(key(number));
            }
            _ => organisations
                .push(Organisation { name: number.to_string(), validators: vec![key(number)] }),
        }
    }
    let threshold = rng.random_range(1..=organisations.len());
    Validators::new(organisations, threshold).unwrap()
}

/// Ledgers that are stored, and every signature that is recorded of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Model {
    stored: BTreeSet<u32>,
    signatures: BTreeSet<(u32, NodeId)>,
}

impl Model {
    /// The runs of consecutive ledgers.
    fn ranges(&self) -> Vec<LedgerRange> {
        let mut ranges: Vec<LedgerRange> = Vec::new();
        for &ledger in &self.stored {
            match ranges.last_mut() {
                Some(last) if last.last.0 + 1 == ledger => last.last.0 = ledger,
                _ => ranges.push(LedgerRange::only(ledger)),
            }
        }
        ranges
    }

    /// The newest ledger of a range for which enough organisations have signed a later ledger of it.
    fn attested(
        &self,
        range: LedgerRange,
        validators: &Validators,
    ) -> Result<LedgerSeq, Unattested> {
        let since = |first: u32| {
            let by = |organisation: &&Organisation| {
                let signatures = self.signatures.iter();
                signatures
                    .filter(|(at, _)| *at >= first && *at <= range.last.0)
                    .any(|(_, signer)| organisation.validators.contains(signer))
            };
            validators.organisations().iter().filter(by).count()
        };
        let needed = validators.threshold();
        let mut newest_first = (range.first.0..=range.last.0).rev();
        newest_first.find(|ledger| since(ledger + 1) >= needed).map(LedgerSeq).ok_or_else(|| {
            match since(range.first.0) {
                signed if signed < needed => Unattested::TooFew { signed, needed },
                _ => Unattested::OnlyEarlier,
            }
        })
    }

    fn expected(&self, validators: &Validators) -> Vec<Found> {
        let of = |range: LedgerRange| {
            let within = self.signatures.iter().filter(|(at, _)| range.contains(LedgerSeq(*at)));
            // Ascending, so that the newest ledger of a validator stays.
            let newest = within.map(|(ledger, signer)| (*signer, LedgerSeq(*ledger))).collect();
            (range, newest, self.attested(range, validators))
        };
        self.ranges().into_iter().map(of).collect()
    }
}

/// A range, the newest ledger that each validator has signed in it, and the newest attested one.
type Found = (LedgerRange, BTreeMap<NodeId, LedgerSeq>, Result<LedgerSeq, Unattested>);

fn found((range, signed): (LedgerRange, Signed), validators: &Validators) -> Found {
    (range, signed.iter().collect(), validators.attested(range, &signed))
}

struct World {
    rng: ChaCha8Rng,
    chain: Vec<Vec<u8>>,
    validators: Validators,
    directory: TempDir,
    /// `None` only while the store is opened again.
    store: Option<Store>,
    /// The state after each write.
    states: Vec<Model>,
    /// The first of them that a crash may bring back.
    durable: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let directory = scratch();
        let store = Store::open(directory.path(), Some(&local())).unwrap();
        Self {
            chain: signed_chain(&mut rng),
            validators: any_validators(&mut rng),
            rng,
            directory,
            store: Some(store),
            states: vec![Model::default()],
            durable: 0,
        }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn state(&self) -> &Model {
        self.states.last().unwrap()
    }

    fn step(&mut self) {
        match self.rng.random_range(0..20) {
            0..=11 => self.commit(),
            12 => {
                self.store().flush().unwrap();
                self.durable = self.states.len() - 1;
            }
            13 | 14 => self.prune(),
            15 => self.trust_others(),
            16 | 17 => self.open_again(),
            _ => self.crash(),
        }
        self.compare();
    }

    /// A ledger as the pipeline prepares it; one that was stored before signatures were recorded, if
    /// `is_old`. Returns its trusted signer.
    fn prepare(&self, ledger: u32, is_old: bool) -> (PreparedLedger, Option<NodeId>) {
        let network = local();
        let raw = &self.chain[(ledger - FIRST) as usize];
        let view = decode(raw, network.id()).unwrap();
        let signer = verify(&view, network.id(), Policy::default()).unwrap().signer;
        let is_trusted = |it: &NodeId| !is_old && self.validators.organisation_of(it).is_some();
        let signer = signer.filter(is_trusted);
        (PreparedLedger::new(&view, &everything()).unwrap().signed_by(signer), signer)
    }

    /// Stores some consecutive ledgers, in either direction; some may be stored already.
    fn commit(&mut self) {
        let first = self.rng.random_range(FIRST..=LAST);
        let last = (first + self.rng.random_range(0..4)).min(LAST);
        let mut wanted: Vec<u32> = (first..=last).collect();
        if self.rng.random_bool(0.3) {
            wanted.reverse();
        }
        let is_old = self.rng.random_bool(0.15);
        let mut state = self.state().clone();
        let (mut prepared, mut expected) = (Vec::new(), Vec::new());
        for ledger in wanted {
            let (ready, signer) = self.prepare(ledger, is_old);
            let is_new = state.stored.insert(ledger);
            expected.push(if is_new { Committed::New } else { Committed::AlreadyStored });
            state.signatures.extend(signer.map(|signer| (ledger, signer)));
            prepared.push(ready);
        }
        let is_synced = self.rng.random_bool(0.4);
        let durability = if is_synced { Durability::Synced } else { Durability::Deferred };
        let (outcomes, done) = self.store().commit_all(prepared, durability);
        done.unwrap();
        assert_eq!(outcomes, expected);
        self.states.push(state);
        if is_synced {
            self.durable = self.states.len() - 1;
        }
    }

    fn prune(&mut self) {
        let mut kept = || self.rng.random_bool(0.7).then(|| self.rng.random_range(1..LEDGERS));
        let retention = Retention {
            raw_ledgers: kept(),
            events: kept(),
            transactions: kept(),
            ..Retention::default()
        };
        while !self.store().prune(&retention).unwrap().is_nothing() {}
    }

    /// Trusts other validators, and reads what they have signed from the raw ledgers that are left.
    fn trust_others(&mut self) {
        self.validators = any_validators(&mut self.rng);
        let mut state = self.state().clone();
        state.signatures.retain(|(_, signer)| self.validators.organisation_of(signer).is_some());
        for &ledger in &state.stored {
            if self.store().raw_ledger(LedgerSeq(ledger)).unwrap().is_some() {
                let signer = self.prepare(ledger, false).1;
                state.signatures.extend(signer.map(|signer| (ledger, signer)));
            }
        }
        let goes_on = |_: &_| ControlFlow::Continue(());
        let found =
            self.store().find_signatures(&self.validators, Policy::default(), None, goes_on);
        self.store().record_signatures(&found.unwrap().unwrap()).unwrap();
        self.states.push(state);
        self.durable = self.states.len() - 1;
    }

    fn open_again(&mut self) {
        drop(self.store.take());
        self.store = Some(Store::open(self.directory.path(), Some(&local())).unwrap());
        self.durable = self.states.len() - 1;
    }

    /// Goes on with what is on disk at this moment: the state after some write that followed the last
    /// durable one.
    fn crash(&mut self) {
        let copy = copied(self.directory.path());
        drop(self.store.take());
        self.directory = copy;
        let store = Store::open(self.directory.path(), Some(&local())).unwrap();
        let signed = store.signed().into_iter();
        let left: Vec<Found> = signed.map(|range| found(range, &self.validators)).collect();
        let is_left = |state: &Model| state.expected(&self.validators) == left;
        let at = (self.durable..self.states.len()).rev().find(|at| is_left(&self.states[*at]));
        let at = at.unwrap_or_else(|| panic!("no state after {} is {left:?}", self.durable));
        self.states.truncate(at + 1);
        self.durable = at;
        self.store = Some(store);
    }

    fn compare(&mut self) {
        // Those of a step's own, and others, under which the same signatures count otherwise.
        let threshold = self.rng.random_range(1..=self.validators.organisations().len());
        let organisations = self.validators.organisations().to_vec();
        let other = Validators::new(organisations, threshold).unwrap();
        for validators in [&self.validators, &other] {
            let expected = self.state().expected(validators);
            let newest = self.store().newest_signed().map(|range| found(range, validators));
            assert_eq!(newest.as_ref(), expected.last());
            let signed = self.store().signed().into_iter();
            let all: Vec<Found> = signed.map(|range| found(range, validators)).collect();
            assert_eq!(all, expected, "{:?}", self.state());
        }
    }
}

/// Small: 60 histories; full: 5,000.
#[test]
fn what_is_attested_follows_from_all_signatures_of_a_range() {
    // Ranges at the end of a history: attested, signed by too few, and attested only before.
    let counts = [const { AtomicU64::new(0) }; 3];
    histories::run(60, 5_000, |seed| {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        for (range, signed) in world.store().signed() {
            let kind = match world.validators.attested(range, &signed) {
                Ok(_) => 0,
                Err(Unattested::TooFew { .. }) => 1,
                Err(Unattested::OnlyEarlier) => 2,
            };
            counts[kind].fetch_add(1, Ordering::Relaxed);
        }
    });
    if std::env::var_os("ORRERY_TEST_SEED").is_none() {
        assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) > 0), "{counts:?}");
    }
}
