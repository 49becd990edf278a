//! What accounts cost whose contracts have emitted as much as they could: an event of such an
//! account against one of a new account, its page, and a page of a tenant while 64 clients without a
//! token ask for nothing else, or search events where everyone may read them.

use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use orrery::accounts::AccountIndex;
use orrery::accounts::smart::SmartAccounts;
use orrery::domain::ContractId;
use orrery_testkit::account_events::smart::{event, external, passkey, rule_by_ids, rule_inline};
use orrery_testkit::account_events::{Made, address, contract, number};
use orrery_testkit::values::fields;

use super::client::Client;
use super::lookups::{contract_event, digest};
use super::measure::{REPETITIONS, Sample, Sides, quantile, sized, time};
use super::packed;
use super::recorded::Recorded;
use super::report::{Goal, Report, Row};
use super::running::{Running, wait_until};

/// An event of an account with [`EVENTS`] events, against one of a new account.
const EVENT: Goal = Goal::at_most(2.0, 1.1);
/// Milliseconds of a page.
const PAGE: Goal = Goal::at_most(50.0, 5.0);

/// Events of each large account.
const EVENTS: u64 = sized(100_000, 100);
/// Ways in which an account becomes large.
const SHAPES: u64 = 4;
/// Events of a new account, with which large ones are compared.
const FEW: u64 = 20;
/// Transactions per ledger, and events per transaction.
const TRANSACTIONS: usize = sized(200, 4);
const IN_A_TRANSACTION: usize = 50;
const IN_A_LEDGER: u64 = (TRANSACTIONS * IN_A_TRANSACTION) as u64;

/// Clients without a token.
const CLIENTS: u8 = 64;
/// Pages of the tenant, and after how many of them a ledger is stored.
const PAGES: usize = sized(1_000, 20);
const PAGES_PER_LEDGER: usize = sized(100, 10);

/// Clients without a token, beside which a tenant's page is measured.
struct Strangers {
    clients: u8,
    /// Number of addresses from which they ask.
    addresses: u8,
    /// Returns the page that a client asks for next.
    page: fn(u64) -> String,
}

/// Measures events and pages of large accounts.
pub fn run(
    recorded: &Recorded,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let service =
        Running::start(&recorded.network, directory, |config| config.http.public_read = true)?;
    let repetitions = 2 * REPETITIONS as u64;
    let others = 3 * (PAGES / PAGES_PER_LEDGER) as u64 + REPETITIONS as u64;
    let wanted = EVENTS * SHAPES / IN_A_LEDGER + repetitions + others;
    let copies = wanted.div_ceil(recorded.ledgers.len() as u64);
    let ledgers = packed::ledgers(recorded, copies, TRANSACTIONS, IN_A_TRANSACTION, made);
    let (large, rest) = ledgers.split_at((EVENTS * SHAPES / IN_A_LEDGER) as usize);
    let (probes, rest) = rest.split_at(repetitions as usize);
    service.seconds_to_ingest(large)?;
    wait_for_index(&service)?;

    let index = |ledger: &[Vec<u8>]| -> Result<f64, Box<dyn Error>> {
        let begun = Instant::now();
        service.seconds_to_ingest(ledger)?;
        wait_for_index(&service)?;
        Ok(begun.elapsed().as_secs_f64() * 1e6 / IN_A_LEDGER as f64)
    };
    let pairs = probes.chunks(2).map(|pair| Ok((index(&pair[..1])?, index(&pair[1..])?)));
    let sides = pairs.collect::<Result<Sides, Box<dyn Error>>>()?;
    let name =
        "Event of a smart account with 100,000 events, stored and indexed / of a new account";
    report.add(Row::new(name, "µs", sides, EVENT));

    let (in_turn, rest) = rest.split_at(REPETITIONS);
    let mut client = service.client("ratios")?;
    let mut pages = Vec::new();
    for ledger in in_turn {
        // Another ledger, so that no page comes from a cache.
        index(std::slice::from_ref(ledger))?;
        let mut longest = Duration::ZERO;
        for shape in 0..SHAPES {
            let mut page = Ok(());
            longest = longest.max(time(|| page = client.get(&page_of(shape)).map(drop)));
            page?;
        }
        pages.push(longest.as_secs_f64() * 1e3);
    }
    let name = "Page of the slowest smart account with 100,000 events";
    report.add(Row::absolute(name, "ms", Sample::from(pages), PAGE));

    let nobody = Strangers { clients: 0, addresses: 1, page: page_of };
    let alone = tenant(&service, &nobody, &rest[..1], report)?;
    report.note(format!("Large accounts: the tenant's page alone, p99 {alone:.1} ms."));
    let mut ledgers = rest.chunks(PAGES / PAGES_PER_LEDGER);
    for (what, addresses, page) in [
        ("ask for large accounts, from 8 addresses", 8, page_of as fn(u64) -> String),
        ("search events without a token, from one address", 1, search),
        ("search events without a token, from 64 addresses", 64, search),
    ] {
        let strangers = Strangers { clients: CLIENTS, addresses, page };
        let beside = tenant(&service, &strangers, ledgers.next().unwrap_or_default(), report)?;
        let name = format!("A tenant's page beside {CLIENTS} clients that {what}, p99");
        report.add(Row::absolute(name, "ms", Sample::from(vec![beside]), PAGE));
    }
    service.stop()
}

