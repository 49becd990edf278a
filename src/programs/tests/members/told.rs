//! The events of which those tell users who follow a project: its rows, without those of contracts that were
//! announced later.

use super::*;
use orrery_ledger::domain::LedgerRange;
use orrery_store::EventQuery;

impl History {
    /// Compares the events that are told with rows, which are counted by ledger and contract.
    pub(super) fn check_told(
        &self,
        manifest: &Manifest,
        rows: &BTreeMap<(u32, ContractId), usize>,
    ) {
        let selectors = manifest.events.as_ref().unwrap().selectors.clone();
        let mut told: BTreeMap<(u32, ContractId), usize> = BTreeMap::new();
        for ledger in self.ledgers.keys().filter(|ledger| !self.missing.contains(ledger)) {
            let selected = self.scene.runner.selected(manifest, LedgerSeq(*ledger)).unwrap();
            let query = EventQuery::of_ledgers(LedgerRange::new(*ledger, *ledger));
            let count = |event: &orrery_store::EventRecord<'_>| {
                if let Some(contract) =
                    event.contract.filter(|_| selected.events.contains(&event.id))
                {
                    *told.entry((*ledger, ContractId(*contract))).or_default() += 1;
                }
            };
            self.scene.store.events(&query, count).unwrap();
        }
        for (of, count) in &told {
            let most = rows.get(of).copied().unwrap_or(0);
            assert!(*count <= most, "{of:?} {selectors:?}");
        }
        let count = selectors.factories.len();
        for ((ledger, contract), all) in rows {
            if told.get(&(*ledger, *contract)) == Some(all) {
                continue;
            }
            assert!(!manifest.contracts.contains(contract), "{contract} is named");
            let announced = self.scene.runner.announced(manifest.id, contract, count).unwrap();
            assert!(
                announced.is_some_and(|at| at.0 > *ledger),
                "{contract} {ledger} {selectors:?}"
            );
        }
        // Nothing but an announcement makes these members.
        if selectors.created_by.is_empty() && selectors.wasm.is_empty() && selectors.all.is_empty()
        {
            for (ledger, contract) in told.keys() {
                let announced = self.scene.runner.announced(manifest.id, contract, count).unwrap();
                let is_named = manifest.contracts.contains(contract);
                assert!(is_named || announced.is_some_and(|at| at.0 <= *ledger));
            }
        }
    }
}
