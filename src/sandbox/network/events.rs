//! Unified asset events (CAP-67): the contract events that classic operations and fees emit.

use stellar_xdr::{
    AccountId, Asset, ContractEvent, ContractEventBody, ContractEventType, ContractEventV0,
    ContractId, ExtensionPoint, Hash, Memo, MuxedAccount, PublicKey, ScAddress, ScMap, ScMapEntry,
    ScString, ScVal, TransactionEvent, TransactionEventStage, Uint256,
};

use super::assets::{Assets, KnownAsset, byte_string, symbol};
use super::envelope::ed25519;
use super::error::Result;

/// Builds the event for `amount` of `asset` that a classic operation moves from one account to
/// another: a `mint` or a `burn` when one of them is the issuer. `memo` identifies the recipient
/// behind the account unless `to` itself is a muxed account.
pub(super) fn movement(
    assets: &Assets,
    asset: &Asset,
    from: &AccountId,
    to: &MuxedAccount,
    amount: i64,
    memo: &Memo,
) -> Result<ContractEvent> {
    let known = assets.find(asset);
    let recipient = AccountId(PublicKey::PublicKeyTypeEd25519(Uint256(ed25519(to))));
    let issuer = issuer(asset);
    let (name, parties, data) = if issuer == Some(from) {
        ("mint", vec![&recipient], amount_for(amount, to, memo)?)
    } else if issuer == Some(&recipient) {
        ("burn", vec![from], ScVal::from(i128::from(amount)))
    } else {
        ("transfer", vec![from, &recipient], amount_for(amount, to, memo)?)
    };
    let mut topics = vec![symbol(name)?];
    topics.extend(parties.into_iter().map(address));
    topics.push(name_of(&known)?);
    event(&known, topics, data)
}

/// Builds the event for `amount` of `asset` that its issuer takes back from an account.
pub(super) fn clawback(
    assets: &Assets,
    asset: &Asset,
    from: &AccountId,
    amount: i64,
) -> Result<ContractEvent> {
    let known = assets.find(asset);
    let topics = vec![symbol("clawback")?, address(from), name_of(&known)?];
    event(&known, topics, ScVal::from(i128::from(amount)))
}

/// Builds the event for an account that the issuer of `asset` authorizes to hold it, or no longer.
pub(super) fn authorization(
    assets: &Assets,
    asset: &Asset,
    account: &AccountId,
    is_authorized: bool,
) -> Result<ContractEvent> {
    let known = assets.find(asset);
    let topics = vec![symbol("set_authorized")?, address(account), name_of(&known)?];
    event(&known, topics, ScVal::Bool(is_authorized))
}

fn name_of(asset: &KnownAsset) -> Result<ScVal> {
    Ok(ScVal::String(ScString(asset.name.as_str().try_into()?)))
}

/// Builds the event for a fee charged (positive) before all transactions or refunded (negative)
/// after them.
pub(super) fn fee(assets: &Assets, payer: &AccountId, amount: i64) -> Result<TransactionEvent> {
    let stage = match amount {
        ..0 => TransactionEventStage::AfterAllTxs,
        _ => TransactionEventStage::BeforeAllTxs,
    };
    let topics = vec![symbol("fee")?, address(payer)];
    let event = event(&assets.native, topics, ScVal::from(i128::from(amount)))?;
    Ok(TransactionEvent { stage, event })
}

fn event(asset: &KnownAsset, topics: Vec<ScVal>, data: ScVal) -> Result<ContractEvent> {
    Ok(ContractEvent {
        ext: ExtensionPoint::V0,
        contract_id: Some(ContractId(Hash(asset.contract.0))),
        type_: ContractEventType::Contract,
        body: ContractEventBody::V0(ContractEventV0 { topics: topics.try_into()?, data }),
    })
}

/// Returns the amount alone, or a map of the amount and the id of the recipient behind the account.
fn amount_for(amount: i64, to: &MuxedAccount, memo: &Memo) -> Result<ScVal> {
    let amount = ScVal::from(i128::from(amount));
    let meant_for = match (to, memo) {
        (MuxedAccount::MuxedEd25519(muxed), _) => ScVal::U64(muxed.id),
        (_, Memo::None) => return Ok(amount),
        (_, Memo::Text(text)) => ScVal::String(ScString(text.as_slice().try_into()?)),
        (_, Memo::Id(id)) => ScVal::U64(*id),
        (_, Memo::Hash(hash) | Memo::Return(hash)) => byte_string(&hash.0)?,
    };
    let fields = vec![
        ScMapEntry { key: symbol("amount")?, val: amount },
        ScMapEntry { key: symbol("to_muxed_id")?, val: meant_for },
    ];
    Ok(ScVal::Map(Some(ScMap(fields.try_into()?))))
}

fn issuer(asset: &Asset) -> Option<&AccountId> {
    match asset {
        Asset::Native => None,
        Asset::CreditAlphanum4(asset) => Some(&asset.issuer),
        Asset::CreditAlphanum12(asset) => Some(&asset.issuer),
    }
}

fn address(account: &AccountId) -> ScVal {
    ScVal::Address(ScAddress::Account(account.clone()))
}
