//! `/rest/completeness`: the stored ledger ranges, with digests by which two installations can be
//! compared, and what is attested of them.

use std::cmp::Reverse;

use serde::Serialize;

use super::answer::Answer;
use super::call::ReadCall;
use super::identity::Access;
use super::route::{Route, Work};
use super::{ApiError, Deps};
use orrery_contract_data::{
    CONSUMER as CONTRACT_DATA, Checkpoint, Difference, Scope as StorageScope, checkpoints,
    scope as storage_scope,
};
use orrery_ledger::domain::{
    ContractId, CoveredLedgers, Hash32, LedgerRange, LedgerSeq, LedgerSet, NodeId, range_ends,
};
use orrery_pipeline::attestation::Attestation;
use orrery_store::{IndexedAs, Marks, Needs, Store, StoredLedgers};

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
        Self { ledgers: set.ledgers(), ranges: set.first_ranges().map(Gap).collect() }
    }
}

#[derive(Serialize)]
struct Range {
    #[serde(flatten)]
    covered: CoveredLedgers,
    indexed_as: Vec<Settings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attested_ledger: Option<LedgerSeq>,
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
    /// Whether anything binds the changes of what contracts hold: `unbound`, or at which checkpoint they
    /// were checked; `watched` or `off` where they are not recorded of all contracts.
    storage: String,
    /// Checkpoints of the range that were compared with the stored ledgers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    checkpoints: Vec<Checked>,
}

/// A checkpoint that was compared with the stored ledgers.
#[derive(Serialize)]
struct Checked {
    ledger: LedgerSeq,
    attested: bool,
    contracts: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    differs: Option<Differs>,
}

/// Where a checkpoint is not as the stored ledgers say.
#[derive(Serialize)]
struct Differs {
    contract_id: ContractId,
    key_hash: Hash32,
    ledger: LedgerSeq,
}

impl From<&Checkpoint> for Checked {
    fn from(checkpoint: &Checkpoint) -> Self {
        let Checkpoint { ledger, is_attested, is_whole, difference } = checkpoint;
        let differs = difference.map(|Difference { contract, key_hash, ledger }| Differs {
            contract_id: contract,
            key_hash,
            ledger,
        });
        let contracts = if *is_whole { "all" } else { "listed" };
        Self { ledger: *ledger, attested: *is_attested, contracts, differs }
    }
}

/// Of which contracts the changes of what they hold are recorded; `None` when of none.
fn recorded(store: &Store) -> Result<Option<StorageScope>, ApiError> {
    match store.consumer(CONTRACT_DATA) {
        Some(_) => Ok(Some(storage_scope(store)?)),
        None => Ok(None),
    }
}

/// Returns what is said of the changes of what contracts hold in a range with these checkpoints.
fn storage(scope: Option<StorageScope>, checkpoints: &[&Checkpoint]) -> String {
    match scope {
        Some(StorageScope::All) => {}
        Some(StorageScope::Watched) => return "watched".to_owned(),
        None => return "off".to_owned(),
    }
    let checked =
        |checkpoint: &&&Checkpoint| checkpoint.is_whole && checkpoint.difference.is_none();
    match checkpoints.iter().rev().find(checked) {
        None => "unbound".to_owned(),
        Some(Checkpoint { ledger, is_attested: true, .. }) => format!("checked at {ledger}"),
        Some(Checkpoint { ledger, .. }) => format!("checked at {ledger}, unattested"),
    }
}

/// The newest ledger of a range that a trusted validator has signed.
#[derive(Serialize)]
struct SignedBy {
    validator: NodeId,
    organisation: String,
    ledger: LedgerSeq,
}

/// Consecutive ledgers.
#[derive(Serialize)]
struct Gap(#[serde(with = "range_ends")] LedgerRange);

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
    fn of(
        range: &StoredLedgers,
        attestation: &Attestation,
        marks: &Marks,
        (scope, checkpoints): (Option<StorageScope>, &[Checkpoint]),
    ) -> Self {
        let here = |checkpoint: &&Checkpoint| range.covered.ledgers.contains(checkpoint.ledger);
        let checkpoints: Vec<_> = checkpoints.iter().filter(here).collect();
        let attested = attestation.of(range.covered.ledgers, &range.signed, marks);
        Self {
            covered: range.covered,
            indexed_as: range.indexed_as.iter().map(Settings::from).collect(),
            attested_ledger: attested.ledger(),
            attested_by: attested.by(),
            unattested_because: attested.reason(),
            signed: signed(range, attestation),
            reported: Marked::from(&attested.marks.reported),
            unproven: Marked::from(&attested.marks.unproven),
            from_backup: Marked::from(&attested.marks.from_backup),
            storage: storage(scope, &checkpoints),
            checkpoints: checkpoints.into_iter().map(Checked::from).collect(),
        }
    }
}

/// Returns what trusted validators have signed in a range, the newest ledger first.
fn signed(range: &StoredLedgers, attestation: &Attestation) -> Vec<SignedBy> {
    let Some(validators) = attestation.validators() else { return Vec::new() };
    // Others were trusted once: their rows stay until signatures are read again.
    let signed_by = |(validator, ledger): (NodeId, LedgerSeq)| {
        let organisation = validators.organisation_of(&validator)?.to_owned();
        Some(SignedBy { validator, organisation, ledger })
    };
    let mut signed: Vec<_> = range.signed.iter().filter_map(signed_by).collect();
    signed.sort_by_key(|signed| Reverse(signed.ledger));
    signed
}

impl Removed {
    /// Returns what is removed of the ledgers in these ranges.
    fn of(ranges: &[StoredLedgers], store: &Store) -> Result<Self, ApiError> {
        let within = |needs| -> Result<Vec<Gap>, ApiError> {
            let removed = store.removed(needs)?;
            let parts = ranges.iter().map(|range| removed.within(range.covered.ledgers));
            Ok(parts.flat_map(|part| part.ranges().to_vec()).map(Gap).collect())
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
    let (marks, checkpoints) = (deps.store.marks(), checkpoints(&deps.store)?);
    let of_storage = (recorded(&deps.store)?, checkpoints.as_slice());
    let of = |range| Range::of(range, &deps.attestation, &marks, of_storage);
    let record = Record {
        network: deps.network.name(),
        network_passphrase: deps.network.passphrase(),
        complete: ranges.len() == 1 && !removed.has_records(),
        settings: Settings::from(&deps.settings.indexed_as),
        bound: Bound::of(&marks),
        gaps: StoredLedgers::gaps(&ranges).into_iter().map(Gap).collect(),
        ranges: ranges.iter().map(of).collect(),
        removed,
    };
    Ok(Answer::of(&record))
}
