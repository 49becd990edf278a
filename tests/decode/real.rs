//! Every recorded ledger, compared with the full decode and with the counts in INDEX.md.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use orrery_ledger::decode::{
    DecodeError, LedgerView, LoneTransaction, Placement, TransactionParts, decode, protocol_warning,
};
use orrery_ledger::domain::{LedgerSeq, Network};
use orrery_ledger::verify::{Link, VerifyError, verify_header, verify_link};

use crate::{Verdict, compare};
use orrery_testkit::fixtures::{self, Fixture};
use orrery_testkit::full;

/// Counts that the index states for one file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    ledgers: usize,
    transactions: usize,
    failed: Option<usize>,
    smart_contract: usize,
    contract_events: Option<usize>,
    operation_events: usize,
    transaction_events: Option<usize>,
}

#[test]
fn both_implementations_agree_on_every_recorded_ledger() {
    let Some(folder) = fixtures::folder() else { return };
    let index = index(&folder);
    let names = fixtures::files(&folder);
    let mut found_in_index = 0;
    for name in &names {
        let fixture = fixtures::load(&folder, name);
        let mut counts = Counts::default();
        for (position, raw) in fixture.ledgers.iter().enumerate() {
            let case = format!("{name}, ledger {position}");
            let Verdict::Ledger(ledger) = compare(raw, &fixture.network, &case) else {
                panic!("{case} is refused");
            };
            counts.add(&ledger);
        }
        check_chain(&fixture);
        if let Some(expected) = index.get(name.as_str()) {
            found_in_index += 1;
            expected.check(&counts, name);
        }
    }
    // The repacked lake is not in the index.
    let of_lake = names.iter().filter(|name| name.starts_with("lake-pubnet/")).count();
    assert_eq!(found_in_index, names.len() - of_lake, "files and index differ");
}

/// Each transaction can be read from its own parts of the ledger, and with no others.
#[test]
fn transactions_are_read_from_their_parts_alone() {
    let Some(folder) = fixtures::folder() else { return };
    let (mut read, mut bumps, mut versions) = (0, 0, BTreeSet::new());
    for name in fixtures::files(&folder) {
        let fixture = fixtures::load(&folder, &name);
        let network = fixture.network.id();
        for raw in &fixture.ledgers {
            let ledger = decode(raw, network).unwrap();
            versions.insert(ledger.version);
            let mut before: Option<&[u8]> = None;
            for transaction in &ledger.transactions {
                let parts = TransactionParts::of(&ledger, transaction).unwrap();
                let [envelope, outcome, meta] =
                    [&parts.envelope, &parts.outcome, &parts.meta].map(|part| &raw[part.clone()]);
                assert_eq!((envelope, meta), (transaction.envelope, transaction.meta), "{name}");
                let alone = LoneTransaction::read(envelope, outcome, network).unwrap().unwrap();
                let expected = LoneTransaction {
                    hash: transaction.hash,
                    inner_hash: transaction.inner_hash,
                    successful: transaction.successful,
                    result: transaction.result,
                };
                assert_eq!(alone, expected, "{name}");
                if let Some(before) = before.replace(envelope) {
                    assert_eq!(LoneTransaction::read(before, outcome, network).unwrap(), None);
                }
                let cut = &envelope[..envelope.len() - 4];
                assert!(LoneTransaction::read(cut, outcome, network).is_err());
                assert!(LoneTransaction::read(envelope, &outcome[..40], network).is_err());
                read += 1;
                bumps += usize::from(transaction.inner_hash.is_some());
            }
            // A view that borrows from elsewhere has no parts in these bytes.
            let elsewhere = LedgerView { raw: &[], ..ledger.clone() };
            let first = ledger.transactions.first();
            assert_eq!(first.and_then(|it| TransactionParts::of(&elsewhere, it)), None);
        }
    }
    assert!(read > 1_000 && bumps > 0, "{read} transactions, {bumps} of them fee bumps");
    assert!(versions.len() > 1, "{versions:?}");
}

impl Counts {
    fn add(&mut self, ledger: &full::Ledger) {
        let of_operation =
            |event: &&full::Event| matches!(event.placement, Placement::Operation { .. });
        let of_contract =
            |event: &&full::Event| ledger.transactions[event.transaction].smart_contract;
        let by_operations = ledger.events.iter().filter(of_operation).count();
        let by_contracts = ledger.events.iter().filter(of_operation).filter(of_contract).count();
        self.ledgers += 1;
        self.transactions += ledger.transactions.len();
        *self.failed.get_or_insert(0) +=
            ledger.transactions.iter().filter(|t| !t.successful).count();
        self.smart_contract += ledger.transactions.iter().filter(|t| t.smart_contract).count();
        *self.contract_events.get_or_insert(0) += by_contracts;
        self.operation_events += by_operations;
        *self.transaction_events.get_or_insert(0) += ledger.events.len() - by_operations;
    }

    fn check(&self, counted: &Self, name: &str) {
        let counted = Self {
            failed: self.failed.and(counted.failed),
            contract_events: self.contract_events.and(counted.contract_events),
            transaction_events: self.transaction_events.and(counted.transaction_events),
            ..*counted
        };
        assert_eq!(*self, counted, "{name}");
    }
}

