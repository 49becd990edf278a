//! `/api/contract/{contract_id}/storage` and `/keys`: asked as the Stellar Lab asks its own backend. On
//! recorded ledgers, the built binary answers.

use std::collections::BTreeMap;
use std::path::Path;

use orrery::domain::{ContractId, LedgerSeq};
use orrery_testkit::binary::{Service, run};
use orrery_testkit::holder::{BALANCES, Holders};
use orrery_testkit::sandbox::local;
use orrery_testkit::server::{Server, TempStore};
use orrery_testkit::storage::{Entry, Value as Held};
use orrery_testkit::{data, fixtures, pubnet};
use serde_json::{Value, json};
use stellar_xdr::{ContractDataDurability, LedgerKey, ScVal};

use super::storage::{World, xdr};

fn made() -> (Holders, World) {
    let made = Holders::made(140);
    let world = World::of(&made.ledgers);
    (made, world)
}

/// An entry as the Lab's backend lists it, as the model has it.
fn expected(world: &World, entry: &Entry) -> Value {
    let present = &entry.present;
    let (LedgerKey::ContractData(key), Held::Data(value)) = (&present.key, &present.value) else {
        panic!("{entry:?}")
    };
    let closed = world.store.store.ledger(LedgerSeq(present.modified_ledger)).unwrap().unwrap();
    json!({
        "durability": match key.durability {
            ContractDataDurability::Temporary => "temporary",
            ContractDataDurability::Persistent => "persistent",
        },
        "expired": present.archived,
        "key_hash": hex::encode(entry.key_hash),
        "key": xdr(&key.key),
        "ttl": present.live_until,
        "updated": closed.close_time.seconds(),
        "value": xdr(value),
    })
}

fn get(world: &World, path: &str) -> Value {
    world.get(path)
}

fn href<'v>(page: &'v Value, name: &str) -> Option<&'v str> {
    page["_links"][name]["href"].as_str()
}

/// Follows the links forward to the end, then back to the beginning; returns the rows of the way forward.
fn walk(world: &World, first: &str) -> Vec<Value> {
    let mut pages = vec![get(world, first)];
    while let Some(next) = href(pages.last().unwrap(), "next") {
        let page = get(world, next);
        pages.push(page);
    }
    let rows = |page: &Value| page["results"].as_array().unwrap().clone();
    let filled: Vec<&Value> = pages.iter().filter(|page| !rows(page).is_empty()).collect();
    let mut at = (*filled.last().unwrap()).clone();
    for page in filled.iter().rev().skip(1) {
        at = get(world, href(&at, "prev").unwrap());
        assert_eq!(at["results"], page["results"], "the same page, backwards");
    }
    filled.into_iter().flat_map(rows).collect()
}

#[test]
fn all_orders_have_all_entries_forward_and_backward() {
    let (made, world) = made();
    let path = format!("/api/contract/{}/storage", made.contract);
    let model = world.model.list(&made.contract.0, world.newest()).unwrap();
    let mut by_hash: Vec<Value> =
        model.entries.iter().map(|entry| expected(&world, entry)).collect();
    assert_eq!(walk(&world, &format!("{path}?limit=200&order=asc")), by_hash);
    assert!(by_hash.iter().any(|row| row["expired"] == true));
    assert!(by_hash.iter().any(|row| row["expired"] == false));
    let number = |row: &Value, member: &str| row[member].as_u64().unwrap_or(u64::MAX);
    for (sort_by, member) in [
        ("key_hash", "key_hash"),
        ("durability", "durability"),
        ("ttl", "ttl"),
        ("updated_at", "updated"),
    ] {
        by_hash.sort_by(|a, b| {
            let order = match member {
                "ttl" | "updated" => number(a, member).cmp(&number(b, member)),
                _ => a[member].as_str().cmp(&b[member].as_str()),
            };
            order.then_with(|| a["key_hash"].as_str().cmp(&b["key_hash"].as_str()))
        });
        for limit in [3, 7] {
            let query = format!("{path}?limit={limit}&sort_by={sort_by}");
            assert_eq!(walk(&world, &format!("{query}&order=asc")), by_hash, "{query}");
            let mut descending = walk(&world, &query);
            descending.reverse();
            assert_eq!(descending, by_hash, "{query}");
        }
    }
}

