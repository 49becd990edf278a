//! The two public lookups, of smart accounts and of passkey wallets: what both have in common. Clients of their
//! ecosystems know the words of their errors and the names of their members; what is added here to what they know
//! comes last in each object.

pub(super) mod passkey;
pub(super) mod smart;

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use serde::Serialize;
use stellar_xdr::ScAddress;

use super::answer::Answer;
use super::client::Waiting;
use super::cors::Sendable;
use super::route::{Access, Call, Route, Work};
use super::{ApiError, Deps};
use crate::accounts::evictions::{self, Entry, Fate};
use crate::domain::{ContractId, LedgerRange, LedgerSeq};
use crate::store::{ConsumerView, Store};

/// Accounts of a list whose client does not say how many it takes.
pub(super) const MOST_ACCOUNTS: u32 = 3000;

/// Bytes of a list: what clients take at the most, less what follows the last account.
const MOST_BYTES: usize = (1 << 20) - 256;

/// What is said of a route that neither index has.
const ELSEWHERE: ApiError = ApiError::NotThere("Not found");

/// A route of one of the two.
const fn route(template: &'static str, work: Work, sendable: Sendable) -> Route {
    let route = Route::new("GET", template, Access::Public, work);
    Route { sendable, of_the_moment: true, ..route }
}

/// What is under the address of an index and none of its routes.
fn elsewhere(_: &Deps, _: &Call<'_>) -> Result<Answer, ApiError> {
    Err(ELSEWHERE)
}

/// A failure that is the service's own, in the words that clients know.
fn own_failure(error: &ApiError, words: &'static str) -> Answer {
    let spelled = super::error::rest(error);
    match error {
        ApiError::Store(_) | ApiError::Panic => {
            let (_, code) = error.status_and_code();
            Answer { body: super::error::body(code, words), ..spelled }
        }
        _ => spelled,
    }
}

/// What a lookup or detail is answered from.
struct Reading<'a> {
    store: &'a Store,
    consumer: &'static str,
    rows: ConsumerView<'a>,
    /// The last ledger of which everything is in what is read.
    as_of: Option<LedgerSeq>,
}

impl<'a> Reading<'a> {
    fn of(deps: &'a Deps, call: &Call<'_>, consumer: &'static str) -> Result<Self, ApiError> {
        let rows = deps.store.consumer_view(consumer)?;
        Ok(Self { store: &deps.store, consumer, rows, as_of: call.as_of })
    }

    /// Whether what a contract emitted since a ledger is all there.
    fn is_whole(&self, contract: &ContractId, first_seen: u32) -> bool {
        let first = LedgerSeq(first_seen);
        let last = self.as_of.unwrap_or_default().max(first);
        self.store.is_whole_for(self.consumer, contract, LedgerRange { first, last })
    }

    /// Whether what anybody emitted since the first stored ledger is.
    fn is_whole_since_the_first(&self) -> bool {
        let oldest = self.store.ends().oldest;
        oldest.is_some_and(|oldest| self.is_whole(&ContractId([0; 32]), oldest.0))
    }

    /// What ends each answer.
    fn extent(&self, complete: bool) -> Extent {
        Extent { as_of_ledger: self.as_of.map(|ledger| ledger.0), complete }
    }
}

/// How far an answer reaches; both members are additive.
#[derive(Debug, Clone, Copy, Serialize)]
struct Extent {
    as_of_ledger: Option<u32>,
    complete: bool,
}

/// What became of an entry without an event, where that is known; both members are additive.
#[derive(Debug, Clone, Copy, Serialize)]
struct EntryRecord {
    entry_status: &'static str,
    entry_status_ledger: u32,
}

/// What became of the entries of an account.
struct Entries(HashMap<Entry, (Fate, u32)>);

impl Entries {
    fn of(deps: &Deps, contract: &ContractId) -> Result<Self, ApiError> {
        let rows = deps.store.consumer_view(evictions::CONSUMER)?;
        let mut found = HashMap::new();
        evictions::of_contract(&rows, contract, |entry, fate, ledger| {
            found.insert(entry, (fate, ledger));
        })?;
        Ok(Self(found))
    }

    /// What became of an entry after a ledger in which it was written.
    fn record(&self, entry: Entry, written: u32) -> Option<EntryRecord> {
        let (fate, ledger) = self.0.get(&entry).copied().filter(|(_, at)| *at >= written)?;
        Some(EntryRecord { entry_status: fate.name(), entry_status_ledger: ledger })
    }

