//! Forged ledgers on their way into a store: ledgers with one thing changed, and every hash above it made
//! right again as far as a forger can, who then goes on with ledgers of its own. The forger is the only
//! source, or the one that is asked beside an honest one. None of its ledgers is attested, none shows a
//! contradiction, and the honest source is blamed for nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};

use orrery::decode::decode;
use orrery::domain::LedgerSeq;
use orrery::pipeline::{Contradiction, Pipeline, PipelineError, Trust};
use orrery::store::{IndexOptions, Store};
use orrery_testkit::crash::copied;
use orrery_testkit::forged::{Extent, Ledger, forgers_key};
use orrery_testkit::forgeries::{CHANGES, apply};
use orrery_testkit::histories;
use orrery_testkit::lake_files::Chain;
use orrery_testkit::scratch::scratch;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use stellar_xdr::{
    LedgerCloseMeta, LedgerScpMessages, Limits, ReadXdr, ScpHistoryEntry, ScpHistoryEntryV0,
    TransactionResult, VecM, WriteXdr,
};
use tempfile::TempDir;

use super::contradicted::{Unobserved, deliver, newest_attested, validators};
use super::lying::honest;

/// Newest ledger of the honest chain, and the newest that is stored before the forger is asked.
const LAST: u32 = 48;
const STORED: u32 = 40;
/// Number of newest stored ledgers that are not attested yet.
const UNATTESTED: u32 = 3;
/// Forged ledgers of one history, which go into the same store as long as it takes none of them.
const PER_HISTORY: usize = 20;

static HONEST: LazyLock<Chain> = LazyLock::new(|| honest(LAST));

/// A directory with the honest ledgers up to [`STORED`].
static STORED_HONEST: LazyLock<TempDir> = LazyLock::new(|| {
    let directory = scratch();
    let (_store, pipeline) = open(directory.path(), false);
    deliver(&pipeline, "honest", raw(2..=STORED)).unwrap();
    drop((_store, pipeline));
    directory
});

fn raw(ledgers: std::ops::RangeInclusive<u32>) -> Vec<Vec<u8>> {
    ledgers.map(|ledger| HONEST.xdr(ledger).to_vec()).collect()
}

fn open(directory: &Path, require_attested: bool) -> (Arc<Store>, Pipeline) {
    let store = Arc::new(Store::open(directory, Some(&HONEST.network)).unwrap());
    let trust = Trust { validators: Some(validators()), require_attested, ..Trust::default() };
    let options = IndexOptions { raw_ledgers: true, ..IndexOptions::default() };
    let pipeline = Pipeline::new(Arc::clone(&store), options, Arc::new(Unobserved));
    (store, pipeline.with_trust(trust))
}

/// What became of a forger's ledgers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    /// The forged ledger was refused.
    Refused,
    /// It is stored, and never attested.
    Unattested,
}

/// A store that a forger's ledgers go into.
struct Scene {
    rng: StdRng,
    require_attested: bool,
    directory: TempDir,
    open: Option<(Arc<Store>, Pipeline)>,
}

