//! The sandbox's exchange: a factory that opens pools, contracts that nobody knows before. Traders swap
//! in the pools; now and then one gets other code or another admin, a price that a pool keeps runs out,
//! and a call fails. Derives each next step from the ledger state.

mod interface;

use orrery_ledger::domain::{ContractId, NetworkId, instance_key_at};
use sha2::{Digest, Sha256};
use stellar_xdr::{
    ContractExecutable, HostFunction, LedgerEntryData, LedgerKey, ScAddress, ScContractInstance,
    ScMap, ScMapEntry, ScVal, ScVec,
};

use super::actors::Actor;
use super::assets::{byte_string, symbol};
use super::error::Result;
use super::market::keep_alive;
use super::plan::{Planner, invocation};
use super::state::LedgerState;
use super::wasm;
use interface::{factory_code, pool_code};

/// Maximum number of pools.
const MOST_POOLS: u32 = 6;
/// A pool is opened in each ledger whose number is a multiple of this, as long as there are fewer.
const OPEN_EVERY: u32 = 12;
/// A pool gets the other one of two codes in each ledger that lies a bit behind a multiple of this.
const UPGRADE_EVERY: u32 = 40;
/// A pool notes its price, which nobody extends, in each ledger that lies a bit behind a multiple of this.
const QUOTE_EVERY: u32 = 20;
/// A pool gets another admin in each ledger that lies a bit behind a multiple of this.
const APPOINT_EVERY: u32 = 20;
/// One in this many swaps, on average, fails.
const FAIL_ONE_IN: u64 = 12;
/// Maximum number of swaps that are planned per ledger.
const MAX_SWAPS: u64 = 2;
/// Largest amount of a swap.
const MOST_SWAPPED: i64 = 5_000_000_000;
/// One in this many swaps, on average, is a large one.
const LARGE_ONE_IN: u64 = 9;

/// Where a pool puts what it keeps (`StorageType` of the contract host's interface).
const TEMPORARY: ScVal = ScVal::U32(0);
const PERSISTENT: ScVal = ScVal::U32(1);
const INSTANCE: ScVal = ScVal::U32(2);

/// The codes of pools: a later version declares the fee of a swap.
const VERSIONS: [u32; 2] = [1, 2];

/// Returns the id of the factory.
pub(super) fn factory(network: &NetworkId) -> Result<ContractId> {
    wasm::contract_id(network, &Actor::root(network).address(), salt("factory"))
}

fn salt(of: &str) -> [u8; 32] {
    Sha256::digest(format!("orrery sandbox exchange {of}")).into()
}

/// Returns the id of a pool, counted from 0.
fn pool(network: &NetworkId, number: u32) -> Result<ContractId> {
    let factory = wasm::address(factory(network)?);
    wasm::contract_id(network, &factory, salt(&format!("pool {number}")))
}

/// Plans the exchange's transactions of one ledger: the uploads, then the creation of the factory, then
/// pools and what happens in them.
pub(super) fn plan(planner: &mut Planner<'_>) -> Result<()> {
    let root = &planner.permanent.root;
    let codes = [factory_code()?, pool_code(VERSIONS[0])?, pool_code(VERSIONS[1])?];
    for code in &codes {
        if planner.state.get(&wasm::code_key(code)).is_none() {
            return planner.invoke(root, &wasm::upload(code)?, None).map(drop);
        }
    }
    let network = planner.ledger.network;
    let factory = wasm::address(factory(network)?);
    if planner.state.get(&instance_key_at(factory.clone())).is_none() {
        let create = wasm::create(&root.address(), salt("factory"), &codes[0], Vec::new())?;
        return planner.invoke(root, &create, None).map(drop);
    }
    keep_alive(planner, &factory, &codes[0], |_| true)?;
    let pools = pools(planner)?;
    let sequence = planner.ledger.sequence;
    let next = u32::try_from(pools.len()).unwrap_or(MOST_POOLS);
    if next == 0 || (next < MOST_POOLS && sequence.is_multiple_of(OPEN_EVERY)) {
        return open(planner, factory, next, &codes[1]);
    }
    for pool in &pools {
        let code = if runs(planner, pool, &codes[1]) { &codes[1] } else { &codes[2] };
        keep_alive(planner, pool, code, is_instance_or_reserve)?;
    }
    happen(planner, &pools, &codes[1..])
}

