//! Entries that change without an event, on a network that executes its contracts: expired sessions
//! of a wallet are evicted, and an archived signer is restored.

use std::collections::BTreeSet;

use orrery::accounts::AccountIndex;
use orrery::accounts::smart::SmartAccounts;
use orrery::decode::decode;
use orrery::domain::{ContractId, LedgerSeq};
use orrery::sandbox::network::{FIRST_MARKET_LEDGER, Sandbox};
use orrery::store::{Durability, IndexOptions, PreparedLedger};
use serde_json::{Value, json};
use stellar_xdr::{
    ContractDataDurability, ContractDataEntry, ContractId as XdrContract, ExtensionPoint, Hash,
    LedgerCloseMeta, LedgerEntry, LedgerEntryChange, LedgerEntryData, LedgerKey,
    LedgerKeyContractData, Limits, ReadXdr, ScAddress, ScVal, TransactionMeta,
    TransactionResultResult, WriteXdr,
};

use crate::ingestion_order::ResponseSchemas;
use crate::world::{PASSKEY, SMART, World};
use orrery_testkit::account_events::passkey::secp256r1;
use orrery_testkit::sandbox::{local, sandbox};

fn with_wallets() -> Sandbox {
    sandbox(3, 1..=3).with_wallets(FIRST_MARKET_LEDGER)
}

fn add(world: &World, xdr: &[u8]) {
    let options = IndexOptions { raw_ledgers: true, ..IndexOptions::default() };
    let view = decode(xdr, local().id()).unwrap();
    // For odd sequences nothing is gathered during preparation.
    let ledger = match view.header.sequence.0 % 2 {
        0 => world.temp.store.prepare(&view, None, &options),
        _ => PreparedLedger::new(&view, &options),
    };
    world.temp.store.commit(ledger.unwrap(), Durability::Deferred).unwrap();
}

fn detail(world: &World, base: &str, kind: &str, contract: &ContractId) -> Value {
    let answer = world.ask(&format!("{base}/api/{kind}/{contract}"));
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    let answer = answer.json();
    ResponseSchemas::new().check(&format!("{base}/api/{kind}/"), &answer);
    answer
}

