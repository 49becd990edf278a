//! What is attested, as status and metrics report it.

use crate::attestation::{Attestation, AttestedBy};
use crate::control::{AttestationReport, CoveredRange, MarkedLedgers};
use crate::observe::health::{Component, Health};
use crate::observe::metrics::Metrics;
use crate::store::{Marks, Store, StoredLedgers};
use crate::validators::Validators;

/// Returns what is attested of the newest covered range, and reports it to health; `None` when
/// nothing is stored.
pub(super) fn report(
    attestation: &Attestation,
    store: &Store,
    health: &Health,
) -> Option<AttestationReport> {
    let newest = attestation.report(store, health)?;
    let validators = attestation.validators();
    let (organisations, of) = match newest.newest {
        Ok((_, AttestedBy::Validators { organisations, of })) => (organisations, of),
        _ => (0, validators.map_or(0, |validators| validators.organisations().len())),
    };
    Some(AttestationReport {
        attested_ledger: newest.ledger().map(|ledger| ledger.0),
        attested_by: newest.by().map(str::to_owned),
        unattested_because: newest.reason(),
        organisations,
        of,
        needed: validators.map_or(0, Validators::threshold),
        waiting: attestation.waiting().ranges(),
    })
}

/// Describes a covered range, and what is attested of it.
pub(super) fn describe(
    attestation: &Attestation,
    range: &StoredLedgers,
    marks: &Marks,
) -> CoveredRange {
    let attested = attestation.of(range.covered.ledgers, &range.signed, marks);
    CoveredRange {
        covered: range.covered,
        attested_ledger: attested.ledger(),
        unattested_because: attested.reason(),
        reported: MarkedLedgers::from(&attested.marks.reported),
        unproven: MarkedLedgers::from(&attested.marks.unproven),
        from_backup: MarkedLedgers::from(&attested.marks.from_backup),
    }
}

/// Reports in metrics which components work, the close time of the newest ledger, and the newest
/// attested one.
pub(super) fn report_health(
    attestation: &Attestation,
    store: &Store,
    metrics: &Metrics,
    health: &Health,
) {
    let newest = attestation.report(store, health);
    metrics.set_attested_ledger(newest.and_then(|newest| newest.ledger()));
    let marks = store.marks();
    metrics.set_marked_ledgers([
        ("reported", marks.reported.ledgers()),
        ("unproven", marks.unproven.ledgers()),
        ("from_backup", marks.from_backup.ledgers()),
    ]);
    let components = health.components();
    let works = |component: &Component| matches!(component, Component::Up { .. });
    metrics.set_components(components.iter().map(|(name, it)| (*name, works(it))));
    metrics.set_latest_closed_at(store.ends().latest_close_time.unwrap_or(0));
}
