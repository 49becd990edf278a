//! Members of projects: what the events of a ledger cost that come from many contracts which a factory has
//! announced, against as many from one; and the memory that a member takes. With the built binary, over HTTP.

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use orrery::domain::ContractId;
use orrery_testkit::binary::{Service, run as run_orrery};
use serde_json::{Value, json};
use stellar_xdr::{
    ContractEvent, ContractEventBody, ContractEventType, ContractEventV0, ExtensionPoint, Hash,
    ScAddress, ScSymbol, ScVal,
};

use super::client::Client;
use super::measure::{Sample, Sides, sized};
use super::packed;
use super::recorded::{Recorded, write_record};
use super::report::{Goal, Report, Row};
use super::variation::spread;

/// Goal for the time of an event of many members against that of one.
const COST: Goal = Goal::at_most(1.1, 1.0);
/// Goal for the bytes of memory of a member.
const MEMORY: Goal = Goal::at_most(200.0, 100.0);

const REPETITIONS: usize = sized(5, 1);
/// Contracts that the factory announces, and those of them that emit events afterwards.
const MEMBERS: u64 = sized(100_000, 60);
const CHILDREN: u64 = sized(10_000, 20);
const TRANSACTIONS: usize = sized(100, 4);
const IN_A_TRANSACTION: usize = sized(100, 5);
const IN_A_LEDGER: u64 = (TRANSACTIONS * IN_A_TRANSACTION) as u64;
/// Ledgers in which members emit events.
const LIVE_LEDGERS: u64 = sized(30, 3);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const TIMEOUT: Duration = Duration::from_secs(900);
/// How long a service may take to give back memory.
const SETTLES_WITHIN: Duration = sized(Duration::from_secs(10), Duration::from_millis(100));

/// How many members a load has.
#[derive(Clone, Copy)]
struct Load {
    members: u64,
    children: u64,
}

const MANY: Load = Load { members: MEMBERS, children: CHILDREN };
const ONE: Load = Load { members: 1, children: 1 };

/// What a service took.
struct Took {
    /// Microseconds for each event of a member.
    per_event: f64,
    /// Resident bytes before the members emitted events.
    memory: f64,
}

/// Measures both rows.
pub fn run(
    recorded: &Recorded,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let files = tempfile::tempdir_in(directory)?;
    let ledgers = announcing() + LIVE_LEDGERS;
    let copies = ledgers.div_ceil(recorded.ledgers.len() as u64);
    let mut taken = Vec::new();
    for (name, load) in [("many", MANY), ("one", ONE)] {
        let event = |number| load.event(number - 1);
        let shape = [TRANSACTIONS, IN_A_TRANSACTION];
        let (mut written, mut done) = (0, Ok(()));
        let mut parts = [
            BufWriter::new(File::create(files.path().join(format!("{name}-first.xdr")))?),
            BufWriter::new(File::create(files.path().join(format!("{name}-live.xdr")))?),
        ];
        packed::each(recorded, copies, shape, event, |ledger| {
            if written < ledgers && done.is_ok() {
                let part = usize::from(written >= announcing());
                done = write_record(&mut parts[part], &ledger);
            }
            written += 1;
        });
        done?;
        parts.iter_mut().try_for_each(Write::flush)?;
    }
    for _ in 0..REPETITIONS {
        let many = measured(recorded, files.path(), ("many", MANY))?;
        taken.push((many, measured(recorded, files.path(), ("one", ONE))?));
    }
    let per_event: Sides =
        taken.iter().map(|(many, one)| (many.per_event, one.per_event)).collect();
    let name = format!(
        "Event of a member, with {CHILDREN} that emit events and {MEMBERS} in all / with one member"
    );
    report.add(Row::new(name, "µs", per_event, COST));
    let each = |(many, one): &(Took, Took)| (many.memory - one.memory) / MEMBERS as f64;
    let memory = Sample::from(taken.iter().map(each).collect::<Vec<_>>());
    report.add(Row::absolute(format!("Memory of each of {MEMBERS} members"), "B", memory, MEMORY));
    report.note(format!(
        "Members: a factory announces {MEMBERS} contracts in {} ledgers, or one; then {LIVE_LEDGERS} ledgers have \
         {IN_A_LEDGER} events each, of {CHILDREN} of these contracts in turn, or of the one. The time is that from the \
         import of these until the project has all events. Memory is that of the process before them, of a service that \
         was started again.",
        announcing()
    ));
    Ok(())
}

