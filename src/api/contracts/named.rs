//! `/rest/contracts/named`: the addresses that have a name, searched among those that the operator names, the native asset, and the contracts
//! that take the most space or have emitted the newest events. There is no index of names, which strangers choose,
//! so the work of a search is bounded: a contract without much of it is found by its address only.

use std::collections::BTreeSet;

use stellar_xdr::Asset;

use super::super::answer::Answer;
use super::super::call::CurrentCall;
use super::super::{ApiError, Deps};
use super::asset::asset;
use super::label::{Kind, Label, of_contract};
use orrery_ledger::domain::{ContractId, Page, asset_contract_id, parse_asset};
use orrery_store::{EventQuery, TopicFilter};

/// Name of the parameter.
pub(super) const NAME: &str = "name";
/// Maximum number of characters of a name that is searched: that of an asset with its issuer.
const LONGEST: usize = 80;
/// Minimum number of characters that may be a part of a name.
const SHORTEST_PART: usize = 3;
/// Number of the newest events whose contracts are looked at: those of a page.
const NEWEST_EVENTS: usize = 1000;
/// Maximum number of contracts whose names are looked at. Each may take the reading of a transaction.
const MOST_LOOKED_AT: usize = 200;
/// Maximum number of addresses in an answer.
const MOST: usize = 20;

/// Returns the addresses with a name: those that have exactly this one, or else those whose name contains it. Capitals
/// do not matter.
pub(super) fn named(deps: &Deps, call: &CurrentCall<'_>) -> Result<Answer, ApiError> {
    let name = call.query.get(NAME).unwrap_or_default().trim();
    if name.is_empty() || name.chars().count() > LONGEST {
        let problem = format!("is not a name: give one of at most {LONGEST} characters");
        return Err(ApiError::parameter(NAME, problem));
    }
    let wanted = name.to_lowercase();
    let may_be_part = wanted.chars().count() >= SHORTEST_PART;
    let fits = |name: &str| {
        let name = name.to_lowercase();
        name == wanted || may_be_part && name.contains(&wanted)
    };
    let by_operator = deps.settings.names.all().filter(|(_, name)| fits(name));
    let mut found: Vec<Label> = by_operator
        .map(|(address, name)| Label::new(address.to_owned(), name.to_owned(), Kind::Operator))
        .collect();
    let mut is_complete = true;
    if let Some(ledger) = call.as_of {
        let contracts = match of_asset(deps, name)? {
            Some(contract) => vec![contract],
            None => candidates(deps, &mut is_complete)?,
        };
        let is_asset = contracts.len() == 1;
        for contract in contracts.into_iter().take(MOST_LOOKED_AT) {
            if call.allowance.is_over() {
                is_complete = false;
                break;
            }
            let address = contract.to_string();
            if deps.settings.names.of(&address).is_some() {
                continue;
            }
            let label = of_contract(deps, &contract, ledger)?;
            let label = label.filter(|(name, _)| is_asset || fits(name));
            found.extend(label.map(|(name, kind)| Label::new(address, name, kind)));
        }
    }
    if found.iter().any(|label| label.is_called(&wanted)) {
        found.retain(|label| label.is_called(&wanted));
    }
    found.truncate(MOST);
    Ok(Answer { is_complete, ..Answer::of(&found) })
}

/// Returns the contract of the asset that a name spells, `CODE:ISSUER`, if events of it are stored.
fn of_asset(deps: &Deps, name: &str) -> Result<Option<ContractId>, ApiError> {
    let Some(named) = parse_asset(name).filter(|named| *named != Asset::Native) else {
        return Ok(None);
    };
    let contract = asset_contract_id(deps.store.network().id(), &named);
    Ok(asset(&deps.store, &contract)?.map(|_| contract))
}

/// Returns the contracts whose names are looked at, each once. Says in `is_complete` when more are about to be
/// known.
fn candidates(deps: &Deps, is_complete: &mut bool) -> Result<Vec<ContractId>, ApiError> {
    let mut all = vec![asset_contract_id(deps.store.network().id(), &Asset::Native)];
    match deps.contract_sizes.borrow().as_ref() {
        Some(sizes) => all.extend(sizes.largest.iter().map(|it| it.contract)),
        None => *is_complete = false,
    }
    let query = EventQuery {
        ledgers: None,
        contracts: Vec::new(),
        topics: TopicFilter::default(),
        page: Page::first(NEWEST_EVENTS),
    };
    deps.store.events(&query, |event| all.extend(event.contract.map(|id| ContractId(*id))))?;
    let mut seen = BTreeSet::new();
    all.retain(|contract| seen.insert(*contract));
    Ok(all)
}
