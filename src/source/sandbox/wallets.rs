//! The sandbox's accounts with signers: a smart account, and a passkey wallet of each generation. Their contracts emit
//! and keep what they are told, which is what those do that they stand for. Reads from the ledger what comes next.

use sha2::{Digest, Sha256};
use stellar_xdr::{
    ContractDataDurability, ContractId as XdrContract, Hash, HostFunction, LedgerKey,
    LedgerKeyContractData, ScAddress, ScMap, ScMapEntry, ScString, ScVal, ScVec,
};

use super::SandboxError;
use super::actors::Actor;
use super::assets::{byte_string, symbol};
use super::market::keep_alive;
use super::plan::{Planner, instance_key, invocation};
use super::state::is_temporary;
use super::wasm;
use crate::domain::{ContractId, NetworkId};

/// The module of all three, made of `wallet.wat`.
const CODE: &[u8] = include_bytes!("wallets/wallet.wasm");

/// Id of the credential that all three have.
pub(super) const CREDENTIAL: [u8; 16] = *b"orrery's passkey";
/// Ledgers of one round: a session begins, and mostly ends again.
const ROUND: u32 = 8;
/// One of so many sessions is left to expire, so that the network evicts it.
const LEFT_ONE_IN: u32 = 3;
/// Seconds that a session lasts, as its wallet sees it.
const SESSION_SECONDS: u64 = 90;
/// Ledgers that a session lasts in a legacy wallet.
const SESSION_LEDGERS: u32 = 6;

const TEMPORARY: ScVal = ScVal::U32(0);
const PERSISTENT: ScVal = ScVal::U32(1);

/// What one of the contracts stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Smart,
    Legacy,
    V1,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Smart, Self::Legacy, Self::V1];

    fn salt(self) -> [u8; 32] {
        Sha256::digest(format!("orrery sandbox account {self:?}")).into()
    }

    /// Id of its contract.
    pub(super) fn contract(self, network: &NetworkId) -> Result<ContractId, SandboxError> {
        wasm::contract_id(network, &Actor::root(network).address(), self.salt())
    }
}

/// Plans what becomes of the accounts in one ledger.
pub(super) fn plan(planner: &mut Planner<'_>) -> Result<(), SandboxError> {
    let root = &planner.cast.root;
    if planner.state.get(&wasm::code_key(CODE)).is_none() {
        return planner.invoke(root, &wasm::upload(CODE)?, None).map(drop);
    }
    for kind in Kind::ALL {
        let account = wasm::address(kind.contract(planner.ledger.network)?);
        if planner.state.get(&instance_key(account.clone())).is_none() {
            let create = wasm::create(&root.address(), kind.salt(), CODE, Vec::new())?;
            return planner.invoke(root, &create, None).map(drop);
        }
        keep_alive(planner, &account, CODE, |key| !is_temporary(key))?;
        match kind {
            Kind::Smart => smart(planner, account)?,
            Kind::Legacy => legacy(planner, account)?,
            Kind::V1 => v1(planner, account)?,
        }
    }
    Ok(())
}

/// Has a contract emit, and keep or forget, by whoever has nothing else to do.
fn act(
    planner: &mut Planner<'_>,
    account: ScAddress,
    function: &str,
    topics: Vec<ScVal>,
    data: ScVal,
    rest: Vec<ScVal>,
) -> Result<(), SandboxError> {
    let Some(trader) = planner.idle_trader() else { return Ok(()) };
    let args = [vec![list(topics)?, data], rest].concat();
    let call = HostFunction::InvokeContract(invocation(account, function, args)?);
    planner.invoke(trader, &call, None).map(drop)
}

/// Whether a contract keeps something under a key.
fn keeps(
    planner: &Planner<'_>,
    account: &ScAddress,
    key: &ScVal,
    durability: ContractDataDurability,
) -> bool {
    let (contract, key) = (account.clone(), key.clone());
    let key = LedgerKey::ContractData(LedgerKeyContractData { contract, key, durability });
    planner.state.get(&key).is_some()
}

