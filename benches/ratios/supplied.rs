//! Memory that supplied interfaces leave behind: owners make as many as the service lets them, each as
//! large as it may be, and delete them again.

use std::error::Error;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use orrery::domain::ContractId;
use orrery::settings::Programs;
use orrery_testkit::binary::{Service, token_with};
use orrery_testkit::specs::{Type, structure};
use orrery_testkit::upgraded::with_interface;
use serde_json::{Value, json};
use stellar_xdr::{ScSpecEntry, ScSpecFunctionV0, ScSymbol, StringM, VecM};

use super::client::Client;
use super::lookups::digest;
use super::measure::{Sample, sized};
use super::report::{Goal, Report, Row};

/// Resident memory afterwards, against what it was after as many had been made and deleted before.
const AGAIN: Goal = Goal::at_most(1.1, 1.0);
/// Mebibytes that are resident beyond what a new service has: a write buffer of the store, and a tenth
/// of what a new service has.
const LEFT: Goal = Goal::at_most(72.0, 16.0);

const INTERFACES: usize = sized(512, 2);
/// Owners that make them at the same time: as many as the service reads.
const AT_A_TIME: usize = 2;
/// Size of a module or file that is supplied, in bytes.
const BYTES: usize = 2 << 20;
/// At most that many bytes have a function without parameters and results as XDR, a struct as JSON, and
/// what is around them.
const OF_FUNCTION: usize = 32;
const OF_STRUCT: usize = 80 + 42 * FIELDS;
const AROUND: usize = 64;
/// Fields of each struct.
const FIELDS: usize = 40;
/// How long the service may take to give memory back, and how long to wait before it is asked again.
const SETTLES_WITHIN: Duration = sized(Duration::from_secs(20), Duration::from_millis(400));
const POLL_INTERVAL: Duration = Duration::from_millis(200);
const MEBIBYTE: f64 = (1 << 20) as f64;

/// Measures what interfaces leave behind.
pub fn run(directory: &Path, report: &mut Report) -> Result<(), Box<dyn Error>> {
    let data = tempfile::tempdir_in(directory)?;
    let most_of_owner = Programs::default().owner_programs.get() as usize;
    let owners: Vec<String> = (0..INTERFACES.div_ceil(most_of_owner).max(AT_A_TIME))
        .map(|owner| token_with(data.path(), &format!("owner{owner}"), &["--network", "local"]))
        .collect();
    let service = Service::start(data.path());
    // What every service takes that has answered requests of this kind and size.
    make_and_delete(&service, &owners[..AT_A_TIME], 0..AT_A_TIME)?;
    let new = settled(&service);
    make_and_delete(&service, &owners, 0..INTERFACES)?;
    let before = settled(&service);
    make_and_delete(&service, &owners, INTERFACES..2 * INTERFACES)?;
    let after = settled(&service);
    report.note(format!(
        "Supplied interfaces: {INTERFACES} of up to {} MiB by {} owners, half of them modules with functions, half \
         JSON with structs, {AT_A_TIME} at a time, then deleted, twice. {new:.0} MiB were resident at first, \
         {before:.0} and {after:.0} after each time, at most {:.0} meanwhile.",
        BYTES >> 20,
        owners.len(),
        mebibytes(&service, "VmHWM"),
    ));
    let name =
        format!("Resident memory after {INTERFACES} supplied interfaces / after as many before");
    report.add(Row::new(name, "MiB", [(after, before)].into_iter().collect(), AGAIN));
    let name =
        format!("Resident memory after {INTERFACES} supplied interfaces, beyond a new service's");
    report.add(Row::absolute(name, "MiB", Sample::exact(after - new), LEFT));
    service.stop();
    Ok(())
}

/// Returns the lowest resident memory while the service has time to give back what it can, in MiB.
fn settled(service: &Service) -> f64 {
    let (begun, mut lowest) = (Instant::now(), f64::INFINITY);
    while begun.elapsed() < SETTLES_WITHIN {
        thread::sleep(POLL_INTERVAL);
        lowest = lowest.min(mebibytes(service, "VmRSS"));
    }
    lowest
}

fn mebibytes(service: &Service, figure: &str) -> f64 {
    service.memory(figure) as f64 / MEBIBYTE
}

/// Each owner supplies its share of the interfaces with these numbers; then all are deleted.
fn make_and_delete(
    service: &Service,
    owners: &[String],
    numbers: std::ops::Range<usize>,
) -> Result<(), Box<dyn Error>> {
    let shares: Vec<_> = (0..AT_A_TIME)
        .map(|thread| owners.iter().enumerate().skip(thread).step_by(AT_A_TIME))
        .collect();
    let in_turn = |work: &(dyn Fn(usize, &str) -> Result<(), String> + Sync)| {
        thread::scope(|scope| {
            let threads: Vec<_> = shares
                .iter()
                .map(|share| {
                    let mut share = share.clone();
                    scope.spawn(move || share.try_for_each(|(owner, token)| work(owner, token)))
                })
                .collect();
            threads.into_iter().try_for_each(|it| it.join().map_err(|_| "a panic".to_owned())?)
        })
    };
    let of_owner = |owner: usize| numbers.clone().skip(owner).step_by(owners.len());
    in_turn(&|owner, token| {
        let mut client = connect(service, token)?;
        of_owner(owner).try_for_each(|number| {
            let contract = ContractId(digest("contract", number as u64));
            let watch = json!({
                "project_name": format!("p{number}"),
                "contracts": [contract.to_string()],
                "spec": interface(number),
            });
            let made = client.post("/rest/retroshade/watch", watch.to_string().as_bytes());
            made.map(drop).map_err(|error| format!("interface {number}: {error}"))
        })
    })?;
    in_turn(&|_, token| {
        let mut client = connect(service, token)?;
        let list = client.get("/rest/retroshade/list").map_err(|error| error.to_string())?;
        let list: Vec<Value> = serde_json::from_slice(list).map_err(|error| error.to_string())?;
        list.iter().try_for_each(|project| {
            let deleted = client.delete(&format!("/rest/retroshade/{}", project["id"]));
            deleted.map(drop).map_err(|error| error.to_string())
        })
    })?;
    Ok(())
}

fn connect(service: &Service, token: &str) -> Result<Client, String> {
    let address = service.address.parse().map_err(|_| "no address")?;
    Client::connect(address, token).map_err(|error| error.to_string())
}

/// An interface as a request gives it: a module, or JSON.
fn interface(number: usize) -> Value {
    let room = BYTES - AROUND;
    if number.is_multiple_of(2) {
        let functions = (0..room / OF_FUNCTION).map(|at| function(&format!("f{number}_{at}")));
        let functions: Vec<_> = functions.collect();
        return STANDARD.encode(with_interface(b"\0asm\x01\0\0\0".to_vec(), &functions)).into();
    }
    let fields: Vec<_> = (0..FIELDS).map(|at| (format!("f{at}"), Type::U32)).collect();
    let structs = (0..room / OF_STRUCT).map(|at| structure(&format!("S{number}x{at}"), &fields));
    json!(structs.collect::<Vec<_>>())
}

fn function(name: &str) -> ScSpecEntry {
    ScSpecEntry::FunctionV0(ScSpecFunctionV0 {
        doc: StringM::default(),
        name: ScSymbol(name.try_into().expect("a short name")),
        inputs: VecM::default(),
        outputs: VecM::default(),
    })
}