/// Plans what happens in the pools in one ledger.
fn happen(planner: &mut Planner<'_>, pools: &[ScAddress], codes: &[Vec<u8>]) -> Result<()> {
    let sequence = planner.ledger.sequence;
    if let Some(new) = pools.iter().find(|pool| admin(planner.state, pool).is_none()) {
        return appoint(planner, new);
    }
    let turn = usize::try_from(sequence / UPGRADE_EVERY).unwrap_or(0) % pools.len();
    let chosen = &pools[turn];
    if sequence % UPGRADE_EVERY == 7 {
        let other = if runs(planner, chosen, &codes[0]) { &codes[1] } else { &codes[0] };
        let hash = byte_string(&Sha256::digest(other))?;
        return call(planner, chosen, "upgrade", vec![hash]);
    }
    if sequence % QUOTE_EVERY == 5 {
        let price = ScVal::from(i128::from(planner.dice.amount(90)));
        let key = list(vec![symbol("Quote")?, ScVal::U32(sequence / QUOTE_EVERY)])?;
        return call(planner, chosen, "put", vec![key, price, TEMPORARY]);
    }
    if sequence % APPOINT_EVERY == 15 {
        return appoint(planner, chosen);
    }
    for _ in 0..=planner.dice.below(MAX_SWAPS) {
        let Some(pool) = planner.dice.pick(pools).cloned() else { return Ok(()) };
        swap(planner, &pool, runs(planner, &pool, &codes[1]))?;
    }
    Ok(())
}

/// Makes a trader the admin of a pool.
fn appoint(planner: &mut Planner<'_>, pool: &ScAddress) -> Result<()> {
    let Some(trader) = planner.idle_trader() else { return Ok(()) };
    let args = vec![list(vec![symbol("Admin")?])?, ScVal::Address(trader.address()), INSTANCE];
    let call = HostFunction::InvokeContract(invocation(pool.clone(), "put", args)?);
    planner.invoke(trader, &call, None).map(drop)
}

/// Opens a pool in a transaction of a trader.
fn open(planner: &mut Planner<'_>, factory: ScAddress, number: u32, code: &[u8]) -> Result<()> {
    let topics =
        list(vec![symbol("pool_created")?, symbol(NAMES[number as usize % NAMES.len()])?])?;
    let hash = byte_string(&Sha256::digest(code))?;
    let salt = byte_string(&salt(&format!("pool {number}")))?;
    call(planner, &factory, "open", vec![topics, hash, salt])
}

/// What pools are called, in the order in which they are opened.
const NAMES: [&str; MOST_POOLS as usize] = ["amber", "basalt", "cobalt", "dune", "ember", "flint"];

/// Swaps in a pool, or fails to. Some swaps note the pool's reserve instead.
fn swap(planner: &mut Planner<'_>, pool: &ScAddress, has_fee: bool) -> Result<()> {
    let Some(trader) = planner.idle_trader() else { return Ok(()) };
    if planner.dice.one_in(5) {
        let reserve = ScVal::from(i128::from(planner.dice.amount(MOST_SWAPPED)));
        let key = list(vec![symbol("Reserve")?, ScVal::U32(0)])?;
        return call(planner, pool, "put", vec![key, reserve, PERSISTENT]);
    }
    let part = if planner.dice.one_in(LARGE_ONE_IN) { 1 } else { 1_000 };
    let sold = planner.dice.amount(MOST_SWAPPED / part);
    let mut fields = vec![("bought", integer(sold - sold / 50)), ("sold", integer(sold))];
    if has_fee {
        fields.insert(1, ("fee", integer(sold / 300)));
    }
    let topics = list(vec![symbol("swap")?, ScVal::Address(trader.address())])?;
    let fails = planner.dice.one_in(FAIL_ONE_IN);
    let submitted = match fails {
        true => Some(invocation(pool.clone(), "fail", Vec::new())?),
        false => None,
    };
    let wanted = invocation(pool.clone(), "swap", vec![topics, map(fields)?])?;
    planner.invoke(trader, &HostFunction::InvokeContract(wanted), submitted).map(drop)
}

fn call(
    planner: &mut Planner<'_>,
    contract: &ScAddress,
    function: &str,
    args: Vec<ScVal>,
) -> Result<()> {
    let Some(trader) = planner.idle_trader() else { return Ok(()) };
    let call = HostFunction::InvokeContract(invocation(contract.clone(), function, args)?);
    planner.invoke(trader, &call, None).map(drop)
}

