//! Chooses the transactions of a regular ledger: payments and contract calls, some of which fail.

use orrery_ledger::domain::instance_key_at;
use stellar_xdr::{
    Asset, ContractDataDurability, ContractId, CreateAccountOp, Hash, LedgerEntryData, LedgerKey,
    Memo, MuxedAccount, MuxedAccountMed25519, MuxedEd25519Account, OperationBody, PaymentOp,
    ScAddress, ScVal, Uint256,
};

use super::actors::Actor;
use super::assets::{KnownAsset, symbol};
use super::bootstrap::trust_up_to;
use super::classic::{is_authorized, spendable};
use super::error::Result;
use super::plan::Planner;

/// Maximum number of visitors, accounts that are created and later merged. At the maximum, one
/// leaves before another is created.
const MAX_VISITORS: usize = 8;
/// Minimum balance with which a visitor is created, in stroops.
const VISITOR_BALANCE: i64 = 50_000_000;
/// One in this many regular ledgers, on average, is empty.
const EMPTY_ONE_IN: u64 = 15;
/// Maximum TTL to which entries are extended, in ledgers from now.
const LONGEST_EXTENSION: u32 = 600_000;

/// Kind of a regular transaction.
#[derive(Debug, Clone, Copy)]
enum Kind {
    NativePayment,
    CreditPayment,
    Redemption,
    Issuance,
    OverdrawnPayment,
    HalfOverdrawnPayments,
    Visit,
    Trust,
    NativeTransfer,
    CreditTransfer,
    TransferToMuxed,
    TransferForAnother,
    Deposit,
    VisitByContract,
    OverdrawnTransfer,
    Approval,
    TransferFrom,
    Mint,
    Burn,
    Suspension,
    Clawback,
    Extension,
    Restoration,
}

/// Relative frequency of each kind.
const FREQUENCIES: [(Kind, u64); 23] = [
    (Kind::NativePayment, 14),
    (Kind::CreditPayment, 12),
    (Kind::Redemption, 2),
    (Kind::Issuance, 2),
    (Kind::OverdrawnPayment, 4),
    (Kind::HalfOverdrawnPayments, 2),
    (Kind::Visit, 5),
    (Kind::Trust, 3),
    (Kind::NativeTransfer, 8),
    (Kind::CreditTransfer, 12),
    (Kind::TransferToMuxed, 3),
    (Kind::TransferForAnother, 5),
    (Kind::Deposit, 3),
    (Kind::VisitByContract, 2),
    (Kind::OverdrawnTransfer, 5),
    (Kind::Approval, 4),
    (Kind::TransferFrom, 5),
    (Kind::Mint, 2),
    (Kind::Burn, 3),
    (Kind::Suspension, 1),
    (Kind::Clawback, 2),
    (Kind::Extension, 2),
    (Kind::Restoration, 3),
];

/// Plans up to `count` transactions. Replaces one that is not possible now by a payment. Stops when
/// no trader can send another transaction.
pub(super) fn plan(planner: &mut Planner<'_>, visitors: &mut Visitors, count: usize) -> Result<()> {
    visitors.remove_merged(planner);
    if planner.dice.one_in(EMPTY_ONE_IN) {
        return Ok(());
    }
    for _ in 0..count {
        let Some(source) = planner.idle_trader() else {
            return Ok(());
        };
        let kind = choose(planner);
        if !send(planner, visitors, kind, source)? {
            pay(planner, source, None)?;
        }
    }
    Ok(())
}

fn choose(planner: &mut Planner<'_>) -> Kind {
    let all = FREQUENCIES.iter().map(|(_, frequency)| frequency).sum();
    let mut drawn = planner.dice.below(all);
    for (kind, frequency) in FREQUENCIES {
        match drawn.checked_sub(frequency) {
            Some(rest) => drawn = rest,
            None => return kind,
        }
    }
    Kind::NativePayment
}