/// A smart account: its passkey is registered, then has a rule, and an account may sign every other round.
fn smart(planner: &mut Planner<'_>, account: ScAddress) -> Result<(), SandboxError> {
    let registered = |id: u32| list(vec![symbol("Signer")?, ScVal::U32(id)]);
    let rule = list(vec![symbol("Rule")?, ScVal::U32(0)])?;
    let has = |key: &ScVal| keeps(planner, &account, key, ContractDataDurability::Persistent);
    let (passkey, guest) = (registered(0)?, registered(1)?);
    let guest_address = Actor::root(planner.ledger.network).address();
    let register = |name: &str, id| Ok::<_, SandboxError>(vec![symbol(name)?, ScVal::U32(id)]);
    if !has(&passkey) {
        // The contract that verifies its signatures is one that never was.
        let verifier = ScAddress::Contract(XdrContract(Hash([7; 32])));
        let key = [public_key(), CREDENTIAL.to_vec()].concat();
        let signer = vec![symbol("External")?, ScVal::Address(verifier), byte_string(&key)?];
        let data = map(vec![("signer", list(signer)?)])?;
        let kept = vec![passkey, ScVal::Void, PERSISTENT];
        return act(planner, account, "put", register("signer_registered", 0)?, data, kept);
    }
    if !has(&rule) {
        let data = map(vec![
            ("context_type", list(vec![symbol("Default")?])?),
            ("name", ScVal::String(ScString("everyday".try_into()?))),
            ("policy_ids", list(Vec::new())?),
            ("signer_ids", list(vec![ScVal::U32(0)])?),
            ("valid_until", ScVal::Void),
        ])?;
        let kept = vec![rule, ScVal::Void, PERSISTENT];
        return act(planner, account, "put", register("context_rule_added", 0)?, data, kept);
    }
    if !has(&guest) {
        let signer = list(vec![symbol("Delegated")?, ScVal::Address(guest_address)])?;
        let data = map(vec![("signer", signer)])?;
        let kept = vec![guest, ScVal::Void, PERSISTENT];
        return act(planner, account, "put", register("signer_registered", 1)?, data, kept);
    }
    let (round, step) = (planner.ledger.sequence / ROUND, planner.ledger.sequence % ROUND);
    if step != 2 {
        return Ok(());
    }
    let name = if round.is_multiple_of(2) { "signer_added" } else { "signer_removed" };
    let data = map(vec![("signer_id", ScVal::U32(1))])?;
    act(planner, account, "emit", register(name, 0)?, data, Vec::new())
}

/// A passkey wallet of v1: its passkey, and a session each round.
fn v1(planner: &mut Planner<'_>, account: ScAddress) -> Result<(), SandboxError> {
    let passkey = list(vec![symbol("Secp256r1")?, byte_string(&CREDENTIAL)?])?;
    if !keeps(planner, &account, &passkey, ContractDataDurability::Persistent) {
        let val = vec![
            symbol("Secp256r1")?,
            byte_string(&public_key())?,
            one(ScVal::Void)?,
            one(ScVal::Void)?,
        ];
        let data = map(vec![("storage", one(symbol("Persistent")?)?), ("val", list(val)?)])?;
        let topics = vec![symbol("signer_added")?, passkey.clone()];
        return act(planner, account, "put", topics, data, vec![passkey, ScVal::Void, PERSISTENT]);
    }
    let (round, step) = (planner.ledger.sequence / ROUND, planner.ledger.sequence % ROUND);
    let session = session("V1", round)?;
    let key = list(vec![symbol("Ed25519")?, session])?;
    let is_there = keeps(planner, &account, &key, ContractDataDurability::Temporary);
    match step {
        1 if !is_there => {
            let until = ScVal::U64(planner.ledger.close_time + SESSION_SECONDS);
            let limits = map_of(vec![(ScVal::Address(account.clone()), ScVal::Void)])?;
            let val = vec![symbol("Ed25519")?, one(until)?, one(limits)?];
            let data = map(vec![("storage", one(symbol("Temporary")?)?), ("val", list(val)?)])?;
            let topics = vec![symbol("signer_added")?, key.clone()];
            act(planner, account, "put", topics, data, vec![key, ScVal::Void, TEMPORARY])
        }
        5 if is_there && !round.is_multiple_of(LEFT_ONE_IN) => {
            let data = map(vec![("storage", one(symbol("Temporary")?)?)])?;
            let topics = vec![symbol("signer_removed")?, key.clone()];
            act(planner, account, "del", topics, data, vec![key, TEMPORARY])
        }
        _ => Ok(()),
    }
}

