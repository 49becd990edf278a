//! `/rest/smart-account-indexer`: smart accounts by credential and by address, one account, totals. The form of the
//! answers is that of smart-account-kit's indexer client.

use serde::Serialize;
use stellar_xdr::ScVal;

use super::{
    Accounts, Entries, EntryRecord, Extent, Reading, address, contract, credential, json,
    own_failure,
};
use crate::accounts::evictions;
use crate::accounts::smart::event::{Kind, Variant};
use crate::accounts::smart::fold::{Account, Rule};
use crate::accounts::smart::lookup::{self, Stats};
use crate::accounts::smart::{CONSUMER, Summary};
use crate::api::answer::Answer;
use crate::api::cors::Sendable;
use crate::api::route::{Call, Handler, Route, Work};
use crate::api::{ApiError, Deps};
use crate::domain::ContractId;

/// Digits of the longest id of a credential that may be asked for. Keys have up to 256 bytes.
const MOST_DIGITS: usize = 4096;

const fn indexed(template: &'static str, handler: Handler<Deps>) -> Route {
    served(template, Work::CurrentKept(&[CONSUMER], handler))
}

const fn served(template: &'static str, work: Work) -> Route {
    let route = super::route(template, work, Sendable::Asked);
    Route { failure: |error| own_failure(error, "Database query failed"), ..route }
}

/// Routes of this area.
pub(in crate::api) static ROUTES: [Route; 5] = [
    served("/rest/smart-account-indexer", Work::Memory(health)),
    indexed("/rest/smart-account-indexer/api/lookup/{credential_id}", by_credential),
    indexed("/rest/smart-account-indexer/api/lookup/address/{address}", by_address),
    served(
        "/rest/smart-account-indexer/api/contract/{contract_id}",
        Work::CurrentKept(&[CONSUMER, evictions::CONSUMER], detail),
    ),
    indexed("/rest/smart-account-indexer/api/stats", stats),
];

/// Everything else under its address.
pub(in crate::api) static ELSEWHERE: [Route; 1] =
    [served("/rest/smart-account-indexer/{*rest}", Work::Memory(super::elsewhere))];

fn health(_: &Deps, _: &Call<'_>) -> Result<Answer, ApiError> {
    Ok(Answer::json(br#"{"status":"ok","service":"smart-account-indexer"}"#.to_vec()))
}

#[derive(Serialize)]
struct SummaryRecord<'a> {
    contract_id: String,
    context_rule_count: usize,
    external_signer_count: u32,
    delegated_signer_count: u32,
    native_signer_count: u32,
    first_seen_ledger: u32,
    last_seen_ledger: u32,
    context_rule_ids: &'a [u32],
}

impl<'a> SummaryRecord<'a> {
    fn of(contract: &ContractId, summary: &'a Summary) -> Self {
        Self {
            contract_id: contract.to_string(),
            context_rule_count: summary.rules.len(),
            external_signer_count: summary.external,
            delegated_signer_count: summary.delegated,
            native_signer_count: summary.native,
            first_seen_ledger: summary.first_seen,
            last_seen_ledger: summary.last_seen,
            context_rule_ids: &summary.rules,
        }
    }
}

fn by_credential(deps: &Deps, call: &Call<'_>) -> Result<Answer, ApiError> {
    let (asked, credential) = credential(call, MOST_DIGITS)?;
    let reading = Reading::of(deps, call, CONSUMER)?;
    let mut list = Accounts::new(deps, call, "credentialId", &asked, "contracts");
    lookup::by_credential(&reading.rows, &credential, |contract, summary| {
        push(&mut list, &reading, &contract, &summary)
    })?;
    Ok(list.finish(&reading))
}

fn by_address(deps: &Deps, call: &Call<'_>) -> Result<Answer, ApiError> {
    let (asked, address) = address(call)?;
    let reading = Reading::of(deps, call, CONSUMER)?;
    let mut list = Accounts::new(deps, call, "signerAddress", &asked, "contracts");
    lookup::by_address(&reading.rows, &address, |contract, summary| {
        push(&mut list, &reading, &contract, &summary)
    })?;
    Ok(list.finish(&reading))
}

fn push(
    list: &mut Accounts<'_>,
    reading: &Reading<'_>,
    contract: &ContractId,
    summary: &Summary,
) -> bool {
    let is_whole = !summary.is_cut && reading.is_whole(contract, summary.first_seen);
    list.push(&SummaryRecord::of(contract, summary), is_whole)
}

#[derive(Serialize)]
struct Detail<'a> {
    #[serde(rename = "contractId")]
    contract_id: String,
    summary: SummaryRecord<'a>,
    #[serde(rename = "contextRules")]
    context_rules: Vec<RuleRecord<'a>>,
    #[serde(flatten)]
    instance: Option<EntryRecord>,
    #[serde(flatten)]
    extent: Extent,
}

