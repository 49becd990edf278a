//! Shared code of the two public lookup APIs, for smart accounts and for passkey wallets. Error
//! texts and member names are those that existing clients of these indexers expect; members that
//! this service adds come last in each object.

pub(super) mod passkey;
mod routes;
pub(super) mod smart;

use std::borrow::Cow;
use std::ops::ControlFlow;

use percent_encoding::percent_decode_str;
use serde::Serialize;
use stellar_xdr::ScAddress;

use super::answer::Answer;
use super::call::{CurrentCall, PathValues};
use super::params::Query;
use super::{ApiError, Deps};
use orrery_accounts::evictions::{self, Entry};
use orrery_accounts::passkey::PasskeyWallets;
use orrery_accounts::smart::SmartAccounts;
use orrery_accounts::{AccountIndex, NotAPosition, Position};
use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq};
use orrery_store::{ConsumerView, Store, StoreError};

/// Maximum size of a list response up to its last account, in bytes: the 1 MiB that clients accept,
/// less room for the members that follow.
const MAX_BYTES: usize = (1 << 20) - 256;

/// Maximum size of the rows that a request reads, in bytes. An account that is none can have rows of
/// any number and, up to some 20 KB, of any size.
const MAX_READ: u64 = 1 << 20;

/// Error for a path under an index's prefix that matches no route.
const NOT_FOUND: ApiError = ApiError::NotFound("Not found");

/// Builds the error response. Failures of the service itself (store, panic) get the text `words`,
/// which clients expect.
fn error_response(error: &ApiError, words: &'static str) -> Answer {
    let spelled = super::error::rest(error);
    match error {
        ApiError::Store(_) | ApiError::Panic => {
            let (_, code) = error.status_and_code();
            Answer { body: super::error::body(code, words), ..spelled }
        }
        _ => spelled,
    }
}

/// Rows of one index as read for a request.
struct IndexView<'a> {
    store: &'a Store,
    consumer: &'static str,
    rows: ConsumerView<'a>,
    /// Last ledger that the rows reflect completely; `None` when no ledger is stored.
    as_of: Option<LedgerSeq>,
    /// Whether older ledgers are missing: they are not indexed yet, or the state of an account is being
    /// computed again.
    lacks_older: bool,
}

