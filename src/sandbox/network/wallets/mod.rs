//! The sandbox's accounts with signers: a smart account, and a passkey wallet of each generation.
//! They share a module that emits the events and stores the entries that its caller passes, in
//! place of what the real contracts do. Derives each next step from the ledger state.

use orrery_ledger::domain::{ContractId, NetworkId, instance_key_at, is_temporary};
use sha2::{Digest, Sha256};
use stellar_xdr::{
    ContractDataDurability, ContractId as XdrContract, Hash, HostFunction, LedgerKey,
    LedgerKeyContractData, ScAddress, ScMap, ScMapEntry, ScString, ScVal, ScVec,
};

use super::actors::Actor;
use super::assets::{byte_string, symbol};
use super::error::{Result, SandboxError};
use super::market::keep_alive;
use super::plan::{Planner, invocation};
use super::wasm;

/// WASM module of all three contracts, assembled from `wallet.wat`.
const CODE: &[u8] = include_bytes!("wallet.wasm");

/// Id of the credential that all three have as a signer.
pub(super) const CREDENTIAL: [u8; 16] = *b"orrery's passkey";
/// Length of a round in ledgers; in each, a session begins and usually ends.
const ROUND: u32 = 8;
/// One in this many sessions is left to expire, so that the network evicts its entry.
const EXPIRE_ONE_IN: u32 = 3;
/// Validity of a session in the v1 wallet, in seconds.
const SESSION_SECONDS: u64 = 90;
/// Validity of a session in the legacy wallet, in ledgers.
const SESSION_LEDGERS: u32 = 6;

const TEMPORARY: ScVal = ScVal::U32(0);
const PERSISTENT: ScVal = ScVal::U32(1);

/// Kind of account that a contract imitates.
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

    /// Returns the id of the contract.
    pub(super) fn contract(self, network: &NetworkId) -> Result<ContractId> {
        wasm::contract_id(network, &Actor::root(network).address(), self.salt())
    }
}

/// Plans the accounts' transactions of one ledger: the upload, then the creations, then changes of
/// signers.
pub(super) fn plan(planner: &mut Planner<'_>) -> Result<()> {
    let root = &planner.permanent.root;
    if planner.state.get(&wasm::code_key(CODE)).is_none() {
        return planner.invoke(root, &wasm::upload(CODE)?, None).map(drop);
    }
    for kind in Kind::ALL {
        let account = wasm::address(kind.contract(planner.ledger.network)?);
        if planner.state.get(&instance_key_at(account.clone())).is_none() {
            let create = wasm::create(&root.address(), kind.salt(), CODE, Vec::new())?;
            return planner.invoke(root, &create, None).map(drop);
        }
        keep_alive(planner, &account, CODE, |key| !is_temporary(key))?;
        match kind {
            Kind::Smart => plan_smart(planner, account)?,
            Kind::Legacy => plan_legacy(planner, account)?,
            Kind::V1 => plan_v1(planner, account)?,
        }
    }
    Ok(())
}

/// Calls a function that emits an event and stores or deletes an entry, in a transaction of an idle
/// trader.
fn call_account(
    planner: &mut Planner<'_>,
    account: ScAddress,
    function: &str,
    topics: Vec<ScVal>,
    data: ScVal,
    rest: Vec<ScVal>,
) -> Result<()> {
    let Some(trader) = planner.idle_trader() else { return Ok(()) };
    let args = [vec![list(topics)?, data], rest].concat();
    let call = HostFunction::InvokeContract(invocation(account, function, args)?);
    planner.invoke(trader, &call, None).map(drop)
}

/// As [`call_account`], with the function that stores an entry under a key.
fn put(
    planner: &mut Planner<'_>,
    account: ScAddress,
    topics: Vec<ScVal>,
    data: ScVal,
    key: ScVal,
    durability: ScVal,
) -> Result<()> {
    call_account(planner, account, "put", topics, data, vec![key, ScVal::Void, durability])
}

