//! The naive model of what contracts hold, compared with the truth of generated histories: all of
//! their ledgers or some, added in any order, with gaps, and with ledgers removed below a floor.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use orrery_ledger::decode::decode;
use orrery_ledger::verify::{Link, Policy, verify, verify_link};
use orrery_testkit::histories;
use orrery_testkit::storage::histories::{CASES, StorageHistory, TrueChange};
use orrery_testkit::storage::{
    Answer, Kind, Present, Row, StorageModel, StoredRange, contract_of, instance_key, is_temporary,
    key_hash,
};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use stellar_xdr::LedgerKey;

/// Histories of the small and of the full size.
const SIZE: (u64, u64) = (300, 20_000);

#[test]
fn generated_ledgers_are_what_ingestion_accepts() {
    histories::run(SIZE.0 / 3, SIZE.1 / 20, |seed| {
        let history = StorageHistory::small(seed);
        let network = history.network.id();
        let mut previous: Option<Link> = None;
        for ledger in &history.ledgers {
            let view = decode(&ledger.xdr, network).unwrap();
            let verified = verify(&view, network, Policy::default()).unwrap();
            assert!(verified.signer.is_some() && verified.reported.is_none());
            let link = Link::from(&view.header);
            if let Some(previous) = &previous {
                verify_link(previous, &link).unwrap();
            }
            assert_eq!(view.header.sequence.0, ledger.sequence);
            assert_eq!(view.header.protocol, ledger.protocol);
            let hashes: Vec<[u8; 32]> = view.transactions.iter().map(|one| one.hash.0).collect();
            assert_eq!(hashes, ledger.transactions);
            previous = Some(link);
        }
    });
}

#[test]
fn the_model_never_contradicts_the_truth() {
    histories::run(SIZE.0, SIZE.1, |seed| {
        let history = StorageHistory::small(seed);
        let rng = &mut StdRng::seed_from_u64(seed);
        let whole: Vec<u32> = (history.first()..=history.last()).collect();
        let model = model_of(&history, &whole, rng);
        let contradictions = model.contradictions();
        assert!(contradictions.is_empty(), "{}", contradictions.join("\n"));
        check(&history, &model);
        for _ in 0..2 {
            let share = rng.random_range(0.3..0.95);
            let some: Vec<u32> = whole.iter().copied().filter(|_| rng.random_bool(share)).collect();
            check(&history, &model_of(&history, &some, rng));
        }
        check_retention(&history, model, rng);
    });
}

#[test]
fn histories_contain_every_case() {
    let counts: Mutex<BTreeMap<String, u32>> = Mutex::default();
    histories::run(200, 200, |seed| {
        let history = StorageHistory::small(seed);
        let mut counts = counts.lock().unwrap();
        let mut count = |what: &str| *counts.entry(what.to_owned()).or_default() += 1;
        for ledger in &history.ledgers {
            ledger.cases.iter().for_each(|case| count(case));
            // The version of the metadata stands first.
            count(&format!("LedgerCloseMeta {}", ledger.xdr[3]));
        }
    });
    let counts = counts.into_inner().unwrap();
    eprintln!("{counts:#?}");
    if std::env::var_os("ORRERY_TEST_SEED").is_none() {
        let versions = (0..3).map(|version| format!("LedgerCloseMeta {version}"));
        for what in CASES.map(str::to_owned).into_iter().chain(versions) {
            let count = counts.get(&what).copied().unwrap_or_default();
            assert!(count >= 5, "{what}: {count}");
        }
    }
    let is_named = |what: &String| CASES.contains(&what.as_str()) || what.starts_with("Ledger");
    assert!(counts.keys().all(is_named));
}

/// A model of some ledgers of a history, added in a random order.
fn model_of(history: &StorageHistory, ledgers: &[u32], rng: &mut StdRng) -> StorageModel {
    let mut order = ledgers.to_vec();
    order.shuffle(rng);
    let mut model = StorageModel::new(history.network.passphrase());
    for sequence in order {
        assert_eq!(model.add(&history.ledger(sequence).xdr), sequence);
    }
    model
}

/// Compares everything that the model answers.
fn check(history: &StorageHistory, model: &StorageModel) {
    for sequence in history.first()..=history.last() {
        let Some(range) = model.range(sequence) else {
            let any = history.keys.values().next().unwrap();
            assert_eq!(model.at(any, sequence), Answer::NotStored);
            continue;
        };
        for key in history.keys.values() {
            check_answer(history, model, key, sequence, range);
        }
        for key in history.nonces.values() {
            assert_eq!(model.at(key, sequence), Answer::Unknown { live_until: None });
            assert_eq!(model.at_hash(&key_hash(key), sequence), model.at(key, sequence));
        }
    }
    let sequence = model.ranges().last().map(|range| range.last);
    for contract in history.contracts.keys() {
        sequence.into_iter().for_each(|sequence| check_list(history, model, contract, sequence));
    }
    check_rows(history, model);
}

