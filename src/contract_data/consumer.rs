//! The feed consumer that maintains the index.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use orrery_ledger::decode::header;
use orrery_ledger::domain::{ContractId, LedgerSeq};
use orrery_store::{
    ConsumerEffects, ConsumerSpec, Evicted, FedLedger, Gathers, Keeper, LedgerConsumer, Needs,
    StartPosition, Store, StoreError, TransactionPosition,
};

use super::entry::Durability;
use super::found::{CHECKED, CHECKPOINTS, FOUND, REFUSED};
use super::keeper::KEEPER;
use super::rows::{
    BEGINNINGS, CHANGED, CONSUMER, CREATED, EVICTED, Inverted, KEPT, KEYS, Key, KeyRow, KeyTag,
    LAST_ORDER, NAMES, NEVER_GIVEN, NOWHERE, NameRow,
};
use super::scope::{FAMILIES, Recorded};
use super::seen::{self, FIRST_PROTOCOL, Seen, What};

/// What each ledger says about keys.
const SEEN: Gathers = Gathers { consumer: CONSUMER, from: seen::gather };

/// Feed consumer that maintains the index.
#[derive(Debug, Clone, Copy, Default)]
pub struct ContractData;

impl LedgerConsumer for ContractData {
    fn spec(&self) -> ConsumerSpec {
        ConsumerSpec {
            name: CONSUMER,
            families: &[
                KEYS.family,
                CREATED.family,
                BEGINNINGS.family,
                CHANGED.family,
                EVICTED.family,
                NAMES.family,
                KEPT.family,
                CHECKPOINTS.family,
                CHECKED.family,
                REFUSED.family,
                FOUND.family,
                FAMILIES[0],
                FAMILIES[1],
                FAMILIES[2],
            ],
            needs: Needs::TRANSACTIONS,
            start: StartPosition::FirstLedger,
        }
    }

    fn gathers(&self) -> Option<Gathers> {
        Some(SEEN)
    }

    fn keeps(&self) -> Option<Keeper> {
        Some(KEEPER)
    }

    fn process_ledger(
        &self,
        store: &Store,
        ledger: &FedLedger,
        effects: &mut ConsumerEffects<'_>,
    ) -> Result<(), StoreError> {
        let ledger = ledger.ledger;
        let gathered = store.take_gathered(&SEEN, ledger);
        let (seen, begins) = match gathered.as_deref().and_then(seen::decode) {
            Some(gathered) => gathered,
            None => (read(store, ledger)?, begins(store, ledger)?),
        };
        if begins {
            BEGINNINGS.put(effects, &ledger, &())?;
        }
        let mut changed = Changed::default();
        let mut recorded = Recorded::load(effects)?;
        for seen in &seen {
            if recorded.has(effects, &seen.contract)? {
                changed.add(effects, ledger, seen)?;
            }
        }
        for evicted in store.evicted(ledger)?.unwrap_or_default() {
            if recorded.has(effects, &evicted.contract)? {
                changed.add_evicted(effects, ledger, &evicted)?;
            }
        }
        changed.write(effects)
    }

    fn cannot_be_rebuilt(&self) -> Option<&'static str> {
        Some("what it knows from removed ledgers cannot be read again")
    }
}

/// Whether a ledger brought protocol 20, as its raw form says if that is stored.
fn begins(store: &Store, ledger: LedgerSeq) -> Result<bool, StoreError> {
    let row = store.ledger(ledger)?;
    if row.is_none_or(|row| row.protocol != FIRST_PROTOCOL || row.counts.smart_contract > 0) {
        return Ok(false);
    }
    let raw = store.raw_ledger(ledger)?;
    Ok(raw.is_some_and(|raw| header(&raw).is_ok_and(|header| seen::begins(&header))))
}

/// Reads the stored transactions of a ledger.
pub(super) fn read(store: &Store, ledger: LedgerSeq) -> Result<Vec<Seen>, StoreError> {
    let mut all = Ok(Vec::new());
    store.entry_reader(ledger)?.transactions_of(ledger, |record| {
        let Ok(found) = &mut all else { return };
        if !record.successful {
            return;
        }
        let order = record.position.application_order;
        match seen::of_transaction(order, ledger, record.meta, record.envelope) {
            Ok(seen) => found.extend(seen),
            Err(error) => all = Err(error.at(record.position)),
        }
    })?;
    all
}

/// Rows of keys that change.
#[derive(Default)]
pub(super) struct Changed(pub BTreeMap<Key, ChangedRow>);

pub(super) struct ChangedRow {
    pub before: Option<KeyRow>,
    pub now: KeyRow,
}

