//! `/rest/contracts/{contract_id}`: what contracts run and declare, and which token they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use orrery::domain::{ContractId, LedgerSeq};
use orrery::executables::Interfaces;
use orrery::sandbox::network::FIRST_MARKET_LEDGER;
use orrery::store::KnownEntry;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use stellar_xdr::{
    ContractCodeEntry, ContractCodeEntryExt, ContractDataDurability, ContractDataEntry,
    ContractExecutable, ExtensionPoint, Hash, LedgerEntry, LedgerEntryChange, LedgerEntryData,
    LedgerEntryExt, LedgerKey, Limits, ReadXdr, ScAddress, ScContractInstance, ScMap, ScMapEntry,
    ScSpecEntry, ScString, ScVal, TransactionMeta, WriteXdr,
};

use orrery_testkit::pubnet::{self, Model};
use orrery_testkit::sandbox::{self, local};
use orrery_testkit::server::{Server, TempStore};
use orrery_testkit::specs::{self, SingleValue, Type};
use orrery_testkit::upgraded::{Upgraded, version, with_interface};
use orrery_testkit::values::symbol;
use orrery_testkit::wait::wait_until;
use orrery_testkit::{full, specs::event};

fn contract(server: &Server, id: impl std::fmt::Display) -> Value {
    let answer = server.get(&format!("/rest/contracts/{id}"));
    assert_eq!(answer.status, 200, "{id}");
    answer.json()
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect()
}

/// Asks again until the interface has been read.
fn known(server: &Server, id: impl std::fmt::Display) -> Value {
    wait_until("the interface is known", || {
        let answer = contract(server, &id);
        if answer["interface_unknown_because"].is_null() { Ok(answer) } else { Err(answer) }
    })
}

#[test]
fn a_contract_has_what_its_code_declares() {
    let ledgers = sandbox::ledgers(sandbox::sandbox(3, 0..=4).with_market(FIRST_MARKET_LEDGER), 20);
    let network = local();
    let store = pubnet::store_of(&network, &ledgers);
    let server = Server::start(&store);
    let market = include_bytes!("../../src/sandbox/network/market/market.wasm");
    let hash = hex::encode(Sha256::digest(market));
    let model = Model::of_network(&network, &ledgers);
    let of_market: Vec<_> = model
        .contracts
        .iter()
        .map(|id| contract(&server, id))
        .filter(|it| it["executable"] == json!({ "wasm": hash }))
        .collect();
    assert!(!of_market.is_empty());
    for answer in of_market {
        assert_eq!(answer["interface_unknown_because"], Value::Null);
        assert_eq!((&answer["token"], &answer["truncated"]), (&Value::Null, &json!(false)));
        assert_eq!(names(&answer["functions"]), ["fill", "fund", "place", "account"]);
        assert!(answer.get("spec").is_none());
        let id = answer["contract_id"].as_str().unwrap();
        let whole = contract(&server, format!("{id}?spec=true"));
        let spec = STANDARD.decode(whole["spec"].as_str().unwrap()).unwrap();
        assert_eq!(spec, orrery::interfaces::sections(market).unwrap(), "as the code has it");
        let fill = json!({
            "name": "fill",
            "doc": "",
            "inputs": [
                { "name": "taker", "type": "Address" },
                { "name": "id", "type": "u64" },
                { "name": "amount", "type": "i128" },
            ],
            "outputs": ["i128"],
        });
        assert_eq!(answer["functions"][0], fill);
        assert_eq!(answer["functions"][3]["outputs"], json!(["Account"]));
        let filled = json!({
            "name": "Filled",
            "doc": "",
            "prefix": ["filled"],
            "params": [
                { "name": "maker", "type": "Address", "in": "topic" },
                { "name": "taker", "type": "Address", "in": "topic" },
                { "name": "id", "type": "u64", "in": "data" },
                { "name": "amount", "type": "i128", "in": "data" },
            ],
        });
        assert_eq!(answer["events"][0], filled);
        let types: BTreeMap<_, _> = answer["types"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| (it["name"].as_str().unwrap(), (&it["kind"], &it["members"])))
            .collect();
        let key =
            json!([{ "name": "Offer", "type": "u64" }, { "name": "Account", "type": "Address" }]);
        assert_eq!(types["Key"], (&json!("union"), &key));
        let account =
            json!([{ "name": "cash", "type": "i128" }, { "name": "goods", "type": "i128" }]);
        assert_eq!(types["Account"], (&json!("struct"), &account));
        let (kind, refused) = types["Refused"];
        assert_eq!(
            (kind, &refused[0]),
            (&json!("error"), &json!({ "name": "Amount", "value": 1 }))
        );
    }
}

