//! `/rest/completeness`: the stored ledger ranges, with digests by which two installations can be
//! compared, and what is attested of them.

use std::cmp::Reverse;

use serde::Serialize;

use super::access::Access;
use super::answer::Answer;
use super::call::ReadCall;
use super::route::{Route, Work};
use super::{ApiError, Deps};
use crate::attestation::Attestation;
use crate::domain::{LedgerRange, LedgerSeq, LedgerSet, NodeId};
use crate::store::{CoveredLedgers, IndexedAs, Marks, Needs, Store};

/// Routes of this area.
pub(super) static ROUTES: [Route; 1] =
    [Route::new("GET", "/rest/completeness", Work::read(Access::Public, completeness))];

#[derive(Serialize)]
struct Record<'a> {
    network: &'static str,
    network_passphrase: &'a str,
    /// Whether the stored ledgers form exactly one range, of which all events and transactions are
    /// still stored.
    complete: bool,
    settings: Settings,
    bound: Bound,
    ranges: Vec<Range>,
    gaps: Vec<Gap>,
    removed: Removed,
}

/// Stored ledgers of which retention has removed something, by kind. Ledgers that never had events or
/// transactions may be among them.
#[derive(Serialize)]
struct Removed {
    raw_ledgers: Vec<Gap>,
    events: Vec<Gap>,
    transactions: Vec<Gap>,
}

/// Indexing settings of ledgers.
#[derive(Serialize)]
struct Settings {
    classic_events: bool,
    fee_events: bool,
    contracts: &'static str,
}

/// Classes of stored data: whether the header of their ledger binds them, so that whoever attests the
/// header attests them.
#[derive(Serialize)]
struct Bound {
    invocation_events: bool,
    classic_events: bool,
    fee_events: bool,
    entry_changes: bool,
}

impl Bound {
    /// The classes of a store whose ledgers have these marks. A result names the hash of its invocation's
    /// events, and the header that of all results. Nothing names the others.
    fn of(marks: &Marks) -> Self {
        Self {
            invocation_events: marks.reported.is_empty() && marks.unproven.is_empty(),
            classic_events: false,
            fee_events: false,
            entry_changes: false,
        }
    }
}

/// Maximum number of ranges of ledgers with a mark that are listed of each covered range.
const MOST_MARKED: usize = 100;

/// Ledgers of a range of which less is known than of others.
#[derive(Serialize)]
struct Marked {
    /// Their number.
    ledgers: u64,
    /// The first ranges of them.
    ranges: Vec<Gap>,
}

impl From<&LedgerSet> for Marked {
    fn from(set: &LedgerSet) -> Self {
        let ranges = set.ranges().iter().take(MOST_MARKED).copied().map(Gap::from).collect();
        Self { ledgers: set.ledgers(), ranges }
    }
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
    #[serde(skip_serializing_if = "Option::is_none")]
    attested_ledger: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attested_by: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unattested_because: Option<String>,
    signed: Vec<SignedBy>,
    /// Ledgers that are not as their header says, stored because `trust.events` says so.
    reported: Marked,
    /// Ledgers with rewritten events (CAP-67) that are not proven.
    unproven: Marked,
    /// Ledgers that were restored from a backup without their raw form.
    from_backup: Marked,
}

/// The newest ledger of a range that a trusted validator has signed.
#[derive(Serialize)]
struct SignedBy {
    validator: String,
    organisation: String,
    ledger: u32,
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

impl Range {
    fn of(range: &CoveredLedgers, attestation: &Attestation, marks: &Marks) -> Self {
        let attested = attestation.of(range.ledgers, &range.signed, marks);
        Self {
            first_ledger: range.ledgers.first.0,
            last_ledger: range.ledgers.last.0,
            first_hash: range.first_hash.to_string(),
            last_hash: range.last_hash.to_string(),
            previous_hash: range.previous_hash.to_string(),
            events: range.events,
            digest: range.digest.to_string(),
            indexed_as: range.indexed_as.iter().map(Settings::from).collect(),
            attested_ledger: attested.ledger().map(|ledger| ledger.0),
            attested_by: attested.by(),
            unattested_because: attested.reason(),
            signed: signed(range, attestation),
            reported: Marked::from(&attested.marks.reported),
            unproven: Marked::from(&attested.marks.unproven),
            from_backup: Marked::from(&attested.marks.from_backup),
        }
    }
}

/// Returns what trusted validators have signed in a range, the newest ledger first.
fn signed(range: &CoveredLedgers, attestation: &Attestation) -> Vec<SignedBy> {
    let Some(validators) = attestation.validators() else { return Vec::new() };
    // Others were trusted once: their rows stay until signatures are read again.
    let signed_by = |(validator, ledger): (NodeId, LedgerSeq)| {
        let organisation = validators.organisation_of(&validator)?.to_owned();
        Some(SignedBy { validator: validator.to_string(), organisation, ledger: ledger.0 })
    };
    let mut signed: Vec<_> = range.signed.iter().filter_map(signed_by).collect();
    signed.sort_by_key(|signed| Reverse(signed.ledger));
    signed
}

impl From<LedgerRange> for Gap {
    fn from(gap: LedgerRange) -> Self {
        Self { first_ledger: gap.first.0, last_ledger: gap.last.0 }
    }
}

impl Removed {
    /// Returns what is removed of the ledgers in these ranges.
    fn of(ranges: &[CoveredLedgers], store: &Store) -> Result<Self, ApiError> {
        let within = |needs| -> Result<Vec<Gap>, ApiError> {
            let removed = store.removed(needs)?;
            let parts = ranges.iter().map(|range| removed.within(range.ledgers));
            Ok(parts.flat_map(|part| part.ranges().to_vec()).map(Gap::from).collect())
        };
        Ok(Self {
            raw_ledgers: within(Needs::RAW_LEDGERS)?,
            events: within(Needs::EVENTS)?,
            transactions: within(Needs::TRANSACTIONS)?,
        })
    }

    fn has_records(&self) -> bool {
        !self.events.is_empty() || !self.transactions.is_empty()
    }
}

fn completeness(deps: &Deps, _: &ReadCall<'_>) -> Result<Answer, ApiError> {
    let ranges = deps.store.completeness()?;
    // Asked for afterwards: what is said to be stored is.
    let removed = Removed::of(&ranges, &deps.store)?;
    let marks = deps.store.marks();
    let record = Record {
        network: deps.network.name(),
        network_passphrase: deps.network.passphrase(),
        complete: ranges.len() == 1 && !removed.has_records(),
        settings: Settings::from(&deps.settings.indexed_as),
        bound: Bound::of(&marks),
        gaps: CoveredLedgers::gaps(&ranges).into_iter().map(Gap::from).collect(),
        ranges: ranges.iter().map(|range| Range::of(range, &deps.attestation, &marks)).collect(),
        removed,
    };
    Ok(Answer::of(&record))
}
