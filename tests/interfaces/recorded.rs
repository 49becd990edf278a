//! Recorded events of real contracts: those of assets, and those of the protocols whose interfaces
//! are bundled.

use std::collections::{BTreeMap, BTreeSet};

use orrery_interfaces::{
    Interface, asset_contract, bundled, bundled_names, declaration, is_asset_contract,
};
use orrery_ledger::decode::{EventType, decode};
use orrery_ledger::domain::{ContractId, NetworkId};
use orrery_testkit::fixtures;
use stellar_xdr::{Limits, ReadXdr, ScVal};

use crate::made::reconstructed;

/// A recorded event of a contract.
struct Recorded {
    network: NetworkId,
    contract: ContractId,
    topics: Vec<ScVal>,
    data: ScVal,
}

impl Recorded {
    fn is_of_asset(&self) -> bool {
        is_asset_contract(&self.topics, &self.network, &self.contract)
    }

    /// The text topics that begin the event.
    fn title(&self) -> String {
        let text = |topic: &ScVal| match topic {
            ScVal::Symbol(text) => Some(text.to_string()),
            ScVal::String(text) => Some(text.to_string()),
            _ => None,
        };
        self.topics.iter().map_while(text).take(2).collect::<Vec<_>>().join(" ")
    }
}

/// All events of contracts in the recorded ledgers, each ledger once.
fn recorded() -> Option<Vec<Recorded>> {
    let folder = fixtures::folder()?;
    let mut events = Vec::new();
    for name in fixtures::files(&folder) {
        if name.starts_with("lake-pubnet/") {
            continue;
        }
        let fixture = fixtures::load(&folder, &name);
        let network = *fixture.network.id();
        for raw in &fixture.ledgers {
            let view = decode(raw, &network).unwrap();
            for event in view.events.iter().filter(|it| it.event_type == EventType::Contract) {
                let value = |xdr: &[u8]| ScVal::from_xdr(xdr, Limits::depth(500)).unwrap();
                let Some(contract) = event.contract else { continue };
                events.push(Recorded {
                    network,
                    contract: ContractId(*contract),
                    topics: view.topics[event.topics.clone()].iter().map(|it| value(it)).collect(),
                    data: value(event.data),
                });
            }
        }
    }
    Some(events)
}

/// Returns the name that the event has, after checking that nothing of it is lost.
fn name(interface: &Interface, event: &Recorded) -> Option<(String, bool)> {
    let interfaces = [interface];
    let matched = declaration(&interfaces, &event.topics, &event.data)?;
    let whole = (event.topics.clone(), event.data.clone());
    assert_eq!(reconstructed(&matched, &event.topics), whole);
    Some((matched.name().to_owned(), matched.rest.is_empty()))
}

#[test]
fn every_event_of_an_asset_is_declared() {
    let Some(events) = recorded() else { return };
    let mut counts = BTreeMap::new();
    for event in events.iter().filter(|event| event.is_of_asset()) {
        let title = format!("{:?} {:?}", event.topics, event.data);
        let (name, is_whole) = name(asset_contract(), event).unwrap_or_else(|| panic!("{title}"));
        assert!(is_whole, "{title}");
        *counts.entry((name, event.data.name(), event.topics.len())).or_insert(0) += 1;
    }
    let counts: Vec<_> = counts
        .iter()
        .map(|((name, data, topics), count)| (name.as_str(), *data, *topics, *count))
        .collect();
    let expected = [
        ("approve", "Vec", 4, 1),
        ("burn", "I128", 3, 18),
        ("clawback", "I128", 3, 1),
        ("mint", "I128", 3, 26),
        ("mint", "Map", 3, 46),
        ("set_authorized", "Bool", 3, 18),
        ("transfer", "I128", 4, 6491),
        ("transfer", "Map", 4, 339),
    ];
    assert_eq!(counts, expected);
}

/// Names of the events that each bundled interface declares among the recorded ones, with their
/// numbers, and the titles of those of the same contracts that it does not declare.
#[test]
fn events_of_bundled_protocols_are_declared() {
    let Some(events) = recorded() else { return };
    let events: Vec<&Recorded> = events.iter().filter(|event| !event.is_of_asset()).collect();
    let mut all = Vec::new();
    for protocol in bundled_names() {
        let interface = bundled(protocol).unwrap();
        let (mut found, mut contracts) = (BTreeMap::new(), BTreeSet::new());
        for event in &events {
            if let Some((name, is_whole)) = name(interface, event) {
                assert!(is_whole, "{protocol}: {}", event.title());
                *found.entry(name).or_insert(0) += 1;
                contracts.insert(event.contract.0);
            }
        }
        let mut missed = BTreeMap::new();
        for event in events.iter().filter(|event| contracts.contains(&event.contract.0)) {
            if name(interface, event).is_none() {
                *missed.entry(event.title()).or_insert(0) += 1;
            }
        }
        all.push(format!("{protocol}: {found:?} but not {missed:?}").replace('"', ""));
    }
    let expected = [
        // A vault's shares are a token, whose events are those of a pair.
        "soroswap: {mint: 2, soroswap_pair_swap: 2, soroswap_pair_sync: 2, transfer: 1} but not \
         {DeFindexVault deposit: 2}",
        "blend: {supply: 2} but not {}",
        "aquarius: {charge_provider_fee: 2, pool_state: 3, swap: 7, trade: 13, \
         update_reserves: 12} but not {}",
        "phoenix: {swap_actual_received_amount: 1, swap_buy_token: 1, swap_offer_amount: 1, \
         swap_referral_fee_amount: 1, swap_return_amount: 1, swap_sell_token: 1, swap_sender: 1, \
         swap_spread_amount: 1, withdraw_rewards_reward_token: 1, withdraw_rewards_user: 1} but not \
         {}",
    ];
    assert_eq!(all, expected);
}
