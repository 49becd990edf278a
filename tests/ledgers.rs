//! Imports real ledgers with the built binary: all collected files are imported, and what is stored
//! and served is compared with the counts of the collection's index and with an independent
//! decoding. The benches, which make their loads from these ledgers, are run here too: a binary of
//! their own would link all libraries once more.

mod benches;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use orrery::decode::{EventType, Placement};
use orrery::domain::{ContractId, Direction, LedgerSeq, Network, Page, RawLedger};
use orrery::source::files::LedgerFiles;
use orrery::store::{EventQuery, Store, TopicFilter, TransactionQuery};
use orrery::validators::Validators;
use orrery_testkit::binary::{Service, orrery};
use orrery_testkit::{data, full};
use serde_json::Value;

const EVERYTHING: [(&str, &str); 2] =
    [("ORRERY_INDEX_CLASSIC_EVENTS", "true"), ("ORRERY_INDEX_FEE_EVENTS", "true")];

/// Counts of one ledger, as in the index of the collection.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    transactions: u64,
    failed: u64,
    smart_contract: u64,
    contract_events: u64,
    classic_events: u64,
    fee_events: u64,
}

fn import(directory: &Path, network: &str, paths: &[PathBuf]) {
    import_with(directory, network, paths, "refuse");
}

/// `unbound` is the setting of what becomes of ledgers whose events their header does not bind.
fn import_with(directory: &Path, network: &str, paths: &[PathBuf], unbound: &str) {
    let is_name = ["local", "testnet", "mainnet"].contains(&network);
    let output = orrery()
        .envs(EVERYTHING)
        .env("ORRERY_TRUST_EVENTS", unbound)
        .args(["import", "--data-dir"])
        .arg(directory)
        .args([if is_name { "--network" } else { "--network-passphrase" }, network])
        .args(paths)
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "import of {paths:?}: {message}");
}

/// Counts what the store returns for each ledger. Only the totals of transactions and of failed
/// ones are the store's own counts.
fn stored(directory: &Path) -> BTreeMap<u32, Counts> {
    let store = Store::open(directory, None).unwrap();
    let mut counts = BTreeMap::<u32, Counts>::new();
    for range in store.status().ranges {
        for sequence in range.first.0..=range.last.0 {
            let row = store.ledger(LedgerSeq(sequence)).unwrap().unwrap();
            counts.insert(
                sequence,
                Counts {
                    transactions: row.counts.transactions.into(),
                    failed: row.counts.failed.into(),
                    ..Counts::default()
                },
            );
        }
    }
    let mut smart_contract = std::collections::BTreeSet::new();
    let query =
        TransactionQuery { ledgers: None, contracts: Vec::new(), page: Page::first(usize::MAX) };
    store
        .transactions(&query, |transaction| {
            smart_contract.insert(*transaction.tx);
            counts.get_mut(&transaction.position.ledger.0).unwrap().smart_contract += 1;
        })
        .unwrap();
    let query = EventQuery {
        ledgers: None,
        contracts: Vec::new(),
        topics: TopicFilter::default(),
        page: Page { direction: Direction::OldestFirst, ..Page::first(usize::MAX) },
    };
    store
        .events(&query, |event| {
            let counts = counts.get_mut(&event.ledger.0).unwrap();
            match event.event_index() {
                None => counts.fee_events += 1,
                Some(_) if smart_contract.contains(event.tx) => counts.contract_events += 1,
                Some(_) => counts.classic_events += 1,
            }
        })
        .unwrap();
    counts
}

/// Counts each ledger with a full decoding.
fn decoded(ledgers: &[RawLedger], network: &Network) -> BTreeMap<u32, Counts> {
    let mut counts = BTreeMap::new();
    for raw in ledgers {
        let ledger = full::decode(&raw.xdr, network.id()).unwrap();
        let mut found = Counts {
            transactions: ledger.transactions.len() as u64,
            failed: ledger.transactions.iter().filter(|t| !t.successful).count() as u64,
            smart_contract: ledger.transactions.iter().filter(|t| t.smart_contract).count() as u64,
            ..Counts::default()
        };
        for event in &ledger.events {
            let by_contract = ledger.transactions[event.transaction].smart_contract;
            match event.placement {
                Placement::Operation { .. } if by_contract => found.contract_events += 1,
                Placement::Operation { .. } => found.classic_events += 1,
                _ => found.fee_events += 1,
            }
        }
        counts.insert(ledger.sequence.0, found);
    }
    counts
}

fn read(path: &Path) -> Vec<RawLedger> {
    LedgerFiles::new(&[path.to_owned()]).map(|ledger| ledger.unwrap()).collect()
}

