//! The sandbox's market: a contract in which traders offer goods for cash and fill each other's
//! offers. Derives its next step from the ledger state, so that it can begin in any ledger.

use orrery_ledger::domain::{ContractId, NetworkId, instance_key_at};
use sha2::{Digest, Sha256};
use stellar_xdr::{
    HostFunction, InvokeContractArgs, LedgerEntryData, LedgerKey, ScAddress, ScMap, ScVal,
};

use super::actors::Actor;
use super::assets::symbol;
use super::error::{Result, SandboxError};
use super::plan::{Planner, invocation};
use super::wasm;

/// WASM module of the contract.
const CODE: &[u8] = include_bytes!("market.wasm");
/// Indexing program for the contract: the same module with an emit for each trade.
pub(super) const PROGRAM: &[u8] = include_bytes!("market_program.wasm");

/// Maximum number of trader transactions that the market plans per ledger.
const MAX_AT_ONCE: u64 = 5;
/// Number of open offers below which only new offers are placed.
const ENOUGH_OFFERS: usize = 3;
/// Number of open offers from which on they are only filled, if another trader's offer is among
/// them.
const MAX_OFFERS: usize = 12;
/// Amounts of cash and goods below which a trader funds its account before it trades.
const MIN_CASH: i128 = 100_000;
const MIN_GOODS: i128 = 1_000;
/// TTLs in ledgers: entries with less than `SHORT_LIFE` left are extended to `LONG_LIFE`.
const SHORT_LIFE: u32 = 60;
const LONG_LIFE: u32 = 2_000;
/// Maximum number of entries that one transaction extends.
const EXTENDED_AT_ONCE: usize = 16;

/// An open offer.
struct Offer {
    id: u64,
    maker: ScAddress,
    amount: i128,
    price: u32,
}

/// Returns the id of the market's contract.
pub(super) fn contract(network: &NetworkId) -> Result<ContractId> {
    wasm::contract_id(network, &Actor::root(network).address(), salt())
}

fn salt() -> [u8; 32] {
    Sha256::digest(b"orrery sandbox market").into()
}

/// Plans the market's transactions of one ledger: the upload, then the creation, then trades.
pub(super) fn plan(planner: &mut Planner<'_>) -> Result<()> {
    let root = &planner.permanent.root;
    if planner.state.get(&wasm::code_key(CODE)).is_none() {
        return planner.invoke(root, &wasm::upload(CODE)?, None).map(drop);
    }
    let market = wasm::address(contract(planner.ledger.network)?);
    if planner.state.get(&instance_key_at(market.clone())).is_none() {
        let create = wasm::create(&root.address(), salt(), CODE, Vec::new())?;
        return planner.invoke(root, &create, None).map(drop);
    }
    keep_alive(planner, &market, CODE, |_| true)?;
    for _ in 0..=planner.dice.below(MAX_AT_ONCE) {
        let Some(trader) = planner.idle_trader() else {
            return Ok(());
        };
        trade(planner, &market, trader)?;
    }
    Ok(())
}

/// Extends the contract's code and those of its entries that `is_kept` selects before they expire;
/// the contract itself extends none.
pub(super) fn keep_alive(
    planner: &mut Planner<'_>,
    contract: &ScAddress,
    code: &[u8],
    is_kept: impl Fn(&LedgerKey) -> bool,
) -> Result<()> {
    let soon = planner.ledger.sequence.saturating_add(SHORT_LIFE);
    let (state, code) = (planner.state, wasm::code_key(code));
    let mut expiring = Vec::new();
    let own = state.entries().map(|(key, _)| key).filter(|key| match key {
        LedgerKey::ContractData(data) => data.contract == *contract && is_kept(key),
        key => **key == code,
    });
    for key in own {
        if state.live_until(key)?.is_some_and(|last| last < soon) {
            expiring.push(key.clone());
        }
    }
    expiring.truncate(EXTENDED_AT_ONCE);
    if !expiring.is_empty()
        && let Some(trader) = planner.idle_trader()
    {
        planner.extend(trader, expiring, LONG_LIFE)?;
    }
    Ok(())
}

