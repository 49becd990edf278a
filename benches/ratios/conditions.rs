//! Conditions on events: the time for one event, from its bytes, at the 99th percentile.

use std::hint::black_box;

use orrery::conditions::{Condition, FlatEvent, Own};
use orrery::interfaces::asset_contract;
use orrery_testkit::account_events::{account, address, contract, xdr};
use orrery_testkit::values::{i128, string, symbol};

use super::measure::{micros, quantile, repeat, sized};
use super::report::{Goal, Report, Row};

const ORDINARY: Goal = Goal::at_most(2.0, 1.0);
/// Number of events.
const EVENTS: usize = sized(100_000, 100);
const CONDITION: &str =
    "amount >= 1000000000 and (to like 'G%' or sep0011_asset = 'native') and not \"from\" = to";

/// Measures the goal.
pub fn run(report: &mut Report) {
    let condition = Condition::parse(CONDITION).expect("it is a condition");
    let event = |number: usize| {
        let to = if number.is_multiple_of(2) { account(2) } else { contract(3) };
        let parts = [symbol("transfer"), address(&account(1)), address(&to), string("native")];
        (parts.map(|part| xdr(&part)), xdr(&i128(number as i128 * 1_000_000)))
    };
    let events: Vec<_> = (0..EVENTS).map(event).collect();
    let (emitter, transaction) = ([7; 32], [9; 32]);
    let own = Own { contract: Some(&emitter), ledger: 1, transaction: &transaction, topics: &[] };
    let p99 = repeat(|| {
        let times = micros(&events, |(topics, data)| {
            let topics = topics.each_ref().map(Vec::as_slice);
            let flat = FlatEvent::read(asset_contract(), &topics, data, own);
            let flat = flat.expect("its bytes tell its declaration");
            black_box(condition.judge_flat(&flat));
        });
        quantile(&times, 0.99)
    });
    report.add(Row::absolute("Condition on an event, p99", "µs", p99, ORDINARY));
}
