//! States before transactions of constructed ledgers, for cases that recorded ledgers do not
//! contain.

use orrery::decode::{HeaderView, LedgerView, MuxedAccountView, TransactionView, changed_entries};
use orrery::domain::{Hash32, LedgerHash, LedgerSeq, Network};
use orrery::programs::engine::{EntryState, PreState};
use orrery::programs::state::States;
use orrery::store::{Durability, IndexOptions, PreparedLedger, Retention, Store};
use sha2::{Digest, Sha256};
use stellar_xdr::{
    AccountEntry, AccountId, ContractDataDurability, ContractDataEntry, ContractId, ExtensionPoint,
    Hash, LedgerCloseMeta, LedgerCloseMetaV2, LedgerEntry, LedgerEntryChange, LedgerEntryChanges,
    LedgerEntryData, LedgerEntryExt, LedgerKey, Limits, OperationMetaV2, PublicKey, ScAddress,
    ScVal, SorobanTransactionMetaV2, TransactionMeta, TransactionMetaV4, TransactionResultMetaV1,
    TtlEntry, Uint256, VecM, WriteXdr,
};
use tempfile::TempDir;

use crate::state_timeline::ttl_key;

/// A transaction's changes.
#[derive(Clone, Default)]
struct TransactionChanges {
    before: Vec<LedgerEntryChange>,
    operations: Vec<LedgerEntryChange>,
    /// Whether it is a classic transaction, which is not stored.
    classic: bool,
}

/// A store of constructed ledgers.
struct World {
    store: Store,
    _directory: TempDir,
    protocol: u32,
    raw: bool,
}

fn xdr(value: &impl WriteXdr) -> Vec<u8> {
    value.to_xdr(Limits::none()).unwrap()
}

fn list<T, const MAX: u32>(items: Vec<T>) -> VecM<T, MAX> {
    items.try_into().ok().unwrap()
}

fn hash(ledger: u32) -> Hash32 {
    Hash32(Sha256::digest(ledger.to_be_bytes()).into())
}

impl World {
    fn new(protocol: u32, raw: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let network = Network::from_passphrase("made states");
        let store = Store::open(directory.path(), Some(&network)).unwrap();
        Self { store, _directory: directory, protocol, raw }
    }

    /// Closes ledgers without transactions.
    fn close_empty(&self, ledgers: std::ops::RangeInclusive<u32>) {
        ledgers.for_each(|ledger| self.close(ledger, &[], &[]));
    }

    fn close(&self, ledger: u32, transactions: &[TransactionChanges], evicted: &[LedgerKey]) {
        let meta = |transaction: &TransactionChanges| {
            TransactionMeta::V4(TransactionMetaV4 {
                tx_changes_before: LedgerEntryChanges(list(transaction.before.clone())),
                operations: list(vec![OperationMetaV2 {
                    changes: LedgerEntryChanges(list(transaction.operations.clone())),
                    ..Default::default()
                }]),
                soroban_meta: (!transaction.classic).then(SorobanTransactionMetaV2::default),
                ..Default::default()
            })
        };
        let metas: Vec<TransactionMeta> = transactions.iter().map(meta).collect();
        let processing = metas.iter().map(|meta| TransactionResultMetaV1 {
            tx_apply_processing: meta.clone(),
            ..Default::default()
        });
        let raw = xdr(&LedgerCloseMeta::V2(LedgerCloseMetaV2 {
            tx_processing: list(processing.collect()),
            evicted_keys: list(evicted.to_vec()),
            ..Default::default()
        }));
        let metas: Vec<Vec<u8>> = metas.iter().map(xdr).collect();
        let account = MuxedAccountView { ed25519: &[1; 32], id: None };
        let transactions = (1..).zip(transactions.iter().zip(&metas));
        let transactions = transactions.map(|(order, (transaction, meta))| TransactionView {
            application_order: order,
            hash: Hash32(Sha256::digest([ledger, order].map(u32::to_be_bytes).concat()).into()),
            inner_hash: None,
            successful: true,
            smart_contract: !transaction.classic,
            source_account: account,
            fee_account: account,
            fee_charged: 100,
            envelope: b"envelope",
            result: b"result",
            meta,
            contracts: Vec::new(),
            changed_entries: if transaction.classic {
                vec![]
            } else {
                changed_entries(meta).unwrap()
            },
            restored_entries: Vec::new(),
            has_new_contract: false,
            operation_events: 0..0,
            listed_events: 0,
            operations: 0,
            return_value: None,
        });
        let header = HeaderView {
            xdr: &[],
            hash: LedgerHash::from(hash(ledger).0),
            previous_hash: LedgerHash::from(hash(ledger - 1).0),
            sequence: LedgerSeq(ledger),
            protocol: self.protocol,
            close_time: u64::from(ledger),
            close_time_ms: None,
        };
        let view = LedgerView {
            raw: &raw,
            version: 2,
            header,
            transaction_set: &[],
            transactions: transactions.collect(),
            events: Vec::new(),
            topics: Vec::new(),
            evicted: Vec::new(),
            conditions: Default::default(),
        };
        let options = IndexOptions { raw_ledgers: self.raw, ..IndexOptions::default() };
        let prepared = PreparedLedger::new(&view, &options).unwrap();
        self.store.commit(prepared, Durability::Synced).unwrap();
    }