/// Plans one transaction of a kind; returns `false` when that is not possible now.
fn send(
    planner: &mut Planner<'_>,
    visitors: &mut Visitors,
    kind: Kind,
    source: &Actor,
) -> Result<bool> {
    let assets = planner.ledger.assets;
    let issuer = &planner.permanent.issuer;
    let issued = if planner.dice.one_in(3) { &assets.harbor } else { &assets.dollar };
    match kind {
        Kind::NativePayment => pay(planner, source, None),
        Kind::CreditPayment => pay(planner, source, Some(issued)),
        Kind::Redemption => redeem(planner, source, issued),
        Kind::Issuance => pay_to(planner, issuer, source, issued, 10_000_000_000),
        Kind::OverdrawnPayment => overdraw(planner, source, Vec::new()),
        Kind::HalfOverdrawnPayments => {
            let fine = payment(source.muxed(), &Asset::Native, 1);
            overdraw(planner, source, vec![fine])
        }
        Kind::Visit => visitors.create_or_merge(planner, source),
        Kind::Trust => change_trust(planner, source),
        Kind::NativeTransfer => transfer(planner, source, source, &assets.native),
        Kind::CreditTransfer => transfer(planner, source, source, issued),
        Kind::TransferToMuxed => transfer_to_muxed(planner, source, issued),
        Kind::TransferForAnother => match planner.other_trader(source) {
            Some(owner) => transfer(planner, source, owner, issued),
            None => Ok(false),
        },
        Kind::Deposit => {
            let vault = ScVal::Address(vault(planner));
            let amount = share(planner, source, &assets.dollar.asset, 50);
            let args = vec![ScVal::Address(source.address()), vault, integer(amount)];
            planner.call(source, &assets.dollar, "transfer", args)
        }
        Kind::VisitByContract => visitors.create_by_contract(planner, source),
        Kind::OverdrawnTransfer => overdraw_by_contract(planner, source, issued),
        Kind::Approval => approve(planner, source, issued),
        Kind::TransferFrom => transfer_from(planner),
        Kind::Mint => {
            let amount = planner.dice.amount(10_000_000_000);
            let args = vec![ScVal::Address(source.address()), integer(amount)];
            planner.call(issuer, issued, "mint", args)
        }
        Kind::Burn => {
            let amount = share(planner, source, &issued.asset, 100);
            let args = vec![ScVal::Address(source.address()), integer(amount)];
            planner.call(source, issued, "burn", args)
        }
        Kind::Suspension => suspend_or_readmit(planner, source),
        Kind::Clawback => clawback(planner, source),
        Kind::Extension => extend(planner, source),
        Kind::Restoration => planner.restore(source, instance_key_at(assets.relic.address())),
    }
}

// Classic operations.

/// Pays another trader, in the native asset unless `asset` is given; sometimes with a memo or to a
/// muxed account.
fn pay(planner: &mut Planner<'_>, source: &Actor, asset: Option<&KnownAsset>) -> Result<bool> {
    let Some(to) = planner.other_trader(source) else {
        return Ok(false);
    };
    let asset = asset.map_or(&Asset::Native, |known| &known.asset);
    let amount = share(planner, source, asset, 100);
    let reference = planner.dice.below(1_000_000);
    let (to, memo) = match planner.dice.below(8) {
        0 => (to.muxed(), Memo::Text(format!("invoice {reference}").as_str().try_into()?)),
        1 => (to.muxed(), Memo::Id(reference)),
        2 => (muxed(to, reference), Memo::None),
        _ => (to.muxed(), Memo::None),
    };
    planner.submit(source, vec![payment(to, asset, amount)], memo)
}

fn pay_to(
    planner: &mut Planner<'_>,
    source: &Actor,
    to: &Actor,
    asset: &KnownAsset,
    most: i64,
) -> Result<bool> {
    let amount = planner.dice.amount(most);
    planner.submit(source, vec![payment(to.muxed(), &asset.asset, amount)], Memo::None)
}

