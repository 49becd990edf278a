//! Kills the service while it stores ledgers and runs programs on them, and while programs are
//! deployed, extended, deleted and backfilled. Everything that was acknowledged holds afterwards,
//! and nothing is there in part.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use crate::service::{Owner, Recorded, Scene};
use orrery_testkit::binary::{Service, orrery};
use orrery_testkit::size;

/// Number of kills per data directory while the recorded ledgers are imported for the first time.
const LIVE: usize = 4;
/// Number of kills per data directory during requests.
const REQUESTS: usize = 6;
/// Maximum time from a request to the kill.
const MAX_KILL_DELAY: Duration = Duration::from_millis(120);

/// Acknowledged state of a program.
#[derive(Debug, Clone)]
struct Known {
    contracts: BTreeSet<String>,
    /// Contracts of append requests that got no response.
    unconfirmed_contracts: BTreeSet<String>,
    /// Whether its deletion was requested and got no response.
    deletion_unconfirmed: bool,
}

struct Life<'a> {
    recorded: &'a Recorded,
    scene: Scene,
    rng: ChaCha8Rng,
    programs: BTreeMap<u64, Known>,
    /// Projects whose deploy got no response.
    unconfirmed_deploys: BTreeSet<String>,
    deleted: BTreeSet<u64>,
    projects: u64,
}

/// Request that is sent just before a kill.
#[derive(Debug, Clone)]
enum Request {
    Deploy { project: String, contracts: Vec<String> },
    Append { id: u64, contract: String },
    Delete { id: u64 },
    Backfill { id: u64 },
}

impl<'a> Life<'a> {
    fn new(recorded: &'a Recorded, seed: u64) -> Self {
        Self {
            recorded,
            scene: Scene::new(),
            rng: ChaCha8Rng::seed_from_u64(seed),
            programs: BTreeMap::new(),
            unconfirmed_deploys: BTreeSet::new(),
            deleted: BTreeSet::new(),
            projects: 0,
        }
    }

    fn vaults(&self) -> Vec<String> {
        let vaults = self.recorded.expected["vaults"].as_array().unwrap().iter();
        vaults.map(|vault| vault.as_str().unwrap().to_owned()).collect()
    }

    /// Returns the first few vaults, at least one.
    fn some_vaults(&mut self) -> Vec<String> {
        let vaults = self.vaults();
        let count = self.rng.random_range(1..=vaults.len());
        vaults[..count].to_vec()
    }

    fn next_project(&mut self) -> String {
        self.projects += 1;
        format!("p{}", self.projects)
    }

    /// Imports the ledgers for the first time while the service is repeatedly killed; then imports
    /// them without a kill.
    fn ingest(&mut self) {
        for _ in 0..LIVE {
            let service = Service::start(self.scene.path());
            self.check(&self.scene.owner(&service, "ana"));
            let import = self.import();
            // The maximum is a little longer than the import takes to start.
            let pause = Duration::from_millis(300).mul_f64(self.rng.random());
            thread::sleep(pause);
            drop(service);
            finish(import);
        }
        let _service = Service::start(self.scene.path());
        self.scene.import(&self.recorded.ledgers());
    }

