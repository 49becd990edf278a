//! Checks the market from outside: calls and events against its entries.

use std::collections::BTreeMap;

use stellar_xdr::{
    ContractEvent, ContractEventBody, HostFunction, LedgerCloseMetaV2, LedgerEntryData, LedgerKey,
    OperationBody, ScError, ScMap, ScVal, TransactionResultMetaV1,
};

use super::execution::name_and_data;
use super::{LEDGERS, MARKET_FROM, chain, configuration, envelopes, inner, meta_of};
use crate::network::Sandbox;

fn integer(value: &ScVal) -> i128 {
    match value {
        ScVal::I128(parts) => i128::from(parts),
        other => panic!("{other:?}"),
    }
}

fn fields(value: &ScVal) -> BTreeMap<String, ScVal> {
    let ScVal::Map(Some(ScMap(fields))) = value else { panic!("{value:?}") };
    let named = fields.iter().map(|field| {
        let ScVal::Symbol(name) = &field.key else { panic!("{:?}", field.key) };
        (name.to_utf8_string().unwrap(), field.val.clone())
    });
    named.collect()
}

/// Returns the market's events, each with its name.
fn events(transaction: &TransactionResultMetaV1) -> Vec<(String, &ContractEvent)> {
    let market = Sandbox::market_contract(&configuration().network).unwrap();
    let operations = meta_of(transaction).operations.iter();
    let events = operations.flat_map(|operation| operation.events.iter());
    events
        .filter(|event| event.contract_id.as_ref().is_some_and(|id| id.0.0 == market.0))
        .map(|event| (name_and_data(event).0, event))
        .collect()
}

/// Returns function and arguments of the market's calls that succeeded.
fn calls(ledger: &LedgerCloseMetaV2) -> Vec<(String, Vec<ScVal>)> {
    let (id, network) = (configuration().network, configuration().network.id().0);
    let market = Sandbox::market_contract(&id).unwrap();
    let all: BTreeMap<_, _> =
        envelopes(ledger).into_iter().map(|it| (it.hash(network).unwrap(), it)).collect();
    let mut found = Vec::new();
    for transaction in ledger.tx_processing.iter().filter(|it| !meta_of(it).operations.is_empty()) {
        let envelope = &all[&transaction.result.transaction_hash.0];
        if let OperationBody::InvokeHostFunction(call) = &inner(envelope).tx.operations[0].body
            && let HostFunction::InvokeContract(call) = &call.host_function
            && call.contract_address == crate::network::wasm::address(market)
        {
            found.push((call.function_name.to_utf8_string().unwrap(), call.args.to_vec()));
        }
    }
    found
}

#[test]
fn market_balances_equal_the_deposits() {
    let (ledgers, sandbox) = chain();
    let (mut brought, mut counts) = ((0, 0), BTreeMap::new());
    for (function, args) in ledgers.iter().flat_map(calls) {
        if function == "fund" {
            brought = (brought.0 + integer(&args[1]), brought.1 + integer(&args[2]));
        }
        *counts.entry(function).or_insert(0) += 1;
    }
    let market = Sandbox::market_contract(&configuration().network).unwrap();
    let address = crate::network::wasm::address(market);
    let mut held = (0, 0);
    for (_, entry) in sandbox.state.entries() {
        let LedgerEntryData::ContractData(data) = &entry.data else { continue };
        if data.contract != address || !matches!(data.key, ScVal::Vec(_)) {
            continue;
        }
        let entry = fields(&data.val);
        match (entry.get("cash"), entry.get("goods"), entry.get("amount")) {
            (Some(cash), Some(goods), None) => {
                held = (held.0 + integer(cash), held.1 + integer(goods));
            }
            (None, None, Some(amount)) => held.1 += integer(amount),
            _ => panic!("{entry:?}"),
        }
    }
    assert_eq!(held, brought);
    assert!(counts["fund"] >= 16 && counts["place"] > 40 && counts["fill"] > 60, "{counts:?}");
}

#[test]
fn the_market_starts_at_the_given_ledger_and_does_not_expire() {
    let mut fills = Vec::new();
    for ledger in &chain().0 {
        let sequence = ledger.ledger_header.header.ledger_seq;
        for transaction in ledger.tx_processing.iter() {
            for (name, event) in events(transaction) {
                assert!(sequence > MARKET_FROM.0, "{sequence}");
                let ContractEventBody::V0(body) = &event.body;
                if name == "filled" {
                    assert!(integer(&fields(&body.data)["amount"]) > 0);
                    fills.push(sequence);
                }
            }
        }
    }
    let (first, last) = (fills[0], fills[fills.len() - 1]);
    assert!(first < MARKET_FROM.0 + 12 && last > LEDGERS as u32 - 8, "{first} to {last}");
    // Without extensions, all entries would be archived by now.
    let sandbox = &chain().1;
    let mut keys = sandbox.state.entries().map(|(key, _)| key);
    let code = keys.find(|key| matches!(key, LedgerKey::ContractCode(_))).unwrap();
    let until = sandbox.state.live_until(code).unwrap().unwrap();
    assert!(until > MARKET_FROM.0 + 1_000, "{until}");
}

/// Whether the diagnostic events of a transaction have an error of a contract, as stellar-core writes
/// it: the topics `error` and the error.
fn tells_an_error(transaction: &TransactionResultMetaV1) -> bool {
    meta_of(transaction).diagnostic_events.iter().any(|event| {
        let ContractEventBody::V0(body) = &event.event.body;
        matches!(body.topics.as_slice(), [ScVal::Symbol(name), ScVal::Error(ScError::Contract(_)), ..]
            if name.as_slice() == b"error")
    })
}

#[test]
fn some_fills_exceed_the_offer_and_fail() {
    let refused = chain().0.iter().flat_map(|ledger| {
        let network = configuration().network.id().0;
        let all: BTreeMap<_, _> =
            envelopes(ledger).into_iter().map(|it| (it.hash(network).unwrap(), it)).collect();
        let failed = ledger.tx_processing.iter().filter(|it| meta_of(it).operations.is_empty());
        failed
            .filter(|it| {
                let envelope = &all[&it.result.transaction_hash.0];
                let body = &inner(envelope).tx.operations[0].body;
                matches!(body, OperationBody::InvokeHostFunction(call)
                    if matches!(&call.host_function, HostFunction::InvokeContract(call)
                        if call.function_name.0.as_slice() == b"fill"))
            })
            .map(|it| assert!(tells_an_error(it), "{it:?}"))
            .collect::<Vec<_>>()
    });
    assert!(refused.count() > 3);
}
