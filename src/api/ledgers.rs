//! `/rest/ledgers/{ledger}`: what is kept of one ledger, or why it is not stored.

use serde::Serialize;

use super::answer::Answer;
use super::call::ReadCall;
use super::identity::Access;
use super::params::path_number;
use super::route::{Route, Work};
use super::{ApiError, Deps};
use orrery_ledger::domain::{LedgerHash, LedgerRange, LedgerSeq};
use orrery_store::LedgerRow;

/// Routes of this area.
pub(super) static ROUTES: [Route; 1] =
    [Route::new("GET", "/rest/ledgers/{ledger}", Work::read(Access::Public, ledger))];

#[derive(Serialize)]
struct Record {
    ledger: LedgerSeq,
    hash: LedgerHash,
    previous_hash: LedgerHash,
    closed_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    closed_at_ms: Option<u64>,
    protocol_version: u32,
    /// Stored smart-contract transactions, those included that retention has removed.
    transactions: u32,
    transactions_in_ledger: u32,
    failed_in_ledger: u32,
    /// Stored events, those included that retention has removed.
    events: u64,
    events_removed: bool,
    attested: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    attested_by: Option<&'static str>,
    /// Whether it is not as its header says, and was stored because `trust.events` says so.
    reported: bool,
    /// Whether it has rewritten events (CAP-67) that are not proven.
    unproven: bool,
    range: LedgerRange,
}

fn ledger(deps: &Deps, call: &ReadCall<'_>) -> Result<Answer, ApiError> {
    let ledger = LedgerSeq(path_number("ledger", call.path.get("ledger"))?);
    let Some(range) = deps.store.range_of(ledger) else {
        return Err(ApiError::NoLedger(reason(ledger, &deps.store.status().ranges)));
    };
    let Some(row) = deps.store.ledger(ledger)? else {
        return Err(ApiError::NoLedger(format!("ledger {ledger} is not stored: ask again")));
    };
    Ok(Answer::of(&record(deps, ledger, range, &row)?))
}

fn record(
    deps: &Deps,
    ledger: LedgerSeq,
    range: LedgerRange,
    row: &LedgerRow,
) -> Result<Record, ApiError> {
    let attested_by = attested_by(deps, ledger);
    let marks = deps.store.marks();
    Ok(Record {
        ledger,
        hash: row.hash,
        previous_hash: row.previous_hash,
        closed_at: row.close_time.to_string(),
        closed_at_ms: row.close_time.milliseconds(),
        protocol_version: row.protocol,
        transactions: row.counts.stored_transactions,
        transactions_in_ledger: row.counts.transactions,
        failed_in_ledger: row.counts.failed,
        events: row.counts.events(),
        events_removed: !deps.store.has_all_events(ledger)?,
        attested: attested_by.is_some(),
        attested_by,
        reported: marks.reported.contains(ledger),
        unproven: marks.unproven.contains(ledger),
        range,
    })
}

/// Returns the word for whose word attests a ledger; `None` when it is not attested.
fn attested_by(deps: &Deps, ledger: LedgerSeq) -> Option<&'static str> {
    let ranges = deps.attestation.ranges(&deps.store);
    let of_range = ranges.into_iter().find(|attested| attested.ledgers.contains(ledger))?;
    of_range.by_of(ledger)
}

/// Returns why a ledger is outside the stored ranges, and what mends it.
fn reason(ledger: LedgerSeq, ranges: &[LedgerRange]) -> String {
    let before = ranges.iter().rfind(|range| range.last < ledger).map(|range| range.last);
    let after = ranges.iter().find(|range| range.first > ledger).map(|range| range.first);
    let backfill = |from: u32, to: u32| format!("`orrery backfill --from {from} --to {to}`");
    match (before, after) {
        (None, None) => format!("ledger {ledger} is not stored: no ledger is stored yet"),
        (Some(newest), None) => format!(
            "ledger {ledger} is not stored: it is newer than the newest stored ledger {newest}, so \
             ask again when the service has reached it"
        ),
        (Some(before), Some(after)) => {
            let (from, to) = (before.0 + 1, after.0 - 1);
            let fill = backfill(from, to);
            format!(
                "ledger {ledger} is not stored: it is in the gap from {from} to {to}, which {fill} \
                 fills"
            )
        }
        (None, Some(first)) => {
            // The ledger alone: there may be millions up to the first stored one. No network has a
            // ledger 0.
            let wanted = ledger.0.max(1);
            let fill = backfill(wanted, wanted);
            format!(
                "ledger {ledger} is not stored: it is older than the first stored ledger {first}; \
                 {fill} adds it"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_say_where_a_missing_ledger_is() {
        let ranges = [LedgerRange::new(10, 20), LedgerRange::new(30, 40)];
        for (ledger, expected) in [
            (9, "older than the first stored ledger 10; `orrery backfill --from 9 --to 9` adds it"),
            (0, "--from 1 --to 1`"),
            (25, "in the gap from 21 to 29, which `orrery backfill --from 21 --to 29` fills"),
            (41, "newer than the newest stored ledger 40"),
            (u32::MAX, "newer than the newest stored ledger 40"),
        ] {
            let reason = reason(LedgerSeq(ledger), &ranges);
            assert!(reason.contains(expected), "{reason}");
        }
        assert!(reason(LedgerSeq(5), &[]).contains("no ledger is stored yet"));
    }
}