/// Returns the rows of an index section whose files hold one ledger each: file → (sequence,
/// counts).
fn indexed(section: &str) -> BTreeMap<String, (u32, Counts)> {
    let index = fs::read_to_string(data::folder().unwrap().join("ledgers/INDEX.md")).unwrap();
    let start = index.find(&format!("\n## {section}")).unwrap() + 1;
    let rest = &index[start..];
    let text = &rest[..rest[3..].find("\n## ").map_or(rest.len(), |end| end + 3)];
    let number = |cell: &str| cell.parse::<u64>().unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| ") && line.contains(".xdr"));
    rows.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let (transactions, failed) = cells[6].split_once(' ').unwrap();
        let counts = Counts {
            transactions: number(transactions),
            failed: number(failed.trim_matches(['(', ')'])),
            smart_contract: number(cells[7]),
            contract_events: number(cells[8]),
            classic_events: number(cells[9]),
            fee_events: number(cells[10]),
        };
        (cells[0].to_owned(), (number(cells[2]) as u32, counts))
    })
    .collect()
}

/// Imports one folder whose files hold one ledger each, without the files `but`, compares it with
/// the index, and returns the number of ledgers.
fn folder_equals_index(folder: &str, network: &str, but: &[&str]) -> usize {
    let path = data::folder().unwrap().join("ledgers").join(folder);
    let directory = tempfile::tempdir().unwrap();
    let mut indexed = indexed(folder);
    indexed.retain(|name, _| !but.contains(&name.as_str()));
    let files: Vec<PathBuf> = indexed.keys().map(|name| path.join(name)).collect();
    import(directory.path(), network, &files);
    let expected: BTreeMap<u32, Counts> = indexed.into_values().collect();
    assert!(expected.len() >= 16, "the index was read");
    assert_eq!(stored(directory.path()), expected);
    expected.len()
}

#[test]
fn imported_public_and_test_ledgers_match_the_index() {
    if data::missing() {
        return;
    }
    let ledgers = folder_equals_index("pubnet", "mainnet", &[])
        + folder_equals_index("testnet", "testnet", &OF_ANOTHER_NETWORK);
    println!("{ledgers} ledgers hold what the index says");
}

/// Files of the folder of testnet whose ledgers are signed for the network `local`.
const OF_ANOTHER_NETWORK: [&str; 2] = ["ledger-10.xdr.zst", "ledger-11.xdr.zst"];

#[test]
fn ledgers_signed_for_another_network_are_refused() {
    if data::missing() {
        return;
    }
    let folder = data::folder().unwrap().join("ledgers/testnet");
    for name in OF_ANOTHER_NETWORK {
        let file = folder.join(name);
        let directory = tempfile::tempdir().unwrap();
        import(&directory.path().join("local"), "local", std::slice::from_ref(&file));
        let refused = orrery()
            .args(["import", "--network", "testnet", "--data-dir"])
            .arg(directory.path().join("testnet"))
            .arg(&file)
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success(), "{name}");
        assert!(message.contains("the signature of validator G"), "{message}");
    }
}

#[test]
fn an_imported_lake_equals_its_source_files() {
    if data::missing() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let lake = data::folder().unwrap().join("ledgers/lake-pubnet");
    import(directory.path(), "mainnet", &[lake]);
    let of_files: BTreeMap<u32, Counts> = indexed("pubnet")
        .into_values()
        .filter(|(sequence, _)| (63_092_982..=63_092_993).contains(sequence))
        .collect();
    assert_eq!(of_files.len(), 12);
    assert_eq!(stored(directory.path()), of_files);
}

