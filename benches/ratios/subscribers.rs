//! Ten thousand webhook subscriptions on one contract, each to the events of a different account:
//! what they cost ingestion, with few deliveries and with many.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;
use std::thread;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use orrery::domain::ContractId;
use orrery::settings::Webhooks;
use serde_json::json;
use stellar_xdr::{AccountId, PublicKey, ScAddress, ScVal, Uint256};

use super::amplify;
use super::measure::{COMPARISON_REPETITIONS, Sides, sized};
use super::pushes::{Load, subscribe};
use super::recorded::{Recorded, xdr};
use super::report::{Goal, Report, Row};
use super::running::Running;
use super::sink::Sink;
use super::variation::spread;
use super::webhooks::{start, wait_until_deliveries_recorded};

/// Goal for ingestion with the subscriptions against ingestion without, while few of them have
/// events. What deliveries cost has a goal of its own, in [`super::webhooks`].
const BESIDE: Goal = Goal::at_least(0.9, 1.0);

/// Subscriptions, of as few owners as may have them.
const SUBSCRIPTIONS: usize = sized(10_000, 100);
/// Maximum number of subscriptions to accounts that occur in the events. An account occurs in one copy
/// of the recorded ledgers.
const FEW_ACTIVE: usize = sized(1_000, 5);
const MANY_ACTIVE: usize = sized(5_000, 20);
/// Copies of the recorded ledgers per repetition, enough for several flushes of the store, and before
/// the first repetition.
const COPIES: usize = sized(24, 1);
const FIRST: usize = 1;

/// Measures the cost of the subscriptions.
pub fn run(
    recorded: &Recorded,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let ledgers = amplify::chain(recorded, (FIRST + COMPARISON_REPETITIONS * COPIES) as u64);
    let load = Load::of(&recorded.network, &ledgers, directory)?;
    let contract = load.widest()?;
    let scene = Scene { recorded, directory, ledgers: &ledgers, load: &load, contract };
    for active in [FEW_ACTIVE, MANY_ACTIVE] {
        scene.measure(active, report)?;
    }
    Ok(())
}

struct Scene<'a> {
    recorded: &'a Recorded,
    directory: &'a Path,
    ledgers: &'a [Vec<u8>],
    load: &'a Load,
    /// The contract with the most accounts.
    contract: ContractId,
}

impl Scene<'_> {
    /// Measures with up to `most_active` subscriptions to accounts that occur.
    fn measure(&self, most_active: usize, report: &mut Report) -> Result<(), Box<dyn Error>> {
        let Self { recorded, directory, ledgers, load, contract } = *self;
        let Accounts { all, active, matches } = Accounts::of(load, contract, most_active);
        let sink = Sink::start()?;
        let beside = start(&recorded.network, directory)?;
        let alone = start(&recorded.network, directory)?;
        subscribe_all(&beside, &sink, contract, &all)?;
        let (first, rest) = ledgers.split_at(FIRST * recorded.ledgers.len());
        for service in [&beside, &alone] {
            service.seconds_to_ingest(first)?;
        }
        wait_until_delivered(&beside)?;
        let mut sides = Vec::new();
        for (repetition, ledgers) in rest.chunks(COPIES * recorded.ledgers.len()).enumerate() {
            let with = || -> Result<f64, Box<dyn Error>> {
                let seconds = beside.seconds_to_ingest(ledgers)?;
                wait_until_delivered(&beside)?;
                Ok(seconds)
            };
            let without = || alone.seconds_to_ingest(ledgers);
            // The store of the service measured last still writes files during the next measurement.
            sides.push(match repetition % 2 {
                0 => (with()?, without()?),
                _ => {
                    let seconds = without()?;
                    (with()?, seconds)
                }
            });
        }
        // Between the deliveries of a ledger and the number of those that wait, none seem to wait.
        sink.wait_for_count(matches)?;
        let came = sink.count();
        if came != matches {
            return Err(format!("{came} deliveries came of {matches}").into());
        }
        report.note(format!(
            "Subscribers: {} subscriptions of {} owners on the contract with the most accounts, each to another account \
             in the second topic; {active} of these occur; {matches} deliveries of {} ledgers, with {} events of the \
             contract.",
            all.len(),
            owners(),
            ledgers.len(),
            load.counts(contract).iter().sum::<usize>(),
        ));
        let per_repetition = (COPIES * recorded.ledgers.len()) as f64;
        let sides = sides.into_iter().collect::<Sides>().to_rates(per_repetition);
        let each = matches as f64 / ledgers.len() as f64;
        let name = format!(
            "Ingestion with 10,000 subscriptions on one contract, {each:.0} deliveries per ledger / without"
        );
        report.add(match most_active {
            FEW_ACTIVE => Row::new(name, "ledgers/s", sides, BESIDE),
            _ => Row::information(name, "ledgers/s", sides),
        });
        beside.stop()?;
        alone.stop()
    }
}