    /// Looks up an entry before the transaction at this position.
    fn known(&self, key: &LedgerKey, ledger: u32, order: u32) -> EntryState {
        let states = States::new(&self.store, None);
        let of_ledger = states.at(LedgerSeq(ledger)).unwrap();
        of_ledger.before(order, &[]).entry(key).unwrap()
    }

    #[track_caller]
    fn is_present(
        &self,
        (key, entry): (&LedgerKey, &LedgerEntry),
        ledger: u32,
        order: u32,
        until: Option<u32>,
    ) {
        assert_eq!(
            self.known(key, ledger, order),
            EntryState::Present(entry.clone().into(), until)
        );
    }
}

fn entry(modified: u32, data: LedgerEntryData) -> LedgerEntry {
    LedgerEntry { last_modified_ledger_seq: modified, data, ext: LedgerEntryExt::V0 }
}

fn data(durability: ContractDataDurability, value: u32, modified: u32) -> LedgerEntry {
    let data = ContractDataEntry {
        ext: ExtensionPoint::V0,
        contract: ScAddress::Contract(ContractId(Hash([5; 32]))),
        key: ScVal::U32(1),
        durability,
        val: ScVal::U32(value),
    };
    entry(modified, LedgerEntryData::ContractData(data))
}

fn temporary(value: u32, modified: u32) -> LedgerEntry {
    data(ContractDataDurability::Temporary, value, modified)
}

fn persistent(value: u32, modified: u32) -> LedgerEntry {
    data(ContractDataDurability::Persistent, value, modified)
}

fn account(balance: i64, modified: u32) -> LedgerEntry {
    let account_id = AccountId(PublicKey::PublicKeyTypeEd25519(Uint256([9; 32])));
    entry(
        modified,
        LedgerEntryData::Account(AccountEntry { account_id, balance, ..Default::default() }),
    )
}

fn ttl(of: &LedgerEntry, until: u32, modified: u32) -> LedgerEntry {
    let LedgerKey::Ttl(key) = ttl_key(&of.to_key()) else { unreachable!() };
    let ttl = TtlEntry { key_hash: key.key_hash, live_until_ledger_seq: until };
    entry(modified, LedgerEntryData::Ttl(ttl))
}

fn created(entries: &[&LedgerEntry]) -> Vec<LedgerEntryChange> {
    entries.iter().map(|entry| LedgerEntryChange::Created((*entry).clone())).collect()
}

fn updated(from: &LedgerEntry, to: &LedgerEntry) -> Vec<LedgerEntryChange> {
    vec![LedgerEntryChange::State(from.clone()), LedgerEntryChange::Updated(to.clone())]
}

fn removed(entry: &LedgerEntry) -> Vec<LedgerEntryChange> {
    vec![LedgerEntryChange::State(entry.clone()), LedgerEntryChange::Removed(entry.to_key())]
}

fn transaction_with(operations: Vec<LedgerEntryChange>) -> TransactionChanges {
    TransactionChanges { operations, ..TransactionChanges::default() }
}