/// Tells by the rows of an index whether a contract is an account.
type IsOne<'a> = &'a dyn Fn(&ConsumerView<'_>) -> Result<bool, StoreError>;

/// Returns the kinds of account that a contract is by the events that have been indexed, and whether the
/// indexes have processed all stored ledgers. Indexes that are off know none.
pub(super) fn kinds(
    deps: &Deps,
    call: &CurrentCall<'_>,
    contract: &ContractId,
) -> Result<(Vec<&'static str>, bool), ApiError> {
    let is_smart = |rows: &ConsumerView<'_>| {
        let summary = SmartAccounts::summary(rows, contract)?;
        Ok(summary.is_some_and(|summary| summary.rule_count > 0))
    };
    let is_wallet =
        |rows: &ConsumerView<'_>| Ok(PasskeyWallets::summary(rows, contract)?.is_some());
    let indexes: [(_, _, IsOne<'_>); 2] = [
        (SmartAccounts::CONSUMER, "smart_account", &is_smart),
        (PasskeyWallets::CONSUMER, "passkey_wallet", &is_wallet),
    ];
    let (mut kinds, mut is_final) = (Vec::new(), true);
    for (consumer, kind, is_one) in indexes {
        let Some(index) = deps.store.consumer(consumer) else { continue };
        is_final &= index.place >= deps.store.last_place();
        if is_one(&deps.store.consumer_view(consumer, call.allowance.row_bounds(MAX_READ))?)? {
            kinds.push(kind);
        }
    }
    Ok((kinds, is_final))
}

impl<'a> IndexView<'a> {
    fn of<I: AccountIndex>(deps: &'a Deps, call: &'a CurrentCall<'_>) -> Result<Self, ApiError> {
        let rows = deps.store.consumer_view(I::CONSUMER, call.allowance.row_bounds(MAX_READ))?;
        let lacks_older = call.lacks_older || I::has_work_left(&rows)?;
        let (store, as_of) = (&*deps.store, call.as_of);
        Ok(Self { store, consumer: I::CONSUMER, rows, as_of, lacks_older })
    }

    /// Whether the index saw everything that `contract` emitted from ledger `first_seen` up to
    /// `as_of`.
    fn is_complete_for(&self, contract: &ContractId, first_seen: u32) -> bool {
        let first = LedgerSeq(first_seen);
        let last = self.as_of.unwrap_or_default().max(first);
        self.store.is_complete_for(self.consumer, contract, LedgerRange { first, last })
    }

    /// Whether the index saw everything that any contract emitted since the oldest stored ledger.
    /// The zero contract stands for a contract that no restriction lists.
    fn is_complete_since_oldest(&self) -> bool {
        let oldest = self.store.ends().oldest;
        oldest.is_some_and(|oldest| self.is_complete_for(&ContractId([0; 32]), oldest.0))
    }

    /// Returns the members that end each response. A response is incomplete if reading its rows
    /// ended at a limit, or if older ledgers are missing.
    fn extent(&self, complete: bool) -> Extent {
        let complete = complete && !self.rows.is_cut() && !self.lacks_older;
        Extent { as_of_ledger: self.as_of.map(|ledger| ledger.0), complete }
    }
}

/// Coverage of a response. Both members are additions to the original interface.
#[derive(Debug, Clone, Copy, Serialize)]
struct Extent {
    as_of_ledger: Option<u32>,
    complete: bool,
}

/// Recorded status of an entry. Both members are additions to the original interface.
#[derive(Debug, Clone, Copy, Serialize)]
struct EntryRecord {
    entry_status: &'static str,
    entry_status_ledger: u32,
}

/// Recorded statuses of an account's entries.
struct Entries<'a> {
    rows: ConsumerView<'a>,
    contract: &'a ContractId,
}

impl<'a> Entries<'a> {
    fn of(
        deps: &'a Deps,
        call: &'a CurrentCall<'_>,
        contract: &'a ContractId,
    ) -> Result<Self, ApiError> {
        let bounds = call.allowance.row_bounds(MAX_READ);
        Ok(Self { rows: deps.store.consumer_view(evictions::CONSUMER, bounds)?, contract })
    }

    /// Returns the status of an entry, unless it happened before the ledger in which the entry was
    /// last written.
    fn record(&self, entry: Entry, written: u32) -> Result<Option<EntryRecord>, ApiError> {
        let found = evictions::status(&self.rows, self.contract, entry)?;
        let found = found.filter(|(_, at)| *at >= written);
        Ok(found.map(|(status, ledger)| EntryRecord {
            entry_status: status.name(),
            entry_status_ledger: ledger,
        }))
    }

    /// Returns the status of an account's contract instance.
    fn instance(&self) -> Result<Option<EntryRecord>, ApiError> {
        self.record(Entry::instance(self.contract), 0)
    }
}

/// A list response under construction. It begins with the credential id or address that was looked
/// up.
struct Accounts {
    out: Vec<u8>,
    count: usize,
    most: usize,
    /// Whether the index saw all events of the accounts listed so far.
    is_complete: bool,
    is_truncated: bool,
    /// Position of the event that added the last listed account's signer; the cursor of the next
    /// page.
    last: Option<Position>,
}

impl Accounts {
    /// Begins a response with the name and the value of the member that was looked up, and an empty
    /// list as member `list`.
    fn new(deps: &Deps, (name, looked_up): (&str, &str), list: &str) -> Self {
        let looked_up = serde_json::Value::from(looked_up);
        Self {
            out: format!("{{\"{name}\":{looked_up},\"{list}\":[").into_bytes(),
            count: 0,
            most: deps.settings.indexers.most_accounts.get() as usize,
            is_complete: true,
            is_truncated: false,
            last: None,
        }
    }

