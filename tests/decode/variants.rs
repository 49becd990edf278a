//! Sweeps every value of every union discriminant, each followed by contents of every size: zeros,
//! which nearly every type accepts, and random patterns of small numbers. Finds a missing arm or an
//! arm of the wrong shape.

use std::collections::BTreeSet;

use orrery_ledger::domain::Network;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use stellar_xdr::*;

use crate::builder::*;
use crate::{Verdict, compare};

/// Values that are tried for a discriminant. Every enum of the schema lies in this range, except
/// for one member that is 256.
const VALUES: std::ops::Range<i32> = -25..45;

/// Maximum number of words between a discriminant and the end of a ledger.
const MAX_WORDS: usize = 90;

/// Tries all values of the first discriminant in which the two ledgers differ.
///
/// Returns the values for which some number of zero words completes a valid ledger. This suffices
/// because the ledgers built here contain only zeros after that discriminant.
fn sweep(name: &str, one: &LedgerCloseMeta, other: &LedgerCloseMeta) -> BTreeSet<i32> {
    let (one, other) = (encode(one), encode(other));
    let difference = one.iter().zip(&other).position(|(a, b)| a != b).unwrap();
    sweep_after(name, &one[..difference / 4 * 4], MAX_WORDS)
}

fn sweep_after(name: &str, before: &[u8], most_words: usize) -> BTreeSet<i32> {
    let network = Network::from_name_or_passphrase("testnet");
    let mut rng = ChaCha8Rng::seed_from_u64(before.len() as u64);
    let mut accepted = BTreeSet::new();
    for value in VALUES.chain([256]) {
        let mut zeros = [before, &value.to_be_bytes()].concat();
        for words in 0..most_words {
            let case = format!("{name} {value}, {words} zeros");
            if !matches!(compare(&zeros, &network, &case), Verdict::Malformed(_)) {
                accepted.insert(value);
            }
            let mut pattern = zeros.clone();
            for word in pattern[before.len() + 4..].chunks_exact_mut(4) {
                word[3] = if rng.random_bool(0.3) { rng.random_range(1..4) } else { 0 };
            }
            compare(&pattern, &network, &format!("{name} {value}, {pattern:?}"));
            zeros.extend([0; 4]);
        }
    }
    accepted
}

fn operation(body: OperationBody) -> LedgerCloseMeta {
    let operation = Operation { source_account: None, body };
    with_envelope(envelope(Transaction { operations: list([operation]), ..Default::default() }))
}

fn host_function(host_function: HostFunction) -> LedgerCloseMeta {
    operation(OperationBody::InvokeHostFunction(InvokeHostFunctionOp {
        host_function,
        ..Default::default()
    }))
}

fn authorized(entry: SorobanAuthorizationEntry) -> LedgerCloseMeta {
    operation(OperationBody::InvokeHostFunction(InvokeHostFunctionOp {
        auth: list([entry]),
        ..Default::default()
    }))
}

fn value(val: ScVal) -> LedgerCloseMeta {
    with_entry(LedgerEntryData::ContractData(ContractDataEntry { val, ..Default::default() }))
}

fn result(result: TransactionResultResult) -> LedgerCloseMeta {
    with_applied(result, TransactionMeta::default())
}

fn operation_result(result: OperationResult) -> LedgerCloseMeta {
    self::result(TransactionResultResult::TxSuccess(list([result])))
}

fn first(count: i32) -> BTreeSet<i32> {
    (0..count).collect()
}