impl Scene {
    fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let require_attested = rng.random_bool(0.3);
        let mut scene = Self { rng, require_attested, directory: scratch(), open: None };
        scene.begin_again();
        scene
    }

    /// Goes on with what the honest source has delivered, and nothing else.
    fn begin_again(&mut self) {
        self.open = None;
        self.directory = copied(STORED_HONEST.path());
        self.open = Some(open(self.directory.path(), self.require_attested));
    }

    fn store(&self) -> &Store {
        &self.open.as_ref().unwrap().0
    }

    fn deliver(&self, name: &str, ledgers: Vec<Vec<u8>>) -> Result<(), PipelineError> {
        deliver(&self.open.as_ref().unwrap().1, name, ledgers)
    }

    fn latest(&self) -> u32 {
        self.store().ends().latest.unwrap().0
    }

    fn attested(&self) -> LedgerSeq {
        newest_attested(self.store()).unwrap()
    }

    /// The first ledger of a forger and those with which it goes on, and what it did.
    fn forged(&mut self) -> (Vec<Vec<u8>>, Extent, String) {
        loop {
            let change = *CHANGES.choose(&mut self.rng).unwrap();
            let extent = Extent::ALL[self.rng.random_range(0..Extent::ALL.len())];
            // The next ledger, or another with its number and its place in the chain.
            let next = Ledger::read(HONEST.xdr(STORED + 1)).unwrap();
            let mut ledger = next.clone();
            let of = self.rng.random_range(3..=LAST);
            if self.rng.random_bool(0.3) {
                ledger = Ledger::read(HONEST.xdr(of)).unwrap();
                ledger.header.header.ledger_seq = STORED + 1;
                ledger.header.header.scp_value.close_time =
                    next.header.header.scp_value.close_time.clone();
                ledger.link_to(&next.header.header.previous_ledger_hash);
            }
            let before = ledger.clone();
            let other = Ledger::read(HONEST.xdr(self.rng.random_range(3..=LAST))).unwrap();
            if ledger.applied.is_empty()
                || apply(change, &mut ledger, &other, &mut self.rng).is_none()
            {
                continue;
            }
            if ledger == before {
                continue;
            }
            let key = forgers_key(100 + self.rng.random_range(0..100));
            // With times that make the honest ledgers look old.
            let later = match self.rng.random_bool(0.3) {
                true => self.rng.random_range(1..100_000),
                false => 0,
            };
            ledger.header.header.scp_value.close_time.0 += later;
            ledger.make_right(extent, HONEST.network.id(), &key);
            let mut chain = vec![ledger.encode()];
            let mut previous = ledger.header.hash;
            for after in 0..self.rng.random_range(0..5u32) {
                let mut follower = Ledger::read(HONEST.xdr(STORED + 2 + after)).unwrap();
                // It links to what is forged. Genuine values are of no use there, but may be tried.
                follower.link_to(&previous);
                follower.header.header.scp_value.close_time.0 += later;
                let by = if self.rng.random_bool(0.8) { Extent::Signature } else { extent };
                follower.make_right(by, HONEST.network.id(), &key);
                previous = follower.header.hash.clone();
                chain.push(follower.encode());
            }
            return (
                chain,
                extent,
                format!("{change:?}, {extent:?}, of ledger {of}, {later} s later"),
            );
        }
    }

    /// Tries one forged ledger. Returns what became of it, and what the honest source had to hear.
    fn try_one(&mut self) -> (Verdict, &'static str) {
        let (ledgers, extent, case) = self.forged();
        let is_alone = self.rng.random();
        let made = ledgers.len();
        let done = self.deliver("forger", ledgers);
        let attested = LedgerSeq(STORED - UNATTESTED);
        assert_eq!(self.attested(), attested, "{case}");
        assert_eq!(Contradiction::of(self.store(), Some(&validators())), None, "{case}");
        if let Err(error) = &done {
            let text = error.to_string();
            assert!(!matches!(error, PipelineError::Contradicted(_)), "{case}: {text}");
            assert!(text.contains("forger") && !text.contains("honest"), "{case}: {text}");
        }
        let verdict = match self.latest() {
            STORED => Verdict::Refused,
            _ => Verdict::Unattested,
        };
        match verdict {
            Verdict::Refused => assert!(done.is_err(), "{case}: nothing was said"),
            Verdict::Unattested => {
                assert!(extent >= Extent::HeaderHash && !self.require_attested, "{case}");
                assert!(self.latest() - STORED <= made as u32, "{case}");
            }
        }
        if is_alone {
            // Nobody else is ever asked: what it has made up stays as it is.
            if verdict == Verdict::Unattested {
                self.begin_again();
            }
            return (verdict, "nobody else is asked");
        }
        let heard = self.honest_goes_on(verdict, &case);
        self.begin_again();
        (verdict, heard)
    }

    /// The honest source is asked for all that is missing.
    fn honest_goes_on(&mut self, verdict: Verdict, case: &str) -> &'static str {
        let stored = self.latest();
        if stored >= LAST {
            return "there is nothing left to ask for";
        }
        let done = self.deliver("honest", raw(stored + 1..=LAST));
        if verdict == Verdict::Refused {
            // With attestation, the last ones wait for those after them.
            let (last, said) = match self.require_attested {
                true => (LAST - UNATTESTED, done.is_err()),
                false => (LAST, done.is_ok()),
            };
            assert!(said && self.latest() == last, "{case}: {done:?}");
            assert_eq!(self.attested(), LedgerSeq(last - UNATTESTED), "{case}");
            return "the honest ones are stored";
        }
        // It is on top of something else now, and that is what is said.
        assert_eq!(self.latest(), stored, "{case}");
        assert_eq!(self.attested(), LedgerSeq(STORED - UNATTESTED), "{case}");
        let error = done.unwrap_err();
        match &error {
            PipelineError::Contradicted(found) => {
                assert_eq!(found.delivered.as_deref(), Some("forger"), "{case}: {error}");
                assert_eq!((&*found.origin, found.first), ("honest", stored + 1), "{case}");
                assert!(found.signers.len() >= 2, "{case}: {error}");
                let text = error.to_string();
                assert!(text.contains("one of the two sources is wrong"), "{case}: {text}");
                "the stored ledgers are contradicted"
            }
            // The last ledger alone shows nothing.
            _ => {
                assert!(LAST - stored < 2, "{case}: {error}");
                "too few are left to contradict"
            }
        }
    }
}

