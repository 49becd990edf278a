//! Events of assets that were rewritten after the fact (CAP-67): what is let pass although it is not
//! proven, and what is not.

use orrery_ledger::decode::decode;
use orrery_ledger::domain::Network;
use orrery_ledger::verify::{Invocations, Policy, Rewritten, Rule, VerifyError, verify};
use orrery_testkit::fixtures;
use orrery_testkit::forged::{Ledger, hash};
use stellar_xdr::*;

/// A ledger of protocol 22 in which the events of one invocation were rewritten.
fn original() -> Option<(Network, Ledger)> {
    let folder = fixtures::folder()?;
    let fixture = fixtures::load(&folder, "pubnet/ledger-57500008.xdr.gz");
    Some((fixture.network.clone(), Ledger::read(&fixture.ledgers[0]).unwrap()))
}

fn verified(ledger: &Ledger, network: &Network) -> Result<Invocations, VerifyError> {
    let raw = ledger.encode();
    let view = decode(&raw, network.id()).unwrap();
    verify(&view, network.id(), Policy::default()).map(|verified| verified.invocations)
}

/// The position of the transaction whose events were rewritten: any other form of them is unproven.
fn rewritten(ledger: &Ledger, network: &Network) -> usize {
    let positions = ledger.invocations().into_iter().filter(|(_, events)| *events > 0);
    let unproven = |position: &usize| {
        let mut changed = ledger.clone();
        changed.set_return_value(*position, ScVal::U32(1));
        verified(&changed, network).is_ok_and(|invocations| invocations.unproven == 1)
    };
    positions.map(|(position, _)| position).find(unproven).unwrap()
}

#[test]
fn unproven_events_are_those_of_contracts_that_the_transaction_names() {
    let Some((network, ledger)) = original() else { return };
    assert_eq!(verified(&ledger, &network).unwrap().rewritten, 1);
    let at = rewritten(&ledger, &network);
    let mut forged = ledger.clone();
    let mut events = forged.events(at);
    let foreign =
        ContractEvent { contract_id: Some(ContractId(Hash([9; 32]))), ..events[0].clone() };
    events.push(foreign);
    forged.set_events(at, events);
    let VerifyError::Fault(fault) = verified(&forged, &network).unwrap_err() else {
        panic!("it is refused for another reason")
    };
    assert_eq!((fault.rule, fault.operation), (Rule::Invocation, Some(0)));
}

/// Megabytes in an event do not multiply by the addresses that are tried.
#[test]
fn large_events_are_not_searched() {
    let Some((network, ledger)) = original() else { return };
    let at = rewritten(&ledger, &network);
    let mut forged = ledger.clone();
    let mut events = forged.events(at);
    let ContractEventBody::V0(body) = &mut events[0].body;
    body.data = ScVal::Bytes(ScBytes(vec![7; 20 << 20].try_into().unwrap()));
    forged.set_events(at, events);
    assert_eq!(verified(&forged, &network).unwrap().unproven, 1);
    let raw = forged.encode();
    let view = decode(&raw, network.id()).unwrap();
    let strict = Policy { rewritten: Rewritten::Refuse, ..Policy::default() };
    assert!(verify(&view, network.id(), strict).is_err());
}

/// The transactions of the ledger that upgrades to protocol 23 were applied under protocol 22.
#[test]
fn the_ledger_that_upgrades_to_protocol_23_may_hold_rewritten_events() {
    let Some((network, mut ledger)) = original() else { return };
    let mut signed = |upgrades: Vec<UpgradeType>| {
        let header = &mut ledger.header.header;
        header.ledger_version = 23;
        header.scp_value.upgrades = upgrades.try_into().unwrap();
        ledger.header.hash = hash(&ledger.header.header);
        verified(&ledger, &network)
    };
    assert!(signed(Vec::new()).is_err());
    let upgrade = |upgrade: LedgerUpgrade| {
        UpgradeType(upgrade.to_xdr(Limits::none()).unwrap().try_into().unwrap())
    };
    assert!(signed(vec![upgrade(LedgerUpgrade::BaseFee(23))]).is_err());
    let upgrades = [LedgerUpgrade::BaseFee(100), LedgerUpgrade::Version(23)].map(upgrade);
    assert_eq!(signed(upgrades.to_vec()).unwrap().rewritten, 1);
}
