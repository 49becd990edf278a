//! Changes of ledger entries: the walk is compared with `stellar-xdr`, for every ledger that the
//! other tests compare, and on purpose-built ledgers.

use orrery_ledger::decode::{
    ChangeKind, DEEPEST, EntryChange, EntryKey, EntryKind, LedgerChanges, changed_entries,
    ledger_changes, transaction_changes,
};
use orrery_ledger::domain::Network;
use stellar_xdr::{self as x, *};

use crate::builder::{Applied, encode, envelope, ledger, list, soroban, symbol};
use crate::{Verdict, compare};
use orrery_testkit::full;

/// A change: its kind, and the XDR of its key and of its entry.
type Plain = (ChangeKind, Vec<u8>, Option<Vec<u8>>);

/// All changes of a ledger.
#[derive(Debug, Default, PartialEq, Eq)]
struct Everything {
    fees: Vec<Vec<Plain>>,
    /// Changes before, by and after the operations; and whether the metadata has a Soroban part.
    transactions: Vec<([Vec<Plain>; 3], bool)>,
    refunds: Vec<Vec<Plain>>,
    upgrades: Vec<Plain>,
    evicted: Vec<Vec<u8>>,
}

fn walked(changes: &LedgerChanges<'_>) -> Everything {
    let plain = |list: &[EntryChange<'_>]| -> Vec<Plain> {
        let one = |change: &EntryChange<'_>| {
            (change.kind, change.key.to_ledger_key(), change.entry.map(<[u8]>::to_vec))
        };
        list.iter().map(one).collect()
    };
    let lists = |lists: &[Vec<EntryChange<'_>>]| lists.iter().map(|list| plain(list)).collect();
    Everything {
        fees: lists(&changes.fees),
        transactions: changes
            .transactions
            .iter()
            .map(|one| {
                let parts = [plain(&one.before), plain(&one.operations), plain(&one.after)];
                (parts, one.smart_contract)
            })
            .collect(),
        refunds: lists(&changes.refunds),
        upgrades: plain(&changes.upgrades),
        evicted: changes.evicted.iter().map(EntryKey::to_ledger_key).collect(),
    }
}

fn key_of(key: &LedgerKey) -> Option<Vec<u8>> {
    match key {
        LedgerKey::Account(_)
        | LedgerKey::Trustline(_)
        | LedgerKey::ContractData(_)
        | LedgerKey::ContractCode(_)
        | LedgerKey::Ttl(_) => Some(encode(key)),
        _ => None,
    }
}

fn plain(changes: &[LedgerEntryChange]) -> Vec<Plain> {
    let one = |change: &LedgerEntryChange| {
        let (kind, entry) = match change {
            LedgerEntryChange::Removed(key) => {
                return Some((ChangeKind::Removed, key_of(key)?, None));
            }
            LedgerEntryChange::Created(entry) => (ChangeKind::Created, entry),
            LedgerEntryChange::Updated(entry) => (ChangeKind::Updated, entry),
            LedgerEntryChange::State(entry) => (ChangeKind::State, entry),
            LedgerEntryChange::Restored(entry) => (ChangeKind::Restored, entry),
        };
        Some((kind, key_of(&entry.to_key())?, Some(encode(entry))))
    };
    changes.iter().filter_map(one).collect()
}

fn of_meta(meta: &TransactionMeta) -> ([Vec<Plain>; 3], bool) {
    let of_operations =
        |list: &[OperationMeta]| list.iter().flat_map(|o| plain(&o.changes)).collect();
    match meta {
        TransactionMeta::V0(operations) => ([vec![], of_operations(operations), vec![]], false),
        TransactionMeta::V1(v1) => {
            ([plain(&v1.tx_changes), of_operations(&v1.operations), vec![]], false)
        }
        TransactionMeta::V2(v2) => {
            let before = plain(&v2.tx_changes_before);
            ([before, of_operations(&v2.operations), plain(&v2.tx_changes_after)], false)
        }
        TransactionMeta::V3(v3) => {
            let before = plain(&v3.tx_changes_before);
            let parts = [before, of_operations(&v3.operations), plain(&v3.tx_changes_after)];
            (parts, v3.soroban_meta.is_some())
        }
        TransactionMeta::V4(v4) => {
            let operations = v4.operations.iter().flat_map(|one| plain(&one.changes)).collect();
            let before = plain(&v4.tx_changes_before);
            ([before, operations, plain(&v4.tx_changes_after)], v4.soroban_meta.is_some())
        }
    }
}

fn decoded(meta: &LedgerCloseMeta) -> Everything {
    let mut all = Everything::default();
    let upgrades = match meta {
        LedgerCloseMeta::V0(v0) => {
            for one in v0.tx_processing.iter() {
                all.fees.push(plain(&one.fee_processing));
                all.transactions.push(of_meta(&one.tx_apply_processing));
            }
            &v0.upgrades_processing
        }
        LedgerCloseMeta::V1(v1) => {
            for one in v1.tx_processing.iter() {
                all.fees.push(plain(&one.fee_processing));
                all.transactions.push(of_meta(&one.tx_apply_processing));
            }
            all.evicted = v1.evicted_keys.iter().filter_map(key_of).collect();
            &v1.upgrades_processing
        }
        LedgerCloseMeta::V2(v2) => {
            for one in v2.tx_processing.iter() {
                all.fees.push(plain(&one.fee_processing));
                all.transactions.push(of_meta(&one.tx_apply_processing));
                all.refunds.push(plain(&one.post_tx_apply_fee_processing));
            }
            all.evicted = v2.evicted_keys.iter().filter_map(key_of).collect();
            &v2.upgrades_processing
        }
    };
    all.upgrades = upgrades.iter().flat_map(|one| plain(&one.changes)).collect();
    all
}

