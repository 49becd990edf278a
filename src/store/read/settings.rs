//! What governed calls of contracts on the state after a ledger: the network's settings, the size of the
//! state, the base reserve. Settings are known from recorded changes, and from states that others
//! found; as contract data is, around every change, as far as no ledger in between is missing.

use orrery_ledger::decode::SettingBefore;
use orrery_ledger::domain::{LedgerRange, LedgerSeq, LedgerSet};

use crate::encoding::bytes::Malformed;
use crate::encoding::columns::{Family, Key, LedgerKey, SettingKey};
use crate::encoding::error::{StoreError, corrupt};
use crate::encoding::settings::{LedgerConditions, SettingRow};
use crate::state::store::Store;
use crate::state::unrecorded::Unrecorded;

/// `CONFIG_SETTING` of `LedgerEntryType`.
const CONFIG_SETTING: u32 = 8;
/// Settings that the network itself changes, without an upgrade: `LIVE_SOROBAN_STATE_SIZE_WINDOW` and
/// `EVICTION_ITERATOR`. What is recorded of them does not hold.
const MOVING: [u32; 2] = [12, 13];

impl Store {
    /// Returns the conditions after a ledger; `None` when the ledger is not stored, or was stored by a
    /// version that did not keep this.
    ///
    /// # Errors
    /// Errors of the database, or that the row is damaged.
    pub fn conditions(&self, ledger: LedgerSeq) -> Result<Option<LedgerConditions>, StoreError> {
        let key = LedgerKey(ledger).encode();
        let Some(row) = self.database.get(Family::Conditions, key)? else { return Ok(None) };
        LedgerConditions::decode(&row).map(Some).map_err(corrupt(Family::Conditions, key))
    }

    /// Returns a setting of the network at the end of a ledger, by its number (`ConfigSettingID`), as
    /// XDR `LedgerEntry`; `None` when it is not known, or there was none. Those that change without an
    /// upgrade are never known.
    ///
    /// # Errors
    /// Errors of the database, or that a row is damaged.
    pub fn setting(&self, id: u32, ledger: LedgerSeq) -> Result<Option<Vec<u8>>, StoreError> {
        if MOVING.contains(&id) {
            return Ok(None);
        }
        let recorded = self.recorded_around(ledger)?;
        let snapshot = self.database.snapshot();
        let mut rows = snapshot.rows(Family::Settings)?;
        rows.seek_for_prev(SettingKey { id, ledger }.encode());
        let last = parse(rows.item())?.filter(|(key, _)| key.id == id);
        if let Some((SettingKey { ledger: at, .. }, row)) = last {
            // What was found after the ledger before the first one still holds in the first.
            let holds = |recorded: LedgerRange| at.next() >= Some(recorded.first);
            if at == ledger || recorded.is_some_and(holds) {
                return Ok(row.after.map(<[u8]>::to_vec));
            }
        }
        rows.status()?;
        let (Some(next), Some(recorded)) = (ledger.next(), recorded) else { return Ok(None) };
        rows.seek(SettingKey { id, ledger: next }.encode());
        let first =
            parse(rows.item())?.filter(|(key, _)| key.id == id && recorded.contains(key.ledger));
        let before = first.and_then(|(_, row)| match row.before {
            SettingBefore::Entry(entry) => Some(entry.to_vec()),
            SettingBefore::Absent | SettingBefore::Unknown => None,
        });
        rows.status()?;
        Ok(before)
    }

    /// Records settings of the network that were found in the state at the end of a stored ledger, each
    /// an XDR `LedgerEntry`. Those that are known stay as they are.
    ///
    /// # Errors
    /// When an entry is no setting, or another value of it is known, and nothing is recorded; errors of
    /// the database.
    pub fn put_found_settings(
        &self,
        ledger: LedgerSeq,
        entries: &[Vec<u8>],
    ) -> Result<(), StoreError> {
        let mut batch = self.database.batch();
        for entry in entries {
            let (id, modified) = id_of(entry).ok_or_else(|| {
                StoreError::Other("an entry that is no setting of the network was found".to_owned())
            })?;
            match self.setting(id, ledger)? {
                Some(known) if known != *entry => {
                    return Err(StoreError::Other(format!(
                        "the state at ledger {ledger} has another value of the network's setting {id} \
                         than the stored ledgers"
                    )));
                }
                Some(_) => continue,
                None if MOVING.contains(&id) => continue,
                None => {}
            }
            let key = SettingKey { id, ledger };
            let before = match LedgerSeq(modified) < ledger {
                true => SettingBefore::Entry(entry),
                false => SettingBefore::Unknown,
            };
            let row = SettingRow { before, after: Some(entry), is_found: true };
            batch.put(Family::Settings, &key, row.encode())?;
        }
        let batch = batch.detach();
        self.writer_thread.run(move |database| database.write_synced(database.attach(batch)))
    }