/// The answer about a key is true, and known where the specification says so.
fn check_answer(
    history: &StorageHistory,
    model: &StorageModel,
    key: &LedgerKey,
    sequence: u32,
    range: StoredRange,
) {
    let hash = key_hash(key);
    let truth = history.truth(&hash, sequence);
    let answer = model.at(key, sequence);
    let case = || format!("{key:?} at {sequence} in {range:?}: {answer:?}, but {truth:?}");
    match (&answer, truth) {
        (Answer::Present(present), Some(truth)) => {
            assert_eq!(present.value, truth.value, "{}", case());
            assert_eq!(present.modified_ledger, truth.modified_ledger, "{}", case());
            let until = present.live_until;
            assert!(until.is_none_or(|until| until == truth.live_until), "{}", case());
            let archived = present.archived;
            assert!(archived.is_none_or(|archived| archived == truth.archived), "{}", case());
            let evicted = is_evicted(history, &hash, sequence, range);
            assert_eq!(archived.is_some(), until.is_some() || evicted, "{}", case());
            check_updated(history, present, sequence, range);
        }
        (Answer::Absent { .. }, None) => {}
        (Answer::Unknown { live_until }, Some(truth)) => {
            assert!(live_until.is_none_or(|until| until == truth.live_until), "{}", case());
        }
        (Answer::Unknown { .. }, None) => {}
        _ => panic!("{}", case()),
    }
    let is_known = !matches!(answer, Answer::Unknown { .. });
    if let Some(expected) = expects_known(history, key, sequence, range) {
        assert_eq!(is_known, expected, "{}", case());
    }
    if let Answer::Present(box_) = &answer {
        check_known_since(model, key, sequence, range, box_.known_since);
    } else if let Answer::Absent { known_since } = answer {
        check_known_since(model, key, sequence, range, known_since);
    }
}

/// Whether the range shows that a present entry is evicted: `archived` is then known without a TTL.
fn is_evicted(
    history: &StorageHistory,
    hash: &[u8; 32],
    sequence: u32,
    range: StoredRange,
) -> bool {
    let moves = changes(history, hash, range.known_first, sequence);
    moves.last().is_some_and(|change| change.kind == Some(Kind::Evicted))
}

/// "the first ledger for which the answer would be of the same kind"
fn check_known_since(
    model: &StorageModel,
    key: &LedgerKey,
    sequence: u32,
    range: StoredRange,
    known_since: u32,
) {
    assert!((range.first..=sequence).contains(&known_since));
    let is_known = |at: u32| !matches!(model.at(key, at), Answer::Unknown { .. });
    if known_since < sequence {
        assert!(is_known(known_since));
    }
    if known_since > range.first {
        assert!(!is_known(known_since - 1));
    }
}

/// The last created, updated or restored change in the range, if there is one.
fn check_updated(history: &StorageHistory, present: &Present, sequence: u32, range: StoredRange) {
    let hash = key_hash(&present.key);
    let last = changes(history, &hash, range.known_first, sequence)
        .filter(|change| {
            matches!(change.kind, Some(Kind::Created | Kind::Updated | Kind::Restored))
        })
        .last();
    match last {
        Some(change) => {
            let transactions = &history.ledger(change.ledger).transactions;
            let tx = transactions[change.order.unwrap() as usize - 1];
            let of_model = present.updated_tx.map(|tx| (tx.hash, tx.order));
            assert_eq!(of_model, Some((tx, change.order.unwrap())));
            assert_eq!(present.updated_ledger, change.ledger);
        }
        None => {
            assert_eq!(present.updated_tx, None);
            assert!(present.updated_ledger <= present.modified_ledger);
        }
    }
}

/// What really happened to a key in a range, in order.
fn changes<'a>(
    history: &'a StorageHistory,
    hash: &'a [u8; 32],
    first: u32,
    last: u32,
) -> impl Iterator<Item = &'a TrueChange> {
    (first.max(history.first())..=last)
        .flat_map(|sequence| &history.ledger(sequence).changes)
        .filter(|change| change.key_hash == *hash)
}

/// Whether section 2 makes a key known, as far as it can be said from what really happened; `None`
/// where it depends on which TTLs are known.
fn expects_known(
    history: &StorageHistory,
    key: &LedgerKey,
    sequence: u32,
    range: StoredRange,
) -> Option<bool> {
    let (first, last) = (range.known_first, range.last);
    let created = contract_of(key).and_then(|id| history.contracts[&id]);
    let all = history.origin.is_some_and(|origin| first <= origin);
    if all || created.is_some_and(|created| (first..=last).contains(&created)) {
        return Some(true);
    }
    let hash = key_hash(key);
    let all: Vec<&TrueChange> = changes(history, &hash, first, last).collect();
    if all.is_empty() {
        return Some(false);
    }
    let names_ttl = |change: &&&TrueChange| {
        matches!(change.kind, Some(Kind::Created | Kind::Extended | Kind::Removed))
    };
    let before = all.iter().any(|change| change.ledger <= sequence && names_ttl(&change));
    let after = all.iter().find(|change| change.ledger > sequence && names_ttl(change));
    // What is created says nothing of a TTL before.
    let after = after.is_some_and(|change| change.kind != Some(Kind::Created));
    let ttl_is_known = !is_temporary(key) || before || after;
    let writes = || all.iter().filter(|change| change.names_value);
    if let Some(last) = writes().rfind(|change| change.ledger <= sequence) {
        return (last.value.is_none() || ttl_is_known || last.ledger == sequence).then_some(true);
    }
    match writes().find(|change| change.ledger > sequence) {
        Some(next) if next.kind == Some(Kind::Created) => Some(true),
        Some(next) if next.names_before => ttl_is_known.then_some(true),
        // An entry that is restored from the hot archive, or by itself, does not say when it was
        // written; that temporary data is evicted does not say how long it lived.
        Some(_) => Some(false),
        None => Some(false),
    }
}