/// Reads the tables of the index: counts by file name.
fn index(folder: &Path) -> HashMap<String, Counts> {
    let text = fs::read_to_string(folder.join("INDEX.md")).unwrap();
    let mut counts = HashMap::new();
    let mut section = "";
    let mut columns: Vec<&str> = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = title.split(' ').next().unwrap();
        }
        let Some(cells) = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
            continue;
        };
        let cells: Vec<&str> = cells.split('|').map(str::trim).collect();
        match cells[0] {
            "file" | "suite/file" => columns = cells,
            rule if rule.starts_with("---") => {}
            file => {
                counts.insert(format!("{section}/{file}"), row(&columns, &cells));
            }
        }
    }
    counts
}

fn row(columns: &[&str], cells: &[&str]) -> Counts {
    let cell = |name: &str| {
        columns.iter().position(|column| *column == name).map(|position| cells[position])
    };
    let number = |name: &str| cell(name).map(|text| text.parse::<usize>().unwrap());
    let (transactions, failed) = match (cell("tx (failed)"), number("tx")) {
        (Some(both), _) => {
            let (all, failed) = both.split_once(" (").unwrap();
            (all.parse().unwrap(), Some(failed.trim_end_matches(')').parse().unwrap()))
        }
        (None, all) => (all.unwrap(), None),
    };
    let contract_events = number("ev-S");
    let classic_events = number("ev-C");
    Counts {
        ledgers: number("ledgers").unwrap_or(1),
        transactions,
        failed,
        smart_contract: number("Soroban").unwrap(),
        contract_events,
        operation_events: contract_events
            .zip(classic_events)
            .map(|(contract, classic)| contract + classic)
            .or(number("op ev"))
            .or(number("op events"))
            .unwrap(),
        transaction_events: number("ev-fee").or(number("tx ev")),
    }
}

/// Checks the header hashes, and the links between ledgers with consecutive sequences.
fn check_chain(fixture: &Fixture) {
    let mut previous: Option<Link> = None;
    for raw in &fixture.ledgers {
        let view = decode(raw, fixture.network.id()).unwrap();
        assert_eq!(verify_header(&view.header), Ok(()), "{}", fixture.name);
        let link = Link::from(&view.header);
        if let Some(previous) = previous
            && previous.sequence.next() == Some(link.sequence)
        {
            assert_eq!(verify_link(&previous, &link), Ok(()), "{}", fixture.name);
        }
        previous = Some(link);
    }
}

#[test]
fn public_ledgers_form_a_chain_and_forged_links_are_refused() {
    let Some(folder) = fixtures::folder() else { return };
    let links: Vec<Link> = (63_092_982..=63_092_993)
        .map(|sequence| {
            let fixture = fixtures::load(&folder, &format!("pubnet/ledger-{sequence}.xdr.gz"));
            let view = decode(&fixture.ledgers[0], fixture.network.id()).unwrap();
            assert_eq!(view.header.sequence, LedgerSeq(sequence));
            Link::from(&view.header)
        })
        .collect();
    for pair in links.windows(2) {
        assert_eq!(verify_link(&pair[0], &pair[1]), Ok(()));
    }
    assert!(matches!(verify_link(&links[0], &links[2]), Err(VerifyError::NotNext { .. })));
    let forged = Link { hash: links[2].hash, ..links[0] };
    assert!(matches!(verify_link(&forged, &links[1]), Err(VerifyError::BrokenLink { .. })));
}

#[test]
fn a_ledger_of_another_network_is_refused_naming_the_passphrase() {
    let Some(folder) = fixtures::folder() else { return };
    let fixture = fixtures::load(&folder, "testnet/ledger-172627.xdr.zst");
    let mainnet = Network::from_name_or_passphrase("mainnet");
    let Verdict::Inconsistent(error) = compare(&fixture.ledgers[0], &mainnet, &fixture.name) else {
        panic!("a test network's ledger is accepted as one of the main network");
    };
    let ledger = LedgerSeq(172_627);
    assert_eq!(error, DecodeError::NoEnvelopeMatches(ledger, 5));
    assert!(error.to_string().contains("passphrase"), "{error}");
}

#[test]
fn errors_for_newer_protocols_and_metadata_suggest_an_upgrade() {
    let Some(folder) = fixtures::folder() else { return };
    let fixture = fixtures::load(&folder, "testnet/ledger-10.xdr.zst");
    let ledger = &fixture.ledgers[0];

    let mut newer_metadata = ledger.clone();
    newer_metadata[3] = 3;
    let mut newer_protocol = ledger.clone();
    // Version, extension and hash precede the protocol in the header.
    let protocol = newer_protocol.get_mut(4 + 4 + 32..).unwrap().first_chunk_mut().unwrap();
    assert_eq!(u32::from_be_bytes(*protocol), 21);
    *protocol = 31u32.to_be_bytes();
    let still_decodes = newer_protocol.clone();
    newer_protocol.truncate(ledger.len() - 4);

    for raw in [newer_metadata, newer_protocol] {
        match compare(&raw, &fixture.network, &"newer ledger") {
            Verdict::Malformed(
                error @ (DecodeError::NewerMetadata(3) | DecodeError::NewerProtocol(_, 31)),
            ) => assert!(error.to_string().contains("upgrade Orrery"), "{error}"),
            other => panic!("{other:?}"),
        }
    }
    compare(&still_decodes, &fixture.network, &"newer header alone");
    let view = decode(&still_decodes, fixture.network.id()).unwrap();
    assert!(protocol_warning(&view.header).unwrap().contains("upgrade Orrery"));
    let view = decode(ledger, fixture.network.id()).unwrap();
    assert_eq!(protocol_warning(&view.header), None);
}
