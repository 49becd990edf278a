//! Sends generated transactions from outside: whatever is sent, the network continues, no coin is
//! created or lost, and what passed the check is in the ledger.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use stellar_xdr::{
    AlphaNum4, Asset, AssetCode4, BumpSequenceOp, ChangeTrustAsset, ChangeTrustOp, ClawbackOp,
    CreateAccountOp, DataValue, HostFunction, InvokeHostFunctionOp, LedgerEntryChange,
    LedgerEntryData, ManageDataOp, Memo, Operation, OperationBody, PaymentOp, Preconditions,
    SequenceNumber, SetTrustLineFlagsOp, SorobanTransactionData, SorobanTransactionDataExt,
    SorobanTransactionMetaExt, String64, Transaction, TransactionEnvelope, TransactionExt,
    TransactionV1Envelope,
};

use super::*;
use crate::network::actors::Actor;
use crate::network::close::TOTAL_COINS;
use crate::network::{Batch, FIRST_BATCH_LEDGER};
use orrery_ledger::domain::AuthMode;

/// Number of accounts that send transactions, merge into each other and are created again.
const ACTORS: u32 = 8;

fn coins(sandbox: &Sandbox) -> i64 {
    let held = sandbox.state.entries().map(|(_, entry)| match &entry.data {
        LedgerEntryData::Account(account) => account.balance,
        _ => 0,
    });
    held.sum::<i64>() + sandbox.tip.header.fee_pool
}

fn body(rng: &mut ChaCha8Rng, actors: &[Actor]) -> OperationBody {
    let other = &actors[rng.random_range(0..actors.len())];
    let issuer = &actors[rng.random_range(0..2)];
    let asset_code = AssetCode4(*b"OWN\0");
    let own = AlphaNum4 { asset_code, issuer: issuer.account() };
    match rng.random_range(0..20) {
        0..4 => OperationBody::AccountMerge(other.muxed()),
        4..7 => OperationBody::CreateAccount(CreateAccountOp {
            destination: other.account(),
            starting_balance: rng.random_range(-1..300_000_000),
        }),
        7 => OperationBody::ChangeTrust(ChangeTrustOp {
            line: ChangeTrustAsset::CreditAlphanum4(own),
            limit: [0, 1, i64::MAX][rng.random_range(0..3)],
        }),
        8 | 9 => OperationBody::Payment(PaymentOp {
            destination: other.muxed(),
            asset: Asset::CreditAlphanum4(own),
            amount: rng.random_range(0..5),
        }),
        10 if rng.random_bool(0.3) => OperationBody::Inflation,
        11 => OperationBody::ManageData(ManageDataOp {
            data_name: String64(["a", "b", ""][rng.random_range(0..3)].try_into().unwrap()),
            data_value: rng.random_bool(0.6).then(|| DataValue(vec![7; 3].try_into().unwrap())),
        }),
        12 => OperationBody::BumpSequence(BumpSequenceOp {
            bump_to: SequenceNumber([-1, 0, 1 << 40][rng.random_range(0..3)]),
        }),
        13 => OperationBody::SetTrustLineFlags(SetTrustLineFlagsOp {
            trustor: other.account(),
            asset: Asset::CreditAlphanum4(own),
            clear_flags: rng.random_range(0..8),
            set_flags: rng.random_range(0..3),
        }),
        14 => OperationBody::Clawback(ClawbackOp {
            asset: Asset::CreditAlphanum4(own),
            from: other.muxed(),
            amount: rng.random_range(0..5),
        }),
        _ => OperationBody::Payment(PaymentOp {
            destination: other.muxed(),
            asset: Asset::Native,
            amount: [1, 1, 1_000_000_000, 1, 0, i64::MAX][rng.random_range(0..6)],
        }),
    }
}