/// After upgrades, the answer is that of the newest code; the whole interface has those before beside it.
#[test]
fn a_contract_has_the_interface_of_its_newest_code() {
    let made = Upgraded::made();
    let store = pubnet::store_of(&local(), &made.ledgers);
    let server = Server::start(&store);
    let versions: BTreeMap<String, u32> =
        (0..5).map(|number| (hex::encode(Sha256::digest(version(number))), number)).collect();
    let spec = |number| STANDARD.encode(orrery::interfaces::sections(&version(number)).unwrap());
    let specs: Vec<String> = (0..4).map(spec).collect();
    for id in made.contracts {
        let answer = contract(&server, id);
        let number = versions[answer["executable"]["wasm"].as_str().unwrap()];
        let events: &[&str] = match number {
            0 => &["said"],
            1 => &["said", "told"],
            2 => &["spoken"],
            3 => &["said", "said_twice"],
            _ => &[],
        };
        assert_eq!(names(&answer["events"]), events);
        let because = answer["interface_unknown_because"].as_str().unwrap_or_default();
        assert_eq!(because.contains("has no section contractspecv0"), number == 4, "{because}");
        assert!(answer.get("earlier_specs").is_none());
        let whole = contract(&server, format!("{id}?spec=true"));
        let earlier = whole["earlier_specs"].as_array().unwrap();
        let earlier: Vec<&str> = earlier.iter().map(|it| it.as_str().unwrap()).collect();
        assert!(!earlier.is_empty() && earlier.iter().all(|it| specs.iter().any(|one| one == it)));
        assert!(!earlier.contains(&whole["spec"].as_str().unwrap_or_default()));
        let distinct: BTreeSet<&&str> = earlier.iter().collect();
        assert_eq!(distinct.len(), earlier.len());
    }
}

#[test]
fn contracts_of_assets_have_their_interface_and_token() {
    let public = pubnet::ledgers().map(|ledgers| (pubnet::network(), ledgers));
    for (network, ledgers) in [Some(pubnet::made()), public].into_iter().flatten() {
        let store = pubnet::store_of(&network, &ledgers);
        let server = Server::start(&store);
        let events = Model::of_network(&network, &ledgers).events;
        let mut assets = 0;
        for id in events.iter().map(|it| it["contract_id"].as_str().unwrap()) {
            let answer = contract(&server, id);
            if answer["executable"] != json!({ "stellar_asset": true }) {
                continue;
            }
            assets += 1;
            assert_eq!(answer["interface_unknown_because"], Value::Null);
            let transfer = json!([
                { "name": "from", "type": "Address" },
                { "name": "to", "type": "MuxedAddress" },
                { "name": "amount", "type": "i128" },
            ]);
            let functions = answer["functions"].as_array().unwrap();
            let of_transfer = functions.iter().find(|it| it["name"] == "transfer").unwrap();
            assert_eq!(of_transfer["inputs"], transfer);
            assert!(names(&answer["events"]).contains(&"clawback"));
            // The last topic of its newest event names the asset.
            let newest = events.iter().rfind(|it| it["contract_id"] == id).unwrap();
            let topic = *pubnet::topics(newest).last().unwrap();
            let ScVal::String(name) = ScVal::from_xdr_base64(topic, Limits::none()).unwrap() else {
                panic!("{newest}")
            };
            let name = name.to_utf8_string_lossy();
            let symbol = name.split(':').next().unwrap();
            let token = json!({ "name": name, "symbol": symbol, "decimals": 7 });
            assert_eq!(answer["token"], token);
        }
        assert!(assets > 0, "{network:?}");
    }
}

/// The metadata of tokens is that of the last instance in the metadata of transactions.
#[test]
fn tokens_are_described_by_their_instances() {
    let Some(ledgers) = pubnet::ledgers() else { return };
    let network = pubnet::network();
    let mut expected = BTreeMap::new();
    for raw in &ledgers {
        let ledger = full::decode(raw, network.id()).unwrap();
        for transaction in ledger.transactions.iter().filter(|it| it.smart_contract) {
            for (contract, instance) in instances(&transaction.meta) {
                if let Some(token) = token(&instance) {
                    expected.insert(contract, token);
                }
            }
        }
    }
    assert!(expected.len() >= 3, "{expected:?}");
    let store = pubnet::store(&ledgers);
    let server = Server::start(&store);
    for (id, token) in expected {
        assert_eq!(contract(&server, id)["token"], token);
    }
}