/// A passkey wallet of before: the same, in the words of its generation.
fn legacy(planner: &mut Planner<'_>, account: ScAddress) -> Result<(), SandboxError> {
    let tagged = |action: &str, key: &ScVal| {
        Ok::<_, SandboxError>(vec![symbol("sw_v1")?, symbol(action)?, key.clone()])
    };
    let passkey = list(vec![symbol("Secp256r1")?, byte_string(&CREDENTIAL)?])?;
    if !keeps(planner, &account, &passkey, ContractDataDurability::Persistent) {
        let val = vec![
            symbol("Secp256r1")?,
            byte_string(&public_key())?,
            one(ScVal::Void)?,
            one(map_of(Vec::new())?)?,
        ];
        let data = list(vec![list(val)?, one(symbol("Persistent")?)?])?;
        let kept = vec![passkey.clone(), ScVal::Void, PERSISTENT];
        return act(planner, account, "put", tagged("add", &passkey)?, data, kept);
    }
    let (round, step) = (planner.ledger.sequence / ROUND, planner.ledger.sequence % ROUND);
    let key = list(vec![symbol("Ed25519")?, session("Legacy", round)?])?;
    let is_there = keeps(planner, &account, &key, ContractDataDurability::Temporary);
    match step {
        3 if !is_there => {
            let until = ScVal::U32(planner.ledger.sequence.saturating_add(SESSION_LEDGERS));
            let val = vec![symbol("Ed25519")?, one(until)?, one(map_of(Vec::new())?)?];
            let data = list(vec![list(val)?, one(symbol("Temporary")?)?])?;
            let kept = vec![key.clone(), ScVal::Void, TEMPORARY];
            act(planner, account, "put", tagged("add", &key)?, data, kept)
        }
        7 if is_there && !round.is_multiple_of(LEFT_ONE_IN) => {
            let gone = vec![key.clone(), TEMPORARY];
            act(planner, account, "del", tagged("remove", &key)?, ScVal::Void, gone)
        }
        _ => Ok(()),
    }
}

/// The key of a session.
fn session(of: &str, round: u32) -> Result<ScVal, SandboxError> {
    byte_string(&Sha256::digest(format!("orrery sandbox session {of} {round}")))
}

/// As long as a public key, and with its first byte; nobody has the private one.
fn public_key() -> Vec<u8> {
    let mut key = vec![0x5a; 65];
    key[0] = 4;
    key
}

fn list(values: Vec<ScVal>) -> Result<ScVal, SandboxError> {
    Ok(ScVal::Vec(Some(ScVec(values.try_into()?))))
}

fn one(value: ScVal) -> Result<ScVal, SandboxError> {
    list(vec![value])
}

/// A map; its keys are in ascending order.
fn map_of(entries: Vec<(ScVal, ScVal)>) -> Result<ScVal, SandboxError> {
    let entries: Vec<_> = entries.into_iter().map(|(key, val)| ScMapEntry { key, val }).collect();
    Ok(ScVal::Map(Some(ScMap(entries.try_into()?))))
}

fn map(entries: Vec<(&str, ScVal)>) -> Result<ScVal, SandboxError> {
    let entries = entries.into_iter().map(|(key, val)| Ok((symbol(key)?, val)));
    map_of(entries.collect::<Result<_, SandboxError>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_is_made_of_its_text() {
        assert_eq!(wat::parse_str(include_str!("wallets/wallet.wat")).unwrap(), CODE);
    }
}