/// Compares all changes of a ledger that decodes, and those of each of its transactions.
pub fn compare_changes(raw: &[u8], ledger: &full::Ledger, case: &dyn std::fmt::Display) {
    let limits = Limits { depth: DEEPEST, len: raw.len() };
    let expected = full::with_stack(|| decoded(&LedgerCloseMeta::from_xdr(raw, limits).unwrap()));
    let changes = ledger_changes(raw).unwrap();
    assert_eq!(walked(&changes), expected, "{case}");
    for (transaction, of_ledger) in ledger.transactions.iter().zip(&changes.transactions) {
        assert_eq!(&transaction_changes(&transaction.meta).unwrap(), of_ledger, "{case}");
        let keys = changed_entries(&transaction.meta).unwrap();
        let keys: Vec<Vec<u8>> = keys.iter().map(|it| it.key.to_ledger_key()).collect();
        let counts = transaction.smart_contract && transaction.successful;
        let expected: &[Vec<u8>] = if counts { &keys } else { &[] };
        assert_eq!(transaction.changed_entries, expected, "{case}");
    }
}

fn entries() -> Vec<LedgerEntryData> {
    let account_id = AccountId(PublicKey::PublicKeyTypeEd25519(Uint256([7; 32])));
    let coded = ContractCodeEntryExt::V1(ContractCodeEntryV1::default());
    vec![
        LedgerEntryData::Account(AccountEntry {
            account_id: account_id.clone(),
            ..Default::default()
        }),
        LedgerEntryData::Trustline(TrustLineEntry {
            account_id: account_id.clone(),
            asset: TrustLineAsset::CreditAlphanum12(AlphaNum12::default()),
            ..Default::default()
        }),
        LedgerEntryData::Trustline(TrustLineEntry {
            account_id,
            asset: TrustLineAsset::PoolShare(PoolId(x::Hash([3; 32]))),
            ..Default::default()
        }),
        LedgerEntryData::Offer(OfferEntry::default()),
        LedgerEntryData::Data(DataEntry::default()),
        LedgerEntryData::ContractData(ContractDataEntry {
            ext: ExtensionPoint::V0,
            contract: ScAddress::Contract(ContractId(x::Hash([5; 32]))),
            key: ScVal::Vec(Some(ScVec(list([symbol("Balance"), ScVal::U32(4)])))),
            durability: ContractDataDurability::Temporary,
            val: ScVal::Map(None),
        }),
        LedgerEntryData::ContractCode(ContractCodeEntry {
            hash: x::Hash([6; 32]),
            code: vec![1, 2, 3].try_into().unwrap(),
            ..Default::default()
        }),
        LedgerEntryData::ContractCode(ContractCodeEntry {
            ext: coded,
            hash: x::Hash([8; 32]),
            code: vec![1, 2, 3, 4].try_into().unwrap(),
        }),
        LedgerEntryData::Ttl(TtlEntry { key_hash: x::Hash([9; 32]), live_until_ledger_seq: 5 }),
    ]
}

#[test]
fn every_kind_of_entry_is_found_in_every_kind_of_change() {
    let testnet = Network::from_name_or_passphrase("testnet");
    let mut changes = Vec::new();
    for data in entries() {
        let entry = LedgerEntry { last_modified_ledger_seq: 12, data, ext: LedgerEntryExt::V0 };
        changes.extend([
            LedgerEntryChange::State(entry.clone()),
            LedgerEntryChange::Updated(entry.clone()),
            LedgerEntryChange::Removed(entry.to_key()),
            LedgerEntryChange::Created(entry.clone()),
            LedgerEntryChange::Restored(entry),
        ]);
    }
    let operation =
        OperationMetaV2 { changes: LedgerEntryChanges(list(changes)), ..Default::default() };
    let meta = TransactionMeta::V4(TransactionMetaV4 {
        operations: list([operation]),
        soroban_meta: Some(SorobanTransactionMetaV2::default()),
        ..Default::default()
    });
    let applied = [
        Applied::new(envelope(crate::builder::plain(1)), meta.clone()),
        Applied::new(
            envelope(soroban(2, InvokeHostFunctionOp::default(), LedgerFootprint::default())),
            meta,
        ),
    ];
    let ledger = encode(&LedgerCloseMeta::V2(ledger(&testnet, 1000, &applied)));
    let Verdict::Ledger(ledger) = compare(&ledger, &testnet, &"every kind of change") else {
        panic!("it is refused");
    };
    assert!(ledger.transactions[0].changed_entries.is_empty(), "classic");
    let keys: Vec<EntryKind> = ledger.transactions[1]
        .changed_entries
        .iter()
        .map(|key| EntryKey::from_ledger_key(key).unwrap().kind)
        .collect();
    use EntryKind::{Account, ContractCode, ContractData, Trustline, Ttl};
    assert_eq!(
        keys,
        [Account, Trustline, Trustline, ContractData, ContractCode, ContractCode, Ttl]
    );
}