fn wait_for_index(service: &Running) -> Result<(), Box<dyn Error>> {
    let consumer = SmartAccounts::CONSUMER;
    let is_done = || service.store().consumer(consumer).is_some_and(|it| it.lag == 0);
    wait_until("the index has all ledgers", is_done)
}

/// Returns the 99th percentile of the milliseconds of a tenant's pages, while clients without a token
/// ask for theirs and ledgers are stored.
fn tenant(
    service: &Running,
    strangers: &Strangers,
    ledgers: &[Vec<u8>],
    report: &mut Report,
) -> Result<f64, Box<dyn Error>> {
    let &Strangers { clients, addresses, page: page_of_stranger } = strangers;
    let (done, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    let page = format!("/rest/events/by-contract/{}?limit=100", large_account(0));
    let mut tenant = service.client("tenant")?;
    let (times, failed) = thread::scope(|scope| {
        let (done, answers) = (&done, &answers);
        let asking = (0..clients).map(|number| {
            let from = [127, 0, 7, 1 + number % addresses];
            scope.spawn(move || -> std::io::Result<()> {
                let connect = || Client::connect_from(service.address, from);
                let mut client = connect()?;
                for at in (u64::from(number)..).step_by(CLIENTS.into()) {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    match client.get(&page_of_stranger(at)) {
                        Ok(_) => {
                            answers.fetch_add(1, Ordering::Relaxed);
                        }
                        // The service limits the requests of one address.
                        Err(_) => client = connect()?,
                    }
                }
                Ok(())
            })
        });
        let asking: Vec<_> = asking.collect();
        let mut ledgers = ledgers.iter();
        let mut ask = || -> Result<Vec<f64>, Box<dyn Error>> {
            let mut times = Vec::new();
            for at in 0..PAGES {
                if at % PAGES_PER_LEDGER == 0
                    && let Some(ledger) = ledgers.next()
                {
                    service.seconds_to_ingest(std::slice::from_ref(ledger))?;
                }
                let mut answer = Ok(());
                times.push(time(|| answer = tenant.get(&page).map(drop)).as_secs_f64() * 1e3);
                answer?;
            }
            Ok(times)
        };
        let times = ask();
        done.store(true, Ordering::Relaxed);
        let failed = asking.into_iter().find_map(|it| match it.join() {
            Ok(asked) => asked.err().map(|error| error.to_string()),
            Err(_) => Some("a client panicked".to_owned()),
        });
        (times, failed)
    });
    if let Some(why) = failed {
        return Err(why.into());
    }
    let answers = answers.into_inner();
    report.note(format!("Large accounts: {clients} clients got {answers} pages meanwhile."));
    Ok(quantile(&times?, 0.99))
}

fn page_of(shape: u64) -> String {
    format!("/rest/smart-account-indexer/api/contract/{}", large_account(shape % SHAPES))
}

/// Returns a page that costs as much as one may, and is in no cache.
fn search(number: u64) -> String {
    let contract = large_account(number % SHAPES);
    format!(
        "/rest/events/by-contract/{contract}?limit=1000&offset=10000&to={}",
        2_000_000_000 - number
    )
}

fn large_account(shape: u64) -> ContractId {
    ContractId(digest("large account", shape))
}

/// Returns the event of this number, from 1: first those that make the large accounts, then ledgers
/// of probes for large and for new accounts in turn.
fn made(number: u64) -> stellar_xdr::ContractEvent {
    let number = number - 1;
    let (contract, made) = match number.checked_sub(EVENTS * SHAPES) {
        None => (large_account(number % SHAPES), growing(number % SHAPES, number / SHAPES)),
        Some(probe) if (probe / IN_A_LEDGER).is_multiple_of(2) => {
            (large_account(probe % SHAPES), probing(probe / SHAPES))
        }
        Some(probe) => (ContractId(digest("new account", probe / FEW)), probing(probe % FEW)),
    };
    contract_event(contract, made)
}

/// Returns the event with which an account of a shape grows: signers that are registered and added
/// to one rule, rules with the same signer, signers in full in one rule, rules of their own.
fn growing(shape: u64, at: u64) -> Made {
    let at = u32::try_from(at).expect("a few events");
    let signer = || external(&contract(2), &passkey(&at.to_be_bytes()));
    match (shape, at) {
        (0, 0) => rule_by_ids(0, &[], &[]),
        (0, _) if at.is_multiple_of(2) => added(at / 2 - 1),
        (0, _) => register(at / 2),
        (1, 0) => register(0),
        (1, _) => rule_by_ids(at - 1, &[0], &[0]),
        (2, 0) => rule_inline(0, &[], &[]),
        (2, _) => event("signer_added", 0, fields([("signer", signer())])),
        _ => rule_inline(at, &[signer()], &[]),
    }
}

fn register(id: u32) -> Made {
    let signer = external(&contract(2), &passkey(&id.to_be_bytes()));
    event("signer_registered", id, fields([("signer", signer)]))
}

fn added(id: u32) -> Made {
    event("signer_added", 0, fields([("signer_id", number(id))]))
}

/// Returns an event that any account may emit.
fn probing(at: u64) -> Made {
    let id = u32::try_from(at / 5).expect("a few events");
    let policy = || fields([("policy", address(&contract(7)))]);
    match at % 5 {
        0 => added(id),
        1 => event("signer_removed", 0, fields([("signer_id", number(id))])),
        2 => event("policy_added", 0, policy()),
        3 => event("policy_removed", 0, policy()),
        _ => register(id),
    }
}