/// Returns whether a contract stores an entry under a key.
fn has_entry(
    planner: &Planner<'_>,
    account: &ScAddress,
    key: &ScVal,
    durability: ContractDataDurability,
) -> bool {
    let (contract, key) = (account.clone(), key.clone());
    let key = LedgerKey::ContractData(LedgerKeyContractData { contract, key, durability });
    planner.state.get(&key).is_some()
}

/// Plans the smart account's next step: registers a passkey, adds a rule, registers an account as a
/// second signer, then adds and removes that signer in alternate rounds.
fn plan_smart(planner: &mut Planner<'_>, account: ScAddress) -> Result<()> {
    let registered = |id: u32| list(vec![symbol("Signer")?, ScVal::U32(id)]);
    let rule = list(vec![symbol("Rule")?, ScVal::U32(0)])?;
    let has = |key: &ScVal| has_entry(planner, &account, key, ContractDataDurability::Persistent);
    let (passkey, guest) = (registered(0)?, registered(1)?);
    let guest_address = Actor::root(planner.ledger.network).address();
    let register = |name: &str, id| Ok::<_, SandboxError>(vec![symbol(name)?, ScVal::U32(id)]);
    if !has(&passkey) {
        // The contract that would verify its signatures does not exist.
        let verifier = ScAddress::Contract(XdrContract(Hash([7; 32])));
        let key = [public_key(), CREDENTIAL.to_vec()].concat();
        let signer = vec![symbol("External")?, ScVal::Address(verifier), byte_string(&key)?];
        let data = map(vec![("signer", list(signer)?)])?;
        return put(planner, account, register("signer_registered", 0)?, data, passkey, PERSISTENT);
    }
    if !has(&rule) {
        let data = map(vec![
            ("context_type", list(vec![symbol("Default")?])?),
            ("name", ScVal::String(ScString("everyday".try_into()?))),
            ("policy_ids", list(Vec::new())?),
            ("signer_ids", list(vec![ScVal::U32(0)])?),
            ("valid_until", ScVal::Void),
        ])?;
        return put(planner, account, register("context_rule_added", 0)?, data, rule, PERSISTENT);
    }
    if !has(&guest) {
        let signer = list(vec![symbol("Delegated")?, ScVal::Address(guest_address)])?;
        let data = map(vec![("signer", signer)])?;
        return put(planner, account, register("signer_registered", 1)?, data, guest, PERSISTENT);
    }
    let (round, step) = (planner.ledger.sequence / ROUND, planner.ledger.sequence % ROUND);
    if step != 2 {
        return Ok(());
    }
    let name = if round.is_multiple_of(2) { "signer_added" } else { "signer_removed" };
    let data = map(vec![("signer_id", ScVal::U32(1))])?;
    call_account(planner, account, "emit", register(name, 0)?, data, Vec::new())
}

/// Plans the v1 wallet's next step: adds its passkey, then a session key in each round.
fn plan_v1(planner: &mut Planner<'_>, account: ScAddress) -> Result<()> {
    let passkey = list(vec![symbol("Secp256r1")?, byte_string(&CREDENTIAL)?])?;
    if !has_entry(planner, &account, &passkey, ContractDataDurability::Persistent) {
        let val = vec![
            symbol("Secp256r1")?,
            byte_string(&public_key())?,
            one(ScVal::Void)?,
            one(ScVal::Void)?,
        ];
        let data = map(vec![("storage", one(symbol("Persistent")?)?), ("val", list(val)?)])?;
        let topics = vec![symbol("signer_added")?, passkey.clone()];
        return put(planner, account, topics, data, passkey, PERSISTENT);
    }
    let (round, step) = (planner.ledger.sequence / ROUND, planner.ledger.sequence % ROUND);
    let session = session("V1", round)?;
    let key = list(vec![symbol("Ed25519")?, session])?;
    let is_there = has_entry(planner, &account, &key, ContractDataDurability::Temporary);
    match step {
        1 if !is_there => {
            let until = ScVal::U64(planner.ledger.close_time + SESSION_SECONDS);
            let limits = map_of(vec![(ScVal::Address(account.clone()), ScVal::Void)])?;
            let val = vec![symbol("Ed25519")?, one(until)?, one(limits)?];
            let data = map(vec![("storage", one(symbol("Temporary")?)?), ("val", list(val)?)])?;
            let topics = vec![symbol("signer_added")?, key.clone()];
            put(planner, account, topics, data, key, TEMPORARY)
        }
        5 if is_there && !round.is_multiple_of(EXPIRE_ONE_IN) => {
            let data = map(vec![("storage", one(symbol("Temporary")?)?)])?;
            let topics = vec![symbol("signer_removed")?, key.clone()];
            call_account(planner, account, "del", topics, data, vec![key, TEMPORARY])
        }
        _ => Ok(()),
    }
}