fn transaction(rng: &mut ChaCha8Rng, sandbox: &Sandbox, actors: &[Actor]) -> TransactionEnvelope {
    let source = &actors[rng.random_range(0..actors.len())];
    let account = sandbox.state.account(&source.account());
    let last = account.map_or(0, |account| account.seq_num.0);
    let mut signers = vec![source];
    let operations: Vec<_> = (0..[1, 1, 1, 2, 3][rng.random_range(0..5)])
        .map(|_| {
            let own = rng.random_bool(0.3).then(|| &actors[rng.random_range(0..actors.len())]);
            signers.extend(own);
            Operation { source_account: own.map(Actor::muxed), body: body(rng, actors) }
        })
        .collect();
    if rng.random_bool(0.05) {
        signers.pop();
    }
    signers.sort_by_key(|signer| signer.public_key());
    signers.dedup_by_key(|signer| signer.public_key());
    let tx = Transaction {
        source_account: source.muxed(),
        fee: 100 * u32::try_from(operations.len()).unwrap(),
        seq_num: SequenceNumber(last + if rng.random_bool(0.05) { 2 } else { 1 }),
        cond: Preconditions::None,
        memo: Memo::None,
        operations: operations.try_into().unwrap(),
        ext: TransactionExt::V0,
    };
    let payload = tx.hash(sandbox.config.network.id().0).unwrap();
    let signatures: Vec<_> =
        signers.iter().map(|signer| signer.decorated(&payload).unwrap()).collect();
    TransactionEnvelope::Tx(TransactionV1Envelope {
        tx,
        signatures: signatures.try_into().unwrap(),
    })
}