/// Number of ledgers in which the factory announces contracts.
fn announcing() -> u64 {
    MEMBERS.div_ceil(IN_A_LEDGER)
}

fn factory() -> ContractId {
    ContractId(spread(1 << 54))
}

fn child(number: u64) -> ContractId {
    ContractId(spread((1 << 54) + 1 + number))
}

fn symbol(text: &str) -> ScVal {
    ScVal::Symbol(ScSymbol(text.try_into().unwrap_or_default()))
}

fn event(contract: ContractId, topic: &str, data: ScVal) -> ContractEvent {
    ContractEvent {
        ext: ExtensionPoint::V0,
        contract_id: Some(stellar_xdr::ContractId(Hash(contract.0))),
        type_: ContractEventType::Contract,
        body: ContractEventBody::V0(ContractEventV0 {
            topics: vec![symbol(topic)].try_into().unwrap_or_default(),
            data,
        }),
    }
}

impl Load {
    /// Returns the event with this number, from 0: first those of the factory, then those of its children.
    fn event(self, number: u64) -> ContractEvent {
        match number.checked_sub(announcing() * IN_A_LEDGER) {
            None => {
                // Both loads have as many events; beyond the members these announce nothing.
                let topic = if number < self.members { "made" } else { "noted" };
                let made = stellar_xdr::ContractId(Hash(child(number).0));
                event(factory(), topic, ScVal::Address(ScAddress::Contract(made)))
            }
            Some(number) => event(child(number % self.children), "said", ScVal::U64(number)),
        }
    }
}

fn measured(
    recorded: &Recorded,
    files: &Path,
    (name, load): (&str, Load),
) -> Result<Took, Box<dyn Error>> {
    let import = |part: &str| {
        let file = format!("{name}-{part}.xdr");
        let network = recorded.network.name();
        let import = ["import", "--network", network, "--data-dir", name, &file];
        run_orrery(files, &import).succeeded();
    };
    let data = files.join(name);
    import("first");
    let service = Service::start(&data);
    let mut client = Client::connect(service.address.parse()?, service.token())?;
    let selector = json!({ "contract": factory().to_string(), "event": "made", "param": "value" });
    let watch = json!({ "project_name": "members", "factories": [selector] }).to_string();
    let watched = client.post("/rest/retroshade/watch", watch.as_bytes())?;
    let id = serde_json::from_slice::<Value>(watched)?["id"].clone();
    wait_for(&mut client, &id, |it| it["members"] == load.members && it["backfill"] == "done")?;
    drop(client);
    service.stop();
    // What finding them took is given back.
    let service = Service::start(&data);
    let mut client = Client::connect(service.address.parse()?, service.token())?;
    wait_for(&mut client, &id, |it| it["members"] == load.members)?;
    let memory = settled(&service);
    let begun = Instant::now();
    import("live");
    let events = LIVE_LEDGERS * IN_A_LEDGER;
    wait_for(&mut client, &id, |it| it["events"] == events)?;
    let took = begun.elapsed();
    service.stop();
    std::fs::remove_dir_all(&data)?;
    Ok(Took { per_event: took.as_secs_f64() * 1e6 / events as f64, memory })
}

fn wait_for(
    client: &mut Client,
    id: &Value,
    is_so: impl Fn(&Value) -> bool,
) -> Result<(), Box<dyn Error>> {
    let begun = Instant::now();
    loop {
        let status = client.get(&format!("/rest/retroshade/{id}/status"))?;
        let status: Value = serde_json::from_slice(status)?;
        if is_so(&status) {
            return Ok(());
        }
        if begun.elapsed() > TIMEOUT {
            return Err(format!("in vain for its members and events: {status}").into());
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the lowest resident memory while the service has time to give back what it can, in bytes.
fn settled(service: &Service) -> f64 {
    let (begun, mut lowest) = (Instant::now(), f64::INFINITY);
    while begun.elapsed() < SETTLES_WITHIN {
        thread::sleep(POLL_INTERVAL);
        lowest = lowest.min(service.memory("VmRSS") as f64);
    }
    lowest
}
