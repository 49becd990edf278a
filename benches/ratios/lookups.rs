//! Lookups of smart accounts and passkey wallets: the time of one among a million accounts,
//! compared with a no-op route on the same server.

use std::error::Error;
use std::path::Path;

use orrery::accounts::{AccountConsumer, passkey::PasskeyWallets, smart::SmartAccounts};
use orrery::domain::ContractId;
use orrery::store::LedgerConsumer;
use sha2::{Digest, Sha256};
use stellar_xdr::{
    ContractEvent, ContractEventBody, ContractEventType, ContractEventV0,
    ContractId as XdrContractId, ExtensionPoint, Hash,
};

use super::client::Client;
use super::http::{NO_OP, REQUESTS, REQUESTS_IN_TURN};
use super::measure::{REPETITIONS, Sample, Sides, micros, quantile, sized};
use super::packed;
use super::recorded::Recorded;
use super::report::{Goal, Report, Row};
use super::running::{Running, wait_until};
use orrery_testkit::account_events::passkey::{added, secp256r1, storage, unlimited};
use orrery_testkit::account_events::smart::{external, passkey, rule_inline};
use orrery_testkit::account_events::{Made, contract};

/// Goal for the median of lookups that were requested before, since the newest ledger, against that
/// of a no-op route. P7 measures pages in the same way.
const LOOKUP: Goal = Goal::at_most(1.3, 1.1);

/// Number of accounts. Every other one is a smart account, the rest are passkey wallets.
const ACCOUNTS: u64 = sized(1_000_000, 2_000);
/// Number of smart accounts that share one verifier; the others use one of many verifiers.
const SHARED: u64 = sized(100_000, 200);
/// Transactions per ledger, and accounts created per transaction.
const TRANSACTIONS: usize = sized(200, 10);
const IN_A_TRANSACTION: usize = 50;

/// Measures lookups in both indexes.
pub fn run(
    recorded: &Recorded,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let service = Running::start(&recorded.network, directory, |_| {})?;
    let in_a_copy = (recorded.ledgers.len() * TRANSACTIONS * IN_A_TRANSACTION) as u64;
    let copies = ACCOUNTS.div_ceil(in_a_copy);
    let accounts = copies * in_a_copy;
    let ledgers = packed::ledgers(recorded, copies, TRANSACTIONS, IN_A_TRANSACTION, account);
    service.seconds_to_ingest(&ledgers)?;
    let consumers: [&dyn LedgerConsumer; 2] =
        [&AccountConsumer(SmartAccounts), &AccountConsumer(PasskeyWallets)];
    for consumer in consumers {
        let name = consumer.spec().name;
        let is_done = || service.store().consumer(name).is_some_and(|it| it.lag == 0);
        wait_until(&format!("{name} has seen all ledgers"), is_done)?;
    }
    let mut client = service.client("ratios")?;
    // Accounts are numbered from 1; smart accounts have even numbers.
    for (index, first) in [("smart-account", 2), ("passkey", 1)] {
        let path = |number: u64| {
            let credential =
                hex::encode(digest("credential", first + 2 * (number % (accounts / 2))));
            format!("/rest/{index}-indexer/api/lookup/{credential}")
        };
        let mut repetition = |number: u64| -> Result<[(f64, f64); 2], Box<dyn Error>> {
            // Spread over all accounts, with different ones in each repetition.
            let paths: Vec<String> = (0..REQUESTS as u64)
                .map(|at| path((number * REQUESTS as u64 + at) * 7_919))
                .collect();
            Ok([beside_nothing(&mut client, &paths)?, beside_nothing(&mut client, &paths)?])
        };
        let pairs = (0..REPETITIONS as u64).map(&mut repetition).collect::<Result<Vec<_>, _>>()?;
        for (asked, at) in [("asked again", 1), ("asked first", 0)] {
            let sides: Sides = pairs.iter().map(|pair| pair[at]).collect();
            let name =
                format!("Lookup in the {index} index, {asked} / a request that does nothing");
            report.add(match at {
                0 => Row::information(name, "µs", sides),
                _ => Row::new(name, "µs", sides, LOOKUP),
            });
        }
    }
    let target = format!("/rest/smart-account-indexer/api/lookup/address/{}", contract(1));
    let mut bytes = 0;
    let took = Sample::from(micros(&[(); REPETITIONS], |()| {
        bytes = client.get(&target).map_or(0, <[u8]>::len);
    }));
    report.note(format!(
        "Lookups: {accounts} accounts. One by a verifier that {SHARED} of them share is answered in {:.1} ms with {} KB.",
        took.median() / 1e3,
        bytes / 1000,
    ));
    service.stop()
}

/// Returns the median microseconds of requests to these paths, and of the same number of no-op
/// requests.
fn beside_nothing(client: &mut Client, paths: &[String]) -> Result<(f64, f64), Box<dyn Error>> {
    let nothing = vec![NO_OP.to_owned(); REQUESTS_IN_TURN];
    let (mut ours, mut baseline) = (Vec::new(), Vec::new());
    let mut failed = None;
    for turn in paths.chunks(REQUESTS_IN_TURN) {
        for (paths, times) in [(turn, &mut ours), (&nothing[..], &mut baseline)] {
            times.extend(micros(paths, |path| {
                if let Err(error) = client.get(path) {
                    failed.get_or_insert(error);
                }
            }));
        }
    }
    match failed {
        Some(error) => Err(error.into()),
        None => Ok((quantile(&ours, 0.5), quantile(&baseline, 0.5))),
    }
}

/// Returns the event that creates an account. Each account has its own credential.
fn account(number: u64) -> ContractEvent {
    let credential = digest("credential", number);
    let made = match number % 2 {
        0 => {
            let verifier = if number < 2 * SHARED { 1 } else { 2 + (number % 200) as u8 };
            rule_inline(0, &[external(&contract(verifier), &passkey(&credential))], &[])
        }
        _ => {
            let key = secp256r1(&credential);
            added(&key, unlimited(&key), storage("Persistent"))
        }
    };
    contract_event(ContractId(digest("account", number)), made)
}

/// Returns an event as a contract emits it.
pub fn contract_event(contract: ContractId, made: Made) -> ContractEvent {
    ContractEvent {
        ext: ExtensionPoint::V0,
        contract_id: Some(XdrContractId(Hash(contract.0))),
        type_: ContractEventType::Contract,
        body: ContractEventBody::V0(ContractEventV0 {
            topics: made.topics.try_into().expect("a few topics"),
            data: made.data,
        }),
    }
}

/// Returns 32 bytes that differ for each number and use.
pub fn digest(of: &str, number: u64) -> [u8; 32] {
    Sha256::digest(format!("{of} {number}")).into()
}