/// Validators of enough organisations have signed within twelve ledgers. What is recorded while they are
/// imported is what is found in the stored ledgers later.
#[test]
fn imported_ledgers_are_attested() {
    if data::missing() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    import(at, "mainnet", &[data::folder().unwrap().join("ledgers/lake-pubnet")]);
    let network = Network::from_name_or_passphrase("mainnet");
    let validators = Validators::of_network(&network).unwrap();
    let of_store = || Store::open(at, None).unwrap().signed();
    let recorded = of_store();
    let [(range, signed)] = recorded.as_slice() else { panic!("{recorded:?}") };
    let newest = validators.attested(*range, signed).unwrap();
    assert!((63_092_982..63_092_993).contains(&newest.0), "{newest}");
    let rebuild = |settings: &[(&str, &str)]| {
        let mut command = orrery();
        command.envs(settings.iter().copied()).args(["rebuild", "signatures", "--json"]);
        let output = command.arg("--data-dir").arg(at).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{message}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let one = signed.iter().next().unwrap().0;
    let report = rebuild(&[("ORRERY_TRUST_VALIDATORS", &format!("{{ a = ['{one}'] }}"))]);
    assert_eq!(report["running"], false);
    assert_eq!(of_store()[0].1.iter().len(), 1, "others are not trusted");
    assert_eq!(rebuild(&[])["done"], 12, "not all have signed");
    assert_eq!(of_store(), recorded);
}

/// The bundle whose ledgers a load generator has merged from several.
const MERGED: &str = "galexie-load-test-ledgers-v23-standalone.xdr.zstd";

/// Streams contain sections that do not link to each other; each section is imported into its own
/// directory.
#[test]
fn imported_streams_equal_a_full_decoding() {
    if data::missing() {
        return;
    }
    let root = data::folder().unwrap();
    let mut streams = vec![
        (root.join("local-network/local-vault.xdr.zst"), "local"),
        (root.join("ledgers/synthetic/horizon-load-test-ledgers-v28.xdr.zstd"), "Apply Load"),
        (root.join("ledgers/synthetic").join(MERGED), "local"),
    ];
    for suite in ["InvokeHostFunctionTests", "MergeTests", "TxEnvelopeTests"] {
        let folder = fs::read_dir(root.join("ledgers/core-tests").join(suite)).unwrap();
        streams.extend(folder.map(|entry| (entry.unwrap().path(), "(V) (;,,;) (V)")));
    }
    let (mut sections, mut ledgers) = (0, 0);
    for (path, passphrase) in streams {
        let network = Network::from_name_or_passphrase(passphrase);
        for section in chained_sections(read(&path)) {
            let directory = tempfile::tempdir().unwrap();
            let file = directory.path().join("section.xdr");
            fs::write(&file, framed(&section)).unwrap();
            let unbound = if path.ends_with(MERGED) { "report" } else { "refuse" };
            import_with(&directory.path().join("data"), passphrase, &[file], unbound);
            let found = stored(&directory.path().join("data"));
            assert_eq!(found, decoded(&section, &network), "{}", path.display());
            sections += 1;
            ledgers += section.len();
        }
    }
    println!("{ledgers} ledgers in {sections} sections hold what a full decoding finds");
}

fn chained_sections(ledgers: Vec<RawLedger>) -> Vec<Vec<RawLedger>> {
    let mut sections: Vec<Vec<RawLedger>> = Vec::new();
    for ledger in ledgers {
        match sections.last_mut() {
            Some(section) if section.last().unwrap().sequence < ledger.sequence => {
                section.push(ledger);
            }
            _ => sections.push(vec![ledger]),
        }
    }
    sections
}

fn framed(ledgers: &[RawLedger]) -> Vec<u8> {
    let mut stream = Vec::new();
    for ledger in ledgers {
        stream.extend_from_slice(&(0x8000_0000 | ledger.xdr.len() as u32).to_be_bytes());
        stream.extend_from_slice(&ledger.xdr);
    }
    stream
}

/// Returns an event as a client sees it, from an independent decoding.
fn expected_event(ledger: &full::Ledger, event: &full::Event, id: u64) -> Value {
    let transaction = &ledger.transactions[event.transaction];
    let (op_index, event_index) = match event.placement {
        Placement::Operation { operation, event_index } => (Some(operation), Some(event_index)),
        _ => (None, None),
    };
    let closed_at = time::OffsetDateTime::from_unix_timestamp(ledger.close_time as i64).unwrap();
    let mut expected = serde_json::json!({
        "id": id,
        "contract_id": event.contract.map_or_else(String::new, |id| ContractId(id).to_string()),
        "data": STANDARD.encode(&event.data),
        "tx": transaction.hash.to_string(),
        "event_index": event_index,
        "ledger": ledger.sequence.0,
        "ledger_closed_at":
            closed_at.format(&time::format_description::well_known::Rfc3339).unwrap(),
        "type": match event.event_type {
            EventType::Contract => "contract",
            EventType::System => "system",
        },
        "application_order": transaction.application_order,
        "op_index": op_index,
    });
    for number in 0..10 {
        expected[format!("topic{}", number + 1)] =
            event.topics.get(number).map(|topic| STANDARD.encode(topic)).into();
    }
    expected
}

/// Serves twelve consecutive public ledgers over HTTP, with all kinds of events and with the
/// default kinds.
#[test]
fn served_events_equal_a_full_decoding() {
    if data::missing() {
        return;
    }
    let lake = data::folder().unwrap().join("ledgers/lake-pubnet");
    let network = Network::from_name_or_passphrase("mainnet");
    let ledgers: Vec<full::Ledger> =
        read(&lake).iter().map(|raw| full::decode(&raw.xdr, network.id()).unwrap()).collect();
    assert_eq!(ledgers.len(), 12);
    for all_kinds in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        if all_kinds {
            import(directory.path(), "mainnet", std::slice::from_ref(&lake));
        } else {
            let data_dir = directory.path();
            let import = orrery()
                .args(["import", "--network", "mainnet", "--data-dir"])
                .args([data_dir, &lake])
                .output();
            assert!(import.unwrap().status.success());
        }
        let mut expected = Vec::new();
        for ledger in &ledgers {
            for event in &ledger.events {
                let default = matches!(event.placement, Placement::Operation { .. })
                    && ledger.transactions[event.transaction].smart_contract;
                if all_kinds || default {
                    expected.push(expected_event(ledger, event, expected.len() as u64 + 1));
                }
            }
        }
        let service = Service::start(directory.path());
        assert_eq!(service.rows("/rest/events/by-ledger?order=asc&limit=1000", "id"), expected);
        expected.reverse();
        assert_eq!(service.rows("/rest/events/by-ledger?limit=997", "id"), expected);
        println!("{} events served as decoded", expected.len());
    }
}