/// Pays some of an asset back to its issuer.
fn redeem(planner: &mut Planner<'_>, source: &Actor, asset: &KnownAsset) -> Result<bool> {
    let amount = share(planner, source, &asset.asset, 200);
    let issuer = planner.permanent.issuer.muxed();
    planner.submit(source, vec![payment(issuer, &asset.asset, amount)], Memo::None)
}

/// Submits `operations`, followed by a payment of more than the source has.
fn overdraw(
    planner: &mut Planner<'_>,
    source: &Actor,
    mut operations: Vec<OperationBody>,
) -> Result<bool> {
    let Some(to) = planner.other_trader(source) else {
        return Ok(false);
    };
    let amount = holding(planner, source, &Asset::Native).saturating_add(1_000_000_000_000);
    operations.push(payment(to.muxed(), &Asset::Native, amount));
    planner.submit(source, operations, Memo::None)
}

/// Opens a trustline that receives no payments, closes it again, or sets the limit of one in use.
fn change_trust(planner: &mut Planner<'_>, source: &Actor) -> Result<bool> {
    let assets = planner.ledger.assets;
    let (relic, dollar) = (&assets.relic.asset, &assets.dollar.asset);
    let operation = if planner.dice.one_in(2) {
        let holds_relic = planner.state.trustline(&source.account(), relic).is_some();
        trust_up_to(relic, if holds_relic { 0 } else { i64::MAX })
    } else {
        let limit = holding(planner, source, dollar).saturating_add(1_000_000_000_000_000);
        trust_up_to(dollar, limit)
    };
    planner.submit(source, operation.into_iter().collect(), Memo::None)
}

fn payment(destination: MuxedAccount, asset: &Asset, amount: i64) -> OperationBody {
    OperationBody::Payment(PaymentOp { destination, asset: asset.clone(), amount })
}

fn muxed(actor: &Actor, id: u64) -> MuxedAccount {
    let ed25519 = Uint256(actor.public_key());
    MuxedAccount::MuxedEd25519(MuxedAccountMed25519 { id, ed25519 })
}

// Contract calls.

/// Transfers an asset of `owner` by a transaction of `source`; when they differ, the owner signs an
/// authorisation.
fn transfer(
    planner: &mut Planner<'_>,
    source: &Actor,
    owner: &Actor,
    asset: &KnownAsset,
) -> Result<bool> {
    let Some(to) = planner.other_trader(owner) else {
        return Ok(false);
    };
    let amount = share(planner, owner, &asset.asset, 100);
    let args = transfer_args(owner.address(), to.address(), amount);
    planner.call(source, asset, "transfer", args)
}

fn transfer_to_muxed(
    planner: &mut Planner<'_>,
    source: &Actor,
    asset: &KnownAsset,
) -> Result<bool> {
    let Some(to) = planner.other_trader(source) else {
        return Ok(false);
    };
    let id = planner.dice.below(1_000_000);
    let to = ScAddress::MuxedAccount(MuxedEd25519Account { id, ed25519: Uint256(to.public_key()) });
    let amount = share(planner, source, &asset.asset, 100);
    planner.call(source, asset, "transfer", transfer_args(source.address(), to, amount))
}

/// Transfers more than the owner has: the simulation succeeds with a smaller amount, the execution
/// traps.
fn overdraw_by_contract(
    planner: &mut Planner<'_>,
    source: &Actor,
    asset: &KnownAsset,
) -> Result<bool> {
    let Some(to) = planner.other_trader(source) else {
        return Ok(false);
    };
    let amount = holding(planner, source, &asset.asset).saturating_mul(1_000);
    let simulated = transfer_args(source.address(), to.address(), 1);
    let submitted = transfer_args(source.address(), to.address(), amount);
    planner.call_with_other_args(source, asset, "transfer", simulated, submitted)
}

