//! All recorded ledgers, with exactly the exceptions that are known, and ledgers of a sandbox.

use std::collections::BTreeMap;

use orrery_ledger::decode::decode;
use orrery_ledger::domain::Network;
use orrery_ledger::validators::Validators;
use orrery_ledger::verify::{
    Events, Invocations, Policy, Rewritten, Rule, Verified, VerifyError, verify,
};
use orrery_testkit::fixtures;

/// The bundle that its generator merged from two ledgers.
const MERGED: &str = "synthetic/galexie-load-test-ledgers-v23-standalone.xdr.zstd";

/// What was found in the files of one folder.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    ledgers: usize,
    signed: usize,
    invocations: Invocations,
}

#[test]
fn recorded_ledgers_are_what_their_headers_say_with_the_known_exceptions() {
    let Some(folder) = fixtures::folder() else { return };
    let mut found: BTreeMap<String, Found> = BTreeMap::new();
    let mut refused = Vec::new();
    for name in fixtures::files(&folder) {
        let fixture = fixtures::load(&folder, &name);
        let of = found.entry(name.split('/').next().unwrap().to_owned()).or_default();
        for raw in &fixture.ledgers {
            let view = decode(raw, fixture.network.id()).unwrap();
            of.ledgers += 1;
            match verify(&view, fixture.network.id(), Policy::default()) {
                Ok(Verified { signer, invocations, reported }) => {
                    assert_eq!(reported, None);
                    of.signed += usize::from(signer.is_some());
                    of.invocations += invocations;
                }
                Err(VerifyError::Fault(fault)) => refused.push((name.clone(), *fault)),
                Err(error) => panic!("{name}: {error}"),
            }
        }
    }
    let bound = |bound| Invocations { bound, ..Invocations::default() };
    let expected = [
        ("core-tests", 773, 773, bound(468)),
        ("lake-pubnet", 12, 12, bound(129)),
        // Three are older than signatures; the events of one invocation were rewritten.
        ("pubnet", 20, 17, Invocations { rewritten: 1, ..bound(166) }),
        ("synthetic", 32, 30, bound(14_460)),
        ("testnet", 18, 16, bound(5)),
    ];
    let expected = expected.map(|(folder, ledgers, signed, invocations)| {
        (folder.to_owned(), Found { ledgers, signed, invocations })
    });
    assert_eq!(found, BTreeMap::from(expected));
    let refused: Vec<_> = refused
        .iter()
        .map(|(name, fault)| {
            (name.as_str(), fault.ledger.0, matches!(fault.rule, Rule::Signature(_)))
        })
        .collect();
    // The last two are signed for the network `local`.
    let exceptions = [
        (MERGED, 95, false),
        (MERGED, 101, false),
        ("testnet/ledger-10.xdr.zst", 10, true),
        ("testnet/ledger-11.xdr.zst", 11, true),
    ];
    assert_eq!(refused, exceptions);
}

#[test]
fn ledgers_of_another_network_are_refused_by_their_signature() {
    let Some(folder) = fixtures::folder() else { return };
    let local = Network::from_name_or_passphrase("local");
    for ledger in [10, 11] {
        let fixture = fixtures::load(&folder, &format!("testnet/ledger-{ledger}.xdr.zst"));
        let raw = &fixture.ledgers[0];
        let view = decode(raw, local.id()).unwrap();
        assert!(verify(&view, local.id(), Policy::default()).unwrap().signer.is_some());
        let error = verify(&view, fixture.network.id(), Policy::default()).unwrap_err();
        assert!(error.to_string().contains("is not valid on this network"), "{error}");
    }
}

#[test]
fn a_merged_bundle_is_refused_or_reported() {
    let Some(folder) = fixtures::folder() else { return };
    let fixture = fixtures::load(&folder, MERGED);
    for raw in &fixture.ledgers {
        let view = decode(raw, fixture.network.id()).unwrap();
        let report = Policy { events: Events::Report, ..Policy::default() };
        let verified = verify(&view, fixture.network.id(), report).unwrap();
        let VerifyError::Fault(fault) =
            verify(&view, fixture.network.id(), Policy::default()).unwrap_err()
        else {
            panic!("it is refused for another reason")
        };
        assert_eq!(verified.reported, Some(fault));
        assert_eq!(verified.signer, None, "it attests nothing");
    }
}

#[test]
fn every_signer_of_the_public_network_is_a_known_validator() {
    let Some(folder) = fixtures::folder() else { return };
    let network = Network::from_name_or_passphrase("mainnet");
    let validators = Validators::of_network(&network).unwrap();
    for ledger in 63_092_982..=63_092_993 {
        let fixture = fixtures::load(&folder, &format!("pubnet/ledger-{ledger}.xdr.gz"));
        let view = decode(&fixture.ledgers[0], network.id()).unwrap();
        let strict = Policy { rewritten: Rewritten::Refuse, ..Policy::default() };
        let signer = verify(&view, network.id(), strict).unwrap().signer.unwrap();
        assert!(validators.organisation_of(&signer).is_some(), "{ledger}: {signer}");
    }
}