#[test]
fn links_have_their_parameters_in_order() {
    let (made, world) = made();
    let path = format!("/api/contract/{}/storage", made.contract);
    let first = get(&world, &path);
    assert_eq!(href(&first, "self"), Some(&*format!("{path}?order=desc&limit=20")));
    assert_eq!(href(&first, "prev"), None);
    let asked = format!("{path}?filter_key=Balance&unknown=1&sort_by=ttl&limit=5&order=asc");
    let page = get(&world, &asked);
    let own = format!("{path}?order=asc&limit=5&sort_by=ttl&filter_key=Balance");
    assert_eq!(href(&page, "self"), Some(&*own));
    let next = href(&page, "next").unwrap();
    let begins = format!("{path}?order=asc&limit=5&sort_by=ttl&cursor=");
    assert!(next.starts_with(&begins) && next.ends_with("&filter_key=Balance"), "{next}");
    let second = get(&world, next);
    assert_eq!(href(&second, "self"), Some(next));
    assert!(href(&second, "prev").unwrap().starts_with(&begins));
    // A page that has as many as were wanted has a next one, although it may be empty.
    let all = get(&world, &format!("{path}?limit=200"))["results"].as_array().unwrap().len();
    let full = get(&world, &format!("{path}?limit={all}"));
    let empty = get(&world, href(&full, "next").unwrap());
    assert_eq!(
        (&empty["results"], href(&empty, "next"), href(&empty, "prev")),
        (&json!([]), None, None)
    );
    assert_eq!(href(&get(&world, &format!("{path}?limit=200")), "next"), None);
}

#[test]
fn filters_are_symbols_of_vectors() {
    let (made, world) = made();
    let path = format!("/api/contract/{}/storage", made.contract);
    let model = world.model.list(&made.contract.0, world.newest()).unwrap();
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    for entry in &model.entries {
        let LedgerKey::ContractData(key) = &entry.present.key else { panic!() };
        if let ScVal::Vec(Some(items)) = &key.key
            && let Some(ScVal::Symbol(name)) = items.first()
        {
            *names.entry(name.to_utf8_string_lossy()).or_default() += 1;
        }
    }
    assert_eq!(names["Balance"], BALANCES as usize - 1);
    for (name, count) in &names {
        assert_eq!(
            walk(&world, &format!("{path}?filter_key={name}&limit=2")).len(),
            *count,
            "{name}"
        );
    }
    // A plain symbol is none.
    assert_eq!(get(&world, &format!("{path}?filter_key=Plain"))["results"], json!([]));
    assert_eq!(
        get(&world, &format!("{path}?filter_key=%20"))["results"].as_array().unwrap().len(),
        20.min(model.entries.len())
    );
    let keys = get(&world, &format!("/api/contract/{}/keys?x=y", made.contract));
    let expected = json!({
        "contract_id": made.contract.to_string(),
        "total_keys": names.len(),
        "truncated": false,
        "keys": names.keys().collect::<Vec<_>>(),
    });
    assert_eq!(keys, expected);
}