#[test]
fn a_temporary_entry_is_present_until_its_last_ledger() {
    let world = World::new(25, false);
    let there = temporary(1, 10);
    world.close_empty(8..=9);
    world.close(10, &[transaction_with(created(&[&there, &ttl(&there, 12, 10)]))], &[]);
    world.close(11, &[transaction_with(vec![])], &[]);
    world.close(12, &[transaction_with(vec![])], &[]);
    world.close(13, &[transaction_with(vec![])], &[]);
    let key = &there.to_key();
    assert_eq!(world.known(key, 10, 1), EntryState::Absent, "its own creation");
    world.is_present((key, &there), 11, 1, Some(12));
    world.is_present((key, &there), 12, 1, Some(12));
    assert_eq!(world.known(key, 13, 1), EntryState::Absent);
    assert_eq!(world.known(key, 9, 1), EntryState::Unknown, "it may have been there and evicted");
}

#[test]
fn an_expired_entry_is_absent_before_it_is_rewritten() {
    let world = World::new(25, false);
    let (old, new) = (temporary(1, 10), temporary(2, 20));
    world.close(10, &[transaction_with(created(&[&old, &ttl(&old, 12, 10)]))], &[]);
    world.close_empty(11..=19);
    // The expired entry is not evicted yet, so the metadata shows an update, with a new TTL.
    let mut changes = updated(&old, &new);
    changes.extend(updated(&ttl(&old, 12, 10), &ttl(&new, 40, 20)));
    world.close(
        20,
        &[transaction_with(vec![]), transaction_with(changes), transaction_with(vec![])],
        &[],
    );
    let key = &new.to_key();
    assert_eq!(world.known(key, 20, 1), EntryState::Absent, "before");
    assert_eq!(world.known(key, 20, 2), EntryState::Absent, "itself");
    world.is_present((key, &new), 20, 3, Some(40));
}

#[test]
fn an_entry_evicted_before_its_recreation_is_not_taken_as_absent() {
    for raw in [true, false] {
        let world = World::new(25, raw);
        let again = temporary(2, 20);
        let key = &again.to_key();
        // The entry existed before the first stored ledger.
        world.close_empty(11..=13);
        world.close(14, &[], &[key.clone(), ttl_key(key)]);
        world.close_empty(15..=19);
        world.close(20, &[transaction_with(created(&[&again, &ttl(&again, 40, 20)]))], &[]);
        assert_eq!(world.known(key, 12, 1), EntryState::Unknown);
        assert_eq!(world.known(key, 14, 1), EntryState::Unknown, "evicted after the transactions");
        let after = if raw { EntryState::Absent } else { EntryState::Unknown };
        assert_eq!(world.known(key, 16, 1), after);
        world.is_present((key, &again), 20, 2, Some(40));
    }
    // A persistent entry is created only once.
    let world = World::new(25, false);
    let there = persistent(2, 20);
    world.close_empty(11..=19);
    world.close(20, &[transaction_with(created(&[&there, &ttl(&there, 40, 20)]))], &[]);
    assert_eq!(world.known(&there.to_key(), 12, 1), EntryState::Absent);
}

#[test]
fn a_temporary_entry_of_unknown_ttl_is_known_only_between_changes() {
    let world = World::new(25, false);
    let values = [temporary(1, 7), temporary(2, 11), temporary(3, 20)];
    let key = &values[0].to_key();
    world.close(11, &[transaction_with(updated(&values[0], &values[1]))], &[]);
    world.close_empty(12..=19);
    world.close(20, &[transaction_with(updated(&values[1], &values[2]))], &[]);
    world.close_empty(21..=30);
    world.is_present((key, &values[0]), 11, 1, None);
    world.is_present((key, &values[1]), 11, 2, None);
    world.is_present((key, &values[1]), 15, 1, None);
    world.is_present((key, &values[1]), 20, 1, None);
    world.is_present((key, &values[2]), 20, 2, None);
    assert_eq!(world.known(key, 25, 1), EntryState::Unknown, "its time may have passed");
}

