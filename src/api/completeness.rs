//! `/rest/completeness`: the stored ledger ranges, with digests by which two installations can be
//! compared.

use serde::Serialize;

use super::access::Access;
use super::answer::Answer;
use super::call::ReadCall;
use super::route::{Route, Work};
use super::{ApiError, Deps};
use crate::domain::LedgerRange;
use crate::store::{CoveredLedgers, IndexedAs};

/// Routes of this area.
pub(super) static ROUTES: [Route; 1] =
    [Route::new("GET", "/rest/completeness", Work::read(Access::Public, completeness))];

#[derive(Serialize)]
struct Record<'a> {
    network: &'static str,
    network_passphrase: &'a str,
    /// Whether the stored ledgers form exactly one range.
    complete: bool,
    settings: Settings,
    ranges: Vec<Range>,
    gaps: Vec<Gap>,
}

/// Indexing settings of ledgers.
#[derive(Serialize)]
struct Settings {
    classic_events: bool,
    fee_events: bool,
    contracts: &'static str,
}

#[derive(Serialize)]
struct Range {
    first_ledger: u32,
    last_ledger: u32,
    first_hash: String,
    last_hash: String,
    previous_hash: String,
    events: u64,
    digest: String,
    indexed_as: Vec<Settings>,
}

#[derive(Serialize)]
struct Gap {
    first_ledger: u32,
    last_ledger: u32,
}

impl From<&IndexedAs> for Settings {
    fn from(indexed: &IndexedAs) -> Self {
        Self {
            classic_events: indexed.classic_events,
            fee_events: indexed.fee_events,
            contracts: if indexed.listed_contracts { "listed" } else { "all" },
        }
    }
}

impl From<&CoveredLedgers> for Range {
    fn from(range: &CoveredLedgers) -> Self {
        Self {
            first_ledger: range.ledgers.first.0,
            last_ledger: range.ledgers.last.0,
            first_hash: range.first_hash.to_string(),
            last_hash: range.last_hash.to_string(),
            previous_hash: range.previous_hash.to_string(),
            events: range.events,
            digest: range.digest.to_string(),
            indexed_as: range.indexed_as.iter().map(Settings::from).collect(),
        }
    }
}

impl From<LedgerRange> for Gap {
    fn from(gap: LedgerRange) -> Self {
        Self { first_ledger: gap.first.0, last_ledger: gap.last.0 }
    }
}

fn completeness(deps: &Deps, _: &ReadCall<'_>) -> Result<Answer, ApiError> {
    let ranges = deps.store.completeness()?;
    let record = Record {
        network: deps.network.name(),
        network_passphrase: deps.network.passphrase(),
        complete: ranges.len() == 1,
        settings: Settings::from(&deps.settings.indexed_as),
        gaps: CoveredLedgers::gaps(&ranges).into_iter().map(Gap::from).collect(),
        ranges: ranges.iter().map(Range::from).collect(),
    };
    Ok(Answer::of(&record))
}