/// The accounts that are subscribed to.
struct Accounts {
    /// Second topics in XDR, all different.
    all: Vec<Vec<u8>>,
    /// Number of these topics that occur in the events.
    active: usize,
    /// Number of events of the contract that have one of these topics.
    matches: usize,
}

impl Accounts {
    fn of(load: &Load, contract: ContractId, most_active: usize) -> Self {
        let events = || {
            let of = load.ledgers().flatten().filter(|event| event.contract == Some(contract.0));
            of.filter_map(|event| event.topic2.as_ref())
        };
        let occurring: BTreeSet<&Vec<u8>> = events().collect();
        let step = (occurring.len() / most_active).max(1);
        let chosen: BTreeSet<_> = occurring.into_iter().step_by(step).take(most_active).collect();
        let matches = events().filter(|topic| chosen.contains(topic)).count();
        let silent = (0..).map(|number| {
            let key = Uint256(spread(number + (1 << 52)));
            let account = AccountId(PublicKey::PublicKeyTypeEd25519(key));
            xdr(&ScVal::Address(ScAddress::Account(account)))
        });
        let active = chosen.len();
        let all = chosen.into_iter().cloned().chain(silent).take(SUBSCRIPTIONS);
        Self { all: all.collect(), active, matches }
    }
}

/// Creates the subscriptions, of all owners in parallel.
fn subscribe_all(
    service: &Running,
    sink: &Sink,
    contract: ContractId,
    topics: &[Vec<u8>],
) -> Result<(), Box<dyn Error>> {
    let subscribe_one = |owner: usize, topics: &[Vec<u8>]| -> Result<(), Box<dyn Error>> {
        let mut client = service.client(&owner_name(owner))?;
        for topic in topics {
            let wanted = json!({
                "webhook_endpoint": sink.url("hook"),
                "contract_ids": [contract.to_string()],
                "topic2": STANDARD.encode(topic),
            });
            subscribe(&mut client, &wanted)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let owners: Vec<_> = (0..owners())
            .zip(topics.chunks(most_of_owner()))
            .map(|(owner, topics)| {
                scope.spawn(move || subscribe_one(owner, topics).map_err(|error| error.to_string()))
            })
            .collect();
        for owner in owners {
            owner.join().map_err(|_| "an owner panicked")??;
        }
        Ok(())
    })
}

fn wait_until_delivered(service: &Running) -> Result<(), Box<dyn Error>> {
    service.wait_until_deliveries_created()?;
    for owner in 0..owners() {
        wait_until_deliveries_recorded(service, &owner_name(owner))?;
    }
    Ok(())
}

/// Maximum number of subscriptions of one owner.
fn most_of_owner() -> usize {
    Webhooks::default().owner_subscriptions.get() as usize
}

fn owners() -> usize {
    SUBSCRIPTIONS.div_ceil(most_of_owner())
}

fn owner_name(number: usize) -> String {
    format!("owner-{number}")
}
