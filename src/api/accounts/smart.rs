//! `/rest/smart-account-indexer`: looks up smart accounts by credential and by address, returns one
//! account, and returns totals. Responses have the form that smart-account-kit's indexer client
//! expects.

use std::ops::ControlFlow;

use serde::Serialize;
use stellar_xdr::ScVal;

use super::routes::{ServedIndex, routes};
use super::{Accounts, Entries, EntryRecord, Extent, IndexView, contract};
use crate::answer::Answer;
use crate::call::CurrentCall;
use crate::route::Route;
use crate::{ApiError, Deps};
use orrery_accounts::Position;
use orrery_accounts::smart::event::Variant;
use orrery_accounts::smart::lookup::Account;
use orrery_accounts::smart::{Rule, SmartAccounts, Summary, lookup};
use orrery_ledger::domain::ContractId;

/// Maximum number of rules in the response with one account.
const MAX_RULES: usize = 1000;

/// Routes of this area.
pub(crate) static ROUTES: [Route; 6] = routes::<SmartAccounts>([
    "/rest/smart-account-indexer",
    "/rest/smart-account-indexer/api/lookup/{credential_id}",
    "/rest/smart-account-indexer/api/lookup/address/{address}",
    "/rest/smart-account-indexer/api/contract/{contract_id}",
    "/rest/smart-account-indexer/api/stats",
    "/rest/smart-account-indexer/{*rest}",
]);

impl ServedIndex for SmartAccounts {
    const NAME: &'static str = "smart-account-indexer";
    const FAILURE: &'static str = "Database query failed";
    /// The contracts limit keys to 256 bytes.
    const MAX_DIGITS: usize = 4096;
    const LIST: &'static str = "contracts";
    const NO_LEDGER: Option<u64> = Some(0);
    const IS_DETAIL_CACHED: bool = true;

    fn push(
        list: &mut Accounts,
        index: &IndexView<'_>,
        position: Position,
        contract: &ContractId,
        summary: &Summary,
    ) -> ControlFlow<()> {
        let is_complete =
            summary.is_complete && index.is_complete_for(contract, summary.first_seen);
        list.push(position, &SummaryRecord::of(contract, summary), is_complete)
    }

    fn detail(deps: &Deps, call: &CurrentCall<'_>) -> Result<Answer, ApiError> {
        const NOT_THERE: ApiError = ApiError::NotFound("Contract not found");
        let contract = contract(call.path).ok_or(NOT_THERE)?;
        let index = IndexView::of::<Self>(deps, call)?;
        let found = lookup::account(&index.rows, &contract, MAX_RULES)?;
        let (summary, account) = match found {
            Some(found) => found,
            None if index.lacks_older => {
                let reason = "events of older ledgers arrived, and accounts are computed again";
                return Err(ApiError::NotReady(reason.to_owned()));
            }
            None => return Err(NOT_THERE),
        };
        let is_all = account.has_all_rules && !index.rows.is_cut();
        let is_complete =
            is_all && summary.is_complete && index.is_complete_for(&contract, summary.first_seen);
        let answer = Answer::of(&Detail {
            contract_id: contract,
            summary: SummaryRecord::of(&contract, &summary),
            instance: Entries::of(deps, call, &contract)?.instance()?,
            context_rules: account
                .rules()
                .map(|(id, rule)| rule_record(&account, id, rule))
                .collect(),
            extent: index.extent(is_complete),
        });
        Ok(Answer { is_complete: is_all, ..answer })
    }
}

#[derive(Serialize)]
struct SummaryRecord<'a> {
    contract_id: ContractId,
    context_rule_count: u32,
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
            contract_id: *contract,
            context_rule_count: summary.rule_count,
            external_signer_count: summary.external,
            delegated_signer_count: summary.delegated,
            native_signer_count: summary.native,
            first_seen_ledger: summary.first_seen,
            last_seen_ledger: summary.last_seen,
            context_rule_ids: &summary.rules,
        }
    }
}

#[derive(Serialize)]
struct Detail<'a> {
    #[serde(rename = "contractId")]
    contract_id: ContractId,
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
