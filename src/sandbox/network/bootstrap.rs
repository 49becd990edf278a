//! The sandbox's first ledgers: creates the accounts, the assets and their contracts.

use stellar_xdr::{
    AccountFlags, Asset, ChangeTrustAsset, ChangeTrustOp, ContractExecutable, ContractIdPreimage,
    CreateAccountOp, CreateContractArgs, HostFunction, Memo, OperationBody, PaymentOp,
    SetOptionsOp,
};

use super::actors::Actor;
use super::assets::KnownAsset;
use super::error::Result;
use super::plan::Planner;

/// Last ledger of the script; regular traffic follows.
pub(super) const LAST_LEDGER: u32 = 6;

/// Initial balance of each account, in stroops.
const STARTING_BALANCE: i64 = 1_000_000_000_000;
/// Amount of every issued asset that each trader receives, in units of 10⁻⁷.
const STARTING_CREDIT: i64 = 500_000_000_000;

/// Plans ledger `sequence` of the script; plans nothing for ledgers after the last one.
pub(super) fn plan(planner: &mut Planner<'_>, sequence: u32) -> Result<()> {
    let (permanent, assets) = (planner.permanent, planner.ledger.assets);
    match sequence {
        2 => create_accounts(planner),
        3 => {
            set_issuer_flags(planner)?;
            deploy(planner, &permanent.root, &assets.native)
        }
        4 => {
            for trader in &permanent.traders {
                let lines = [&assets.dollar, &assets.harbor].map(|known| trust(&known.asset));
                let lines = lines.into_iter().flatten().collect();
                planner.submit(trader, lines, Memo::None)?;
            }
            deploy(planner, &permanent.root, &assets.dollar)?;
            deploy(planner, &permanent.issuer, &assets.harbor)
        }
        5 => {
            issue(planner, &assets.dollar)?;
            deploy(planner, &permanent.root, &assets.relic)
        }
        LAST_LEDGER => issue(planner, &assets.harbor),
        _ => Ok(()),
    }
}

fn create_accounts(planner: &mut Planner<'_>) -> Result<()> {
    let permanent = planner.permanent;
    let accounts = permanent.traders.iter().chain([&permanent.issuer]);
    let operations = accounts
        .map(|actor| {
            OperationBody::CreateAccount(CreateAccountOp {
                destination: actor.account(),
                starting_balance: STARTING_BALANCE,
            })
        })
        .collect();
    planner.submit(&permanent.root, operations, Memo::None)?;
    Ok(())
}

/// Allows the issuer to claw back its assets and to revoke the authorisation of their holders.
fn set_issuer_flags(planner: &mut Planner<'_>) -> Result<()> {
    let flags = AccountFlags::RevocableFlag as u32 | AccountFlags::ClawbackEnabledFlag as u32;
    let operation = OperationBody::SetOptions(SetOptionsOp {
        inflation_dest: None,
        clear_flags: None,
        set_flags: Some(flags),
        master_weight: None,
        low_threshold: None,
        med_threshold: None,
        high_threshold: None,
        home_domain: None,
        signer: None,
    });
    planner.submit(&planner.permanent.issuer, vec![operation], Memo::None)?;
    Ok(())
}

fn deploy(planner: &mut Planner<'_>, deployer: &Actor, known: &KnownAsset) -> Result<()> {
    let function = HostFunction::CreateContract(CreateContractArgs {
        contract_id_preimage: ContractIdPreimage::Asset(known.asset.clone()),
        executable: ContractExecutable::StellarAsset,
    });
    planner.invoke(deployer, &function, None)?;
    Ok(())
}

fn issue(planner: &mut Planner<'_>, known: &KnownAsset) -> Result<()> {
    let operations = planner
        .permanent
        .traders
        .iter()
        .map(|trader| {
            OperationBody::Payment(PaymentOp {
                destination: trader.muxed(),
                asset: known.asset.clone(),
                amount: STARTING_CREDIT,
            })
        })
        .collect();
    planner.submit(&planner.permanent.issuer, operations, Memo::None)?;
    Ok(())
}

/// Returns the operation that opens a trustline without a limit; `None` for the native asset, which
/// needs none.
pub(super) fn trust(asset: &Asset) -> Option<OperationBody> {
    trust_up_to(asset, i64::MAX)
}

/// Returns the operation that sets the limit of a trustline; 0 closes it.
pub(super) fn trust_up_to(asset: &Asset, limit: i64) -> Option<OperationBody> {
    let line = match asset {
        Asset::Native => return None,
        Asset::CreditAlphanum4(asset) => ChangeTrustAsset::CreditAlphanum4(asset.clone()),
        Asset::CreditAlphanum12(asset) => ChangeTrustAsset::CreditAlphanum12(asset.clone()),
    };
    Some(OperationBody::ChangeTrust(ChangeTrustOp { line, limit }))
}