/// A contract's list is what the answers about its keys say.
fn check_list(history: &StorageHistory, model: &StorageModel, contract: &[u8; 32], sequence: u32) {
    let range = model.range(sequence).unwrap();
    let list = model.list(contract, sequence).unwrap();
    let created = history.contracts[contract].filter(|created| *created >= range.known_first);
    let all = history.origin.is_some_and(|origin| range.known_first <= origin);
    assert_eq!(list.complete, all || created.is_some_and(|created| created <= sequence));
    let since = match created {
        Some(created) if list.complete && !all => created.max(range.first),
        _ => range.first,
    };
    assert_eq!(list.known_since, since);
    let hashes: BTreeSet<[u8; 32]> = list.entries.iter().map(|entry| entry.key_hash).collect();
    for (hash, key) in &history.keys {
        let is_present = contract_of(key) == Some(*contract)
            && matches!(model.at(key, sequence), Answer::Present(_));
        assert_eq!(hashes.contains(hash), is_present);
        if list.complete && contract_of(key) == Some(*contract) {
            assert_eq!(history.truth(hash, sequence).is_some(), is_present);
        }
    }
    let is_own = |row: &&Row| row.key == instance_key(contract);
    let rows = model.changes(contract, 0, u32::MAX);
    let creations = rows.iter().filter(is_own).filter(|row| row.kind == Kind::Created).count();
    assert!(creations <= 1, "contracts are created once");
}

/// History says what happened, in order.
fn check_rows(history: &StorageHistory, model: &StorageModel) {
    let is_setting = |row: &Row| matches!(row.key, LedgerKey::ConfigSetting(_));
    let rows = model.rows(|row| !is_setting(row));
    let mut expected: Vec<&TrueChange> = Vec::new();
    for sequence in (history.first()..=history.last()).filter(|at| model.range(*at).is_some()) {
        let of_ledger = &history.ledger(sequence).changes;
        let mut changes: Vec<_> = of_ledger.iter().filter(|one| one.kind.is_some()).collect();
        // Evictions have the order of the metadata.
        changes.sort_by_key(|change| {
            let rank = change.order.map(|_| change.key_hash);
            (change.order.unwrap_or(u32::MAX), rank)
        });
        expected.extend(changes);
    }
    assert_eq!(rows.len(), expected.len());
    let mut by_key: BTreeMap<[u8; 32], Vec<Row>> = BTreeMap::new();
    for (row, change) in rows.iter().zip(expected) {
        let case = || format!("{row:?} is not {change:?}");
        assert_eq!((row.ledger, row.key_hash), (change.ledger, change.key_hash), "{}", case());
        assert_eq!(Some(row.kind), change.kind, "{}", case());
        assert_eq!(row.tx.map(|tx| tx.order), change.order, "{}", case());
        if row.value.is_some() || change.names_value {
            assert_eq!(row.value, change.value, "{}", case());
        }
        if let Some(until) = row.live_until {
            assert_eq!(Some(until), change.live_until, "{}", case());
        }
        by_key.entry(row.key_hash).or_default().push(row.clone());
    }
    for (hash, mut rows) in by_key {
        rows.reverse();
        assert_eq!(model.history(&hash).changes, rows);
    }
}

/// Ledgers below a floor are gone, and no answer about the others has changed.
fn check_retention(history: &StorageHistory, model: StorageModel, rng: &mut StdRng) {
    let floor = rng.random_range(history.first()..=history.last());
    let mut cut = model.clone();
    if rng.random() {
        cut.cut_below(rng.random_range(history.first()..=floor));
    }
    cut.cut_below(floor);
    for sequence in history.first()..=history.last() {
        for key in history.keys.values() {
            let (mut before, mut after) = (model.at(key, sequence), cut.at(key, sequence));
            if sequence < floor {
                assert_eq!(after, Answer::NotStored);
                continue;
            }
            for answer in [&mut before, &mut after] {
                match answer {
                    Answer::Present(present) => {
                        present.known_since = present.known_since.max(floor);
                    }
                    Answer::Absent { known_since } => *known_since = (*known_since).max(floor),
                    Answer::Unknown { .. } | Answer::NotStored => {}
                }
            }
            assert_eq!(before, after, "{key:?} at {sequence}, floor {floor}");
        }
    }
    let rows = |model: &StorageModel| model.rows(|row| row.ledger >= floor);
    assert_eq!(rows(&cut), rows(&model));
    assert_eq!(cut.rows(|_| true), rows(&model));
    check(history, &cut);
}