fn trade(planner: &mut Planner<'_>, market: &ScAddress, trader: &Actor) -> Result<()> {
    let me = ScVal::Address(trader.address());
    let (cash, goods) = holdings(planner, market, trader)?;
    if cash < MIN_CASH || goods < MIN_GOODS {
        let brought = [planner.dice.amount(100_000_000), planner.dice.amount(100_000)];
        let args = [vec![me], brought.map(|amount| ScVal::from(i128::from(amount))).to_vec()];
        return send(planner, market, trader, "fund", args.concat(), None);
    }
    let offers = offers(planner, market)?;
    let others = |offer: &&Offer| offer.maker != trader.address();
    let of_others: Vec<&Offer> = offers.iter().filter(others).collect();
    let makes = offers.len() < ENOUGH_OFFERS || offers.len() < MAX_OFFERS && planner.dice.one_in(4);
    match planner.dice.pick(&of_others) {
        Some(offer) if !makes => take(planner, market, trader, cash, offer),
        _ => {
            let amount = planner.dice.amount(share(goods, 20));
            let price = u32::try_from(planner.dice.amount(90)).unwrap_or(1);
            let args = vec![me, ScVal::from(i128::from(amount)), ScVal::U32(price)];
            send(planner, market, trader, "place", args, None)
        }
    }
}

/// Fills part of an offer, all that the trader can afford, or more than is offered, which fails.
fn take(
    planner: &mut Planner<'_>,
    market: &ScAddress,
    trader: &Actor,
    cash: i128,
    offer: &Offer,
) -> Result<()> {
    let most = offer.amount.min(cash / i128::from(offer.price.max(1)));
    let amount = match planner.dice.below(8) {
        0..3 => most,
        _ => i128::from(planner.dice.amount(share(most, 1))),
    };
    let args = |amount: i128| {
        vec![ScVal::Address(trader.address()), ScVal::U64(offer.id), ScVal::from(amount)]
    };
    let too_much = planner.dice.one_in(12).then(|| args(offer.amount + 1));
    send(planner, market, trader, "fill", args(amount), too_much)
}

/// Sends a call. When `submitted` is given, the transaction has those arguments instead of the
/// simulated ones.
fn send(
    planner: &mut Planner<'_>,
    market: &ScAddress,
    trader: &Actor,
    function: &str,
    args: Vec<ScVal>,
    submitted: Option<Vec<ScVal>>,
) -> Result<()> {
    let call = |args| -> Result<InvokeContractArgs> { invocation(market.clone(), function, args) };
    let submitted = submitted.map(call).transpose()?;
    planner.invoke(trader, &HostFunction::InvokeContract(call(args)?), submitted).map(drop)
}

/// Returns the cash and goods of a trader.
fn holdings(planner: &Planner<'_>, market: &ScAddress, trader: &Actor) -> Result<(i128, i128)> {
    let name = symbol("Account")?;
    let mine = ScVal::Address(trader.address());
    let account = entries(planner, market)
        .find(|(key, _)| matches!(key, [first, who] if *first == name && *who == mine));
    let Some((_, account)) = account else {
        return Ok((0, 0));
    };
    Ok((integer(account, "cash")?, integer(account, "goods")?))
}

fn offers(planner: &Planner<'_>, market: &ScAddress) -> Result<Vec<Offer>> {
    let name = symbol("Offer")?;
    let mut open = Vec::new();
    for (key, offer) in entries(planner, market) {
        if let [first, ScVal::U64(id)] = key
            && *first == name
            && let ScVal::Address(maker) = field(offer, "maker")?
            && let ScVal::U32(price) = field(offer, "price")?
        {
            let amount = integer(offer, "amount")?;
            open.push(Offer { id: *id, maker: maker.clone(), amount, price: *price });
        }
    }
    Ok(open)
}

/// Iterates over the market's entries whose key is a vector and whose value is a struct.
fn entries<'a>(
    planner: &Planner<'a>,
    market: &ScAddress,
) -> impl Iterator<Item = (&'a [ScVal], &'a ScMap)> {
    planner.state.entries().filter_map(move |(_, entry)| match &entry.data {
        LedgerEntryData::ContractData(data) if data.contract == *market => {
            match (&data.key, &data.val) {
                (ScVal::Vec(Some(key)), ScVal::Map(Some(fields))) => Some((key.as_slice(), fields)),
                _ => None,
            }
        }
        _ => None,
    })
}

fn field<'a>(fields: &'a ScMap, name: &str) -> Result<&'a ScVal> {
    let name = symbol(name)?;
    let found = fields.iter().find(|entry| entry.key == name).map(|entry| &entry.val);
    found.ok_or_else(|| SandboxError::inconsistent(format_args!("the market keeps no {name:?}")))
}

fn integer(fields: &ScMap, name: &str) -> Result<i128> {
    match field(fields, name)? {
        ScVal::I128(parts) => Ok(i128::from(parts)),
        other => Err(SandboxError::inconsistent(format_args!("the market's {name} is {other:?}"))),
    }
}

/// Returns `number / part`, saturated to `i64`.
fn share(number: i128, part: i128) -> i64 {
    i64::try_from(number / part).unwrap_or(i64::MAX)
}