    /// What became of an account's own instance.
    fn instance(&self, contract: &ContractId) -> Option<EntryRecord> {
        match self.0.is_empty() {
            true => None,
            false => self.record(Entry::instance(contract), 0),
        }
    }
}

/// A list of accounts under construction, with what was looked up before it.
struct Accounts<'a> {
    out: Vec<u8>,
    count: usize,
    most: usize,
    waiting: Option<Waiting<'a>>,
    time: Duration,
    /// Whether everything that accounts in it have emitted is known.
    is_whole: bool,
    is_cut: bool,
}

impl<'a> Accounts<'a> {
    /// An empty list called `list` that answers a question for `asked`, which is called `name`.
    fn new(deps: &Deps, call: &Call<'a>, name: &str, asked: &str, list: &str) -> Self {
        let asked = serde_json::Value::from(asked);
        Self {
            out: format!("{{\"{name}\":{asked},\"{list}\":[").into_bytes(),
            count: 0,
            most: usize::try_from(deps.settings.most_accounts).unwrap_or(usize::MAX),
            waiting: call.waiting,
            time: deps.settings.scan.time,
            is_whole: true,
            is_cut: false,
        }
    }

    /// Adds an account; says whether there is room and time for more.
    fn push(&mut self, account: &impl Serialize, is_whole: bool) -> bool {
        let is_over = || self.waiting.is_some_and(|it| it.has_ended() || it.elapsed() >= self.time);
        if self.count == self.most || (self.count.is_multiple_of(64) && is_over()) {
            self.is_cut = true;
            return false;
        }
        let before = self.out.len();
        if self.count > 0 {
            self.out.push(b',');
        }
        // Numbers and texts always serialize, and memory does not fail.
        let _ = serde_json::to_writer(&mut self.out, account);
        if self.out.len() > MOST_BYTES {
            self.out.truncate(before);
            self.is_cut = true;
            return false;
        }
        self.count += 1;
        self.is_whole &= is_whole;
        true
    }

    /// The finished answer.
    fn finish(mut self, reading: &Reading<'_>) -> Answer {
        let is_whole = match self.count {
            0 => reading.is_whole_since_the_first(),
            _ => self.is_whole,
        };
        let Extent { as_of_ledger, complete } = reading.extent(is_whole && !self.is_cut);
        let as_of_ledger = serde_json::Value::from(as_of_ledger);
        let rest = format!(
            "],\"count\":{},\"as_of_ledger\":{as_of_ledger},\"complete\":{complete}}}",
            self.count
        );
        self.out.extend_from_slice(rest.as_bytes());
        Answer { is_complete: !self.is_cut, ..Answer::json(self.out) }
    }
}

/// A segment of the path.
fn segment<'a>(call: &Call<'a>, name: &str) -> Cow<'a, str> {
    // What is not UTF-8 is none of what is looked up.
    percent_decode_str(call.path.get(name)).decode_utf8_lossy()
}

/// The id of a credential as it is normalised, and its bytes: hexadecimal, in either case, after a `0x` or not.
fn credential(call: &Call<'_>, most_digits: usize) -> Result<(String, Vec<u8>), ApiError> {
    let text = segment(call, "credential_id").to_lowercase();
    let digits = text.strip_prefix("0x").unwrap_or(&text);
    if digits.is_empty() || digits.len() > most_digits {
        return Err(ApiError::Unreadable("Invalid credential ID"));
    }
    match hex::decode(digits) {
        Ok(bytes) => Ok((digits.to_owned(), bytes)),
        Err(_) => Err(ApiError::Unreadable("Invalid credential ID")),
    }
}

/// The address in the path, as it came and as it is meant.
fn address<'a>(call: &Call<'a>) -> Result<(Cow<'a, str>, ScAddress), ApiError> {
    let text = segment(call, "address");
    match text.parse::<ScAddress>() {
        // There is one way to spell it.
        Ok(address) if address.to_string() == text => Ok((text, address)),
        _ => Err(ApiError::Unreadable("Invalid address")),
    }
}

/// The contract in the path; none when it is no contract, which none of them is known as.
fn contract(call: &Call<'_>) -> Option<ContractId> {
    segment(call, "contract_id").parse().ok()
}

/// A structure of texts and numbers as JSON.
fn json(record: &impl Serialize) -> Answer {
    // Such a structure always serializes.
    Answer::json(serde_json::to_vec(record).unwrap_or_default())
}