#[test]
fn faults_have_the_bodies_of_the_lab() {
    let (made, world) = made();
    let path = format!("/api/contract/{}/storage", made.contract);
    let refused = |query: &str| {
        let answer = world.server.get(&format!("{path}?{query}"));
        assert_eq!(answer.status, 400, "{query}");
        answer.json()
    };
    for (query, at, code) in [
        ("limit=0", "limit", "too_small"),
        ("limit=", "limit", "too_small"),
        ("limit=201", "limit", "too_big"),
        ("limit=2.5", "limit", "invalid_type"),
        ("limit=ten", "limit", "invalid_type"),
        ("limit=1&limit=2", "limit", "invalid_type"),
        ("order=ASC", "order", "invalid_value"),
        ("sort_by=key", "sort_by", "invalid_value"),
        ("sort_by=", "sort_by", "invalid_value"),
    ] {
        let body = refused(query);
        assert_eq!(body["message"], "Invalid query parameters", "{query}");
        let issue = &body["issues"][0];
        assert_eq!((&issue["path"], &issue["code"]), (&json!(at), &json!(code)), "{query}");
        assert!(issue["message"].as_str().unwrap().len() > 10, "{query}");
        assert_eq!(body.as_object().unwrap().len(), 2, "{query}");
    }
    assert_eq!(refused("limit=0&order=x")["issues"].as_array().unwrap().len(), 2);
    let one = json!({ "path": "order", "message": "Invalid option: expected one of \"asc\"|\"desc\"", "code": "invalid_value" });
    assert_eq!(refused("order=x")["issues"], json!([one]));

    let next = get(&world, &format!("{path}?limit=2&sort_by=ttl&order=asc"));
    let next = href(&next, "next").unwrap().to_owned();
    let cursor = next.split_once("cursor=").unwrap().1;
    for query in [
        "cursor=x".to_owned(),
        "cursor=e30%3D".to_owned(),
        "cursor=%FF".to_owned(),
        format!("cursor={cursor}"),
        format!("cursor={cursor}&sort_by=ttl"),
        format!("cursor={cursor}&sort_by=ttl&order=asc&filter_key=Balance"),
        format!("cursor={cursor}&sort_by=updated_at&order=asc"),
        format!("cursor={cursor}&cursor={cursor}"),
    ] {
        let body = refused(&query);
        assert!(body["error"].as_str().unwrap().contains("cursor"), "{query}: {body}");
        assert_eq!(body.as_object().unwrap().len(), 1, "{query}");
    }
    assert_eq!(
        world.server.get(&format!("{path}?cursor={cursor}&sort_by=ttl&order=asc")).status,
        200
    );
    assert_eq!(world.server.get(&format!("{path}?cursor=")).status, 200);

    for (limit, count) in [("1e0", 1), ("%202%20", 2), ("0x3", 3), ("3.0", 3)] {
        let page = get(&world, &format!("{path}?limit={limit}"));
        assert_eq!(page["results"].as_array().unwrap().len(), count, "{limit}");
        assert_eq!(href(&page, "self"), Some(&*format!("{path}?order=desc&limit={count}")));
    }
    for wrong in ["x", "CAS3", &made.contract.to_string().to_lowercase()] {
        for end in ["storage", "keys"] {
            let answer = world.server.get(&format!("/api/contract/{wrong}/{end}"));
            assert_eq!(answer.status, 400);
            let body = answer.json();
            assert_eq!(body["message"], "Invalid path parameters");
            assert_eq!(body["issues"][0]["path"], "contract_id");
            assert_eq!(body["issues"][0]["code"], "invalid_format");
        }
    }
    let mistyped = made.contract.to_string();
    let last = if mistyped.ends_with('A') { 'B' } else { 'A' };
    let mistyped = format!("{}{last}", &mistyped[..55]);
    let answer = world.server.get(&format!("/api/contract/{mistyped}/storage"));
    assert_eq!((answer.status, &answer.json()["issues"][0]["code"]), (400, &json!("custom")));

    let anonymous = world.server.get_public(&path);
    assert_eq!((anonymous.status, anonymous.header("www-authenticate")), (401, Some("Bearer")));
    assert_eq!(anonymous.json().as_object().unwrap().keys().collect::<Vec<_>>(), ["error"]);
    // A contract that has nothing, and a store without ledgers.
    let nothing = get(&world, &format!("/api/contract/{}/storage", ContractId([9; 32])));
    assert_eq!(nothing["results"], json!([]));
    let empty = TempStore::with_storage(&local());
    let server = Server::start(&empty);
    assert_eq!(server.get(&path).json()["results"], json!([]));
    let keys = server.get(&format!("/api/contract/{}/keys", made.contract)).json();
    assert_eq!((&keys["total_keys"], &keys["keys"]), (&json!(0), &json!([])));
}

