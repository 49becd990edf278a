//! Ledgers with chosen events, a store with the account indexes, and a server on top of it.

use std::path::Path;
use std::sync::Arc;

use orrery::accounts::AccountConsumer;
use orrery::accounts::evictions::Evictions;
use orrery::accounts::passkey::PasskeyWallets;
use orrery::accounts::smart::SmartAccounts;
use orrery::decode::{EventType, Placement};
use orrery::domain::{CloseTime, ContractId};
use orrery::programs::storage;
use orrery::store::{Durability, Extensions, IndexOptions, LedgerConsumer, Store};
use sha2::{Digest, Sha256};

use orrery_testkit::account_events::smart::{event, external, passkey, rule_inline};
use orrery_testkit::account_events::{Made, contract, contract_id, number};
use orrery_testkit::http::Answer;
use orrery_testkit::model::{self, Event, Ledger};
use orrery_testkit::sandbox::local;
use orrery_testkit::scratch::scratch;
use orrery_testkit::server::{Server, TempStore};
use orrery_testkit::values::fields;

/// Ledger sequence, application order of the transaction, and index of the event in the
/// transaction.
pub type At = (u32, u32, u32);

/// Events of one transaction, each with the contract that emitted it.
pub type Transaction = Vec<(ContractId, Made)>;
/// Events of one ledger, by transaction.
pub type Events = Vec<Transaction>;

pub const SMART: &str = "/rest/smart-account-indexer";
pub const PASSKEY: &str = "/rest/passkey-indexer";

pub fn consumers() -> [Arc<dyn LedgerConsumer>; 3] {
    [
        Arc::new(AccountConsumer(SmartAccounts)),
        Arc::new(AccountConsumer(PasskeyWallets)),
        Arc::new(Evictions),
    ]
}

fn hash(parts: &[&[u8]]) -> [u8; 32] {
    Sha256::digest(parts.concat()).into()
}

/// Returns a ledger with these events. Hashes depend on the sequence alone, so that consecutive
/// ledgers link whatever they contain.
pub fn ledger(sequence: u32, events: &[Transaction]) -> Ledger {
    let transactions = (0..events.len() as u32).map(|order| model::Transaction {
        hash: hash(&[b"transaction", &sequence.to_be_bytes(), &order.to_be_bytes()]),
        inner_hash: None,
        smart_contract: true,
        successful: true,
        account: [1; 32],
        contracts: Vec::new(),
        parts: [vec![1], vec![2], no_meta()],
    });
    let mut flat = Vec::new();
    for (transaction, emitted) in events.iter().enumerate() {
        for (index, (contract, made)) in (0..).zip(emitted) {
            flat.push(Event {
                transaction,
                placement: Placement::Operation { operation: 0, event_index: index },
                contract: Some(contract.0),
                event_type: EventType::Contract,
                topics: made.topics_xdr(),
                data: made.data_xdr(),
            });
        }
    }
    Ledger {
        sequence,
        hash: hash(&[b"ledger", &sequence.to_be_bytes()]),
        previous_hash: hash(&[b"ledger", &(sequence - 1).to_be_bytes()]),
        close_time: CloseTime::Seconds(1_700_000_000 + 5 * u64::from(sequence)),
        raw: vec![7; 64],
        transactions: transactions.collect(),
        events: flat,
    }
}

/// Returns events with which an account grows in every ledger, so that its state takes long to compute:
/// rules, each with a signer that the others lack.
pub fn growing(sequence: u32) -> Transaction {
    const RULES: u32 = 8;
    let rules = (0..RULES).map(|at| sequence * RULES + at);
    let made = rules.flat_map(|rule| {
        let signer = external(&contract(2), &passkey(&rule.to_be_bytes()));
        let added = event("signer_added", 0, fields([("signer_id", number(rule))]));
        [rule_inline(rule, &[signer], &[]), added]
    });
    made.map(|made| (contract_id(1), made)).collect()
}

fn no_meta() -> Vec<u8> {
    use stellar_xdr::{Limits, TransactionMeta, TransactionMetaV4, WriteXdr};
    TransactionMeta::V4(TransactionMetaV4::default()).to_xdr(Limits::none()).unwrap()
}

pub fn open(directory: &Path) -> Store {
    let extensions = Extensions::for_consumers(&consumers()).with_kind(storage::KIND);
    Store::open_with(directory, Some(&local()), extensions).unwrap()
}

/// A store and its server.
pub struct World {
    pub temp: TempStore,
    pub server: Server,
}

impl World {
    pub fn new() -> Self {
        Self::at(1_700_000_000, 1_000)
    }

    /// Creates a world in which expirations of signers are evaluated at this UNIX time and ledger.
    pub fn at(second: u64, ledger: u32) -> Self {
        Self::with(|settings| {
            settings.indexers.fixed_clock = second;
            settings.indexers.fixed_network_ledger = ledger;
        })
    }

    pub fn with(adjust: impl FnOnce(&mut orrery::api::ApiSettings)) -> Self {
        let directory = scratch();
        let temp = TempStore { store: Arc::new(open(directory.path())), directory };
        let server = Server::start_with(&temp, |deps| adjust(&mut deps.settings));
        Self { temp, server }
    }

    /// Stores a ledger and lets all consumers process it.
    pub fn add(&self, sequence: u32, events: &[Transaction]) {
        self.store(sequence, events);
        self.feed();
    }

    /// Stores a ledger. For even sequences, data for the consumers is gathered during preparation.
    pub fn store(&self, sequence: u32, events: &[Transaction]) {
        let (store, ledger) = (&self.temp.store, ledger(sequence, events));
        let prepared = match sequence % 2 {
            0 => {
                let options = IndexOptions { raw_ledgers: true, ..IndexOptions::default() };
                store.prepare(&ledger.view(), None, &options).unwrap()
            }
            _ => ledger.prepare(&IndexOptions::default()),
        };
        store.commit(prepared, Durability::Deferred).unwrap();
    }

    pub fn feed(&self) {
        for consumer in consumers() {
            while self.temp.store.step(&*consumer).unwrap() {}
        }
    }

    pub fn ask(&self, target: &str) -> Answer {
        self.server.get_public(target)
    }
}

/// Like [`World::ask`], on an existing connection. Returns the status and the JSON body.
pub fn body(
    connection: &mut orrery_testkit::http::Connection,
    target: &str,
) -> (u16, serde_json::Value) {
    let answer = connection.request("GET", target, &[]);
    (answer.status, answer.json())
}