#[derive(Serialize)]
struct RuleRecord<'a> {
    context_rule_id: u32,
    signers: Vec<SignerRecord>,
    policies: Vec<PolicyRecord<'a>>,
}

#[derive(Serialize)]
struct SignerRecord {
    signer_type: &'static str,
    signer_address: String,
    credential_id: Option<String>,
}

#[derive(Serialize)]
struct PolicyRecord<'a> {
    policy_address: String,
    install_params: Option<&'a ScVal>,
}

fn detail(deps: &Deps, call: &Call<'_>) -> Result<Answer, ApiError> {
    const NOT_THERE: ApiError = ApiError::NotThere("Contract not found");
    let contract = contract(call).ok_or(NOT_THERE)?;
    let reading = Reading::of(deps, call, CONSUMER)?;
    let (summary, account) = lookup::account(&reading.rows, &contract)?.ok_or(NOT_THERE)?;
    let is_whole = !summary.is_cut && reading.is_whole(&contract, summary.first_seen);
    Ok(json(&Detail {
        contract_id: contract.to_string(),
        summary: SummaryRecord::of(&contract, &summary),
        instance: Entries::of(deps, &contract)?.instance(&contract),
        context_rules: account.rules().map(|(id, rule)| rule_record(&account, id, rule)).collect(),
        extent: reading.extent(is_whole),
    }))
}

fn rule_record<'a>(account: &'a Account, id: u32, rule: &'a Rule) -> RuleRecord<'a> {
    let mut signers: Vec<(Variant, SignerRecord)> = account
        .signers_of(rule)
        .map(|signer| {
            let record = SignerRecord {
                signer_type: signer.variant.name(),
                signer_address: signer.address.to_string(),
                credential_id: signer.credential.map(hex::encode),
            };
            (signer.variant, record)
        })
        .collect();
    // Those of one variant stay in the order in which they were added.
    signers.sort_by_key(|(variant, _)| *variant);
    RuleRecord {
        context_rule_id: id,
        signers: signers.into_iter().map(|(_, record)| record).collect(),
        policies: account
            .policies_of(rule)
            .map(|(address, install_params)| PolicyRecord {
                policy_address: address.to_string(),
                install_params,
            })
            .collect(),
    }
}

#[derive(Serialize)]
struct StatsAnswer {
    stats: StatsRecord,
    #[serde(flatten)]
    extent: Extent,
}

#[derive(Serialize)]
struct StatsRecord {
    total_events: u64,
    unique_contracts: u64,
    unique_credentials: u64,
    first_ledger: u64,
    last_ledger: u64,
    #[serde(rename = "eventTypes")]
    event_types: Vec<KindRecord>,
}

#[derive(Serialize)]
struct KindRecord {
    event_type: &'static str,
    count: u64,
}

fn stats(deps: &Deps, call: &Call<'_>) -> Result<Answer, ApiError> {
    let reading = Reading::of(deps, call, CONSUMER)?;
    let stats = Stats::read(&reading.rows)?;
    let kinds = Kind::ALL.iter().zip(stats.kinds).filter(|(_, count)| *count > 0);
    Ok(json(&StatsAnswer {
        stats: StatsRecord {
            total_events: stats.events,
            unique_contracts: stats.contracts,
            unique_credentials: stats.credentials,
            first_ledger: stats.first_ledger,
            last_ledger: stats.last_ledger,
            event_types: kinds
                .map(|(kind, count)| KindRecord { event_type: kind.name(), count })
                .collect(),
        },
        extent: reading.extent(reading.is_whole_since_the_first()),
    }))
}