#[test]
fn expired_sessions_of_the_demo_accounts_are_evicted() {
    let world = World::with(|_| {});
    let mut sandbox = with_wallets();
    for _ in 0..160 {
        add(&world, &sandbox.next_ledger().unwrap());
    }
    world.feed();
    let wallets = Sandbox::wallets(&local()).unwrap();
    let credential = hex::encode(&wallets.credential);
    let found = world.ask(&format!("{SMART}/api/lookup/{credential}")).json();
    assert_eq!(found["contracts"][0]["contract_id"], wallets.smart_account.to_string());
    assert_eq!(found["complete"], true);
    let found = world.ask(&format!("{PASSKEY}/api/lookup/{credential}")).json();
    let generations: BTreeSet<&str> = found["wallets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|wallet| wallet["generation"].as_str().unwrap())
        .collect();
    assert_eq!(generations, BTreeSet::from(["legacy", "v1"]));
    let account = detail(&world, SMART, "contract", &wallets.smart_account);
    assert!(account["summary"]["last_seen_ledger"].as_u64() > Some(100), "{account}");
    assert_eq!(account.get("entry_status"), None);

    for contract in [&wallets.v1, &wallets.legacy] {
        let wallet = detail(&world, PASSKEY, "wallet", contract);
        let signers = wallet["signers"].as_array().unwrap();
        let statuses: BTreeSet<&str> =
            signers.iter().map(|it| it["status"].as_str().unwrap()).collect();
        assert!(statuses.contains("removed") && statuses.contains("live"), "{statuses:?}");
        let evicted: Vec<_> = signers.iter().filter(|it| it["entry_status"] == "evicted").collect();
        assert!(!evicted.is_empty(), "some sessions were left: {wallet}");
        for signer in evicted {
            // Eviction does not change what follows from the events.
            assert_ne!(signer["status"], "removed");
            assert_eq!(signer["storage"], "temporary");
            assert!(signer["entry_status_ledger"].as_u64() > wallet["first_seen_ledger"].as_u64());
        }
    }
    assert!(world.temp.store.consumer_digest(SmartAccounts::CONSUMER).is_ok());
}

#[test]
fn an_archived_signer_can_be_restored() {
    let world = World::with(|_| {});
    let mut sandbox = with_wallets();
    sandbox.skip_to(LedgerSeq(1)).unwrap();
    let wallets = Sandbox::wallets(&local()).unwrap();
    let contract = ScAddress::Contract(XdrContract(Hash(wallets.v1.0)));
    let signer = secp256r1(&wallets.credential);
    let persistent = |key: ScVal| {
        let durability = ContractDataDurability::Persistent;
        LedgerKey::ContractData(LedgerKeyContractData {
            contract: contract.clone(),
            key,
            durability,
        })
    };
    let statuses = |world: &World| {
        world.feed();
        let wallet = detail(world, PASSKEY, "wallet", &wallets.v1);
        let status_of =
            |of: &Value| [of["entry_status"].clone(), of["entry_status_ledger"].clone()];
        assert_eq!(wallet["signers"][0]["key"]["type"], "secp256r1");
        (status_of(&wallet["signers"][0]), status_of(&wallet))
    };
    let nothing = || [Value::Null, Value::Null];
    for sequence in 2..=40 {
        let mut meta = parse(&sandbox.next_ledger().unwrap());
        let LedgerCloseMeta::V2(v2) = &mut meta else { panic!("a ledger of today") };
        match sequence {
            30 => {
                let more =
                    [persistent(signer.clone()), persistent(ScVal::LedgerKeyContractInstance)];
                let evicted = [v2.evicted_keys.to_vec(), more.to_vec()].concat();
                v2.evicted_keys = evicted.try_into().unwrap();
            }
            33.. if restore(v2, &contract, &signer) => {
                add(&world, &meta.to_xdr(Limits::none()).unwrap());
                let instance = [json!("evicted"), json!(30)];
                assert_eq!(statuses(&world), ([json!("restored"), json!(sequence)], instance));
                return;
            }
            _ => {}
        }
        add(&world, &meta.to_xdr(Limits::none()).unwrap());
        match sequence {
            29 => assert_eq!(statuses(&world), (nothing(), nothing())),
            30 => {
                let evicted = [json!("evicted"), json!(30)];
                assert_eq!(statuses(&world), (evicted.clone(), evicted));
            }
            _ => {}
        }
    }
    panic!("no ledger has a transaction that could restore something");
}

fn parse(xdr: &[u8]) -> LedgerCloseMeta {
    LedgerCloseMeta::from_xdr(xdr, Limits::none()).unwrap()
}

/// Makes a transaction of the ledger restore a signer. Returns false if the ledger has no
/// successful smart-contract transaction, as only these can restore entries.
fn restore(
    ledger: &mut stellar_xdr::LedgerCloseMetaV2,
    contract: &ScAddress,
    signer: &ScVal,
) -> bool {
    let entry = LedgerEntry {
        last_modified_ledger_seq: 8,
        data: LedgerEntryData::ContractData(ContractDataEntry {
            ext: ExtensionPoint::V0,
            contract: contract.clone(),
            key: signer.clone(),
            durability: ContractDataDurability::Persistent,
            val: ScVal::Void,
        }),
        ..LedgerEntry::default()
    };
    let mut all = ledger.tx_processing.to_vec();
    for one in &mut all {
        let TransactionMeta::V4(meta) = &mut one.tx_apply_processing else { continue };
        let mut operations = meta.operations.to_vec();
        let can = meta.soroban_meta.is_some()
            && matches!(one.result.result.result, TransactionResultResult::TxSuccess(_));
        let Some(first) = operations.first_mut().filter(|_| can) else { continue };
        let mut changes = first.changes.0.to_vec();
        changes.push(LedgerEntryChange::Restored(entry));
        first.changes.0 = changes.try_into().unwrap();
        meta.operations = operations.try_into().unwrap();
        ledger.tx_processing = all.try_into().unwrap();
        return true;
    }
    false
}