#[test]
fn random_transactions_never_halt_the_network_or_lose_coins() {
    let mut sandbox = Sandbox::new(configuration()).unwrap();
    sandbox.skip_to(LedgerSeq(FIRST_BATCH_LEDGER.0 - 1)).unwrap();
    let actors: Vec<_> = (0..ACTORS).map(|number| Actor::derive(1, "sender", number)).collect();
    let rng = &mut ChaCha8Rng::seed_from_u64(4);
    let (mut taken, mut failed, mut hindered) = (0, 0, 0);
    for round in 0..orrery_testkit::size::choose(150, 5_000) {
        let sent: Vec<_> = (0..6).map(|_| transaction(rng, &sandbox, &actors)).collect();
        let now = sandbox.latest_close_time() + 1;
        let (mut sources, mut expected) = (Vec::new(), Vec::new());
        for envelope in &sent {
            let source = sandbox.hash(envelope).unwrap();
            let TransactionEnvelope::Tx(inner) = envelope else { panic!("it is of version 1") };
            let is_first = !sources.contains(&inner.tx.source_account);
            if is_first && sandbox.check(envelope, now).unwrap().is_ok() {
                sources.push(inner.tx.source_account.clone());
                expected.push(source);
            }
        }
        let funded = match round % 4 {
            0 => actors.iter().map(Actor::address).collect(),
            _ => Vec::new(),
        };
        let batch = Batch { transactions: sent, funded, ..Batch::default() };
        let closed = sandbox.next_ledger_of(&batch).unwrap();
        let ledger = decode(&closed.xdr);
        for hash in expected {
            let found = ledger.tx_processing.iter().find(|it| it.result.transaction_hash.0 == hash);
            let result = &found.expect("checked transactions are applied").result.result;
            taken += 1;
            match &result.result {
                TransactionResultResult::TxSuccess(_) => {}
                TransactionResultResult::TxFailed(_) => failed += 1,
                TransactionResultResult::TxNoAccount | TransactionResultResult::TxBadSeq => {
                    hindered += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(coins(&sandbox), TOTAL_COINS, "after ledger {}", sandbox.latest_ledger());
    }
    println!("{taken} taken, {failed} failed, {hindered} met by others of their ledger");
    assert!(taken > 100 && failed > 20 && failed < taken && hindered > 0);
}

/// A call that touches an archived entry: the simulation lists the entry, the call restores it
/// (CAP-66) with the minimum TTL of submitted transactions, and the metadata shows that.
#[test]
fn a_call_restores_archived_entries() {
    let mut sandbox = Sandbox::new(configuration()).unwrap();
    sandbox.skip_to(LedgerSeq(FIRST_BATCH_LEDGER.0 - 1)).unwrap();
    let actor = Actor::derive(1, "sender", 0);
    let batch = Batch { funded: vec![actor.address()], ..Batch::default() };
    sandbox.next_ledger_of(&batch).unwrap();
    let contract = sandbox.assets.relic.address();
    let instance = orrery_ledger::domain::instance_key_at(contract.clone());
    while sandbox.entry(&instance).unwrap().unwrap().live_until != Some(0) {
        sandbox.next_ledger().unwrap();
    }
    let call = crate::network::plan::invocation(contract, "decimals", Vec::new()).unwrap();
    let number = sandbox.state.account(&actor.account()).unwrap().seq_num.0;
    let mut tx = Transaction {
        source_account: actor.muxed(),
        fee: 100,
        seq_num: SequenceNumber(number + 1),
        cond: Preconditions::None,
        memo: Memo::None,
        operations: vec![Operation {
            source_account: None,
            body: OperationBody::InvokeHostFunction(InvokeHostFunctionOp {
                host_function: HostFunction::InvokeContract(call),
                auth: Default::default(),
            }),
        }]
        .try_into()
        .unwrap(),
        ext: TransactionExt::V0,
    };
    let unsigned = TransactionV1Envelope { tx: tx.clone(), signatures: Default::default() };
    let mode = AuthMode::Record { allow_nonroot: false, upgraded: true };
    let data = sandbox.simulate(&unsigned, mode, 0).unwrap().data.expect("it would succeed");
    let SorobanTransactionDataExt::V1(restored) = &data.ext else { panic!("nothing to restore") };
    assert_eq!(restored.archived_soroban_entries.as_slice(), [0]);
    tx.fee += u32::try_from(data.resource_fee).unwrap();
    tx.ext = TransactionExt::V1(data.clone());
    let sent = |data: SorobanTransactionData| {
        let tx = Transaction { ext: TransactionExt::V1(data), ..tx.clone() };
        let payload = tx.hash(sandbox.config.network.id().0).unwrap();
        let signatures = vec![actor.decorated(&payload).unwrap()].try_into().unwrap();
        let envelope = TransactionEnvelope::Tx(TransactionV1Envelope { tx, signatures });
        let mut sandbox = sandbox.clone();
        let hash = sandbox.hash(&envelope).unwrap();
        let batch = Batch { transactions: vec![envelope], ..Batch::default() };
        let ledger = decode(&sandbox.next_ledger_of(&batch).unwrap().xdr);
        let mut all = ledger.tx_processing.into_vec();
        all.retain(|it| it.result.transaction_hash.0 == hash);
        (all.remove(0), sandbox)
    };
    let (done, after) = sent(data.clone());
    assert!(matches!(done.result.result.result, TransactionResultResult::TxSuccess(_)));
    let TransactionMeta::V4(meta) = &done.tx_apply_processing else { panic!("older metadata") };
    let is_restored = |key: &LedgerKey| {
        meta.operations[0].changes.iter().any(
            |change| matches!(change, LedgerEntryChange::Restored(entry) if entry.to_key() == *key),
        )
    };
    let ttl = orrery_ledger::domain::ttl_key(&instance).unwrap();
    assert!(is_restored(&instance) && is_restored(&ttl), "{:?}", meta.operations[0].changes);
    let live_until = after.entry(&instance).unwrap().unwrap().live_until.unwrap();
    assert_eq!(live_until, after.latest_ledger().0 + 2_073_600 - 1);
    let rent = match meta.soroban_meta.as_ref().unwrap().ext.clone() {
        SorobanTransactionMetaExt::V1(fees) => fees.rent_fee_charged,
        SorobanTransactionMetaExt::V0 => 0,
    };
    assert!(rent > 1_000, "{rent} stroops for 120 days");
    // The call fails when the entry is not listed.
    let (failed, _) = sent(SorobanTransactionData { ext: SorobanTransactionDataExt::V0, ..data });
    let TransactionResultResult::TxFailed(results) = &failed.result.result.result else {
        panic!("{:?}", failed.result.result)
    };
    assert!(format!("{results:?}").contains("EntryArchived"), "{results:?}");
}