fn approve(planner: &mut Planner<'_>, source: &Actor, asset: &KnownAsset) -> Result<bool> {
    let Some(spender) = planner.other_trader(source) else {
        return Ok(false);
    };
    let amount = share(planner, source, &asset.asset, 10);
    let lifetime = u32::try_from(20 + planner.dice.below(100)).unwrap_or(20);
    let args = vec![
        ScVal::Address(source.address()),
        ScVal::Address(spender.address()),
        integer(amount),
        ScVal::U32(planner.ledger.sequence.saturating_add(lifetime)),
    ];
    planner.call(source, asset, "approve", args)
}

/// Spends from an open allowance, if there is one.
fn transfer_from(planner: &mut Planner<'_>) -> Result<bool> {
    let open = allowances(planner)?;
    let Some((contract, owner, spender)) = planner.dice.pick(&open).cloned() else {
        return Ok(false);
    };
    let assets = planner.ledger.assets;
    let permanent = planner.permanent;
    let asset = assets.all().into_iter().find(|known| known.address() == contract);
    let spender = permanent.traders.iter().find(|trader| trader.address() == spender);
    let (Some(asset), Some(spender)) = (asset, spender) else {
        return Ok(false);
    };
    let Some(to) = planner.other_trader(spender) else {
        return Ok(false);
    };
    let amount = planner.dice.amount(10_000_000);
    let mut args = vec![ScVal::Address(spender.address())];
    args.extend(transfer_args(owner, to.address(), amount));
    planner.call(spender, asset, "transfer_from", args)
}

/// Returns the contract, owner and spender of every allowance in the ledger.
fn allowances(planner: &Planner<'_>) -> Result<Vec<(ScAddress, ScAddress, ScAddress)>> {
    let name = symbol("Allowance")?;
    let mut found = Vec::new();
    for (key, _) in planner.state.entries() {
        let LedgerKey::ContractData(data) = key else {
            continue;
        };
        if data.durability != ContractDataDurability::Temporary {
            continue;
        }
        let ScVal::Vec(Some(parts)) = &data.key else {
            continue;
        };
        if let [first, ScVal::Map(Some(fields))] = parts.as_slice()
            && *first == name
            && let [owner, spender] = fields.as_slice()
            && let (ScVal::Address(owner), ScVal::Address(spender)) = (&owner.val, &spender.val)
        {
            found.push((data.contract.clone(), owner.clone(), spender.clone()));
        }
    }
    Ok(found)
}

/// Lets the issuer authorise a suspended trader again, or suspend `trader` when none is suspended.
fn suspend_or_readmit(planner: &mut Planner<'_>, trader: &Actor) -> Result<bool> {
    let (permanent, dollar) = (planner.permanent, &planner.ledger.assets.dollar);
    let state = planner.state;
    let suspended = permanent.traders.iter().find(|trader| {
        let line = state.trustline(&trader.account(), &dollar.asset);
        line.is_some_and(|line| !is_authorized(line))
    });
    let target = suspended.unwrap_or(trader).address();
    let args = vec![ScVal::Address(target), ScVal::Bool(suspended.is_some())];
    planner.call(&permanent.issuer, dollar, "set_authorized", args)
}

/// Lets the issuer claw back an amount from a contract or from `trader`.
fn clawback(planner: &mut Planner<'_>, trader: &Actor) -> Result<bool> {
    let (permanent, dollar) = (planner.permanent, &planner.ledger.assets.dollar);
    let target = if planner.dice.one_in(2) { vault(planner) } else { trader.address() };
    let amount = planner.dice.amount(1_000_000);
    let args = vec![ScVal::Address(target), integer(amount)];
    planner.call(&permanent.issuer, dollar, "clawback", args)
}

/// Extends the instance of a contract in use by up to 1,000 ledgers.
fn extend(planner: &mut Planner<'_>, source: &Actor) -> Result<bool> {
    let assets = planner.ledger.assets;
    let used = [&assets.native, &assets.dollar, &assets.harbor];
    let Some(known) = planner.dice.pick(&used).copied() else {
        return Ok(false);
    };
    let key = instance_key_at(known.address());
    let sequence = planner.ledger.sequence;
    let left = planner.state.live_until(&key)?.unwrap_or(sequence).saturating_sub(sequence);
    let more = u32::try_from(1 + planner.dice.below(1_000)).unwrap_or(1);
    planner.extend(source, vec![key], left.saturating_add(more).min(LONGEST_EXTENSION))
}

