//! What belongs to whom in the ledgers that were asked about last: the contracts of which something is said in
//! each are looked up once for all projects.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use orrery_ledger::domain::{ContractId, LedgerSeq, ProgramId};
use orrery_store::{Store, StoreError};

/// Number of ledgers that are kept: as many as one turn looks ahead.
const MOST_LEDGERS: usize = 64;

/// The contracts of each project in a ledger.
type OfLedger = HashMap<ProgramId, Vec<ContractId>>;

/// Contracts of which something is said in ledgers.
#[derive(Default)]
pub struct Ledgers(Mutex<VecDeque<Kept>>);

/// The contracts of which something is said in a ledger.
struct Kept {
    ledger: LedgerSeq,
    contracts: Arc<[ContractId]>,
    /// What belongs to whom, in this version of the members.
    known: Option<(u64, Arc<OfLedger>)>,
}

impl Ledgers {
    /// Returns those of a ledger, by id. `read` returns them in any order.
    pub fn contracts(
        &self,
        store: &Store,
        ledger: LedgerSeq,
        read: impl FnOnce() -> Result<Vec<ContractId>, StoreError>,
    ) -> Result<Arc<[ContractId]>, StoreError> {
        if let Some(kept) = self.0.lock().iter().find(|it| it.ledger == ledger) {
            return Ok(Arc::clone(&kept.contracts));
        }
        // One that is stored later has others.
        let is_stored = store.range_of(ledger).is_some();
        let mut contracts = read()?;
        contracts.sort_unstable();
        contracts.dedup();
        let contracts: Arc<[ContractId]> = contracts.into();
        if is_stored {
            let mut ledgers = self.0.lock();
            if ledgers.len() >= MOST_LEDGERS {
                ledgers.pop_front();
            }
            ledgers.push_back(Kept { ledger, contracts: Arc::clone(&contracts), known: None });
        }
        Ok(contracts)
    }

    /// Returns those of `contracts`, which are those of a ledger, that belong to a project. `look_up` says for all
    /// projects what belongs to them, and in which version of the members; `version` is the present one.
    pub fn of_project(
        &self,
        (ledger, contracts): (LedgerSeq, &[ContractId]),
        program: ProgramId,
        version: u64,
        look_up: impl FnOnce(&[ContractId]) -> (u64, OfLedger),
    ) -> Vec<ContractId> {
        let mut ledgers = self.0.lock();
        let kept = ledgers.iter_mut().find(|it| it.ledger == ledger);
        let known = kept.as_ref().and_then(|it| it.known.clone());
        let known = match known.filter(|(of, _)| *of == version) {
            Some((_, known)) => known,
            None => {
                let (of, found) = look_up(contracts);
                let found = Arc::new(found);
                if let Some(kept) = kept {
                    kept.known = Some((of, Arc::clone(&found)));
                }
                found
            }
        };
        known.get(&program).cloned().unwrap_or_default()
    }
}
