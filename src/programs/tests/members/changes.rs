//! What the members of projects held: changes that are rows, as a naive model of the stored ledgers tells them.

use super::super::told_changes::{Told, forget_keys_of_evictions, told_of};
use super::*;
use orrery_contract_data::LAST_ORDER;
use orrery_testkit::storage as naive;

impl History {
    /// What the members of a project held when its first ledger began, which the model knows if the ledger before
    /// it is stored.
    fn found(&self, manifest: &Manifest, model: &Model) -> Vec<Told> {
        let project = manifest.events.as_ref().unwrap();
        let of = (manifest.contracts.as_slice(), &project.selectors);
        let is_stored = |ledger: u32| self.scene.store.range_of(LedgerSeq(ledger)).is_some();
        let mut found = Vec::new();
        let from = project.from;
        if from < 2 || !is_stored(from) || !is_stored(from - 1) {
            return found;
        }
        for contract in self.naive.contracts() {
            if !model.selects_change(of, &ContractId(contract), (from - 1, LAST_ORDER)) {
                continue;
            }
            let list = self.naive.list(&contract, from - 1);
            let entries = list.into_iter().flat_map(|list| list.entries);
            found.extend(entries.map(|entry| Told::found(&entry, from)));
        }
        found
    }

    /// Compares the changes of a project with those of the model.
    pub(super) fn check_changes(&self, manifest: &Manifest, model: &Model) {
        let project = manifest.events.as_ref().unwrap();
        let mut told = told_of(&self.scene, manifest.id);
        if !project.has_storage {
            assert!(told.is_empty());
            return;
        }
        let of = (manifest.contracts.as_slice(), &project.selectors);
        let wanted = |row: &naive::Row| {
            let order = row.tx.map_or(LAST_ORDER, |tx| tx.order);
            row.ledger >= project.from
                && naive::contract_of(&row.key).is_some_and(|it| {
                    model.selects_change(of, &ContractId(it), (row.ledger, order))
                })
        };
        let rows = self.naive.rows(wanted);
        let mut expected: Vec<Told> = rows.iter().map(Told::of_model).collect();
        expected.extend(self.found(manifest, model));
        expected.sort_unstable();
        if self.missing.is_empty() {
            let stays = |told: &Told| model.stays(of, &ContractId(told.contract), self.most);
            expected.retain(|told| stays(told) == Some(true));
            told.retain(|told| stays(told).is_some());
            forget_keys_of_evictions(&told, &mut expected);
            assert_eq!(told, expected, "{of:?} from {}", project.from);
        } else {
            // Less may be known of members, and nothing is guessed.
            let place = |told: &Told| (told.ledger, told.order, told.key_hash, told.change);
            let places: BTreeSet<_> = expected.iter().map(place).collect();
            for told in &told {
                assert!(places.contains(&place(told)), "{told:?} {of:?}");
            }
        }
    }
}