/// Plans the legacy wallet's next step: as that of the v1 wallet, with the events of the legacy
/// generation.
fn plan_legacy(planner: &mut Planner<'_>, account: ScAddress) -> Result<()> {
    let tagged = |action: &str, key: &ScVal| {
        Ok::<_, SandboxError>(vec![symbol("sw_v1")?, symbol(action)?, key.clone()])
    };
    let passkey = list(vec![symbol("Secp256r1")?, byte_string(&CREDENTIAL)?])?;
    if !has_entry(planner, &account, &passkey, ContractDataDurability::Persistent) {
        let val = vec![
            symbol("Secp256r1")?,
            byte_string(&public_key())?,
            one(ScVal::Void)?,
            one(map_of(Vec::new())?)?,
        ];
        let data = list(vec![list(val)?, one(symbol("Persistent")?)?])?;
        return put(planner, account, tagged("add", &passkey)?, data, passkey, PERSISTENT);
    }
    let (round, step) = (planner.ledger.sequence / ROUND, planner.ledger.sequence % ROUND);
    let key = list(vec![symbol("Ed25519")?, session("Legacy", round)?])?;
    let is_there = has_entry(planner, &account, &key, ContractDataDurability::Temporary);
    match step {
        3 if !is_there => {
            let until = ScVal::U32(planner.ledger.sequence.saturating_add(SESSION_LEDGERS));
            let val = vec![symbol("Ed25519")?, one(until)?, one(map_of(Vec::new())?)?];
            let data = list(vec![list(val)?, one(symbol("Temporary")?)?])?;
            put(planner, account, tagged("add", &key)?, data, key, TEMPORARY)
        }
        7 if is_there && !round.is_multiple_of(EXPIRE_ONE_IN) => {
            let gone = vec![key.clone(), TEMPORARY];
            call_account(planner, account, "del", tagged("remove", &key)?, ScVal::Void, gone)
        }
        _ => Ok(()),
    }
}

/// Returns the public key of a session.
fn session(of: &str, round: u32) -> Result<ScVal> {
    byte_string(&Sha256::digest(format!("orrery sandbox session {of} {round}")))
}

/// Returns a placeholder with the length and the first byte of a public key; there is no private
/// key to it.
fn public_key() -> Vec<u8> {
    let mut key = vec![0x5a; 65];
    key[0] = 4;
    key
}

fn list(values: Vec<ScVal>) -> Result<ScVal> {
    Ok(ScVal::Vec(Some(ScVec(values.try_into()?))))
}

fn one(value: ScVal) -> Result<ScVal> {
    list(vec![value])
}

/// Builds a map from entries in ascending order of keys.
fn map_of(entries: Vec<(ScVal, ScVal)>) -> Result<ScVal> {
    let entries: Vec<_> = entries.into_iter().map(|(key, val)| ScMapEntry { key, val }).collect();
    Ok(ScVal::Map(Some(ScMap(entries.try_into()?))))
}

fn map(entries: Vec<(&str, ScVal)>) -> Result<ScVal> {
    let entries = entries.into_iter().map(|(key, val)| Ok((symbol(key)?, val)));
    map_of(entries.collect::<Result<_>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wallet_module_equals_its_assembled_text() {
        assert_eq!(wat::parse_str(include_str!("wallet.wat")).unwrap(), CODE);
    }
}
