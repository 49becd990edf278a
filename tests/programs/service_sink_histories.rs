//! Random lives of a service whose rows are copied into a PostgreSQL database: ledgers in any order, code that becomes
//! known late, contracts that are added, projects that are replaced; services that are killed or stopped, servers that
//! are killed or hang, connections that are cut, also in `COMMIT` and in the rows, statements that are cancelled. In the
//! end the database has what our own SQL has, row by row.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use orrery::domain::ContractId;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;

use crate::service::{Owner, Scene};
use crate::service_projects::{count, wait_for_events, watch};
use crate::sinking::{assert_equal, start_with};
use orrery_testkit::binary::orrery;
use orrery_testkit::histories;
use orrery_testkit::postgres::{Break, Database, Proxy, Server, is_missing};
use orrery_testkit::upgraded::Upgraded;

/// Number of files in which the ledgers are imported.
const PARTS: usize = 6;
/// Longest time from a start to the kill.
const LONGEST: Duration = Duration::from_millis(2500);

static UPGRADED: LazyLock<Upgraded> = LazyLock::new(Upgraded::made);

struct Life {
    rng: ChaCha8Rng,
    scene: Scene,
    parts: Vec<PathBuf>,
    token: String,
    id: u32,
    contracts: usize,
    server: Server,
    proxy: Proxy,
    /// Name of the database, and the address by which the sink finds it.
    database: String,
    url: String,
}

impl Life {
    fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let server = Server::start(&[]);
        let proxy = Proxy::new(server.port);
        let (database, url) = {
            let database = Database::on(&server, &["orrery", "p"]);
            (database.name.clone(), database.at(proxy.port))
        };
        let scene = Scene::new();
        let contracts = rng.random_range(1..3);
        let (id, token) = {
            let service = start_with(&scene, &url, "*", &[]);
            let ana = scene.owner(&service, "ana");
            (watch(&ana, "p", &UPGRADED.contracts[..contracts]), ana.token().to_owned())
        };
        let mut ledgers: Vec<&Vec<u8>> = UPGRADED.ledgers.iter().collect();
        if rng.random_bool(0.3) {
            ledgers.shuffle(&mut rng);
        }
        let mut parts = Vec::new();
        for (number, part) in ledgers.chunks(ledgers.len().div_ceil(PARTS)).enumerate() {
            let file = scene.path().join(format!("part{number}.xdr"));
            let framed = part.iter().flat_map(|xdr| {
                let mark = u32::try_from(xdr.len()).unwrap() | 1 << 31;
                [&mark.to_be_bytes()[..], xdr.as_slice()].concat()
            });
            std::fs::write(&file, framed.collect::<Vec<u8>>()).unwrap();
            parts.push(file);
        }
        parts.shuffle(&mut rng);
        Self { rng, scene, parts, token, id, contracts, server, proxy, database, url }
    }

    fn database(&self) -> Database<'_> {
        Database { server: &self.server, name: self.database.clone() }
    }

    /// Starts the service, lets it work for a while, and kills it, or breaks what it writes into.
    fn live(&mut self) {
        let service = start_with(&self.scene, &self.url, "*", &[]);
        let owner = Owner::with_token(&service, &self.token);
        let file = self.parts.choose(&mut self.rng).unwrap();
        let mut import = orrery();
        import.current_dir(self.scene.path()).args(["import", "--data-dir", "."]).arg(file);
        let mut import = import.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        if self.contracts < 3 && self.rng.random_bool(0.3) {
            let more = [UPGRADED.contracts[self.contracts].to_string()];
            owner.post("append-contracts", &json!({ "program_id": self.id, "contracts": more }));
            self.contracts += 1;
        }
        for _ in 0..self.rng.random_range(1..5) {
            // What happens is not to depend on what the service does at that moment.
            thread::sleep(LONGEST.mul_f64(self.rng.random::<f64>() / 2.0));
            self.disturb();
        }
        match self.rng.random_bool(0.7) {
            true => drop(service),
            false => service.stop(),
        }
        // It ends with the service, or goes on without.
        import.wait().unwrap();
    }

    /// Breaks something between the service and the server.
    fn disturb(&mut self) {
        let what = self.rng.random_range(0..8);
        let others =
            "from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";
        let signal =
            |what: &str| self.database().sql(&format!("select count({what}(pid)) {others}"));
        match what {
            0 => {
                self.server.kill();
                self.server.run();
            }
            1 => drop(signal("pg_terminate_backend")),
            2 => drop(signal("pg_cancel_backend")),
            3 => self.proxy.breaks(Break::BeforeCommit),
            4 => self.proxy.breaks(Break::AfterCommit),
            5 => self.proxy.breaks(Break::InCopy),
            6 => {
                self.server.hang(true);
                thread::sleep(LONGEST / 4);
                self.server.hang(false);
            }
            _ => {}
        }
    }

    /// Puts another project in the place of this one, with the same contracts.
    fn replace(&mut self, owner: &Owner) {
        let contracts = texts(&UPGRADED.contracts);
        let watch = json!({ "project_name": "p", "contracts": contracts, "replace": true });
        self.id = owner.post("watch", &watch)["id"].as_u64().unwrap() as u32;
        owner.wait("it has taken its place", |it| {
            it.get("list").as_array().unwrap().iter().all(|it| it["id"] == self.id)
        });
    }

    /// Everything arrives.
    fn end(mut self) {
        let service = start_with(&self.scene, &self.url, "*", &[]);
        let ana = Owner::with_token(&service, &self.token);
        for file in &self.parts {
            self.scene.import(file);
        }
        let more = texts(&UPGRADED.contracts[self.contracts..]);
        if !more.is_empty() {
            ana.post("append-contracts", &json!({ "program_id": self.id, "contracts": more }));
        }
        let all = count(&UPGRADED.ledgers, &UPGRADED.contracts);
        wait_for_events(&ana, self.id, all);
        if self.rng.random_bool(0.5) {
            self.replace(&ana);
            wait_for_events(&ana, self.id, all);
        }
        assert_equal(&self.scene, &self.database(), &ana, self.id, "p");
        assert_eq!(self.database().sql("select count(*) from p.events"), all.to_string());
    }
}

/// Returns the addresses of contracts.
fn texts(contracts: &[ContractId]) -> Vec<String> {
    contracts.iter().map(ToString::to_string).collect()
}

/// Small: 2 histories; full: 70, with some 200 kills of either side.
#[test]
fn a_database_has_every_row_once_whatever_is_killed() {
    if is_missing() {
        return;
    }
    LazyLock::force(&UPGRADED);
    histories::run(2, 70, |seed| {
        let mut life = Life::new(seed);
        for _ in 0..life.rng.random_range(2..5) {
            life.live();
        }
        life.end();
    });
}
