//! Certificates of real ledgers.

use std::collections::{BTreeMap, BTreeSet};

use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq, Network};
use orrery_testkit::{data, fixtures, size};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::Chain;

#[test]
fn ranges_of_the_public_network_are_proven() {
    let Some(chain) = Chain::public() else { return };
    let (contracts, attested) = (chain.contracts(), chain.attested());
    println!(
        "{} contracts; of ledgers {} to {}, those up to {attested} are attested",
        contracts.len(),
        chain.first(),
        chain.last()
    );
    // All ranges, each with all contracts; those with events in the range first.
    let (first, attested) = (chain.first().0, attested.0);
    let ranges = (first..=attested).flat_map(|a| (a..=attested).map(move |b| (a, b)));
    let mut cases: Vec<(ContractId, LedgerRange)> = ranges
        .map(|(a, b)| LedgerRange::new(a, b))
        .flat_map(|range| contracts.iter().map(move |contract| (*contract, range)))
        .collect();
    cases.shuffle(&mut ChaCha8Rng::seed_from_u64(1));
    let emitting: BTreeMap<LedgerSeq, BTreeSet<ContractId>> = (first..=attested)
        .map(LedgerSeq)
        .map(|ledger| {
            let events = super::events(&chain.view(ledger));
            (ledger, events.into_iter().map(|(contract, _)| contract).collect())
        })
        .collect();
    cases.sort_by_key(|(contract, range)| {
        !emitting.range(range.first..=range.last).any(|(_, of)| of.contains(contract))
    });
    let count = size::choose(12, 50) as usize;
    let longest = LedgerRange::new(first, attested);
    let also = [(contracts[0], longest), (ContractId([7; 32]), longest)];
    for (contract, range) in cases.into_iter().take(count).chain(also) {
        let (bytes, written) = chain.proven(chain.claim(contract, range));
        let of = |last: LedgerSeq| -> usize {
            chain.ledgers.range(range.first..=last).map(|(_, raw)| raw.len()).sum()
        };
        println!(
            "{contract}, ledgers {range}: {} events, attested with {}; {} bytes, raw ledgers \
             {} bytes ({} with those that attest): {:.1} %",
            written.events,
            written.end,
            bytes.len(),
            of(range.last),
            of(written.end),
            100.0 * bytes.len() as f64 / of(range.last) as f64
        );
    }
}

#[test]
fn what_is_not_attested_is_not_proven() {
    let Some(chain) = Chain::public() else { return };
    let contract = chain.contracts()[0];
    let range = LedgerRange::new(chain.attested().0 + 1, chain.attested().0 + 1);
    let error = chain.prove(chain.claim(contract, range)).unwrap_err();
    let told = error.to_string();
    assert!(told.contains("is not attested") && told.contains("and 5 are needed"), "{told}");
    assert!(told.contains(&chain.last().to_string()), "{told}");
    let missing = LedgerRange::new(chain.first(), chain.last().0 + 1);
    let error = chain.prove(chain.claim(contract, missing)).unwrap_err();
    assert!(error.to_string().contains("is missing: ledgers"), "{error}");
    let empty = LedgerRange::new(chain.last(), chain.first());
    let error = chain.prove(chain.claim(contract, empty)).unwrap_err();
    assert!(error.to_string().contains("are no range"), "{error}");
}

/// The reference node's unit tests: invocations, failed ones, metadata of all versions.
#[test]
fn chains_of_the_reference_node_are_proven() {
    let Some(folder) = data::ledgers() else { return };
    let mut proven = 0;
    let names = fixtures::files(&folder);
    for name in names.iter().filter(|name| name.starts_with("core-tests/")) {
        let fixture = fixtures::load(&folder, name);
        for ledgers in chains(&fixture.ledgers, &fixture.network) {
            let chain = Chain::trusting_all(fixture.network.clone(), ledgers, 1);
            if chain.ledgers.len() < 2 {
                continue;
            }
            let range = LedgerRange::new(chain.first(), chain.last().0 - 1);
            for contract in chain.contracts().iter().chain([&ContractId([7; 32])]) {
                let (_, written) = chain.proven(chain.claim(*contract, range));
                proven += written.events;
            }
        }
    }
    println!("{proven} events of the reference node's chains are proven");
    assert!(proven > 10);
}

/// Splits ledgers where they are not consecutive, and leaves out those before protocol 14, which
/// nobody has signed.
fn chains(ledgers: &[Vec<u8>], network: &Network) -> Vec<Vec<Vec<u8>>> {
    let mut chains: Vec<Vec<Vec<u8>>> = Vec::new();
    let mut previous = None;
    for raw in ledgers {
        if super::signer(raw, network).is_none() {
            previous = None;
            continue;
        }
        let header = super::decode(raw, network.id()).unwrap().header;
        match previous {
            Some(hash) if hash == header.previous_hash => chains.last_mut().unwrap(),
            _ => chains.push_mut(Vec::new()),
        }
        .push(raw.clone());
        previous = Some(header.hash);
    }
    chains
}