fn transfer_args(from: ScAddress, to: ScAddress, amount: i64) -> Vec<ScVal> {
    vec![ScVal::Address(from), ScVal::Address(to), integer(amount)]
}

fn integer(amount: i64) -> ScVal {
    ScVal::from(i128::from(amount))
}

/// Returns a contract that holds dollars: that of the other asset, which cannot spend them.
fn vault(planner: &Planner<'_>) -> ScAddress {
    let harbor = planner.ledger.assets.harbor.contract;
    ScAddress::Contract(ContractId(Hash(harbor.0)))
}

/// Returns the amount of an asset that an actor can spend.
fn holding(planner: &Planner<'_>, actor: &Actor, asset: &Asset) -> i64 {
    let id = actor.account();
    match asset {
        Asset::Native => planner.state.account(&id).map_or(0, spendable),
        _ => planner.state.trustline(&id, asset).map_or(0, |line| line.balance),
    }
}

/// Returns a random amount of at most one `part`th of what an actor can spend, at least 1.
fn share(planner: &mut Planner<'_>, actor: &Actor, asset: &Asset, part: i64) -> i64 {
    let most = holding(planner, actor, asset) / part;
    planner.dice.amount(most)
}

/// Accounts that are created, never used and merged away again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Visitors {
    pub(super) seed: u64,
    /// Numbers of the visitors whose accounts exist.
    pub(super) present: Vec<u32>,
    /// Number of visitors created so far, which is the number of the next one.
    pub(super) arrivals: u32,
}

impl Visitors {
    /// Drops visitors whose account does not exist: merged away, or never created.
    fn remove_merged(&mut self, planner: &Planner<'_>) {
        let seed = self.seed;
        self.present.retain(|number| {
            let account = Actor::derive(seed, "visitor", *number).account();
            matches!(
                planner.state.get(&super::keys::account_key(&account)).map(|entry| &entry.data),
                Some(LedgerEntryData::Account(_))
            )
        });
    }

    fn next(&mut self) -> Actor {
        let number = self.arrivals;
        self.arrivals = self.arrivals.wrapping_add(1);
        self.present.push(number);
        Actor::derive(self.seed, "visitor", number)
    }

    /// Creates a visitor funded by `host`, or merges one into `host`.
    fn create_or_merge(&mut self, planner: &mut Planner<'_>, host: &Actor) -> Result<bool> {
        let full = self.present.len() >= MAX_VISITORS;
        if !full && (self.present.len() < 2 || planner.dice.one_in(2)) {
            let starting_balance = VISITOR_BALANCE + planner.dice.amount(VISITOR_BALANCE);
            let destination = self.next().account();
            let op = CreateAccountOp { destination, starting_balance };
            return planner.submit(host, vec![OperationBody::CreateAccount(op)], Memo::None);
        }
        let Some(number) = planner.dice.pick(&self.present).copied() else {
            return Ok(false);
        };
        let visitor = Actor::derive(self.seed, "visitor", number);
        let merge = OperationBody::AccountMerge(host.muxed());
        planner.submit(&visitor, vec![merge], Memo::None)
    }

    /// Creates a visitor's account by a transfer through the native asset's contract.
    fn create_by_contract(&mut self, planner: &mut Planner<'_>, host: &Actor) -> Result<bool> {
        if self.present.len() >= MAX_VISITORS {
            return Ok(false);
        }
        let amount = VISITOR_BALANCE + planner.dice.amount(VISITOR_BALANCE);
        let args = transfer_args(host.address(), self.next().address(), amount);
        planner.call(host, &planner.ledger.assets.native, "transfer", args)
    }
}