    fn import(&self) -> Child {
        let mut command = orrery();
        command.args(["import", "--data-dir"]).arg(self.scene.path()).arg(self.recorded.ledgers());
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn deploy(&mut self, owner: &Owner, contracts: Vec<String>) -> u64 {
        let project = self.next_project();
        let answer = self.send(owner, &Request::Deploy { project, contracts: contracts.clone() });
        let id = answer.unwrap().1["id"].as_u64().unwrap();
        self.programs.insert(id, Known::with(contracts));
        id
    }

    fn send(&self, owner: &Owner, request: &Request) -> Option<(u16, Value)> {
        match request {
            Request::Deploy { project, contracts } => {
                let mut body = self.recorded.deploy(project);
                body["contracts"] = json!(contracts);
                owner.try_ask("POST", "deploy", Some(&body))
            }
            Request::Append { id, contract } => {
                let body = json!({ "program_id": id, "contracts": [contract] });
                owner.try_ask("POST", "append-contracts", Some(&body))
            }
            Request::Delete { id } => owner.try_ask("DELETE", &id.to_string(), None),
            Request::Backfill { id } => {
                let body = json!({ "from": 0, "to": 4_000_000_000u32 });
                owner.try_ask("POST", &format!("{id}/backfill"), Some(&body))
            }
        }
    }

    fn choose(&mut self) -> Request {
        let id = self.programs.keys().copied().choose(&mut self.rng);
        match (self.rng.random_range(0..4), id) {
            (0, _) | (_, None) => {
                Request::Deploy { project: self.next_project(), contracts: self.some_vaults() }
            }
            (1, Some(id)) => {
                let contract = self.vaults().into_iter().choose(&mut self.rng).unwrap();
                Request::Append { id, contract }
            }
            (2, Some(id)) => Request::Delete { id },
            (_, Some(id)) => Request::Backfill { id },
        }
    }

    /// Sends one request, and kills the service during or after it.
    fn kill_in_request(&mut self) {
        let service = Service::start(self.scene.path());
        let owner = self.scene.owner(&service, "ana");
        self.check(&owner);
        let request = self.choose();
        let pause = MAX_KILL_DELAY.mul_f64(self.rng.random());
        let answer = thread::scope(|scope| {
            let asking = scope.spawn(|| self.send(&owner, &request));
            thread::sleep(pause);
            drop(service);
            asking.join().unwrap()
        });
        self.note(request, answer);
    }

    fn note(&mut self, request: Request, answer: Option<(u16, Value)>) {
        let done = match &answer {
            None => None,
            Some((200, body)) => Some(body),
            // Refused, for example because the contract was there already: nothing changes.
            Some(_) => return,
        };
        match (request, done) {
            (Request::Deploy { contracts, .. }, Some(body)) => {
                self.programs.insert(body["id"].as_u64().unwrap(), Known::with(contracts));
            }
            (Request::Deploy { project, .. }, None) => {
                self.unconfirmed_deploys.insert(project);
            }
            (Request::Append { id, contract }, done) => {
                let known = self.programs.get_mut(&id).unwrap();
                let list = if done.is_some() {
                    &mut known.contracts
                } else {
                    &mut known.unconfirmed_contracts
                };
                list.insert(contract);
            }
            (Request::Delete { id }, Some(_)) => {
                self.programs.remove(&id);
                self.deleted.insert(id);
            }
            (Request::Delete { id }, None) => {
                self.programs.get_mut(&id).unwrap().deletion_unconfirmed = true;
            }
            (Request::Backfill { .. }, _) => {}
        }
    }

    /// Compares what the service reports after a start with everything that was acknowledged
    /// before.
    fn check(&mut self, owner: &Owner) {
        let mut listed = BTreeMap::new();
        for program in owner.get("list").as_array().unwrap() {
            let contracts = program["contracts"].as_array().unwrap().iter();
            let contracts: BTreeSet<_> =
                contracts.map(|it| it.as_str().unwrap().to_owned()).collect();
            let project = program["project_name"].as_str().unwrap().to_owned();
            listed.insert(program["id"].as_u64().unwrap(), (project, contracts));
        }
        for id in &self.deleted {
            assert!(!listed.contains_key(id), "{id} was deleted");
        }
        for (id, (project, contracts)) in &listed {
            match self.programs.get_mut(id) {
                Some(known) => {
                    assert!(known.contracts.is_subset(contracts), "{id}: {known:?} {contracts:?}");
                    let possible: BTreeSet<_> =
                        known.contracts.union(&known.unconfirmed_contracts).collect();
                    assert!(
                        contracts.iter().all(|it| possible.contains(it)),
                        "{id}: {contracts:?}"
                    );
                }
                None => {
                    assert!(
                        self.unconfirmed_deploys.remove(project),
                        "{project} was never deployed"
                    );
                }
            }
            self.programs.insert(*id, Known::with(contracts.iter().cloned()));
        }
        let gone: Vec<_> =
            self.programs.iter().filter(|(id, _)| !listed.contains_key(id)).collect();
        let lost: Vec<_> = gone.iter().filter(|(_, known)| !known.deletion_unconfirmed).collect();
        assert!(lost.is_empty(), "{lost:?}");
        let gone: Vec<u64> = gone.into_iter().map(|(id, _)| *id).collect();
        for id in gone {
            self.programs.remove(&id);
            self.deleted.insert(id);
        }
        // A deploy without a response that is not listed now has not happened and never will.
        self.unconfirmed_deploys.clear();
    }

    /// Asserts that every program has the rows of an undisturbed one, and that deleted programs
    /// have left no tables.
    fn end(mut self, live: u64) {
        let service = Service::start(self.scene.path());
        let owner = self.scene.owner(&service, "ana");
        self.check(&owner);
        if self.programs.contains_key(&live) {
            // Its rows come from live runs; a backfill would hide missing ones.
            crate::service::assert_rows(&owner, self.recorded, live);
        }
        let vaults = self.vaults();
        let references: BTreeMap<usize, u64> = (1..=vaults.len())
            .map(|count| (count, self.deploy(&owner, vaults[..count].to_vec())))
            .collect();
        for (id, known) in self.programs.clone() {
            self.send(&owner, &Request::Backfill { id }).unwrap();
            owner.wait("the backfill ends", |it| {
                it.get(&format!("{id}/backfill"))["state"] == "incomplete"
            });
            assert_eq!(owner.get(&format!("{id}/backfill"))["errors"], 0, "{known:?}");
        }
        crate::service::assert_rows(&owner, self.recorded, references[&vaults.len()]);
        for (id, known) in &self.programs {
            let reference = references[&known.contracts.len()];
            for target in ["balance_changed", "batch_done"] {
                let (own, whole) =
                    (format!("program_{id}_{target}"), format!("program_{reference}_{target}"));
                owner.wait(&own, |it| it.rows(&own).len() >= it.rows(&whole).len());
                assert_eq!(owner.rows(&own), owner.rows(&whole), "{own} {known:?}");
                let sql =
                    format!("select count(*) - count(distinct _service_event_id) n from {own}");
                assert_eq!(owner.query(&sql)[0]["n"], 0, "{own}: a row is there twice");
            }
        }
        let tables = Value::from(owner.query("show tables")).to_string();
        for id in &self.deleted {
            assert!(!tables.contains(&format!("program_{id}_")), "{id} has left tables: {tables}");
        }
    }
}

impl Known {
    fn with(contracts: impl IntoIterator<Item = String>) -> Self {
        let contracts = contracts.into_iter().collect();
        Self { contracts, unconfirmed_contracts: BTreeSet::new(), deletion_unconfirmed: false }
    }
}

fn finish(mut import: Child) {
    // The import fails when the service is killed.
    import.wait().unwrap();
}

#[test]
fn kills_lose_no_rows_and_duplicate_none() {
    let Some(recorded) = Recorded::find() else { return };
    let lives = size::choose(1, 20);
    for seed in 0..lives {
        let mut life = Life::new(&recorded, seed);
        let live = {
            let service = Service::start(life.scene.path());
            let owner = life.scene.owner(&service, "ana");
            let vaults = life.vaults();
            life.deploy(&owner, vaults)
        };
        life.ingest();
        for _ in 0..REQUESTS {
            life.kill_in_request();
        }
        life.end(live);
    }
    println!("{} kills", lives as usize * (LIVE + REQUESTS));
}
