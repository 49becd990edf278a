//! Whose signatures count in a data directory, and what is attested by them, as status and metrics
//! report it.

use std::path::Path;
use std::sync::Arc;

use super::ServiceError;
use crate::attestation::{Attestation, AttestedBy};
use crate::config::Config;
use crate::control::{AttestationReport, CoveredRange, MarkedLedgers};
use crate::domain::{Network, NodeId};
use crate::observe::health::{Component, Health};
use crate::observe::metrics::Metrics;
use crate::pipeline::Trust;
use crate::sandbox::source;
use crate::store::{Marks, Store, StoredLedgers};
use crate::validators::{Organisation, Validators, ValidatorsError};

/// Name of the organisation whose only validator signs the ledgers of a sandbox network.
const SANDBOX: &str = "sandbox";

/// Returns what is checked of the ledgers of a store, and whose signatures count: the validators of
/// the settings or of the network, or else that of the sandbox network in the data directory.
///
/// # Errors
/// When the settings cannot be used for the network, or the sandbox's file is damaged.
pub(super) fn trust_of(config: &Config, store: &Store) -> Result<Trust, ServiceError> {
    let validators = validators_of(config, store.network(), store.directory())?;
    let require_attested = config.trust.require_attested;
    Ok(Trust { policy: config.trust.policy(), validators, require_attested })
}

/// Returns the validators whose signatures count in a data directory of a network; `None` when none
/// are known.
///
/// # Errors
/// When the settings cannot be used for the network, or the sandbox's file is damaged.
pub fn validators_of(
    config: &Config,
    network: &Network,
    directory: &Path,
) -> Result<Option<Arc<Validators>>, ServiceError> {
    match config.validators(network)? {
        Some(validators) => Ok(Some(validators)),
        None => Ok(source::known_validator(directory)?.map(only_validator).transpose()?),
    }
}

/// Returns a network's only validator as the trusted one.
pub(super) fn only_validator(key: NodeId) -> Result<Arc<Validators>, ValidatorsError> {
    let organisation = Organisation { name: SANDBOX.to_owned(), validators: vec![key] };
    Validators::new(vec![organisation], 1).map(Arc::new)
}

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
    let works = Component::works;
    metrics.set_components(components.iter().map(|(name, it)| (*name, works(it))));
    metrics.set_latest_closed_at(store.ends().latest_close_time.unwrap_or(0));
}
