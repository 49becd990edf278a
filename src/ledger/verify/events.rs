//! Checks that the events of each invocation are those that its result names: a successful
//! `InvokeHostFunctionResult` holds the hash of the return value and the events
//! (`InvokeHostFunctionSuccessPreImage`).

use std::ops::AddAssign;

use super::Rewritten;
use super::fault::{Fault, Rule};
use super::outcome::{Outcome, hash_invocation};
pub(crate) use super::rewritten::Budget;
use super::rewritten::{self, Earlier};
use crate::decode::{EventView, LedgerView, Placement, TransactionView};
use crate::domain::NetworkId;

/// The first version of `TransactionMeta` that holds the events of an invocation.
const FIRST_WITH_EVENTS: u32 = 3;
/// The version of `TransactionMeta` in which each operation has its events.
const PER_OPERATION: u32 = 4;

/// Number of successful invocations, by how their events are bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Invocations {
    /// Their events are those that the result names.
    pub bound: u64,
    /// Their events were rewritten (CAP-67), and the earlier form is the one that the result names.
    pub rewritten: u64,
    /// Their events were rewritten, and no earlier form is found: they are not proven.
    pub unproven: u64,
}

impl AddAssign for Invocations {
    fn add_assign(&mut self, other: Self) {
        self.bound += other.bound;
        self.rewritten += other.rewritten;
        self.unproven += other.unproven;
    }
}

/// Checks the events of all successful transactions. Returns how many invocations were bound how,
/// and the first two transactions at fault.
pub fn verify_events(
    ledger: &LedgerView<'_>,
    network: &NetworkId,
    policy: Rewritten,
) -> (Invocations, Vec<Fault>) {
    let mut invocations = Invocations::default();
    let mut budget = Budget::default();
    let mut faults = Vec::new();
    for transaction in ledger.transactions.iter().filter(|one| one.successful) {
        match verify_transaction(ledger, transaction, network, policy, &mut budget) {
            Ok(of_transaction) => invocations += of_transaction,
            Err((rule, operation)) => {
                let (ledger, transaction) = (ledger.header.sequence, Some(transaction.hash));
                faults.push(Fault { ledger, transaction, operation, rule });
                if faults.len() == 2 {
                    break;
                }
            }
        }
    }
    (invocations, faults)
}

fn verify_transaction(
    ledger: &LedgerView<'_>,
    transaction: &TransactionView<'_>,
    network: &NetworkId,
    policy: Rewritten,
    budget: &mut Budget,
) -> Result<Invocations, (Rule, Option<u32>)> {
    let mut found = Invocations::default();
    let Some(invocation) = invocation(ledger, transaction, network, budget)? else {
        return Ok(found);
    };
    match invocation.form {
        Form::Bound => found.bound = 1,
        Form::Rewritten(_) => found.rewritten = 1,
        Form::Unproven if policy == Rewritten::Store => found.unproven = 1,
        Form::Unproven => return Err((Rule::Rewritten, Some(invocation.operation))),
    }
    Ok(found)
}

/// A successful invocation.
pub(crate) struct Invocation<'l, 'a> {
    /// Its 0-based position in the transaction.
    pub operation: u32,
    /// XDR `ScVal`.
    pub return_value: &'a [u8],
    /// Its events, as they were delivered.
    pub events: Vec<&'l EventView<'a>>,
    /// How its result binds them.
    pub form: Form,
}

/// How the result of an invocation binds its events.
pub(crate) enum Form {
    /// It names them.
    Bound,
    /// They were rewritten (CAP-67), and it names this earlier form: each an XDR `ContractEvent`.
    Rewritten(Vec<Vec<u8>>),
    /// They were rewritten, and no earlier form is found.
    Unproven,
}

/// Returns the invocation of a successful transaction, if it is one; or the rule that it breaks, and
/// the operation at fault.
pub(crate) fn invocation<'l, 'a>(
    ledger: &'l LedgerView<'a>,
    transaction: &TransactionView<'a>,
    network: &NetworkId,
    budget: &mut Budget,
) -> Result<Option<Invocation<'l, 'a>>, (Rule, Option<u32>)> {
    let version = transaction.meta_version();
    let outcome = Outcome::of_result(transaction.result, transaction.smart_contract)
        .map_err(|_| (Rule::Results, None))?;
    let (metadata, results) = (transaction.operations, outcome.operations);
    if version >= PER_OPERATION && metadata != results {
        return Err((Rule::Operations { metadata, results }, None));
    }
    if !transaction.smart_contract {
        return Ok(None);
    }
    let events = &ledger.events[transaction.operation_events.clone()];
    let events: Vec<&EventView<'_>> = events.iter().filter(is_of_operation).collect();
    let listed = transaction.listed_events;
    let Some((operation, named)) = outcome.invocation else {
        return if listed == 0 { Ok(None) } else { Err((Rule::Events(listed), None)) };
    };
    let at = |rule| (rule, Some(operation));
    if version < FIRST_WITH_EVENTS {
        return Err(at(Rule::Metadata(version)));
    }
    let return_value = transaction.return_value.ok_or(at(Rule::NoReturnValue))?;
    if listed as usize != events.len() {
        return Err(at(Rule::Diagnostic));
    }
    if let Some(other) = events.iter().find(|event| operation_of(event) != Some(operation)) {
        return Err((Rule::Events(listed), operation_of(other)));
    }
    let form = if hash_invocation(return_value, events.iter().map(|event| event.xdr)) == *named {
        Form::Bound
    } else {
        let bound = (return_value, named);
        match rewritten::earlier(ledger, transaction, &events, network, bound, budget) {
            Earlier::Found(earlier) => Form::Rewritten(earlier),
            Earlier::NotFound => Form::Unproven,
            Earlier::NotRewritten => return Err(at(Rule::Invocation)),
        }
    };
    Ok(Some(Invocation { operation, return_value, events, form }))
}

fn is_of_operation(event: &&EventView<'_>) -> bool {
    operation_of(event).is_some()
}

fn operation_of(event: &EventView<'_>) -> Option<u32> {
    match event.placement {
        Placement::Operation { operation, .. } => Some(operation),
        _ => None,
    }
}
