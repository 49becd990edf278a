//! Numbers of events in ledgers, as projects of events read them.

use std::collections::BTreeMap;

use orrery_ledger::decode::{Placement, decode};
use orrery_ledger::domain::{ContractId, Network};

/// Returns the sequence of a ledger, and the number of events that each contract emitted in the
/// operations of its successful transactions.
pub fn by_contract(raw: &[u8], network: &Network) -> (u32, BTreeMap<ContractId, usize>) {
    let view = decode(raw, network.id()).unwrap();
    let mut counts = BTreeMap::new();
    for event in &view.events {
        let transaction = &view.transactions[event.transaction];
        let is_stored = transaction.successful
            && transaction.smart_contract
            && matches!(event.placement, Placement::Operation { .. });
        if let (Some(contract), true) = (event.contract, is_stored) {
            *counts.entry(ContractId(*contract)).or_default() += 1;
        }
    }
    (view.header.sequence.0, counts)
}
