//! `/rest/smart-account-indexer`: looks up smart accounts by credential and by address, returns one
//! account, and returns totals. Responses have the form that smart-account-kit's indexer client
//! expects.

use serde::Serialize;
use stellar_xdr::ScVal;

use super::{
    Accounts, Entries, EntryRecord, Extent, IndexView, address, contract, credential,
    error_response,
};
use crate::accounts::evictions;
use crate::accounts::smart::event::{Kind, Variant};
use crate::accounts::smart::fold::{Account, Rule};
use crate::accounts::smart::lookup::{self, Stats};
use crate::accounts::smart::{CONSUMER, Summary};
use crate::api::access::Access;
use crate::api::answer::Answer;
use crate::api::call::CurrentCall;
use crate::api::cors::AllowedHeaders;
use crate::api::route::{CurrentHandler, Route, Work};
use crate::api::{ApiError, Deps};
use crate::domain::ContractId;

/// Maximum number of hexadecimal digits of a credential id in a request. The contracts limit keys
/// to 256 bytes.
const MAX_DIGITS: usize = 4096;

const fn indexed(template: &'static str, handler: CurrentHandler) -> Route {
    served(template, Work::current_cached(Access::Public, &[CONSUMER], handler))
}

const fn served(template: &'static str, work: Work) -> Route {
    let route = super::route(template, work, AllowedHeaders::Requested);
    Route { failure: |error| error_response(error, "Database query failed"), ..route }
}

/// Routes of this area.
pub(in crate::api) static ROUTES: [Route; 5] = [
    served("/rest/smart-account-indexer", Work::memory(Access::Public, health)),
    indexed("/rest/smart-account-indexer/api/lookup/{credential_id}", by_credential),
    indexed("/rest/smart-account-indexer/api/lookup/address/{address}", by_address),
    served(
        "/rest/smart-account-indexer/api/contract/{contract_id}",
        Work::current_cached(Access::Public, &[CONSUMER, evictions::CONSUMER], detail),
    ),
    indexed("/rest/smart-account-indexer/api/stats", stats),
];

/// Catch-all for other paths under the prefix.
pub(in crate::api) static CATCH_ALL: [Route; 1] =
    [served("/rest/smart-account-indexer/{*rest}", Work::memory(Access::Public, super::not_found))];

fn health(_: &Deps) -> Result<Answer, ApiError> {
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

fn by_credential(deps: &Deps, call: &CurrentCall<'_>) -> Result<Answer, ApiError> {
    let (looked_up, credential) = credential(call.path, MAX_DIGITS)?;
    let index = IndexView::of(deps, call, CONSUMER)?;
    let mut list = Accounts::new(deps, "credentialId", &looked_up, "contracts");
    lookup::by_credential(&index.rows, &credential, |contract, summary| {
        push(&mut list, &index, &contract, &summary)
    })?;
    Ok(list.finish(&index))
}

fn by_address(deps: &Deps, call: &CurrentCall<'_>) -> Result<Answer, ApiError> {
    let (looked_up, address) = address(call.path)?;
    let index = IndexView::of(deps, call, CONSUMER)?;
    let mut list = Accounts::new(deps, "signerAddress", &looked_up, "contracts");
    lookup::by_address(&index.rows, &address, |contract, summary| {
        push(&mut list, &index, &contract, &summary)
    })?;
    Ok(list.finish(&index))
}

fn push(
    list: &mut Accounts,
    index: &IndexView<'_>,
    contract: &ContractId,
    summary: &Summary,
) -> bool {
    let is_complete = !summary.is_cut && index.is_complete_for(contract, summary.first_seen);
    list.push(&SummaryRecord::of(contract, summary), is_complete)
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

fn detail(deps: &Deps, call: &CurrentCall<'_>) -> Result<Answer, ApiError> {
    const NOT_THERE: ApiError = ApiError::NotFound("Contract not found");
    let contract = contract(call.path).ok_or(NOT_THERE)?;
    let index = IndexView::of(deps, call, CONSUMER)?;
    let (summary, account) = lookup::account(&index.rows, &contract)?.ok_or(NOT_THERE)?;
    let is_complete = !summary.is_cut && index.is_complete_for(&contract, summary.first_seen);
    Ok(Answer::of(&Detail {
        contract_id: contract.to_string(),
        summary: SummaryRecord::of(&contract, &summary),
        instance: Entries::of(deps, &contract)?.instance(&contract),
        context_rules: account.rules().map(|(id, rule)| rule_record(&account, id, rule)).collect(),
        extent: index.extent(is_complete),
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
    // The sort is stable: signers of one variant stay in the order in which they were added.
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

fn stats(deps: &Deps, call: &CurrentCall<'_>) -> Result<Answer, ApiError> {
    let index = IndexView::of(deps, call, CONSUMER)?;
    let stats = Stats::read(&index.rows)?;
    let kinds = Kind::ALL.iter().zip(stats.kinds).filter(|(_, count)| *count > 0);
    Ok(Answer::of(&StatsAnswer {
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
        extent: index.extent(index.is_complete_since_oldest()),
    }))
}
