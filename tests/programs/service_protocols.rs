//! Projects that follow the contracts of protocols: with the commands of docs/watching.md, on ledgers in which
//! contracts really create others and announce them as the protocols' published sources do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use orrery::domain::{ContractId, asset_contract_id};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use stellar_xdr::{Asset, ScAddress, ScVal};

use crate::network::{Chain, address, call};
use crate::service::{Owner, Scene};
use orrery_testkit::binary::{Service, run};
use orrery_testkit::engine_world::module;
use orrery_testkit::event_counts::by_contract;
use orrery_testkit::factories::{child, with_constructors};
use orrery_testkit::sandbox::local;
use orrery_testkit::upgraded::version;
use orrery_testkit::values::{bytes, fields, list, map, string, symbol};
use orrery_testkit::wait::wait_until;
use orrery_testkit::wasm_text::{Data, env_call, env_imports, sym, vec_of, void};

/// Protocols whose factories name the contracts that they create.
const ANNOUNCING: [&str; 5] = ["soroswap", "blend", "phoenix", "aquarius", "comet"];
/// Protocols whose factories do not.
const SILENT: [&str; 2] = ["defindex", "wallets"];
/// Number of contracts that each factory creates before anything is watched, and again afterwards.
const CREATED: u8 = 3;

/// A factory: `open(topics, data, code, salt)` creates a contract, lets it emit an event, emits one itself, and lets
/// the contract emit another one; `hide(code, salt)` creates one without telling; `emit(topics, data)` only emits.
fn factory() -> Vec<u8> {
    let arg = |at: usize| format!("(local.get {at})");
    let own = || env_call("get_current_contract_address", &[]);
    let create = |code: usize| env_call("create_contract", &[own(), arg(code), arg(code + 1)]);
    let say = |of: usize| env_call("call", &[arg(of), sym("say"), vec_of(&[arg(of)])]);
    let emit = env_call("contract_event", &[arg(0), arg(1)]);
    module(&format!(
        "{} {}
         (func (export \"open\") (param i64 i64 i64 i64) (result i64) (local i64)
            (local.set 4 {}) (drop {}) (drop {emit}) {})
         (func (export \"hide\") (param i64 i64) (result i64) (local i64)
            (local.set 2 {}) (drop {}) {})
         (func (export \"emit\") (param i64 i64) (result i64) {emit})",
        env_imports(),
        Data::default().memory(),
        create(2),
        say(4),
        say(4),
        create(0),
        say(2),
        void(),
    ))
}

/// Topics and data of the event with which a protocol's factory announces a contract.
fn announcement(protocol: &str, contract: ScVal) -> (ScVal, ScVal) {
    let token = address(asset_contract_id(local().id(), &Asset::Native));
    match protocol {
        // soroswap/core, contracts/factory/src/event.rs
        "soroswap" => (
            list([string("SoroswapFactory"), symbol("new_pair")]),
            fields([
                ("new_pairs_length", ScVal::U32(7)),
                ("pair", contract),
                ("token_0", token.clone()),
                ("token_1", token),
            ]),
        ),
        // blend-capital/blend-contracts-v2, pool-factory/src/events.rs
        "blend" => (list([symbol("deploy")]), contract),
        // Phoenix-Protocol-Group/phoenix-contracts, contracts/factory/src/contract.rs
        "phoenix" => (list([string("create"), string("liquidity_pool")]), contract),
        // AquaToken/soroban-amm, liquidity_pool_router/src/events.rs
        "aquarius" => (
            list([symbol("add_pool"), list([token.clone(), token])]),
            list([contract, symbol("stable"), bytes(&[3; 32]), list([ScVal::U32(30)])]),
        ),
        // CometDEX/comet-contracts, factory
        "comet" => (
            list([symbol("LOG"), symbol("NEW_POOL")]),
            fields([("caller", token), ("pool", contract)]),
        ),
        // paltalabs/defindex, apps/contracts/factory/src/events.rs: the contract is not in it.
        "defindex" => (
            list([string("DeFindexFactory"), symbol("create")]),
            fields([
                ("assets", list([token.clone()])),
                ("roles", map([(ScVal::U32(0), token)])),
                ("vault_fee", ScVal::U32(100)),
            ]),
        ),
        other => panic!("{other}"),
    }
}

/// The code of what a protocol's factory creates.
fn code_of(protocol: &str) -> Vec<u8> {
    match protocol {
        "defindex" => version(1),
        "wallets" => version(2),
        _ => version(4),
    }
}

fn hash_of(protocol: &str) -> [u8; 32] {
    Sha256::digest(code_of(protocol)).into()
}

/// A contract that a factory created.
struct Created {
    protocol: &'static str,
    contract: ContractId,
    ledger: u32,
    /// Whether the ledger has the call of its constructor.
    is_told: bool,
}

struct World {
    chain: Chain,
    factories: BTreeMap<&'static str, ContractId>,
    /// A contract that emits what factories emit.
    stranger: ContractId,
    created: Vec<Created>,
    /// Raw ledgers, and how many of them are imported.
    ledgers: Vec<Vec<u8>>,
    imported: usize,
    salts: u8,
}

impl World {
    fn new() -> Self {
        let mut chain = Chain::new();
        let stranger = chain.create_of(&factory(), Vec::new());
        let protocols = ANNOUNCING.into_iter().chain(SILENT);
        let factories =
            protocols.map(|protocol| (protocol, chain.create_of(&factory(), Vec::new())));
        let factories = factories.collect();
        for protocol in ["soroswap", "defindex", "wallets"] {
            let code = code_of(protocol);
            chain.close(&[orrery::sandbox::network::Request::Upload { code }]);
        }
        let (created, ledgers) = (Vec::new(), Vec::new());
        Self { chain, factories, stranger, created, ledgers, imported: 0, salts: 0 }
    }

    /// Lets each factory create contracts, a contract of each in every ledger. Of every third wallet nothing says
    /// who created it, as of all others.
    fn create(&mut self) {
        for number in 0..CREATED {
            let mut requests = Vec::new();
            self.salts += 1;
            for (protocol, factory) in self.factories.clone() {
                let salt = [self.salts; 32];
                let contract = child(&local(), factory, salt);
                let made = vec![bytes(&hash_of(protocol)), bytes(&salt)];
                requests.push(match protocol {
                    "wallets" => call(factory, "hide", made),
                    _ => {
                        let (topics, data) = announcement(protocol, address(contract));
                        call(factory, "open", [vec![topics, data], made].concat())
                    }
                });
                let ledger = self.chain.latest() + 1;
                let is_told = protocol == "wallets" && number != 0;
                self.created.push(Created { protocol, contract, ledger, is_told });
            }
            self.chain.close(&requests);
        }
    }

    /// Emits what announces nothing: an event of the same form by a stranger, and one with an account.
    fn mislead(&mut self) {
        let account = self.chain.accounts()[0].clone();
        assert!(matches!(account, ScAddress::Account(_)));
        for protocol in ANNOUNCING {
            let other = self.factories["defindex"];
            let (topics, data) = announcement(protocol, address(other));
            let (own_topics, own_data) = announcement(protocol, ScVal::Address(account.clone()));
            let factory = self.factories[protocol];
            self.chain.close(&[
                call(self.stranger, "emit", vec![topics, data]),
                call(factory, "emit", vec![own_topics, own_data]),
            ]);
        }
    }

    fn import_into(&mut self, scene: &Scene) {
        let told: BTreeMap<ContractId, ContractId> = self
            .created
            .iter()
            .filter(|created| created.is_told)
            .map(|created| (created.contract, self.factories[created.protocol]))
            .collect();
        let new = self.chain.take_unsaved().into_iter();
        self.ledgers.extend(new.map(|raw| with_constructors(&raw, |made| told.get(made).copied())));
        scene.import_ledgers(&self.ledgers[self.imported..]);
        self.imported = self.ledgers.len();
    }

    /// Numbers of events of contracts.
    fn events(&self, contracts: &BTreeSet<String>) -> BTreeMap<String, u64> {
        let mut events: BTreeMap<String, u64> = BTreeMap::new();
        for raw in &self.ledgers {
            for (contract, count) in by_contract(raw, &local()).1 {
                let contract = contract.to_string();
                if contracts.contains(&contract) {
                    *events.entry(contract).or_default() += count as u64;
                }
            }
        }
        events
    }

    fn of(&self, protocol: &str, is_meant: impl Fn(&Created) -> bool) -> BTreeSet<String> {
        let of = self.created.iter().filter(|it| it.protocol == protocol && is_meant(it));
        of.map(|created| created.contract.to_string()).collect()
    }
}

/// Returns the commands of docs/watching.md that watch the contracts of protocols, by the names of their projects:
/// those with `$FACTORY` or `$HASH` in the place of what the reader knows.
fn documented() -> BTreeMap<String, Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/watching.md");
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| line.contains("$FACTORY") || line.contains("$HASH"));
    let commands = lines.filter_map(|line| line.strip_prefix("orrery watch "));
    let words = commands.map(|line| line.split_whitespace().map(str::to_owned).collect());
    words.map(|words: Vec<String>| (words[0].clone(), words)).collect()
}

/// Waits until a project has exactly these members, and their events as rows.
fn assert_follows(owner: &Owner, project: &str, world: &World, expected: &BTreeSet<String>) {
    let text = |row: &Value| row["contract_id"].as_str().unwrap().to_owned();
    wait_until("it has its members and their events", || {
        let members = owner.query(&format!("select contract_id from {project}.members"));
        let members: BTreeSet<String> = members.iter().map(text).collect();
        let sql = format!("select contract_id, count(*) as n from {project}.events group by 1");
        let rows = owner.query(&sql);
        let rows: BTreeMap<String, u64> =
            rows.iter().map(|row| (text(row), row["n"].as_u64().unwrap())).collect();
        let events = world.events(expected);
        match members == *expected && rows == events {
            true => Ok(()),
            false => Err(format!("{project}: {members:?}, {expected:?}; {rows:?}, {events:?}")),
        }
    });
}

#[test]
fn the_contracts_of_protocols_are_followed_as_documented() {
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let owner = scene.owner(&service, "ana");
    let mut world = World::new();
    world.create();
    world.import_into(&scene);

    let base = format!("{}/rest", service.base);
    let asked = ["--base", &base, "--jwt", owner.token()];
    let mut watched: Vec<(String, &str)> = Vec::new();
    for (project, words) in documented() {
        let protocol = ANNOUNCING.into_iter().chain(SILENT).find(|it| *it == project);
        let protocol = protocol.unwrap_or_else(|| panic!("no test knows {project}"));
        let factory = world.factories[protocol].to_string();
        let hash: String = hash_of(protocol).iter().map(|byte| format!("{byte:02x}")).collect();
        let filled =
            words.iter().map(|it| it.replace("$FACTORY", &factory).replace("$HASH", &hash));
        let filled: Vec<String> = ["watch".to_owned()].into_iter().chain(filled).collect();
        let words: Vec<&str> = filled.iter().map(String::as_str).chain(asked).collect();
        run(scene.path(), &words).succeeded();
        watched.push((project, protocol));
    }
    let known: Vec<&str> = watched.iter().map(|(project, _)| project.as_str()).collect();
    let all: BTreeSet<&str> = ANNOUNCING.into_iter().chain(SILENT).collect();
    assert_eq!(known, all.into_iter().collect::<Vec<_>>(), "one command for each protocol");
    // Without the interface that comes with the program.
    let blend = json!({ "contract": world.factories["blend"].to_string(), "event": "deploy", "param": "value" });
    owner.post("watch", &json!({ "project_name": "inferred", "factories": [blend] }));
    watched.push(("inferred".to_owned(), "blend"));

    for (project, protocol) in &watched {
        assert_follows(&owner, project, &world, &world.of(protocol, |_| true));
    }
    world.mislead();
    world.create();
    world.import_into(&scene);
    for (project, protocol) in &watched {
        assert_follows(&owner, project, &world, &world.of(protocol, |_| true));
    }
}

/// As far as the network says who created them; the others are counted.
#[test]
fn creators_that_cannot_be_read_are_counted() {
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let owner = scene.owner(&service, "ana");
    let mut world = World::new();
    let mut ids = BTreeMap::new();
    for (protocol, factory) in &world.factories {
        let body = json!({ "project_name": protocol, "created_by": [factory.to_string()] });
        ids.insert(*protocol, owner.post("watch", &body)["id"].clone());
    }
    for _ in 0..2 {
        world.create();
        world.import_into(&scene);
        let unread = world.created.iter().filter(|created| !created.is_told);
        let ledgers: BTreeSet<u32> = unread.clone().map(|created| created.ledger).collect();
        let expected = json!({
            "contracts": unread.count(), "first_ledger": ledgers.first(), "last_ledger": ledgers.last(),
        });
        for (protocol, id) in &ids {
            assert_follows(&owner, protocol, &world, &world.of(protocol, |it| it.is_told));
            wait_until("what cannot be read is counted", || {
                let status = owner.get(&format!("{id}/status"));
                let (unread, members) = (&status["creations_unread"], &status["members"]);
                let is_right = *unread == expected
                    && *members == world.of(protocol, |it| it.is_told).len()
                    && status["members_are"] == "unbound";
                if is_right { Ok(()) } else { Err(status) }
            });
        }
    }
}