/// Returns the instances that a transaction has written.
fn instances(meta: &[u8]) -> Vec<(String, ScContractInstance)> {
    let meta = TransactionMeta::from_xdr(meta, Limits::none()).unwrap();
    let operations: Vec<LedgerEntryChange> = match meta {
        TransactionMeta::V3(meta) => {
            meta.operations.iter().flat_map(|it| it.changes.0.to_vec()).collect()
        }
        TransactionMeta::V4(meta) => {
            meta.operations.iter().flat_map(|it| it.changes.0.to_vec()).collect()
        }
        _ => Vec::new(),
    };
    let data = operations.into_iter().filter_map(|change| match change {
        LedgerEntryChange::Created(entry) | LedgerEntryChange::Updated(entry) => Some(entry.data),
        _ => None,
    });
    let instance = data.filter_map(|data| match data {
        LedgerEntryData::ContractData(ContractDataEntry {
            contract,
            val: ScVal::ContractInstance(instance),
            ..
        }) => Some((contract.to_string(), instance)),
        _ => None,
    });
    instance.collect()
}

/// Returns the token in the JSON form of an instance.
fn token(instance: &ScContractInstance) -> Option<Value> {
    let value = serde_json::to_value(instance).unwrap();
    let member = |map: &Value, name: &str| {
        let mut entries = map.as_array()?.iter();
        let found = entries.find(|entry| entry["key"] == json!({ "symbol": name }))?;
        Some(found["val"].clone())
    };
    let metadata = member(&value["storage"], "METADATA")?["map"].clone();
    Some(json!({
        "name": member(&metadata, "name")?["string"],
        "symbol": member(&metadata, "symbol")?["string"],
        "decimals": member(&metadata, "decimal")?["u32"],
    }))
}

#[test]
fn unknown_contracts_are_explained() {
    let (network, ledgers) = pubnet::made();
    let id = ContractId([7; 32]);
    let empty = TempStore::with_names(&network);
    let answer = contract(&Server::start(&empty), id);
    assert_eq!(answer["interface_unknown_because"], "no ledger is stored yet");
    let store = pubnet::store_of(&network, &ledgers);
    let server = Server::start(&store);
    let answer = contract(&server, id);
    let because = answer["interface_unknown_because"].as_str().unwrap();
    assert!(because.contains("no server is followed that could tell"), "{because}");
    let nothing = json!({
        "contract_id": id.to_string(),
        "executable": null,
        "interface_unknown_because": because,
        "token": null,
        "account_kinds": [],
        "functions": [],
        "events": [],
        "types": [],
        "truncated": false,
    });
    assert_eq!(answer, nothing);
    for wrong in ["x", "%FF", &id.to_string().to_lowercase()] {
        let refused = server.get(&format!("/rest/contracts/{wrong}"));
        assert!(refused.error(400, "bad_parameter").contains("'contract_id'"), "{wrong}");
    }
    server.get_public(&format!("/rest/contracts/{id}")).error(401, "unauthorized");
    server.get(&format!("/rest/contracts/{id}?decoded=true")).error(400, "unknown_parameter");
}