/// Small: 1,000 forged ledgers; full: 10,000.
#[test]
fn forged_ledgers_are_never_attested_and_accuse_nobody() {
    LazyLock::force(&STORED_HONEST);
    let counts = Mutex::new(BTreeMap::<_, usize>::new());
    histories::run(50, 500, |seed| {
        let mut scene = Scene::new(seed);
        for _ in 0..PER_HISTORY {
            let found = scene.try_one();
            *counts.lock().unwrap().entry(found).or_default() += 1;
        }
    });
    let counts = counts.into_inner().unwrap();
    println!("{} forged ledgers: {counts:?}", counts.values().sum::<usize>());
    if std::env::var_os("ORRERY_TEST_SEED").is_none() {
        assert!(counts.len() >= 4, "{counts:?}");
    }
}

/// A ledger of more than two megabytes with the same content: what the validators have said of it, which
/// nothing binds, is long.
fn padded(raw: &[u8], change: impl FnOnce(&mut TransactionResult)) -> Vec<u8> {
    const ENTRIES: usize = 140_000;
    let messages = LedgerScpMessages { ledger_seq: 1, messages: VecM::default() };
    let said = ScpHistoryEntryV0 { quorum_sets: VecM::default(), ledger_messages: messages };
    let said: VecM<_> = vec![ScpHistoryEntry::V0(said); ENTRIES].try_into().unwrap();
    let mut ledger = LedgerCloseMeta::from_xdr(raw, Limits::none()).unwrap();
    let LedgerCloseMeta::V2(meta) = &mut ledger else { panic!("an older ledger") };
    meta.scp_info = said;
    let mut results = meta.tx_processing.to_vec();
    change(&mut results[0].result.result);
    meta.tx_processing = results.try_into().unwrap();
    ledger.to_xdr(Limits::none()).unwrap()
}

/// They are checked and prepared at the same time.
#[test]
fn large_ledgers_are_checked_as_all_others_are() {
    let directory = scratch();
    let (store, pipeline) = open(directory.path(), false);
    let has_transactions = |ledger: &u32| {
        let xdr = HONEST.xdr(*ledger);
        let view = decode(xdr, HONEST.network.id()).unwrap();
        view.version == 2 && !view.transactions.is_empty()
    };
    let large = (10..LAST).find(has_transactions).unwrap();
    deliver(&pipeline, "honest", raw(2..=large - 1)).unwrap();
    let xdr = HONEST.xdr(large);
    let forged = padded(xdr, |result| result.fee_charged += 1);
    assert!(forged.len() > 2 << 20);
    let refused = deliver(&pipeline, "forger", vec![forged]).unwrap_err();
    assert!(matches!(refused, PipelineError::Verify { .. }), "{refused}");
    assert_eq!(store.ends().latest, Some(LedgerSeq(large - 1)));
    let honest = padded(xdr, |_| ());
    deliver(&pipeline, "honest", vec![honest.clone()]).unwrap();
    assert_eq!(store.ends().latest, Some(LedgerSeq(large)));
    assert!(store.raw_ledger(LedgerSeq(large)).unwrap() == Some(honest));
    // What was prepared at the same time is what is prepared of the ledger alone.
    let other = scratch();
    let (alone, pipeline) = open(other.path(), false);
    deliver(&pipeline, "honest", raw(2..=large)).unwrap();
    assert_eq!(store.ledger(LedgerSeq(large)).unwrap(), alone.ledger(LedgerSeq(large)).unwrap());
}