#[test]
fn all_variants_of_entries_keys_and_values_agree() {
    let one = with_entry(LedgerEntryData::default());
    let other = with_entry(LedgerEntryData::Ttl(TtlEntry::default()));
    assert_eq!(sweep("entry", &one, &other), first(LedgerEntryType::VARIANTS.len() as i32));

    let one = with_entry(LedgerEntryData::ConfigSetting(ConfigSettingEntry::default()));
    let other = ConfigSettingEntry::ContractDataKeySizeBytes(0);
    let other = with_entry(LedgerEntryData::ConfigSetting(other));
    assert_eq!(sweep("setting", &one, &other), first(ConfigSettingId::VARIANTS.len() as i32));

    let key = |key| {
        LedgerCloseMeta::V2(LedgerCloseMetaV2 { evicted_keys: list([key]), ..Default::default() })
    };
    let (one, other) = (LedgerKey::default(), LedgerKey::Ttl(LedgerKeyTtl::default()));
    assert_eq!(sweep("key", &key(one), &key(other)), first(LedgerEntryType::VARIANTS.len() as i32));

    let (one, other) = (value(ScVal::Void), value(ScVal::U32(0)));
    assert_eq!(sweep("value", &one, &other), first(ScValType::VARIANTS.len() as i32));

    let error = |error| value(ScVal::Error(error));
    let (one, other) =
        (error(ScError::Contract(0)), error(ScError::Auth(ScErrorCode::ArithDomain)));
    assert_eq!(sweep("error", &one, &other), first(ScErrorType::VARIANTS.len() as i32));

    let (one, other) = (ScAddress::default(), contract(0));
    let (one, other) = (value(ScVal::Address(one)), value(ScVal::Address(other)));
    assert_eq!(sweep("address", &one, &other), first(ScAddressType::VARIANTS.len() as i32));

    let instance = |executable| {
        value(ScVal::ContractInstance(ScContractInstance { executable, storage: None }))
    };
    let one = instance(ContractExecutable::default());
    let other = instance(ContractExecutable::StellarAsset);
    assert_eq!(sweep("executable", &one, &other), first(3));

    let trusted = |asset| {
        with_entry(LedgerEntryData::Trustline(TrustLineEntry { asset, ..Default::default() }))
    };
    let one = trusted(TrustLineAsset::Native);
    let other = trusted(TrustLineAsset::PoolShare(PoolId::default()));
    assert_eq!(sweep("trusted asset", &one, &other), first(4));

    let signed_by = |key| {
        with_entry(LedgerEntryData::Account(AccountEntry {
            signers: list([Signer { key, weight: 0 }]),
            ..Default::default()
        }))
    };
    let one = signed_by(SignerKey::Ed25519(Uint256::default()));
    let other = signed_by(SignerKey::HashX(Uint256::default()));
    assert_eq!(sweep("signer", &one, &other), first(4));

    let claimable = |predicate| {
        let claimant = Claimant::ClaimantTypeV0(ClaimantV0 { predicate, ..Default::default() });
        with_entry(LedgerEntryData::ClaimableBalance(ClaimableBalanceEntry {
            claimants: list([claimant]),
            ..Default::default()
        }))
    };
    let one = claimable(ClaimPredicate::Unconditional);
    let other = claimable(ClaimPredicate::And(VecM::default()));
    assert_eq!(sweep("predicate", &one, &other), first(6));
}

