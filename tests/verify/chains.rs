//! Chains of forged ledgers: what validators signed attests the honest ledgers before the forgery,
//! and none from it on.

use ed25519_dalek::SigningKey;
use orrery_ledger::decode::decode;
use orrery_ledger::domain::{LedgerRange, LedgerSeq, Network, NodeId};
use orrery_ledger::validators::{Organisation, Signed, Unattested, Validators};
use orrery_ledger::verify::{Link, Policy, verify, verify_link};
use orrery_testkit::fixtures;
use orrery_testkit::forged::{Extent, Ledger, forgers_key, sign, signature_of};
use orrery_testkit::sandbox::{self, sandbox_of};
use stellar_xdr::*;

/// The consecutive public ledgers.
const FIRST: u32 = 63_092_982;
const LAST: u32 = 63_092_993;

fn public() -> Option<(Network, Vec<Ledger>)> {
    let folder = fixtures::folder()?;
    let read = |ledger| {
        let fixture = fixtures::load(&folder, &format!("pubnet/ledger-{ledger}.xdr.gz"));
        Ledger::read(&fixture.ledgers[0]).unwrap()
    };
    Some((Network::from_name_or_passphrase("mainnet"), (FIRST..=LAST).map(read).collect()))
}

/// Checks each ledger and the links, and returns what was signed.
fn signed_in(ledgers: &[Ledger], network: &Network) -> Signed {
    let mut signed = Signed::default();
    let mut previous: Option<Link> = None;
    for ledger in ledgers {
        let raw = ledger.encode();
        let view = decode(&raw, network.id()).unwrap();
        let verified = verify(&view, network.id(), Policy::default()).unwrap();
        let link = Link::from(&view.header);
        if let Some(previous) = previous {
            verify_link(&previous, &link).unwrap();
        }
        if let Some(signer) = verified.signer {
            signed.add(signer, link.sequence);
        }
        previous = Some(link);
    }
    signed
}

fn range() -> LedgerRange {
    LedgerRange::new(LedgerSeq(FIRST), LedgerSeq(LAST))
}

/// The known validators, of which fewer organisations are needed, as the recorded ledgers are few.
fn validators(network: &Network, threshold: usize) -> Validators {
    let known = Validators::of_network(network).unwrap();
    Validators::new(known.organisations().to_vec(), threshold).unwrap()
}

#[test]
fn public_ledgers_are_attested_by_the_known_validators() {
    let Some((network, ledgers)) = public() else { return };
    let signed = signed_in(&ledgers, &network);
    let mut newest = LAST;
    for threshold in 1..=7 {
        match validators(&network, threshold).attested(range(), &signed) {
            Ok(ledger) => {
                println!("{threshold} organisations attest ledger {ledger}");
                assert!(ledger.0 < newest, "more organisations attest a newer ledger");
                newest = ledger.0;
            }
            Err(reason) => {
                println!("{threshold} organisations: {reason}");
                assert!(threshold > 5);
            }
        }
    }
}

#[test]
fn forged_chains_are_attested_only_up_to_the_forgery() {
    let Some((network, honest)) = public() else { return };
    for forged_at in 0..honest.len() {
        let mut ledgers = honest.clone();
        // What a forger would change: the fee of the first transaction.
        ledgers[forged_at].applied[0].result.result.fee_charged += 1;
        ledgers[forged_at].make_right(Extent::HeaderHash, network.id(), &forgers_key(1));
        for at in forged_at + 1..ledgers.len() {
            let previous = ledgers[at - 1].header.hash.clone();
            ledgers[at].link_to(&previous);
            ledgers[at].make_right(Extent::Signature, network.id(), &forgers_key(at as u8));
        }
        let signed = signed_in(&ledgers, &network);
        for threshold in 1..=7 {
            let attested = validators(&network, threshold).attested(range(), &signed);
            let of_honest = FIRST + forged_at as u32;
            assert!(attested.is_ok_and(|ledger| ledger.0 < of_honest) || attested.is_err());
        }
    }
}