impl Changed {
    /// Adds what a transaction says of a key.
    pub fn add(
        &mut self,
        effects: &mut ConsumerEffects<'_>,
        ledger: LedgerSeq,
        seen: &Seen,
    ) -> Result<(), StoreError> {
        let position = TransactionPosition { ledger, application_order: seen.order };
        if seen.is_new_contract
            && CREATED.get(effects, &seen.contract)?.is_none_or(|known| position < known)
        {
            CREATED.put(effects, &seen.contract, &position)?;
        }
        if seen.is_change {
            CHANGED.put(effects, &(seen.contract, position), &())?;
        }
        let row = match self.0.entry((seen.contract, seen.tag)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let before = KEYS.get(effects, new.key())?;
                let now = before.clone().unwrap_or_else(|| KeyRow::new(seen));
                new.insert(ChangedRow { before, now })
            }
        };
        row.now.add(position, seen);
        Ok(())
    }

    /// Adds that a ledger evicted a key.
    pub fn add_evicted(
        &mut self,
        effects: &mut ConsumerEffects<'_>,
        ledger: LedgerSeq,
        evicted: &Evicted,
    ) -> Result<(), StoreError> {
        let key = (evicted.contract, KeyTag::of(&evicted.key_hash));
        let durability = match evicted.temporary {
            true => Durability::Temporary,
            false => Durability::Persistent,
        };
        EVICTED.put(effects, &(key, Inverted(ledger)), &durability)?;
        let after_all = TransactionPosition { ledger, application_order: LAST_ORDER };
        CHANGED.put(effects, &(evicted.contract, after_all), &())?;
        let row = match self.0.entry(key) {
            Entry::Occupied(known) => Some(known.into_mut()),
            // A key that no stored transaction has named is not listed.
            Entry::Vacant(new) => KEYS
                .get(effects, &key)?
                .map(|now| new.insert(ChangedRow { before: Some(now.clone()), now })),
        };
        if let Some(row) = row {
            row.now.evicted = row.now.evicted.max(ledger);
        }
        Ok(())
    }

    /// Writes the rows, and what they change in those of names.
    pub fn write(self, effects: &mut ConsumerEffects<'_>) -> Result<(), StoreError> {
        let mut names: BTreeMap<(ContractId, Vec<u8>), NameRow> = BTreeMap::new();
        for ((contract, tag), ChangedRow { before, now }) in self.0 {
            if now.leads {
                let name = (contract, now.name.clone());
                let row = match names.entry(name) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(new) => {
                        let known = NAMES.get(effects, new.key())?.unwrap_or_default();
                        new.insert(known)
                    }
                };
                row.replace(before.as_ref(), &now);
            }
            KEYS.put(effects, &(contract, tag), &now)?;
        }
        names.iter().try_for_each(|(name, row)| NAMES.put(effects, name, row))
    }
}

impl KeyRow {
    fn new(seen: &Seen) -> Self {
        Self {
            durability: seen.durability,
            changed: NOWHERE,
            is_gone: false,
            evicted: LedgerSeq(0),
            ttl: NEVER_GIVEN,
            found: NEVER_GIVEN,
            leads: seen.leads,
            name: seen.name.0.clone(),
        }
    }

    /// Adds a change, which may be older than what is known.
    fn add(&mut self, position: TransactionPosition, seen: &Seen) {
        if seen.what != What::Same && position > self.changed {
            (self.changed, self.is_gone) = (position, seen.what == What::Gone);
        }
        if seen.live_until > 0 || seen.what == What::Gone {
            let live_until = LedgerSeq(seen.live_until);
            self.ttl = self.ttl.after(position.ledger, live_until, seen.is_written);
        }
    }

    /// Whether its newest change took the entry away.
    fn is_over(&self) -> bool {
        let Self { changed, ttl, found, evicted, .. } = self;
        let is_temporary = self.durability == Durability::Temporary;
        let is_deleted =
            is_temporary && *evicted > found.at && *evicted >= changed.ledger.max(ttl.at);
        // A checkpoint has temporary entries whose time is over.
        let was_dead = is_temporary
            && found.at > changed.ledger.max(ttl.at)
            && found.live_until.0 > 0
            && found.live_until < found.at;
        let is_gone = self.is_gone && changed.ledger >= found.at;
        is_gone || is_deleted || was_dead
    }
}

impl NameRow {
    /// Counts a key as it is now instead of as it was.
    fn replace(&mut self, before: Option<&KeyRow>, now: &KeyRow) {
        let count = match now.durability {
            Durability::Persistent => &mut self.persistent,
            Durability::Temporary => {
                let until = now.ttl.live_until.max(now.found.live_until);
                self.live_until = self.live_until.max(until.0);
                &mut self.temporary
            }
        };
        let was_counted = before.is_some_and(|row| !row.is_over());
        *count = match (was_counted, !now.is_over()) {
            (false, true) => *count + 1,
            (true, false) => count.saturating_sub(1),
            (true, true) | (false, false) => *count,
        };
    }
}