#[test]
fn ttls_extended_in_parallel_are_not_guessed() {
    let there = persistent(1, 9);
    let key = &there.to_key();
    let bumped = |until| ttl(&there, until, 10);
    let from = ttl(&there, 100, 9);
    let world = World::new(25, false);
    world.close(9, &[transaction_with(created(&[&there, &from]))], &[]);
    let beside = [
        transaction_with(updated(&from, &bumped(300))),
        transaction_with(updated(&from, &bumped(150))),
        transaction_with(vec![]),
    ];
    world.close(10, &beside, &[]);
    world.close_empty(11..=14);
    world.is_present((key, &there), 10, 1, Some(100));
    world.is_present((key, &there), 10, 2, Some(100));
    world.is_present((key, &there), 10, 3, None);
    world.is_present((key, &there), 12, 1, None);
    world.close(15, &[transaction_with(updated(&bumped(300), &bumped(400)))], &[]);
    world.is_present((key, &there), 12, 1, Some(300));
    world.is_present((key, &there), 15, 2, None);
    world.close_empty(16..=16);
    world.is_present((key, &there), 16, 1, Some(400));

    // Before protocol 23 transactions are applied one after the other and see each other's changes.
    let world = World::new(22, false);
    world.close(9, &[transaction_with(created(&[&there, &from]))], &[]);
    let after = [
        transaction_with(updated(&from, &bumped(150))),
        transaction_with(updated(&bumped(150), &bumped(300))),
    ];
    world.close(10, &after, &[]);
    world.close_empty(11..=11);
    world.is_present((key, &there), 10, 2, Some(150));
    world.is_present((key, &there), 10, 3, Some(300));
    world.is_present((key, &there), 11, 1, Some(300));
}

#[test]
fn restored_entries_are_present_with_their_new_ttl() {
    let there = persistent(1, 5);
    let key = &there.to_key();
    let world = World::new(25, false);
    world.close(5, &[transaction_with(created(&[&there, &ttl(&there, 8, 5)]))], &[]);
    world.close_empty(6..=9);
    world.close(10, &[], &[key.clone(), ttl_key(key)]);
    world.close_empty(11..=19);
    let restored = persistent(1, 20);
    let changed = persistent(7, 20);
    let operations = vec![
        LedgerEntryChange::Restored(restored.clone()),
        LedgerEntryChange::Updated(changed.clone()),
        LedgerEntryChange::Restored(ttl(&there, 90, 20)),
    ];
    world.close(
        20,
        &[transaction_with(vec![]), transaction_with(operations), transaction_with(vec![])],
        &[],
    );
    world.is_present((key, &there), 8, 1, Some(8));
    world.is_present((key, &there), 15, 1, Some(8));
    world.is_present((key, &restored), 20, 2, Some(90));
    world.is_present((key, &changed), 20, 3, Some(90));
}

#[test]
fn across_a_gap_only_older_entries_are_known() {
    let (old, young) = (persistent(1, 7), persistent(2, 25));
    let world = World::new(25, false);
    world.close_empty(18..=22);
    world.close(40, &[transaction_with(updated(&old, &persistent(3, 40)))], &[]);
    let key = &old.to_key();
    world.is_present((key, &old), 20, 1, None);
    // Whether ledger 38 itself is stored makes no difference.
    world.is_present((key, &old), 38, 1, None);

    let world = World::new(25, false);
    world.close_empty(18..=22);
    world.close(40, &[transaction_with(updated(&young, &persistent(3, 40)))], &[]);
    assert_eq!(world.known(key, 20, 1), EntryState::Unknown);
    // Once the gap is filled, the entry turns out to have been created in it.
    world.close_empty(23..=24);
    world.close(25, &[transaction_with(created(&[&young, &ttl(&young, 99, 25)]))], &[]);
    assert_eq!(world.known(key, 20, 1), EntryState::Absent);
    assert_eq!(world.known(key, 25, 2), EntryState::Present(young.clone().into(), Some(99)));
    world.close_empty(26..=39);
    world.is_present((key, &young), 39, 1, Some(99));
}

