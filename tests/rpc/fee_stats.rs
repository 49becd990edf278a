//! `getFeeStats`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::naive::{self, Ledger};
use crate::world::{Chain, World};

/// Computes a distribution by the documented rules, from counts of values instead of ranks.
fn distribution(ledgers: &[&Ledger], of_smart_contracts: bool) -> Value {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for transaction in ledgers.iter().flat_map(|ledger| &ledger.transactions) {
        match transaction.inclusion_fee {
            Some((smart_contract, fee)) if smart_contract == of_smart_contracts => {
                *counts.entry(fee).or_default() += 1;
            }
            _ => {}
        }
    }
    let total: u64 = counts.values().sum();
    // The least value that at least `percent` percent of the values do not exceed.
    let percentile = |percent: u64| {
        let mut below = 0;
        let found = counts.iter().find(|(_, count)| {
            below += **count;
            below * 100 >= percent * total
        });
        found.map_or(0, |(fee, _)| *fee).to_string()
    };
    let most = counts.values().max().copied().unwrap_or(0);
    let mode = counts.iter().find(|(_, count)| **count == most).map_or(0, |(fee, _)| *fee);
    let mut shown = json!({
        "max": percentile(100),
        "min": counts.keys().next().unwrap_or(&0).to_string(),
        "mode": mode.to_string(),
        "transactionCount": total.to_string(),
        "ledgerCount": if total == 0 { 0 } else { ledgers.len() },
    });
    for percent in [10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99] {
        shown[format!("p{percent}")] = json!(percentile(percent));
    }
    shown
}

fn expected(ledgers: &[Ledger]) -> Value {
    let newest = |most: usize| ledgers.iter().rev().take(most).collect::<Vec<_>>();
    json!({
        "sorobanInclusionFee": distribution(&newest(50), true),
        "inclusionFee": distribution(&newest(10), false),
        "latestLedger": ledgers.last().unwrap().sequence,
    })
}

/// Calls the method after every ledger, so that it uses what it cached of earlier ledgers.
fn check(chain: &Chain) {
    let world = World::empty(&chain.network);
    let mut ledgers = Vec::new();
    for raw in &chain.ledgers {
        world.add(std::slice::from_ref(raw));
        ledgers.push(naive::ledger(raw, &chain.network));
        let answer = world.call("getFeeStats", &Value::Null).unwrap();
        let wanted = expected(&ledgers);
        assert_eq!(answer, wanted, "{} {}", chain.name, ledgers.len());
    }
    let fresh = World::of(chain);
    assert_eq!(fresh.call("getFeeStats", &json!({})).unwrap(), expected(&ledgers));
}

#[test]
fn fee_stats_cover_the_newest_ledgers() {
    check(&Chain::made());
    if let Some(chain) = Chain::public() {
        check(&chain);
    }
}

#[test]
fn fee_stats_of_recorded_ledgers_are_correct() {
    crate::world::each_recorded(check);
}
