//! The model: all net changes of all ledgers, and the questions.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};
use stellar_xdr::{LedgerKey, ScVal};

use super::answers::{Answer, ContractList, Entry, History, Kind, Present, Row, StoredRange};
use super::checkpoints::CheckpointState;
use super::decoding::LedgerChanges;
use super::timeline::{Moment, State, Step, Timeline};
use super::{KeyHash, contract_of, durability_of, instance_key, key_hash};

/// What contracts hold according to a set of ledgers of one network.
///
/// Law of the specification: "every answer is a function of the stored chain, never of the order of
/// arrival, of a prune, a restart or a rebuild; and it is never a guess". So the model keeps nothing
/// but ledgers, and computes every answer from those of the contiguous range that holds the ledger
/// asked for.
#[derive(Debug, Clone)]
pub struct StorageModel {
    network_id: [u8; 32],
    /// The last ledger before which the network had no contract data, if it is known.
    origin: Option<u32>,
    /// Changes of all ledgers that were ever added.
    ledgers: BTreeMap<u32, LedgerChanges>,
    /// Ledgers that are stored.
    stored: BTreeSet<u32>,
    /// Floors that ranges begin at, and the first ledger whose changes were known when the ledgers
    /// below were removed.
    kept_from: BTreeMap<u32, u32>,
    /// States at the ends of ledgers, from history archives.
    checkpoints: BTreeMap<u32, CheckpointState>,
    /// Every key that a stored or a removed ledger, or a checkpoint, mentions.
    keys: BTreeMap<KeyHash, LedgerKey>,
}

impl StorageModel {
    /// An empty model of the network with this passphrase.
    pub fn new(passphrase: &str) -> Self {
        Self {
            network_id: Sha256::digest(passphrase.as_bytes()).into(),
            origin: None,
            ledgers: BTreeMap::new(),
            stored: BTreeSet::new(),
            kept_from: BTreeMap::new(),
            checkpoints: BTreeMap::new(),
            keys: BTreeMap::new(),
        }
    }

    /// Says which ledger is the first of protocol 20, or that of genesis: a range that begins there
    /// or before knows everything (S2). Without it, [`LedgerChanges::begins_everything`] alone says
    /// so.
    pub fn with_origin(self, ledger: u32) -> Self {
        Self { origin: Some(ledger), ..self }
    }

    /// Adds a ledger, in any order; again is the same. Returns its sequence number.
    ///
    /// # Panics
    /// When the bytes are not a `LedgerCloseMeta`.
    pub fn add(&mut self, ledger_close_meta: &[u8]) -> u32 {
        self.add_changes(self.decode(ledger_close_meta))
    }

    /// Decodes a ledger without adding it.
    pub fn decode(&self, ledger_close_meta: &[u8]) -> LedgerChanges {
        LedgerChanges::of(ledger_close_meta, self.network_id)
    }

    /// As [`add`](Self::add), for a ledger that is decoded already.
    pub fn add_changes(&mut self, ledger: LedgerChanges) -> u32 {
        let sequence = ledger.sequence;
        for change in &ledger.changes {
            self.keys.insert(change.key_hash, change.key.clone());
        }
        self.stored.insert(sequence);
        self.ledgers.insert(sequence, ledger);
        sequence
    }

    /// Adds the state at the end of a ledger, in any order with ledgers.
    pub fn add_checkpoint(&mut self, ledger: u32, state: CheckpointState) {
        for (hash, held) in &state.entries {
            self.keys.insert(*hash, held.key.clone());
        }
        match self.checkpoints.get_mut(&ledger) {
            Some(known) => known.merge(state),
            None => drop(self.checkpoints.insert(ledger, state)),
        }
    }