#[test]
fn entries_unchanged_since_genesis_are_absent() {
    let key = &persistent(1, 7).to_key();
    let world = World::new(25, false);
    world.close_empty(3..=9);
    assert_eq!(world.known(key, 6, 1), EntryState::Unknown);
    world.close_empty(2..=2);
    assert_eq!(world.known(key, 6, 1), EntryState::Absent);
    assert_eq!(world.known(&account(1, 1).to_key(), 6, 1), EntryState::Unknown);
    // A pruned ledger may have created the entry.
    world.close(10, &[transaction_with(created(&[&account(1, 10)]))], &[]);
    let retention = Retention { transactions: Some(1), ..Retention::default() };
    world.close(11, &[], &[]);
    while !world.store.prune(&retention).unwrap().is_nothing() {}
    assert_eq!(world.known(key, 11, 1), EntryState::Unknown);
}

#[test]
fn removed_entries_are_absent() {
    let there = persistent(1, 10);
    let world = World::new(25, false);
    world.close(10, &[transaction_with(created(&[&there, &ttl(&there, 90, 10)]))], &[]);
    let mut gone = removed(&there);
    gone.extend(removed(&ttl(&there, 90, 10)));
    world.close(11, &[transaction_with(gone), transaction_with(vec![])], &[]);
    world.close_empty(12..=12);
    let key = &there.to_key();
    world.is_present((key, &there), 11, 1, Some(90));
    assert_eq!(world.known(key, 11, 2), EntryState::Absent);
    assert_eq!(world.known(key, 12, 1), EntryState::Absent);
}

#[test]
fn accounts_are_known_from_raw_ledgers_or_their_last_modified_ledger() {
    let balances = [account(1, 5), account(2, 13), account(3, 15), account(4, 21)];
    let key = &balances[0].to_key();
    let classic = |from, to| TransactionChanges {
        operations: updated(&balances[from], &balances[to]),
        classic: true,
        ..TransactionChanges::default()
    };
    for raw in [true, false] {
        let world = World::new(25, raw);
        world.close_empty(10..=12);
        world.close(13, &[classic(0, 1)], &[]);
        world.close_empty(14..=14);
        world.close(15, &[classic(1, 2), transaction_with(vec![])], &[]);
        world.close_empty(16..=20);
        world.close(21, &[transaction_with(updated(&balances[2], &balances[3]))], &[]);
        // The transaction in ledger 21 found the account as ledger 15 left it.
        world.is_present((key, &balances[2]), 18, 1, None);
        match raw {
            true => {
                world.is_present((key, &balances[0]), 11, 1, None);
                world.is_present((key, &balances[1]), 14, 1, None);
                world.is_present((key, &balances[2]), 15, 2, None);
            }
            false => {
                for ledger in [11, 14] {
                    assert_eq!(world.known(key, ledger, 1), EntryState::Unknown);
                }
                assert_eq!(world.known(key, 15, 2), EntryState::Unknown);
            }
        }
    }
}

#[test]
fn sequence_numbers_are_consumed_first_since_protocol_23() {
    let states = [account(1, 9), account(2, 10), account(3, 10)];
    let key = &states[0].to_key();
    // The second transaction's sequence number is taken first; then the first transaction pays the
    // account.
    let parallel = [
        transaction_with(updated(&states[1], &states[2])),
        TransactionChanges {
            before: updated(&states[0], &states[1]),
            ..TransactionChanges::default()
        },
        transaction_with(vec![]),
    ];
    let world = World::new(23, false);
    world.close_empty(9..=9);
    world.close(10, &parallel, &[]);
    world.is_present((key, &states[1]), 10, 1, None);
    world.is_present((key, &states[2]), 10, 2, None);
    world.is_present((key, &states[2]), 10, 3, None);

    let one_by_one = [
        transaction_with(updated(&states[0], &states[1])),
        TransactionChanges {
            before: updated(&states[1], &states[2]),
            ..TransactionChanges::default()
        },
        transaction_with(vec![]),
    ];
    let world = World::new(22, false);
    world.close_empty(9..=9);
    world.close(10, &one_by_one, &[]);
    world.is_present((key, &states[0]), 10, 1, None);
    world.is_present((key, &states[2]), 10, 2, None);
    world.is_present((key, &states[2]), 10, 3, None);
}