#[test]
fn all_variants_of_transaction_parts_agree() {
    let one = operation(OperationBody::Inflation);
    let other = operation(OperationBody::EndSponsoringFutureReserves);
    let mut operations = first(OperationType::VARIANTS.len() as i32);
    // The asset code of AllowTrust has no form that is all zeros.
    assert!(operations.remove(&(OperationType::AllowTrust as i32)));
    assert_eq!(sweep("operation", &one, &other), operations);

    let one = host_function(HostFunction::InvokeContract(InvokeContractArgs::default()));
    let other = host_function(HostFunction::UploadContractWasm(BytesM::default()));
    assert_eq!(sweep("host function", &one, &other), first(4));

    let credentials =
        |credentials| authorized(SorobanAuthorizationEntry { credentials, ..Default::default() });
    let one = credentials(SorobanCredentials::SourceAccount);
    let other = credentials(SorobanCredentials::Address(SorobanAddressCredentials::default()));
    assert_eq!(sweep("credentials", &one, &other), first(4));

    let function = |function| {
        authorized(SorobanAuthorizationEntry {
            root_invocation: SorobanAuthorizedInvocation { function, ..Default::default() },
            ..Default::default()
        })
    };
    let one = function(SorobanAuthorizedFunction::ContractFn(InvokeContractArgs::default()));
    let create = CreateContractArgs::default();
    let other = function(SorobanAuthorizedFunction::CreateContractHostFn(create));
    assert_eq!(sweep("authorized function", &one, &other), first(3));

    let revoke = |revoke| operation(OperationBody::RevokeSponsorship(revoke));
    let one = revoke(RevokeSponsorshipOp::LedgerEntry(LedgerKey::default()));
    let other = revoke(RevokeSponsorshipOp::Signer(RevokeSponsorshipOpSigner::default()));
    assert_eq!(sweep("revocation", &one, &other), first(2));

    let trust = |line| operation(OperationBody::ChangeTrust(ChangeTrustOp { line, limit: 0 }));
    let pool = ChangeTrustAsset::PoolShare(LiquidityPoolParameters::default());
    let (one, other) = (trust(ChangeTrustAsset::Native), trust(pool));
    assert_eq!(sweep("line of trust", &one, &other), first(4));

    let transaction = |tx| with_envelope(envelope(tx));
    let with_memo = |memo| transaction(Transaction { memo, ..Default::default() });
    let (one, other) = (with_memo(Memo::None), with_memo(Memo::Id(0)));
    assert_eq!(sweep("memo", &one, &other), first(5));

    let when = |cond| transaction(Transaction { cond, ..Default::default() });
    let one = when(Preconditions::None);
    let other = when(Preconditions::Time(TimeBounds::default()));
    assert_eq!(sweep("preconditions", &one, &other), first(3));

    let from = |source_account| transaction(Transaction { source_account, ..Default::default() });
    let one = from(MuxedAccount::default());
    let other = from(MuxedAccount::MuxedEd25519(MuxedAccountMed25519::default()));
    assert_eq!(sweep("account", &one, &other), BTreeSet::from([0, 256]));

    let extended = |ext| transaction(Transaction { ext, ..Default::default() });
    let one = extended(TransactionExt::V0);
    let other = extended(TransactionExt::V1(SorobanTransactionData::default()));
    assert_eq!(sweep("extension", &one, &other), first(2));

    let one = with_envelope(TransactionEnvelope::Tx(TransactionV1Envelope::default()));
    let other = with_envelope(TransactionEnvelope::TxV0(TransactionV0Envelope::default()));
    // A fee bump has no form that is all zeros, because the type of its inner transaction is 2.
    assert_eq!(sweep("envelope", &one, &other), BTreeSet::from([0, 2]));

    let phase = |phase| {
        let set = TransactionSetV1 { phases: list([phase]), ..Default::default() };
        LedgerCloseMeta::V2(LedgerCloseMetaV2 {
            tx_set: GeneralizedTransactionSet::V1(set),
            ..Default::default()
        })
    };
    let one = phase(TransactionPhase::V0(VecM::default()));
    let other = phase(TransactionPhase::V1(ParallelTxsComponent::default()));
    assert_eq!(sweep("phase", &one, &other), first(2));
}

#[test]
fn all_variants_of_transaction_results_agree() {
    let one = result(TransactionResultResult::TxTooEarly);
    let other = result(TransactionResultResult::TxTooLate);
    assert_eq!(sweep("result", &one, &other), (-18..=1).collect());

    let inner = |result| {
        let result = InnerTransactionResult { result, ..Default::default() };
        let pair = InnerTransactionResultPair { result, ..Default::default() };
        self::result(TransactionResultResult::TxFeeBumpInnerSuccess(pair))
    };
    let one = inner(InnerTransactionResultResult::TxTooEarly);
    let other = inner(InnerTransactionResultResult::TxTooLate);
    let mut codes: BTreeSet<i32> = (-18..=0).collect();
    codes.remove(&(TransactionResultCode::TxFeeBumpInnerFailed as i32));
    assert_eq!(sweep("inner result", &one, &other), codes);

    let one = operation_result(OperationResult::OpBadAuth);
    let other = operation_result(OperationResult::OpNoAccount);
    assert_eq!(sweep("operation result", &one, &other), (-6..=0).collect());
}

#[test]
fn all_variants_of_operation_results_agree() {
    let bad = encode(&operation_result(OperationResult::OpBadAuth));
    let position = bad.windows(4).position(|word| word == (-1i32).to_be_bytes()).unwrap();
    let inner = [&bad[..position], &[0; 4]].concat();
    // Lowest result code of each operation; the codes of an operation range from it to 0.
    let lowest: [i32; OperationType::VARIANTS.len()] = [
        -4, -9, -12, -12, -12, -10, -8, -6, -7, -1, -4, -1, -12, -12, -5, -6, -3, -1, -5, -4, -3,
        -5, -8, -6, -5, -3, -3,
    ];
    for (operation, lowest) in (0i32..).zip(lowest) {
        let before = [inner.as_slice(), &operation.to_be_bytes()].concat();
        let name = format!("result of operation {operation}");
        assert_eq!(sweep_after(&name, &before, 40), (lowest..=0).collect(), "{name}");
    }
}