    /// Returns the consecutive stored ledgers around a ledger whose changes of settings are recorded.
    fn recorded_around(&self, ledger: LedgerSeq) -> Result<Option<LedgerRange>, StoreError> {
        let mut recorded = self.range_of(ledger).map(LedgerSet::from).unwrap_or_default();
        recorded.remove_all(&self.unrecorded(Unrecorded::Settings)?);
        Ok(recorded.ranges().iter().find(|range| range.contains(ledger)).copied())
    }
}

/// Returns the number of a setting, and the ledger in which it was modified last, from its XDR
/// `LedgerEntry`; `None` for another entry.
fn id_of(entry: &[u8]) -> Option<(u32, u32)> {
    let number = |at: usize| entry.get(at..)?.first_chunk().copied().map(u32::from_be_bytes);
    (number(4)? == CONFIG_SETTING).then_some((number(8)?, number(0)?))
}

fn parse<'r>(
    row: Option<(&'r [u8], &'r [u8])>,
) -> Result<Option<(SettingKey, SettingRow<'r>)>, StoreError> {
    let Some((key, value)) = row else { return Ok(None) };
    let parsed = SettingKey::decode(key).ok_or(Malformed);
    let parsed = parsed.and_then(|setting| Ok((setting, SettingRow::decode(value)?)));
    parsed.map(Some).map_err(corrupt(Family::Settings, key))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::db::directory::RAW_DIRECTORY;
    use crate::encoding::format_version::FormatVersion;
    use crate::feed::retention_floor::Retention;
    use crate::sample_ledgers::{chain, commit, everything, open, store_of};
    use crate::upkeep::audit::audit;
    use crate::upkeep::format::FORMAT_ROW;
    use crate::{db::database::Database, ingest::prepare::IndexOptions};

    /// `CONFIG_SETTING_CONTRACT_COMPUTE_V0`, and a setting that a sandbox has not.
    const COMPUTE: u32 = 1;
    const NONE: u32 = 0;
    const LEDGERS: u32 = 20;

    /// An XDR `LedgerEntry` of a setting of 32 bits.
    fn made(id: u32, modified: u32, value: u32) -> Vec<u8> {
        [modified, CONFIG_SETTING, id, value, 0].map(u32::to_be_bytes).concat()
    }

    fn sound(directory: &Path) {
        assert_eq!(audit(directory, None, &|_| {}).unwrap().problems, []);
    }

    #[test]
    fn what_the_first_ledger_brings_holds_until_the_end_of_its_range() {
        let (directory, ledgers) = (tempfile::tempdir().unwrap(), chain(3, 0..=4, LEDGERS));
        let gap = |number: &usize| *number != 9;
        let stored = ledgers.iter().enumerate().filter(|(number, _)| gap(number));
        let store =
            store_of(directory.path(), stored.map(|(_, raw)| raw), &IndexOptions::default());
        let known = store.setting(COMPUTE, LedgerSeq(2)).unwrap().unwrap();
        assert_eq!(id_of(&known), Some((COMPUTE, 2)));
        // Ledger 11 is missing.
        for ledger in 0..=LEDGERS + 2 {
            let held = (2..=10).contains(&ledger).then(|| known.clone());
            assert_eq!(store.setting(COMPUTE, LedgerSeq(ledger)).unwrap(), held, "{ledger}");
            assert_eq!(store.setting(NONE, LedgerSeq(ledger)).unwrap(), None, "{ledger}");
            let conditions = store.conditions(LedgerSeq(ledger)).unwrap();
            let is_stored = ledger != 11 && (2..=LEDGERS + 1).contains(&ledger);
            assert_eq!(conditions.is_some(), is_stored, "{ledger}");
            if let Some(LedgerConditions { base_reserve, state_size }) = conditions {
                assert_eq!((base_reserve, state_size.is_some()), (5_000_000, true));
            }
        }
        commit(&store, &ledgers[9], &IndexOptions::default());
        store.flush().unwrap();
        assert_eq!(store.setting(COMPUTE, LedgerSeq(LEDGERS + 1)).unwrap(), Some(known));
        drop(store);
        sound(directory.path());
    }

    #[test]
    fn found_settings_hold_around_their_ledger_and_replace_no_change() {
        let (directory, ledgers) = (tempfile::tempdir().unwrap(), chain(3, 0..=4, LEDGERS));
        let store = store_of(directory.path(), &ledgers, &everything());
        let (new, own) = (made(NONE, 7, 1), made(COMPUTE, 2, 2));
        let at = LedgerSeq(9);
        store.put_found_settings(at, std::slice::from_ref(&new)).unwrap();
        for ledger in [LedgerSeq(2), at] {
            let refused = store.put_found_settings(ledger, &[made(11, 2, 1), own.clone()]);
            assert!(refused.unwrap_err().to_string().contains("setting 1 "));
            assert_eq!(store.setting(11, ledger).unwrap(), None, "nothing is recorded");
        }
        for ledger in 2..=LEDGERS + 1 {
            // No recorded ledger changed it in between.
            assert_eq!(store.setting(NONE, LedgerSeq(ledger)).unwrap(), Some(new.clone()));
            assert_ne!(store.setting(COMPUTE, LedgerSeq(ledger)).unwrap(), Some(own.clone()));
        }
        let modified_here = made(11, at.0, 1);
        store.put_found_settings(at, std::slice::from_ref(&modified_here)).unwrap();
        for ledger in 2..=LEDGERS + 1 {
            let held = (ledger >= at.0).then(|| modified_here.clone());
            assert_eq!(store.setting(11, LedgerSeq(ledger)).unwrap(), held, "{ledger}");
        }
        assert!(store.put_found_settings(at, &[vec![0; 20]]).is_err());
        store.put_found_settings(at, &[made(MOVING[1], 2, 1)]).unwrap();
        assert_eq!(MOVING.map(|id| store.setting(id, at).unwrap()), [None, None]);
        drop(store);
        sound(directory.path());
    }

    /// A directory as the version before wrote it.
    fn made_older(directory: &Path) {
        let database = Database::open(&directory.join(RAW_DIRECTORY)).unwrap();
        let mut batch = database.batch();
        for family in [Family::Settings, Family::Conditions] {
            batch.delete_range(family, &[], &[0xff; 16]).unwrap();
        }
        let older = FormatVersion { major: 1, minor: 2 };
        batch.put_raw(Family::Meta, FORMAT_ROW, &older.encode()).unwrap();
        database.write_synced(batch).unwrap();
    }

    #[test]
    fn an_upgrade_records_what_the_raw_ledgers_say() {
        for (raw_ledgers, is_pruned) in [(true, false), (true, true), (false, false)] {
            let (directory, ledgers) = (tempfile::tempdir().unwrap(), chain(3, 0..=4, LEDGERS));
            let options = IndexOptions { raw_ledgers, ..everything() };
            let store = store_of(directory.path(), &ledgers, &options);
            if is_pruned {
                let retention = Retention { raw_ledgers: Some(5), ..Retention::default() };
                while !store.prune(&retention).unwrap().is_nothing() {}
            }
            let expected = store.setting(COMPUTE, LedgerSeq(2)).unwrap();
            assert!(expected.is_some());
            drop(store);
            made_older(directory.path());
            let store = open(directory.path());
            let known = |ledger: u32| {
                let ledger = LedgerSeq(ledger);
                let setting = store.setting(COMPUTE, ledger).unwrap();
                (setting, store.conditions(ledger).unwrap().is_some())
            };
            for ledger in 2..=LEDGERS + 1 {
                let has_raw = raw_ledgers && (!is_pruned || ledger > LEDGERS + 1 - 5);
                let setting = expected.clone().filter(|_| raw_ledgers && !is_pruned);
                assert_eq!(known(ledger), (setting, has_raw), "{ledger}");
            }
            // What a state says that others found is known from there on, and not before.
            let found = made(COMPUTE, 3, 9);
            let at = LedgerSeq(LEDGERS + 1 - 5);
            if is_pruned {
                store.put_found_settings(at, std::slice::from_ref(&found)).unwrap();
                assert_eq!(known(at.0 - 1).0, None);
                for ledger in at.0..=LEDGERS + 1 {
                    assert_eq!(known(ledger).0, Some(found.clone()), "{ledger}");
                }
            }
            drop(store);
            sound(directory.path());
        }
    }
}