/// A signature is genuine on any ledger without transactions whose header says that the set which it
/// covers was dropped. So it says nothing about the ledger before.
#[test]
fn emptied_ledgers_with_genuine_signatures_attest_nothing() {
    let Some((network, honest)) = public() else { return };
    let mut emptied: Vec<Ledger> = Vec::new();
    for ledger in &honest {
        let mut ledger = ledger.clone();
        let header = &mut ledger.header.header;
        let value = &mut header.scp_value;
        let lc_value_signature = signature_of(value).unwrap().clone();
        value.ext = StellarValueExt::EmptyTxSet(StellarValueProposedValue {
            tx_set_hash: value.tx_set_hash.clone(),
            previous_ledger_hash: header.previous_ledger_hash.clone(),
            previous_ledger_version: header.ledger_version,
            lc_value_signature,
        });
        value.tx_set_hash = Hash::default();
        ledger.applied = Vec::new();
        ledger.change_envelopes(Vec::clear);
        if let Some(previous) = emptied.last() {
            ledger.link_to(&previous.header.hash);
        }
        ledger.make_right(Extent::HeaderHash, network.id(), &forgers_key(1));
        emptied.push(ledger);
    }
    let signed = signed_in(&emptied, &network);
    assert_eq!(signed, Signed::default());
    let attested = validators(&network, 1).attested(range(), &signed);
    assert_eq!(attested, Err(Unattested::TooFew { signed: 0, needed: 1 }));
}

/// A chain with each kind of value, whose ledgers keys of its own sign in turn.
#[test]
fn a_chain_with_each_kind_of_value_and_keys_of_its_own_is_attested() {
    let network = Network::from_passphrase("A network of its own ; 2026");
    let keys: Vec<SigningKey> = (1..=3).map(forgers_key).collect();
    let mut ledgers: Vec<Ledger> = Vec::new();
    for (at, raw) in sandbox::ledgers(sandbox_of(network.clone(), 3, 1..=4), 24).iter().enumerate()
    {
        let mut ledger = Ledger::read(raw).unwrap();
        if let Some(previous) = ledgers.last() {
            ledger.link_to(&previous.header.hash);
        }
        set_kind(&mut ledger, at);
        ledger.make_right(Extent::HeaderHash, network.id(), &keys[0]);
        sign(&mut ledger.header.header.scp_value, network.id(), &keys[at % 3]);
        ledger.header.hash = orrery_testkit::forged::hash(&ledger.header.header);
        ledgers.push(ledger);
    }
    let signed = signed_in(&ledgers, &network);
    let organisations = keys.iter().enumerate().map(|(at, key)| Organisation {
        name: at.to_string(),
        validators: vec![NodeId(key.verifying_key().to_bytes())],
    });
    let organisations: Vec<_> = organisations.collect();
    // Ledgers 2 to 25, of which every fourth and every fifth drop their sets.
    let range = LedgerRange::new(LedgerSeq(2), LedgerSeq(25));
    let by_naive_model = |threshold: usize| {
        let mut newest: Vec<u32> = (0..3)
            .map(|key| (0..24).rev().find(|at| at % 3 == key && !drops(*at)).unwrap() as u32 + 2)
            .collect();
        newest.sort_unstable();
        LedgerSeq(newest[3 - threshold] - 1)
    };
    for threshold in 1..=3 {
        let validators = Validators::new(organisations.clone(), threshold).unwrap();
        assert_eq!(validators.attested(range, &signed), Ok(by_naive_model(threshold)));
    }
}

fn drops(at: usize) -> bool {
    matches!(at % 5, 3 | 4)
}

/// Gives the ledger one of the kinds of values.
fn set_kind(ledger: &mut Ledger, at: usize) {
    let header = &ledger.header.header;
    let close_time_ms = TimePointMs(header.scp_value.close_time.0 * 1000 + 7);
    let set = Hash([at as u8; 32]);
    let (previous_ledger_hash, previous_ledger_version) =
        (header.previous_ledger_hash.clone(), header.ledger_version);
    let lc_value_signature = LedgerCloseValueSignature::default();
    let ext = match at % 5 {
        0 | 1 => StellarValueExt::Signed(lc_value_signature),
        2 => StellarValueExt::SignedMs(StellarValueSignedMsValue {
            close_time_ms,
            lc_value_signature,
        }),
        3 => StellarValueExt::EmptyTxSet(StellarValueProposedValue {
            tx_set_hash: set,
            previous_ledger_hash,
            previous_ledger_version,
            lc_value_signature,
        }),
        _ => StellarValueExt::EmptyTxSetMs(StellarValueProposedMsValue {
            close_time_ms,
            tx_set_hash: set,
            previous_ledger_hash,
            previous_ledger_version,
            lc_value_signature,
        }),
    };
    ledger.header.header.scp_value.ext = ext;
    if drops(at) {
        ledger.header.header.scp_value.tx_set_hash = Hash::default();
        ledger.applied = Vec::new();
        ledger.change_envelopes(Vec::clear);
    }
}