#[test]
fn all_variants_of_metadata_headers_and_messages_agree() {
    let meta = |meta| with_applied(TransactionResultResult::default(), meta);
    let one = meta(TransactionMeta::V0(VecM::default()));
    let other = meta(TransactionMeta::V2(TransactionMetaV2::default()));
    assert_eq!(sweep("metadata", &one, &other), first(5));

    let change = |change| {
        let changes = LedgerEntryChanges(list([change]));
        meta(TransactionMeta::V0(list([OperationMeta { changes }])))
    };
    let one = change(LedgerEntryChange::Created(LedgerEntry::default()));
    let other = change(LedgerEntryChange::Removed(LedgerKey::default()));
    assert_eq!(sweep("change", &one, &other), first(5));

    let typed = |type_| meta(meta_with_events([ContractEvent { type_, ..Default::default() }]));
    let (one, other) = (typed(ContractEventType::System), typed(ContractEventType::Contract));
    assert_eq!(sweep("event type", &one, &other), first(3));

    let staged = |stage| {
        let event = TransactionEvent { stage, ..Default::default() };
        meta(TransactionMeta::V4(TransactionMetaV4 { events: list([event]), ..Default::default() }))
    };
    let one = staged(TransactionEventStage::BeforeAllTxs);
    let other = staged(TransactionEventStage::AfterTx);
    assert_eq!(sweep("event stage", &one, &other), first(3));

    let topic = |topic| {
        let body = ContractEventV0 { topics: list([topic]), data: ScVal::Bool(false) };
        let body = ContractEventBody::V0(body);
        meta(meta_with_events([ContractEvent { body, ..Default::default() }]))
    };
    let (one, other) = (topic(ScVal::Void), topic(ScVal::U32(0)));
    assert_eq!(sweep("topic", &one, &other), first(ScValType::VARIANTS.len() as i32));

    let upgrade = |upgrade| {
        LedgerCloseMeta::V2(LedgerCloseMetaV2 {
            upgrades_processing: list([UpgradeEntryMeta { upgrade, ..Default::default() }]),
            ..Default::default()
        })
    };
    let (one, other) = (upgrade(LedgerUpgrade::Version(0)), upgrade(LedgerUpgrade::Flags(0)));
    assert_eq!(sweep("upgrade", &one, &other), (1..=7).collect());

    let agreed = |ext| {
        let mut ledger = LedgerCloseMetaV0::default();
        ledger.ledger_header.header.scp_value.ext = ext;
        LedgerCloseMeta::V0(ledger)
    };
    let one = agreed(StellarValueExt::Basic);
    let other = agreed(StellarValueExt::Signed(LedgerCloseValueSignature::default()));
    let (one, other) = (encode(&one), encode(&other));
    let difference = one.iter().zip(&other).position(|(a, b)| a != b).unwrap();
    assert_eq!(sweep_after("agreed value", &one[..difference / 4 * 4], 160), first(5));

    let message = |pledges| {
        let statement = ScpStatement { pledges, ..Default::default() };
        let envelope = ScpEnvelope { statement, ..Default::default() };
        let ledger_messages =
            LedgerScpMessages { messages: list([envelope]), ..Default::default() };
        let entry = ScpHistoryEntryV0 { ledger_messages, ..Default::default() };
        LedgerCloseMeta::V2(LedgerCloseMetaV2 {
            scp_info: list([ScpHistoryEntry::V0(entry)]),
            ..Default::default()
        })
    };
    let one = message(ScpStatementPledges::Prepare(ScpStatementPrepare::default()));
    let other = message(ScpStatementPledges::Nominate(ScpNomination::default()));
    assert_eq!(sweep("pledge", &one, &other), first(4));

    let empty = |ledger: LedgerCloseMeta| encode(&ledger);
    let v1 = empty(LedgerCloseMeta::V1(LedgerCloseMetaV1::default()));
    assert_eq!(sweep_after("extension of a ledger", &v1[..4], 170), BTreeSet::new());
    assert_eq!(sweep_after("version of a ledger", &[], 170), BTreeSet::from([0]));
}
