//! `/rest/status`: the figures of the page `/status` beside health and completeness. They include
//! contracts of the network, but nothing that identifies an owner: all programs together are one
//! kind of consumer.

use std::collections::BTreeMap;

use serde::Serialize;

use super::answer::Answer;
use super::call::ReadCall;
use super::identity::Access;
use super::route::{Route, Work};
use super::{ApiError, Deps};
use orrery_ledger::domain::{CloseTime, ContractId, LedgerSeq};
use orrery_store::{ConsumerStatus, ContractSizes, FORMAT, LedgerRow, Store};

/// Routes of this area.
pub(super) static ROUTES: [Route; 1] = [Route {
    no_store: true,
    ..Route::new("GET", "/rest/status", Work::read(Access::Public, status))
}];

/// Maximum number of newest ledgers in the response. Each takes one read.
const MAX_LEDGERS: u32 = 120;

/// Maximum number of points of the lag's history: one every five minutes of a day.
const MAX_POINTS: usize = 288;

#[derive(Serialize)]
struct Record {
    /// Current time, UNIX seconds.
    now: u64,
    version: &'static str,
    store_format: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol_version: Option<u32>,
    uptime_seconds: u64,
    store: Stored,
    #[serde(skip_serializing_if = "Option::is_none")]
    contracts: Option<Contracts>,
    consumers: Vec<Consumer>,
    ledgers: Vec<Ledger>,
    history: History,
}

#[derive(Serialize)]
struct Stored {
    events: u64,
    transactions: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk_free_bytes: Option<u64>,
    parts: BTreeMap<String, u64>,
}

/// Disk space that contracts take, estimated from a sample of ledgers.
#[derive(Serialize)]
struct Contracts {
    sampled_ledgers: u64,
    of_ledgers: u64,
    bytes: u64,
    largest: Vec<Contract>,
    others: u64,
}

#[derive(Serialize)]
struct Contract {
    contract_id: ContractId,
    share: f64,
    bytes: u64,
}

/// All consumers of one kind together.
#[derive(Serialize, Default)]
struct Consumer {
    name: String,
    count: u64,
    active: u64,
    lag_ledgers: u64,
    lost_ledgers: u64,
    rebuilding: bool,
}

#[derive(Serialize)]
struct Ledger {
    ledger: u32,
    closed_at: String,
    transactions: u32,
    events: u64,
}

/// One list per value, so that field names are not repeated for every point.
#[derive(Serialize)]
struct History {
    at: Vec<u64>,
    latest_ledger: Vec<Option<u32>>,
    lag_ledgers: Vec<Option<u32>>,
    lag_seconds: Vec<Option<u64>>,
}

fn status(deps: &Deps, _: &ReadCall<'_>) -> Result<Answer, ApiError> {
    let store = &deps.store;
    let (totals, newest) = (store.status().totals, newest_ledgers(store)?);
    let parts = store.sizes()?;
    let record = Record {
        now: (deps.clock)(),
        version: env!("CARGO_PKG_VERSION"),
        store_format: FORMAT.to_string(),
        protocol_version: newest.last().map(|(_, row)| row.protocol),
        uptime_seconds: deps.health.history().age().as_secs(),
        store: Stored {
            events: totals.events,
            transactions: totals.transactions,
            bytes: parts.values().sum(),
            // A response without this figure is better than none.
            disk_free_bytes: store.disk_free().ok(),
            parts,
        },
        contracts: deps.contract_sizes.borrow().as_deref().map(Contracts::from),
        consumers: by_kind(store.consumers()),
        ledgers: newest.iter().map(Ledger::from).collect(),
        history: history(deps),
    };
    Ok(Answer::of(&record))
}

impl From<&ContractSizes> for Contracts {
    fn from(sizes: &ContractSizes) -> Self {
        let largest = sizes.largest.iter().map(|size| Contract {
            contract_id: size.contract,
            // More digits would suggest a precision that the estimate does not have.
            share: (size.share * 1e4).round() / 1e4,
            bytes: size.bytes,
        });
        Self {
            sampled_ledgers: sizes.sampled,
            of_ledgers: sizes.stored,
            bytes: sizes.bytes,
            largest: largest.collect(),
            others: sizes.others,
        }
    }
}

/// Returns the newest stored ledgers, oldest first.
fn newest_ledgers(store: &Store) -> Result<Vec<(LedgerSeq, LedgerRow)>, ApiError> {
    let Some(latest) = store.ends().latest else { return Ok(Vec::new()) };
    let first = latest.0.saturating_sub(MAX_LEDGERS - 1);
    let mut newest = Vec::new();
    for ledger in (first..=latest.0).map(LedgerSeq) {
        // Missing ledgers are skipped.
        if let Some(row) = store.ledger(ledger)? {
            newest.push((ledger, row));
        }
    }
    Ok(newest)
}

impl From<&(LedgerSeq, LedgerRow)> for Ledger {
    fn from((ledger, row): &(LedgerSeq, LedgerRow)) -> Self {
        Self {
            ledger: ledger.0,
            closed_at: iso_8601(row.close_time),
            transactions: row.counts.stored_transactions,
            events: row.counts.events(),
        }
    }
}

fn iso_8601(time: CloseTime) -> String {
    let (text, length) = time.iso_8601();
    String::from_utf8_lossy(&text[..length]).into_owned()
}

/// Aggregates consumers by kind, like the metrics: the lag is that of the slowest active consumer,
/// the lost ledgers are the sum of all consumers.
fn by_kind(consumers: Vec<ConsumerStatus>) -> Vec<Consumer> {
    let mut kinds: BTreeMap<String, Consumer> = BTreeMap::new();
    for consumer in consumers {
        let kind = kinds.entry(consumer.kind().to_owned()).or_default();
        kind.count += 1;
        kind.lost_ledgers += consumer.lost.ledgers();
        kind.rebuilding |= consumer.rebuild.is_some();
        if consumer.active {
            kind.active += 1;
            kind.lag_ledgers = kind.lag_ledgers.max(consumer.lag);
        }
    }
    kinds.into_iter().map(|(name, kind)| Consumer { name, ..kind }).collect()
}

fn history(deps: &Deps) -> History {
    let samples = deps.health.history().thinned(MAX_POINTS);
    History {
        at: samples.iter().map(|sample| sample.at).collect(),
        latest_ledger: samples.iter().map(|sample| Some(sample.latest?.0)).collect(),
        lag_ledgers: samples.iter().map(|sample| sample.lag.ledgers).collect(),
        lag_seconds: samples.iter().map(|sample| sample.lag.seconds).collect(),
    }
}
