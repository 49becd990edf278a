//! The naive model of what contracts hold, on every recorded ledger.

use std::collections::{BTreeMap, BTreeSet};

use orrery_testkit::storage::{Answer, Because, Kind, LedgerChanges, StorageModel};
use orrery_testkit::{data, fixtures};

/// What recorded ledgers hold, for the output of the test.
#[derive(Debug, Default)]
struct Counts {
    ledgers: usize,
    kinds: BTreeMap<&'static str, usize>,
    equal: usize,
    keys: BTreeSet<[u8; 32]>,
    contracts: BTreeSet<[u8; 32]>,
    answers: BTreeMap<&'static str, usize>,
    complete: usize,
}

#[test]
fn the_model_runs_on_every_recorded_ledger() {
    let Some(folder) = fixtures::folder() else { return };
    let mut of_all = Counts::default();
    let mut names = fixtures::files(&folder);
    names.retain(|name| !name.starts_with("lake-pubnet/"));
    for name in &names {
        let fixture = fixtures::load(&folder, name);
        let mut counts = Counts::default();
        for model in sections(fixture.network.passphrase(), &fixture.ledgers) {
            counts.add(&model, name);
            of_all.add(&model, name);
        }
        eprintln!("{name}: {counts}");
    }
    let vault = fixtures::load(&data::location().join("local-network"), "local-vault.xdr.zst");
    for model in sections(vault.network.passphrase(), &vault.ledgers) {
        of_all.add(&model, &vault.name);
    }
    eprintln!("all: {of_all}");
    for kind in Kind::ALL {
        assert!(of_all.kinds.contains_key(kind.name()), "{kind:?}");
    }
}

/// Twelve consecutive ledgers of the public network, one a file, the last one first.
#[test]
fn the_model_joins_the_ledgers_of_a_lake() {
    let Some(folder) = fixtures::folder() else { return };
    let names = fixtures::files(&folder);
    let names = names.iter().filter(|name| name.starts_with("lake-pubnet/"));
    let mut ledgers: Vec<Vec<u8>> = Vec::new();
    let mut passphrase = String::new();
    for name in names {
        let fixture = fixtures::load(&folder, name);
        passphrase = fixture.network.passphrase().to_owned();
        ledgers.extend(fixture.ledgers);
    }
    let mut model = StorageModel::new(&passphrase);
    let order: Vec<u32> = ledgers.iter().map(|ledger| model.add(ledger)).collect();
    assert!(order.is_sorted_by(|one, next| one > next), "{order:?}");
    let ranges = model.ranges();
    assert_eq!(ranges.len(), 1, "{ranges:?}");
    let mut counts = Counts::default();
    counts.add(&model, "lake-pubnet");
    eprintln!("lake-pubnet: {counts}");
    let before = |(hash, _): &(&[u8; 32], &_)| {
        let first = model.at_hash(hash, ranges[0].first);
        first.present().is_some_and(|present| present.because == Because::StateBefore)
    };
    assert!(model.keys().filter(before).count() > 20, "the STATE of later changes is used");
}

/// The sections of a file that link, each in a model of its own.
fn sections(passphrase: &str, ledgers: &[Vec<u8>]) -> Vec<StorageModel> {
    let mut models: Vec<StorageModel> = Vec::new();
    let mut last: Option<LedgerChanges> = None;
    for raw in ledgers {
        let changes = StorageModel::new(passphrase).decode(raw);
        let follows = last.as_ref().is_some_and(|last| {
            last.sequence + 1 == changes.sequence && last.hash == changes.previous_hash
        });
        if !follows {
            models.push(StorageModel::new(passphrase));
        }
        models.last_mut().unwrap().add_changes(changes.clone());
        last = Some(changes);
    }
    models
}

impl Counts {
    fn add(&mut self, model: &StorageModel, name: &str) {
        for ledger in model.ledgers() {
            self.ledgers += 1;
            assert_eq!(ledger.ttl_without_key, 0, "{name}, ledger {}", ledger.sequence);
            for change in &ledger.changes {
                match change.kind {
                    Some(kind) => *self.kinds.entry(kind.name()).or_default() += 1,
                    None => self.equal += 1,
                }
            }
        }
        let contradictions = model.contradictions();
        assert!(contradictions.is_empty(), "{name}: {}", contradictions.join("\n"));
        self.keys.extend(model.keys().map(|(hash, _)| *hash));
        self.contracts.extend(model.contracts());
        let last = model.ranges().last().unwrap().last;
        for (hash, _) in model.keys() {
            let answer = model.at_hash(hash, last);
            assert!(answer != Answer::NotStored, "{name}");
            *self.answers.entry(answer.name()).or_default() += 1;
        }
        for contract in model.contracts() {
            let list = model.list(&contract, last).unwrap();
            self.complete += usize::from(list.complete);
        }
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { ledgers, kinds, equal, keys, contracts, answers, complete } = self;
        let (keys, contracts) = (keys.len(), contracts.len());
        write!(
            f,
            "{ledgers} ledgers, changes {kinds:?}, equal {equal}; {keys} keys of {contracts} \
             contracts, {complete} of them complete; at the end {answers:?}"
        )
    }
}