    /// The checkpoints in a range with the state of a contract's key, ascending.
    fn checkpoints_of<'a>(
        &'a self,
        key: &'a LedgerKey,
        range: StoredRange,
    ) -> impl Iterator<Item = (u32, &'a CheckpointState)> {
        let within = self.checkpoints.range(range.known_first..=range.last);
        within.filter(|(_, state)| state.covers(key)).map(|(ledger, state)| (*ledger, state))
    }

    /// Removes all ledgers below a floor. S2: "Retention of transactions keeps, for each key, the
    /// newest change at or below the floor (removals too), and that a contract is complete; history
    /// before the floor is gone and says so; N below the floor is answered as a ledger that is not
    /// stored". With the law this means that no answer about a ledger from the floor on changes, but
    /// for `known_since`, which no longer names a removed ledger. Choice: what is kept belongs to the
    /// range that begins at the floor; if ledgers below the floor are stored again and touch it, the
    /// range knows what those ledgers say, and nothing else.
    pub fn cut_below(&mut self, floor: u32) {
        let cut = self.range(floor).filter(|range| range.first < floor);
        if let Some(range) = cut {
            self.kept_from.insert(floor, range.known_first);
        }
        self.stored.retain(|ledger| *ledger >= floor);
        self.kept_from.retain(|first, _| *first >= floor);
    }

    /// The decoded ledgers that are stored, ascending.
    pub fn ledgers(&self) -> impl Iterator<Item = &LedgerChanges> {
        self.stored.iter().map(|ledger| &self.ledgers[ledger])
    }

    /// All contiguous ranges of stored ledgers, ascending.
    pub fn ranges(&self) -> Vec<StoredRange> {
        let is_first = |ledger: &&u32| !self.stored.contains(&ledger.wrapping_sub(1));
        self.stored.iter().filter(is_first).filter_map(|first| self.range(*first)).collect()
    }

    /// The contiguous range that holds a ledger; `None` if it is not stored.
    pub fn range(&self, ledger: u32) -> Option<StoredRange> {
        if !self.stored.contains(&ledger) {
            return None;
        }
        let (mut first, mut last) = (ledger, ledger);
        while self.stored.contains(&first.wrapping_sub(1)) {
            first -= 1;
        }
        while self.stored.contains(&last.wrapping_add(1)) {
            last += 1;
        }
        let known_first = self.kept_from.get(&first).copied().unwrap_or(first);
        let knows_everything = self.ledgers[&known_first].begins_everything
            || self.origin.is_some_and(|origin| known_first <= origin);
        Some(StoredRange { first, last, known_first, knows_everything })
    }

    /// Every key of which a change is known, ascending by hash.
    pub fn keys(&self) -> impl Iterator<Item = (&KeyHash, &LedgerKey)> {
        self.keys.iter()
    }

    /// Every contract of which a change is known, ascending.
    pub fn contracts(&self) -> BTreeSet<[u8; 32]> {
        self.keys.values().filter_map(contract_of).collect()
    }

    /// The ranges in which a change of the contract is known. S2: "A contract that is known in
    /// another range only: the answer names that range."
    pub fn ranges_of(&self, contract: &[u8; 32]) -> Vec<StoredRange> {
        let mut ranges = self.ranges();
        ranges.retain(|range| {
            self.steps(*range).any(|step| contract_of(&step.change.key) == Some(*contract))
        });
        ranges
    }

    /// All changes that are known in a range, in order.
    fn steps(&self, range: StoredRange) -> impl Iterator<Item = Step<'_>> {
        self.ledgers.range(range.known_first..=range.last).flat_map(|(ledger, changes)| {
            (1..).zip(&changes.changes).map(|(number, change)| Step {
                at: Moment { ledger: *ledger, change: number },
                change,
            })
        })
    }

    /// The ledger in a range in which a contract was created.
    fn creation(&self, contract: &[u8; 32], range: StoredRange) -> Option<u32> {
        let instance = instance_key(contract);
        let is =
            |step: &Step| step.change.kind == Some(Kind::Created) && step.change.key == instance;
        self.steps(range).find(is).map(|step| step.at.ledger)
    }

    fn timeline<'a>(&'a self, key: &'a LedgerKey, range: StoredRange) -> Timeline<'a> {
        let hash = key_hash(key);
        let steps = self.steps(range).filter(|step| step.change.key_hash == hash).collect();
        let contract = contract_of(key);
        let contract_created = contract.is_some_and(|id| self.creation(&id, range).is_some());
        let checkpoints = self.checkpoints_of(key, range);
        let checkpoints = checkpoints.map(|(at, state)| (at, state.entries.get(&hash))).collect();
        Timeline { key, range, steps, contract_created, checkpoints }
    }

    /// What is known about a key at the end of a ledger.
    pub fn at(&self, key: &LedgerKey, ledger: u32) -> Answer {
        let Some(range) = self.range(ledger) else { return Answer::NotStored };
        // S1: nonces "are always *unknown*".
        if matches!(key, LedgerKey::ContractData(data) if matches!(data.key, ScVal::LedgerKeyNonce(_)))
        {
            return Answer::Unknown { live_until: None };
        }
        answer(&self.timeline(key, range), ledger)
    }

    /// What is known about the key with this hash. Choice: a hash that no change names may be that of
    /// a nonce, and is unknown, even of a complete contract.
    pub fn at_hash(&self, hash: &KeyHash, ledger: u32) -> Answer {
        match self.keys.get(hash) {
            Some(key) => self.at(key, ledger),
            None if self.stored.contains(&ledger) => Answer::Unknown { live_until: None },
            None => Answer::NotStored,
        }
    }

    /// The entries of a contract at the end of a ledger; `None` if the ledger is not stored.
    pub fn list(&self, contract: &[u8; 32], ledger: u32) -> Option<ContractList> {
        let range = self.range(ledger)?;
        let creation = self.creation(contract, range);
        // S2: "`complete: true` exactly if its creation lies in the range at or before N, the range
        // begins as above".
        // "or section 7 supplied the rest": from the checkpoint on.
        let checked = self.checkpoints_of(&instance_key(contract), range).next().map(|(at, _)| at);
        let is_complete = |at: u32| {
            range.knows_everything || [creation, checked].iter().flatten().any(|it| *it <= at)
        };
        let complete = is_complete(ledger);
        let known_since = (range.first..=ledger).find(|at| is_complete(*at) == complete)?;
        let of_contract = |(_, key): &(&KeyHash, &LedgerKey)| contract_of(key) == Some(*contract);
        let entries = self.keys().filter(of_contract).filter_map(|(hash, key)| {
            let Answer::Present(present) = self.at(key, ledger) else { return None };
            Some(Entry { key_hash: *hash, present: *present })
        });
        Some(ContractList { complete, known_since, entries: entries.collect() })
    }

    /// The changes of a key, newest first.
    pub fn history(&self, hash: &KeyHash) -> History {
        let mut changes = self.rows(|row| row.key_hash == *hash);
        if let Some(key) = self.keys.get(hash) {
            for range in self.ranges() {
                let Some((_, row)) = self.timeline(key, range).found() else { continue };
                // After what happened in its ledger.
                let place = changes.partition_point(|known| known.ledger <= row.ledger);
                if row.ledger >= range.first {
                    changes.insert(place, row);
                }
            }
        }
        changes.reverse();
        let known_since = self.ranges().last().map(|range| range.first);
        History { known_since, changes }
    }

    /// The changes of a contract in the stored ledgers of a range, oldest first, in a ledger in the
    /// order of S1.
    pub fn changes(&self, contract: &[u8; 32], from: u32, to: u32) -> Vec<Row> {
        self.rows(|row| {
            contract_of(&row.key) == Some(*contract) && (from..=to).contains(&row.ledger)
        })
    }

    /// The changes of contract data by a transaction, ascending by key hash. The inner hash of a fee
    /// bump names it, too.
    pub fn transaction(&self, hash: &[u8; 32]) -> Vec<Row> {
        self.rows(|row| {
            let is = row.tx.is_some_and(|tx| tx.hash == *hash || tx.inner == Some(*hash));
            is && contract_of(&row.key).is_some()
        })
    }

    /// Where the ledgers contradict each other: a change names another state before it than the
    /// changes before it have left. None of real ledgers, and of generated ones, does.
    pub fn contradictions(&self) -> Vec<String> {
        let mut found = Vec::new();
        for range in self.ranges() {
            let mut by_key: BTreeMap<KeyHash, Vec<Step>> = BTreeMap::new();
            for step in self.steps(range) {
                by_key.entry(step.change.key_hash).or_default().push(step);
            }
            for (hash, steps) in by_key {
                let key = &self.keys[&hash];
                let (contract_created, checkpoints) = (false, Vec::new());
                let timeline = Timeline { key, range, steps, contract_created, checkpoints };
                found.extend(timeline.contradictions());
            }
        }
        found
    }

    /// All rows of stored ledgers that are wanted, oldest first.
    pub fn rows(&self, is_wanted: impl Fn(&Row) -> bool) -> Vec<Row> {
        let mut rows = Vec::new();
        for range in self.ranges() {
            let mut timelines: BTreeMap<KeyHash, Timeline> = BTreeMap::new();
            for step in self.steps(range) {
                let timeline = timelines
                    .entry(step.change.key_hash)
                    .or_insert_with(|| self.timeline(&step.change.key, range));
                if step.at.ledger >= range.first {
                    rows.extend(timeline.row(&step).filter(&is_wanted));
                }
            }
        }
        rows
    }
}

/// The answer of a timeline about the end of a ledger.
fn answer(timeline: &Timeline, ledger: u32) -> Answer {
    let known_since = known_since(timeline, ledger);
    let (held, live_until, archived) = match timeline.state(ledger) {
        State::Unknown { live_until } => return Answer::Unknown { live_until },
        State::Absent => return Answer::Absent { known_since },
        State::Present { held, live_until, archived } => (held, live_until, archived),
    };
    let updated = timeline.updated(Moment::end_of(ledger));
    let (updated_ledger, updated_tx) = updated.unwrap_or((held.modified, None));
    Answer::Present(Box::new(Present {
        key: timeline.key.clone(),
        durability: durability_of(timeline.key),
        value: held.value.clone(),
        live_until,
        archived,
        updated_ledger,
        updated_tx,
        modified_ledger: held.modified,
        known_since,
        because: held.because,
    }))
}

/// The first of the unbroken sequence of stored ledgers up to this one in which the key is known.
fn known_since(timeline: &Timeline, ledger: u32) -> u32 {
    let is_known = |at: &u32| !matches!(timeline.state(*at), State::Unknown { .. });
    let known = (timeline.range.first..=ledger).rev().take_while(is_known);
    known.last().unwrap_or(ledger)
}
