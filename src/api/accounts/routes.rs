//! The routes that the APIs of both indexes have: their health, two lookups, one account, and
//! totals.

use std::ops::ControlFlow;

use serde::Serialize;
use stellar_xdr::ScAddress;

use super::{
    Accounts, CURSOR, Extent, IndexView, NOT_FOUND, address, credential, cursor, error_response,
};
use crate::answer::Answer;
use crate::call::CurrentCall;
use crate::cors::AllowedHeaders;
use crate::identity::Access;
use crate::route::{Route, Work};
use crate::{ApiError, Deps};
use orrery_accounts::{AccountIndex, Position, Stats, Tag, evictions, with_signer};
use orrery_ledger::domain::ContractId;

/// An index, and how its API differs from that of the other.
pub(super) trait ServedIndex: AccountIndex {
    /// Name of the indexer in its health response.
    const NAME: &'static str;
    /// Text of errors for failures of the service itself (store, panic), which clients expect.
    const FAILURE: &'static str;
    const ALLOWED_HEADERS: AllowedHeaders = AllowedHeaders::Requested;
    /// Maximum number of hexadecimal digits of a credential id in a request.
    const MAX_DIGITS: usize;
    /// Member of a list response that holds the accounts.
    const LIST: &'static str;
    /// First and last ledger of the totals when there is no event.
    const NO_LEDGER: Option<u64>;
    /// Whether responses with one account are cached: not if they depend on the time.
    const IS_DETAIL_CACHED: bool;

    /// Whether a signer can have this address.
    fn accepts(_address: &ScAddress) -> bool {
        true
    }

    /// Appends an account to a list response, and breaks when the limits allow no more.
    fn push(
        list: &mut Accounts,
        index: &IndexView<'_>,
        position: Position,
        contract: &ContractId,
        summary: &Self::Summary,
    ) -> ControlFlow<()>;

    /// Returns one account.
    fn detail(deps: &Deps, call: &CurrentCall<'_>) -> Result<Answer, ApiError>;
}

/// Declares the routes of an index, given their templates: health, lookups by credential and by
/// address, one account, totals, and all other paths under the prefix.
pub(super) const fn routes<I: ServedIndex>(templates: [&'static str; 6]) -> [Route; 6] {
    let [root, credential, address, account, totals, rest] = templates;
    let index = const { &[I::CONSUMER] };
    let detail = Work {
        is_cached: I::IS_DETAIL_CACHED,
        ..Work::current(Access::Public, const { &[I::CONSUMER, evictions::CONSUMER] }, I::detail)
            .that_may_lack_older()
    };
    let credentials = Work::current_cached(Access::Public, index, by_credential::<I>);
    let addresses = Work::current_cached(Access::Public, index, by_address::<I>);
    let stats = Work::current_cached(Access::Public, index, stats::<I>);
    [
        route::<I>(root, Work::memory(Access::Public, health::<I>)),
        route::<I>(credential, credentials.that_may_lack_older()).with_parameters(&[CURSOR]),
        route::<I>(address, addresses.that_may_lack_older()).with_parameters(&[CURSOR]),
        route::<I>(account, detail),
        route::<I>(totals, stats.that_may_lack_older()),
        route::<I>(rest, Work::memory(Access::Public, |_| Err(NOT_FOUND))).ignoring_parameters(),
    ]
}

/// Declares a public GET route, whose responses are marked `no-store`.
const fn route<I: ServedIndex>(template: &'static str, work: Work) -> Route {
    Route {
        failure: |error| error_response(error, I::FAILURE),
        allowed_headers: I::ALLOWED_HEADERS,
        no_store: true,
        ..Route::new("GET", template, work)
    }
}

fn health<I: ServedIndex>(_: &Deps) -> Result<Answer, ApiError> {
    let body = format!("{{\"status\":\"ok\",\"service\":\"{}\"}}", I::NAME);
    Ok(Answer::json(body.into_bytes()))
}

fn by_credential<I: ServedIndex>(deps: &Deps, call: &CurrentCall<'_>) -> Result<Answer, ApiError> {
    let (looked_up, credential) = credential(call.path, I::MAX_DIGITS)?;
    list::<I>(deps, call, ("credentialId", &looked_up), Tag::of_credential(&credential))
}

fn by_address<I: ServedIndex>(deps: &Deps, call: &CurrentCall<'_>) -> Result<Answer, ApiError> {
    let (looked_up, address) = address(call.path)?;
    if !I::accepts(&address) {
        return Err(ApiError::InvalidValue("Invalid address"));
    }
    list::<I>(deps, call, ("signerAddress", &looked_up), Tag::of_address(&address))
}

/// Lists the accounts with an active signer that has this tag. `looked_up` is the first member of
/// the response.
fn list<I: ServedIndex>(
    deps: &Deps,
    call: &CurrentCall<'_>,
    looked_up: (&str, &str),
    tag: Tag,
) -> Result<Answer, ApiError> {
    let after = cursor(call.query)?;
    let index = IndexView::of::<I>(deps, call)?;
    let mut list = Accounts::new(deps, looked_up, I::LIST);
    with_signer::<I>(&index.rows, tag, after, |position, contract, summary| {
        I::push(&mut list, &index, position, &contract, &summary)
    })?;
    Ok(list.finish(&index))
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
    #[serde(skip_serializing_if = "Option::is_none")]
    total_signers: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    active_signers: Option<u64>,
    first_ledger: Option<u64>,
    last_ledger: Option<u64>,
    #[serde(rename = "eventTypes")]
    event_types: Vec<KindRecord>,
}

#[derive(Serialize)]
struct KindRecord {
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<&'static str>,
    event_type: &'static str,
    count: u64,
}

fn stats<I: ServedIndex>(deps: &Deps, call: &CurrentCall<'_>) -> Result<Answer, ApiError> {
    let index = IndexView::of::<I>(deps, call)?;
    let stats = Stats::read::<I>(&index.rows)?;
    let kinds = I::kinds().zip(stats.kinds).filter(|(_, count)| *count > 0);
    let ledger = |ledger: u64| Some(ledger).filter(|ledger| *ledger > 0).or(I::NO_LEDGER);
    Ok(Answer::of(&StatsAnswer {
        stats: StatsRecord {
            total_events: stats.events,
            unique_contracts: stats.accounts,
            unique_credentials: stats.credentials,
            total_signers: I::COUNTS_SIGNERS.then_some(stats.signers),
            active_signers: I::COUNTS_SIGNERS.then_some(stats.active),
            first_ledger: ledger(stats.first_ledger),
            last_ledger: ledger(stats.last_ledger),
            event_types: kinds
                .map(|((generation, event_type), count)| KindRecord {
                    generation,
                    event_type,
                    count,
                })
                .collect(),
        },
        extent: index.extent(index.is_complete_since_oldest()),
    }))
}
