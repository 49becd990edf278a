//! Data of accounts, sequence numbers, and what issuers do with the trustlines of their assets.

use stellar_xdr::{
    AccountFlags, AlphaNum4, Asset, AssetCode4, BumpSequenceOp, ChangeTrustAsset, ChangeTrustOp,
    ClawbackOp, DataValue, LedgerEntryData, LedgerKey, LedgerKeyData, ManageDataOp, Memo,
    Operation, OperationBody, PaymentOp, Preconditions, SequenceNumber, SetOptionsOp,
    SetTrustLineFlagsOp, String64, Transaction, TransactionEnvelope, TransactionExt,
    TransactionV1Envelope,
};

use super::*;
use crate::network::actors::Actor;
use crate::network::{Batch, FIRST_BATCH_LEDGER};

/// Sends a transaction with one operation, and returns the name of its result and the names of the
/// contract events in its ledger.
fn send(sandbox: &mut Sandbox, source: &Actor, body: OperationBody) -> (String, String) {
    let last = sandbox.state.account(&source.account()).unwrap().seq_num.0;
    let tx = Transaction {
        source_account: source.muxed(),
        fee: 100,
        seq_num: SequenceNumber(last + 1),
        cond: Preconditions::None,
        memo: Memo::None,
        operations: vec![Operation { source_account: None, body }].try_into().unwrap(),
        ext: TransactionExt::V0,
    };
    let payload = tx.hash(sandbox.config.network.id().0).unwrap();
    let signatures = vec![source.decorated(&payload).unwrap()].try_into().unwrap();
    let envelope = TransactionEnvelope::Tx(TransactionV1Envelope { tx, signatures });
    let now = sandbox.latest_close_time() + 1;
    if let Err(refused) = sandbox.check(&envelope, now).unwrap() {
        return (format!("refused: {:?}", refused.result), String::new());
    }
    let hash = sandbox.hash(&envelope).unwrap();
    let batch = Batch { transactions: vec![envelope], ..Batch::default() };
    let closed = sandbox.next_ledger_of(&batch).unwrap();
    let ledger = decode(&closed.xdr);
    let found = ledger.tx_processing.iter().find(|it| it.result.transaction_hash.0 == hash);
    let found = found.expect("it is in the ledger");
    (format!("{:?}", found.result.result.result), format!("{:?}", found.tx_apply_processing))
}

#[test]
fn accounts_and_issuers_change_their_entries() {
    let mut sandbox = Sandbox::new(configuration()).unwrap();
    sandbox.skip_to(LedgerSeq(FIRST_BATCH_LEDGER.0 - 1)).unwrap();
    let [issuer, holder] = [0, 1].map(|number| Actor::derive(1, "sender", number));
    let funded = vec![issuer.address(), holder.address()];
    sandbox.next_ledger_of(&Batch { funded, ..Batch::default() }).unwrap();
    let sandbox = &mut sandbox;
    let is_ok = |(result, _): &(String, String)| result.starts_with("TxSuccess");

    let data = |value: Option<&[u8]>| {
        OperationBody::ManageData(ManageDataOp {
            data_name: String64("config".try_into().unwrap()),
            data_value: value.map(|value| DataValue(value.try_into().unwrap())),
        })
    };
    let key = LedgerKey::Data(LedgerKeyData {
        account_id: holder.account(),
        data_name: String64("config".try_into().unwrap()),
    });
    assert!(send(sandbox, &holder, data(None)).0.contains("NameNotFound"));
    for value in [b"one".as_slice(), b"two"] {
        assert!(is_ok(&send(sandbox, &holder, data(Some(value)))));
        let entry = &sandbox.state.get(&key).unwrap().data;
        let LedgerEntryData::Data(entry) = entry else { panic!("{entry:?}") };
        assert_eq!(entry.data_value.0.as_slice(), value);
        assert_eq!(sandbox.state.account(&holder.account()).unwrap().num_sub_entries, 1);
    }
    assert!(is_ok(&send(sandbox, &holder, data(None))));
    assert!(sandbox.state.get(&key).is_none());
    assert_eq!(sandbox.state.account(&holder.account()).unwrap().num_sub_entries, 0);

    let bump = |to| OperationBody::BumpSequence(BumpSequenceOp { bump_to: SequenceNumber(to) });
    let last = |sandbox: &Sandbox| sandbox.state.account(&holder.account()).unwrap().seq_num.0;
    let far = last(sandbox) + 1_000;
    assert!(is_ok(&send(sandbox, &holder, bump(far))));
    assert_eq!(last(sandbox), far);
    assert!(is_ok(&send(sandbox, &holder, bump(3))));
    assert_eq!(last(sandbox), far + 1, "a lower number changes nothing");
    assert!(send(sandbox, &holder, bump(-1)).0.starts_with("refused"));

    let own = AlphaNum4 { asset_code: AssetCode4(*b"OWN\0"), issuer: issuer.account() };
    let asset = Asset::CreditAlphanum4(own.clone());
    let flags = AccountFlags::RevocableFlag as u32 | AccountFlags::ClawbackEnabledFlag as u32;
    let options = SetOptionsOp { set_flags: Some(flags), ..SetOptionsOp::default() };
    assert!(is_ok(&send(sandbox, &issuer, OperationBody::SetOptions(options))));
    let line = ChangeTrustAsset::CreditAlphanum4(own);
    let trust = OperationBody::ChangeTrust(ChangeTrustOp { line, limit: 1_000 });
    assert!(is_ok(&send(sandbox, &holder, trust)));
    let pay = OperationBody::Payment(PaymentOp {
        destination: holder.muxed(),
        asset: asset.clone(),
        amount: 50,
    });
    assert!(is_ok(&send(sandbox, &issuer, pay.clone())));
    let claw = |amount| {
        let (asset, from) = (asset.clone(), holder.muxed());
        OperationBody::Clawback(ClawbackOp { asset, from, amount })
    };
    assert!(send(sandbox, &issuer, claw(51)).0.contains("Underfunded"));
    let taken = send(sandbox, &issuer, claw(20));
    assert!(is_ok(&taken) && taken.1.contains("clawback"), "{taken:?}");
    assert_eq!(sandbox.state.trustline(&holder.account(), &asset).unwrap().balance, 30);
    assert!(send(sandbox, &holder, claw(1)).0.starts_with("refused"), "only the issuer may");

    let authorize = |set_flags, clear_flags| {
        let (trustor, asset) = (holder.account(), asset.clone());
        OperationBody::SetTrustLineFlags(SetTrustLineFlagsOp {
            trustor,
            asset,
            clear_flags,
            set_flags,
        })
    };
    let revoked = send(sandbox, &issuer, authorize(0, 1));
    assert!(is_ok(&revoked) && revoked.1.contains("set_authorized"), "{revoked:?}");
    assert!(send(sandbox, &issuer, pay.clone()).0.contains("NotAuthorized"));
    assert!(is_ok(&send(sandbox, &issuer, authorize(1, 0))));
    assert!(is_ok(&send(sandbox, &issuer, pay)));
    assert!(send(sandbox, &issuer, authorize(3, 0)).0.starts_with("refused"));
}
