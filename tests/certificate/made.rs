//! Certificates of made chains: values with times in milliseconds, dropped transaction sets, and
//! rewritten events.

use orrery_ledger::certificate::check;
use orrery_ledger::decode::decode;
use orrery_ledger::domain::{LedgerRange, LedgerSeq, Network, NodeId};
use orrery_ledger::validators::{Organisation, Validators};
use orrery_testkit::newest::{MILLISECONDS_FROM, Newest};
use orrery_testkit::sandbox::{ledgers, local, sandbox};

use super::Chain;

#[test]
fn the_sandbox_is_proven() {
    let chain = Chain::trusting_all(local(), ledgers(sandbox(5, 0..=12), 24), 1);
    for contract in chain.contracts().iter().take(4) {
        for (first, last) in [(2, 24), (2, 2), (24, 24), (9, 15)] {
            let range = LedgerRange::new(first, last);
            let (_, written) = chain.proven(chain.claim(*contract, range));
            assert_eq!(written.end, LedgerSeq(last + 1));
        }
    }
}

#[test]
fn milliseconds_and_dropped_sets_are_proven() {
    let made = Newest::made(local(), 4);
    let dropped = made.dropped.clone();
    let chain = Chain::trusting_all(local(), made.ledgers, 1);
    let contract = chain.contracts()[0];
    let last = chain.last().0 - 1;
    assert!(dropped.iter().any(|ledger| *ledger > MILLISECONDS_FROM));
    // Of all ledgers, and so that each dropped set is the first of the tail.
    let ranges = dropped.iter().map(|ledger| LedgerRange::new(chain.first(), ledger.0 - 1));
    for range in ranges.chain([LedgerRange::new(chain.first(), last)]) {
        let (_, written) = chain.proven(chain.claim(contract, range));
        let next = LedgerSeq(range.last.0 + 1);
        // A dropped set attests nothing.
        assert_eq!(written.end > next, dropped.contains(&next), "{range}");
    }
}

#[test]
fn who_trusts_others_refuses() {
    let chain = Chain::trusting_all(local(), ledgers(sandbox(6, 0..=6), 12), 1);
    let contract = chain.contracts()[0];
    let (bytes, _) = chain.proven(chain.claim(contract, LedgerRange::new(4, 8)));
    let organisation = Organisation { name: "other".into(), validators: vec![NodeId([3; 32])] };
    let others = Validators::new(vec![organisation], 1).unwrap();
    let error = check(&bytes, chain.network.id(), &others).unwrap_err();
    assert!(error.to_string().contains("ledger 9"), "{error}");
    let other = Network::from_name_or_passphrase("testnet");
    let error = check(&bytes, other.id(), &chain.validators).unwrap_err();
    assert!(error.to_string().starts_with("the certificate is of the network "), "{error}");
}

#[test]
fn a_false_ledger_is_not_proven() {
    let chain = Chain::trusting_all(local(), ledgers(sandbox(7, 4..=8), 12), 1);
    let contract = chain.contracts()[0];
    let mut refused = 0;
    for ledger in 4..=8 {
        let mut changed = chain.clone();
        let raw = changed.ledgers.get_mut(&LedgerSeq(ledger)).unwrap();
        let view = decode(&chain.ledgers[&LedgerSeq(ledger)], local().id()).unwrap();
        let Some(event) = super::events(&view).into_iter().next() else { continue };
        let at = raw.windows(event.1.2.len()).position(|part| part == event.1.2).unwrap();
        raw[at + event.1.2.len() - 1] ^= 1;
        let range = LedgerRange::new(4, 8);
        let claim = chain.claim(contract, range);
        let error = changed.prove(claim).unwrap_err().to_string();
        assert!(error.contains(&format!("ledger {ledger}")), "{error}");
        refused += 1;
    }
    assert!(refused > 0);
}