/// A contract that no stored transaction shows is looked up, in steps: its instance, then its code.
/// What the chain calls things is text, whatever it holds.
#[test]
fn a_contract_that_is_older_than_the_store_is_looked_up() {
    let (network, ledgers) = pubnet::made();
    let store = pubnet::store_of(&network, &ledgers);
    let id = ContractId([7; 32]);
    let hostile = "</script><img onerror=alert(1)>\u{202e}\u{0}";
    let code = with_interface(version(4), &interface(hostile));
    let as_of = store.store.ends().latest.unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let entries = entries(id, &code, hostile);
    let (own, all) = (Arc::clone(&store.store), Arc::clone(&asked));
    // A server that has one contract.
    let ask = move |keys: &[Vec<u8>]| {
        all.lock().extend_from_slice(keys);
        let answers = keys.iter().map(|key| {
            let entry = entries.iter().find(|(of, _)| of == key);
            let entry = entry.map(|(_, entry)| entry.to_xdr(Limits::none()).unwrap());
            let from = LedgerSeq(if entry.is_some() { 2 } else { as_of.0 });
            (key.clone(), KnownEntry { from, to: as_of, entry, live_until: None })
        });
        let answers: Vec<_> = answers.collect();
        own.put_known_entries(&answers).map_err(|error| error.to_string())
    };
    let interfaces = Interfaces::new(Arc::clone(&store.store), Some(Box::new(ask)));
    let threads = [Interfaces::work, Interfaces::ask].map(|run| {
        let interfaces = Arc::clone(&interfaces);
        std::thread::spawn(move || run(&interfaces))
    });
    let server = Server::start_with(&store, |deps| deps.interfaces = Arc::clone(&interfaces));

    let first = contract(&server, id);
    let because = first["interface_unknown_because"].as_str().unwrap();
    assert!(because.contains("is being looked up"), "{because}");
    let answer = known(&server, id);
    assert_eq!(answer["executable"], json!({ "wasm": hex::encode(Sha256::digest(&code)) }));
    let token = json!({ "name": hostile, "symbol": "\\xff", "decimals": 3 });
    assert_eq!(answer["token"], token);
    assert_eq!(names(&answer["events"]), ["said"]);
    assert_eq!(answer["events"][0]["params"][0]["type"], "Option<Map<Symbol,Vec<(i128,Deal)>>>");
    assert_eq!(names(&answer["types"]), [hostile, "Way", "Number"]);
    let way = json!([{ "name": "None" }, { "name": "Some", "type": "u32" }, { "name": "Two", "type": "(u32,Bytes)" }]);
    assert_eq!(answer["types"][1]["members"], way);
    assert_eq!(answer["types"][2]["members"][1]["value"], 9);

    let absent = ContractId([8; 32]);
    wait_until("it is known that there is no such contract", || {
        let answer = contract(&server, absent);
        let because = answer["interface_unknown_because"].as_str().unwrap().to_owned();
        if because.contains("there is no such contract as of ledger") {
            Ok(())
        } else {
            Err(because)
        }
    });
    // Further requests ask nothing that was asked a moment ago.
    let count = asked.lock().len();
    (0..50).for_each(|_| drop((contract(&server, id), contract(&server, absent))));
    assert_eq!(asked.lock().len(), count);
    assert!(count <= 4, "{count}");
    interfaces.stop();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn interface(hostile: &str) -> Vec<ScSpecEntry> {
    let deep = specs::option(specs::map(
        Type::Symbol,
        specs::vec(specs::tuple(vec![Type::I128, specs::udt("Deal")])),
    ));
    let way = [
        ("None".to_owned(), None),
        ("Some".to_owned(), Some(vec![Type::U32])),
        ("Two".to_owned(), Some(vec![Type::U32, Type::Bytes])),
    ];
    vec![
        event("said", &["said"], &[], SingleValue, &[("value", deep)]),
        specs::structure(hostile, &[("amount".to_owned(), Type::I128)]),
        specs::union("Way", &way),
        specs::numbers("Number", &[7, 9]),
    ]
}

fn map(entries: Vec<(ScVal, ScVal)>) -> ScMap {
    let entries: Vec<_> = entries.into_iter().map(|(key, val)| ScMapEntry { key, val }).collect();
    ScMap(entries.try_into().unwrap())
}

/// The entries of a contract with this code, under their keys.
fn entries(id: ContractId, code: &[u8], name: &str) -> Vec<(Vec<u8>, LedgerEntry)> {
    let hash = Hash(Sha256::digest(code).into());
    let metadata = map(vec![
        (symbol("decimal"), ScVal::U32(3)),
        (symbol("name"), ScVal::String(ScString(name.try_into().unwrap()))),
        (symbol("symbol"), ScVal::String(ScString(vec![0xff].try_into().unwrap()))),
    ]);
    let storage = map(vec![(symbol("METADATA"), ScVal::Map(Some(metadata)))]);
    let instance = ContractDataEntry {
        ext: ExtensionPoint::V0,
        contract: ScAddress::Contract(stellar_xdr::ContractId(Hash(id.0))),
        key: ScVal::LedgerKeyContractInstance,
        durability: ContractDataDurability::Persistent,
        val: ScVal::ContractInstance(ScContractInstance {
            executable: ContractExecutable::Wasm(hash.clone()),
            storage: Some(storage),
        }),
    };
    let code = ContractCodeEntry {
        ext: ContractCodeEntryExt::V0,
        hash,
        code: code.to_vec().try_into().unwrap(),
    };
    [LedgerEntryData::ContractData(instance), LedgerEntryData::ContractCode(code)]
        .map(|data| {
            let entry = LedgerEntry { last_modified_ledger_seq: 2, data, ext: LedgerEntryExt::V0 };
            let key: LedgerKey = entry.to_key();
            (key.to_xdr(Limits::none()).unwrap(), entry)
        })
        .into()
}