    /// Appends an account with the position of the event that added its signer, and breaks when the
    /// limits on count and bytes allow no more.
    fn push(
        &mut self,
        position: Position,
        account: &impl Serialize,
        is_complete: bool,
    ) -> ControlFlow<()> {
        if self.count == self.most {
            self.is_truncated = true;
            return ControlFlow::Break(());
        }
        let before = self.out.len();
        if self.count > 0 {
            self.out.push(b',');
        }
        // Records of numbers and strings always serialise, and writing to memory cannot fail.
        let _ = serde_json::to_writer(&mut self.out, account);
        if self.out.len() > MAX_BYTES {
            self.out.truncate(before);
            self.is_truncated = true;
            return ControlFlow::Break(());
        }
        self.count += 1;
        self.last = Some(position);
        self.is_complete &= is_complete;
        ControlFlow::Continue(())
    }

    /// Returns the finished response.
    fn finish(mut self, index: &IndexView<'_>) -> Answer {
        let is_truncated = self.is_truncated || index.rows.is_cut();
        let is_complete = match self.count {
            0 => index.is_complete_since_oldest(),
            _ => self.is_complete,
        };
        let Extent { as_of_ledger, complete } = index.extent(is_complete && !is_truncated);
        let as_of_ledger = serde_json::Value::from(as_of_ledger);
        let count = self.count;
        let rest =
            format!("],\"count\":{count},\"as_of_ledger\":{as_of_ledger},\"complete\":{complete}");
        self.out.extend_from_slice(rest.as_bytes());
        if let Some(last) = self.last.filter(|_| is_truncated) {
            self.out.extend_from_slice(format!(",\"cursor\":\"{last}\"").as_bytes());
        }
        self.out.push(b'}');
        Answer { is_complete: !is_truncated, ..Answer::json(self.out) }
    }
}

/// Parameter of a list.
const CURSOR: &str = "cursor";

/// Parses the cursor of a list, the position after which it continues.
fn cursor(query: &Query<'_>) -> Result<Option<Position>, ApiError> {
    let parse = |text: &str| {
        let wrong = "is not one: give the member `cursor` of the response before, as it is";
        text.parse().map_err(|NotAPosition| ApiError::parameter(CURSOR, wrong))
    };
    query.get(CURSOR).map(parse).transpose()
}

/// Returns a path segment, percent-decoded.
fn segment<'a>(path: PathValues<'a>, name: &str) -> Cow<'a, str> {
    // Invalid UTF-8 becomes replacement characters, which match nothing.
    percent_decode_str(path.get(name)).decode_utf8_lossy()
}

/// Parses the credential id in the path: hexadecimal in either case, with an optional `0x`. Returns
/// its normalised text and its bytes.
fn credential(path: PathValues<'_>, most_digits: usize) -> Result<(String, Vec<u8>), ApiError> {
    let text = segment(path, "credential_id").to_lowercase();
    let digits = text.strip_prefix("0x").unwrap_or(&text);
    if digits.is_empty() || digits.len() > most_digits {
        return Err(ApiError::InvalidValue("Invalid credential ID"));
    }
    match hex::decode(digits) {
        Ok(bytes) => Ok((digits.to_owned(), bytes)),
        Err(_) => Err(ApiError::InvalidValue("Invalid credential ID")),
    }
}

/// Parses the address in the path. Returns it as sent and decoded.
fn address<'a>(path: PathValues<'a>) -> Result<(Cow<'a, str>, ScAddress), ApiError> {
    let text = segment(path, "address");
    match text.parse::<ScAddress>() {
        // Only the canonical spelling is accepted.
        Ok(address) if address.to_string() == text => Ok((text, address)),
        _ => Err(ApiError::InvalidValue("Invalid address")),
    }
}

/// Parses the contract id in the path. `None` when it is malformed, in which case no account has
/// it.
fn contract(path: PathValues<'_>) -> Option<ContractId> {
    segment(path, "contract_id").parse().ok()
}