/// Below the name of the network, as the Lab asks for the first page, the answers are the same.
#[test]
fn the_path_may_begin_with_the_network() {
    let (made, world) = made();
    let network = world.store.store.network().name();
    let contract = made.contract;
    for end in ["storage", "storage?limit=3&order=asc", "storage?sort_by=ttl&x=y", "keys", "keys/"]
    {
        let path = format!("/api/contract/{contract}/{end}");
        let own = get(&world, &format!("/{network}{path}"));
        assert_eq!(own, get(&world, &path), "{path}");
        for other in ["mainnet", "testnet", "pubnet", "x%2Fy", &network.to_uppercase()] {
            let answer = world.server.get(&format!("/{other}{path}"));
            assert_eq!(answer.status, 404, "{other}");
            let body = answer.json();
            let sentence = body["error"].as_str().unwrap();
            assert!(sentence.contains(&format!("below /{network}/api")), "{sentence}");
        }
    }
    let first = get(&world, &format!("/{network}/api/contract/{contract}/storage?limit=3"));
    let next = href(&first, "next").unwrap();
    assert!(next.starts_with("/api/contract/") && get(&world, next)["results"].is_array());
    let wrong = world.server.get(&format!("/{network}/api/contract/x/storage"));
    assert_eq!((wrong.status, &wrong.json()["message"]), (400, &json!("Invalid path parameters")));
    let path = format!("/{network}/api/contract/{contract}/storage");
    assert_eq!(world.server.get_public(&path).status, 401);
    // Mainnet is called so in the Lab, too.
    let store = TempStore::with_storage(&pubnet::network());
    let server = Server::start(&store);
    let path = format!("/api/contract/{contract}/storage");
    assert_eq!(server.get(&format!("/mainnet{path}")).json()["results"], json!([]));
    assert_eq!(server.get(&format!("/pubnet{path}")).status, 404);
}

/// The built binary, on recorded ledgers, for everybody: the Lab's form, the list, and an entry agree.
#[test]
fn the_binary_serves_recorded_ledgers_to_everybody() {
    if data::missing() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let folder = data::location().join("local-network");
    let ledgers = fixtures::load(&folder, "local-vault.xdr.zst").ledgers;
    let mut model = orrery_testkit::storage::StorageModel::new(local().passphrase());
    for raw in &ledgers {
        model.add(raw);
    }
    let file = folder.join("local-vault.xdr.zst");
    import(directory.path(), &file);
    let data_dir = directory.path().join("d");
    let service = Service::start_with(&data_dir, &[("ORRERY_HTTP_PUBLIC_READ", "true")]);
    let newest = model.ranges()[0].last;
    service.wait_until_stored(newest);
    let mut vaults = 0;
    for contract in model.contracts() {
        let id = ContractId(contract);
        let list = model.list(&contract, newest).unwrap();
        let get = |path: &str| {
            let (status, answer) = service.ask(path, None);
            assert_eq!(status, 200, "{path}: {answer}");
            answer
        };
        let lab = get(&format!("/api/contract/{id}/storage?limit=200&order=asc"));
        let rest = get(&format!("/rest/contracts/{id}/storage?limit=1000"));
        assert_eq!(rest["complete"], list.complete);
        let hashes = |rows: &Value| -> Vec<String> {
            let rows = rows.as_array().unwrap().iter();
            rows.map(|row| row["key_hash"].as_str().unwrap().to_owned()).collect()
        };
        let all: Vec<String> = list.entries.iter().map(|it| hex::encode(it.key_hash)).collect();
        assert_eq!(hashes(&lab["results"]), all, "{id}");
        let instance = rest["instance"]["key_hash"].as_str().unwrap_or_default();
        let others: Vec<String> = all.iter().filter(|hash| *hash != instance).cloned().collect();
        assert_eq!(hashes(&rest["entries"]), others, "{id}");
        for row in rest["entries"].as_array().unwrap() {
            let hash = row["key_hash"].as_str().unwrap();
            assert_eq!(get(&format!("/rest/contracts/{id}/storage/{hash}")), *row);
        }
        let decoded = get(&format!("/rest/contracts/{id}/storage?decoded=true"));
        let items = decoded["instance"]["storage"].as_array().cloned().unwrap_or_default();
        if items.iter().any(|item| item["key"] == json!({ "tag": "Total", "values": [] })) {
            vaults += 1;
            let entries = decoded["entries"].as_array().unwrap();
            let total: i128 = entries
                .iter()
                .filter(|row| row["name"] == "Balance")
                .map(|row| row["value"].as_str().unwrap().parse::<i128>().unwrap())
                .sum();
            let said = items.iter().find(|item| item["name"] == "Total").unwrap();
            assert_eq!(said["value"], total.to_string());
        }
    }
    assert_eq!(vaults, 2);
    service.stop();
}

fn import(directory: &Path, file: &Path) {
    let arguments = ["import", "--data-dir", "d", "--network", "local", file.to_str().unwrap()];
    run(directory, &arguments).succeeded();
}