/// Returns the pools that there are, in the order in which they were opened.
fn pools(planner: &Planner<'_>) -> Result<Vec<ScAddress>> {
    let mut pools = Vec::new();
    for number in 0..MOST_POOLS {
        let pool = wasm::address(pool(planner.ledger.network, number)?);
        if planner.state.get(&instance_key_at(pool.clone())).is_none() {
            break;
        }
        pools.push(pool);
    }
    Ok(pools)
}

/// Whether a contract runs this code.
fn runs(planner: &Planner<'_>, contract: &ScAddress, code: &[u8]) -> bool {
    let hash: [u8; 32] = Sha256::digest(code).into();
    instance(planner.state, contract).is_some_and(
        |instance| matches!(&instance.executable, ContractExecutable::Wasm(own) if own.0 == hash),
    )
}

/// Returns the admin of a pool, if it has one: nothing else in its instance has a vector as its key.
fn admin<'s>(state: &'s LedgerState, pool: &ScAddress) -> Option<&'s ScVal> {
    let kept = instance(state, pool)?.storage.as_ref()?;
    let is_admin = |entry: &&ScMapEntry| matches!(&entry.key, ScVal::Vec(Some(_)));
    kept.iter().find(is_admin).map(|entry| &entry.val)
}

fn instance<'s>(state: &'s LedgerState, contract: &ScAddress) -> Option<&'s ScContractInstance> {
    match &state.get(&instance_key_at(contract.clone()))?.data {
        LedgerEntryData::ContractData(data) => match &data.val {
            ScVal::ContractInstance(instance) => Some(instance),
            _ => None,
        },
        _ => None,
    }
}

/// Prices are left to run out.
fn is_instance_or_reserve(key: &LedgerKey) -> bool {
    !orrery_ledger::domain::is_temporary(key)
}

fn integer(amount: i64) -> ScVal {
    ScVal::from(i128::from(amount))
}

fn list(values: Vec<ScVal>) -> Result<ScVal> {
    Ok(ScVal::Vec(Some(ScVec(values.try_into()?))))
}

/// Builds a map from fields in ascending order of names.
fn map(fields: Vec<(&str, ScVal)>) -> Result<ScVal> {
    let entry = |(name, val)| Ok(ScMapEntry { key: symbol(name)?, val });
    let entries = fields.into_iter().map(entry).collect::<Result<Vec<_>>>()?;
    Ok(ScVal::Map(Some(ScMap(entries.try_into()?))))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use orrery_ledger::decode::decode;
    use orrery_ledger::domain::{LedgerSeq, Network};

    use super::*;
    use crate::network::{FIRST_MARKET_LEDGER, Sandbox, SandboxConfig};

    /// In a minute of ledgers there is something of each kind to see, and the network without an exchange
    /// has the same ledgers before it begins.
    #[test]
    fn pools_appear_trade_change_and_fail() {
        let network = Network::from_name_or_passphrase("local");
        let config = SandboxConfig {
            network: network.clone(),
            seed: 11,
            start_time: 1_700_000_000,
            close_interval: 1,
            transactions_per_ledger: 1..=3,
        };
        let mut sandbox = Sandbox::new(config).unwrap().with_exchange(FIRST_MARKET_LEDGER);
        let (mut emitters, mut updates, mut failed, mut evicted) = (BTreeSet::new(), 0, 0, 0);
        let first = wasm::address(pool(network.id(), 0).unwrap());
        let mut admins = BTreeSet::new();
        while sandbox.latest_ledger() < LedgerSeq(120) {
            let raw = sandbox.next_ledger().unwrap();
            let view = decode(&raw, network.id()).unwrap();
            for event in &view.events {
                let topics = view.topics(event);
                let is_named = |name: &[u8]| topics.first().is_some_and(|it| it.ends_with(name));
                if is_named(b"swap") {
                    emitters.insert(event.contract.copied());
                }
                updates += usize::from(is_named(b"executable_update\0\0\0"));
            }
            failed +=
                view.transactions.iter().filter(|it| it.smart_contract && !it.successful).count();
            evicted += view.evicted.len();
            admins.extend(admin(&sandbox.state, &first).cloned());
        }
        assert_eq!(emitters.len(), MOST_POOLS as usize);
        assert!(updates >= 2 && failed >= 2 && evicted >= 2, "{updates}, {failed}, {evicted}");
        assert!(admins.len() >= 2, "{admins:?}");
    }
}
