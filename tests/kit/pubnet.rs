//! Twelve consecutive ledgers of the public network, read and stored as an import would; sandbox
//! ledgers that share seconds; and a model of the API's records for either, built from the full
//! decoding.

use std::fs::File;
use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use orrery_ledger::decode::{EventType, MuxedAccountView, Placement, decode};
use orrery_ledger::domain::{ContractId, LedgerSeq, Network};
use orrery_store::{Durability, IndexOptions, PreparedLedger, Store};
use serde_json::{Value, json};

use super::data;
use super::full::{self, Account};
use super::sandbox::{self, local, sandbox};
use super::server::TempStore;

/// First and last of the ledgers.
pub const FIRST: u32 = 63_092_982;
pub const LAST: u32 = 63_092_993;

pub fn network() -> Network {
    Network::from_name_or_passphrase("mainnet")
}

/// Raw `LedgerCloseMeta`s in order. Prints a message and returns `None` when they are not
/// available.
pub fn ledgers() -> Option<Vec<Vec<u8>>> {
    let data = data::location();
    let folder = data.join("ledgers/pubnet");
    if !folder.is_dir() {
        eprintln!("skipped: {} has no ledgers; set ORRERY_TEST_DATA", folder.display());
        return None;
    }
    let read = |sequence| {
        let file = File::open(folder.join(format!("ledger-{sequence}.xdr.gz"))).unwrap();
        let mut xdr = Vec::new();
        GzDecoder::new(file).read_to_end(&mut xdr).unwrap();
        xdr
    };
    Some((FIRST..=LAST).map(read).collect())
}

/// Ledgers of a sandbox network. From ledger 10 on their close times are in milliseconds, and four
/// share each second.
pub fn made() -> (Network, Vec<Vec<u8>>) {
    let sandbox = sandbox(17, 0..=24).with_milliseconds(LedgerSeq(10), 4);
    (local(), sandbox::ledgers(sandbox, 60))
}

/// A store with these ledgers of the public network.
pub fn store(ledgers: &[Vec<u8>]) -> TempStore {
    store_of(&network(), ledgers)
}

/// A store with ledgers of a network.
pub fn store_of(network: &Network, ledgers: &[Vec<u8>]) -> TempStore {
    let store = TempStore::with_names(network);
    commit(&store.store, ledgers);
    store
}

/// Stores ledgers, which are durable then.
pub fn commit(store: &Store, ledgers: &[Vec<u8>]) {
    for raw in ledgers {
        let view = decode(raw, store.network().id()).unwrap();
        let prepared = PreparedLedger::new(&view, &IndexOptions::default()).unwrap();
        store.commit(prepared, Durability::Deferred).unwrap();
    }
    store.flush().unwrap();
}

/// All records that the API may return of the ledgers, as JSON in ascending order.
pub struct Model {
    pub events: Vec<Value>,
    pub transactions: Vec<Value>,
    /// Every contract in `transactions`.
    pub contracts: Vec<String>,
    /// The first and the last ledger.
    pub ledgers: (u32, u32),
}

impl Model {
    /// Decodes ledgers of the public network a second time, completely, and builds the records
    /// field by field.
    pub fn of(ledgers: &[Vec<u8>]) -> Self {
        Self::of_network(&network(), ledgers)
    }

    /// As [`Self::of`], for ledgers of any network.
    pub fn of_network(network: &Network, ledgers: &[Vec<u8>]) -> Self {
        let mut model = Self {
            events: Vec::new(),
            transactions: Vec::new(),
            contracts: Vec::new(),
            ledgers: (u32::MAX, 0),
        };
        for raw in ledgers {
            let ledger = full::decode(raw, network.id()).unwrap();
            let (first, last) = model.ledgers;
            model.ledgers = (first.min(ledger.sequence.0), last.max(ledger.sequence.0));
            model.add(&ledger);
        }
        for transaction in &model.transactions {
            let contracts = transaction["contracts"].as_array().unwrap();
            model.contracts.extend(contracts.iter().map(|id| id.as_str().unwrap().to_owned()));
        }
        model.contracts.sort();
        model.contracts.dedup();
        model
    }

    fn add(&mut self, ledger: &full::Ledger) {
        let common = |application_order: u32| {
            let mut record = json!({
                "ledger": ledger.sequence.0,
                "ledger_closed_at": closed_at(ledger),
                "application_order": application_order,
            });
            if let Some(milliseconds) = ledger.close_time_ms {
                record["ledger_closed_at_ms"] = json!(milliseconds);
            }
            record
        };
        for transaction in ledger.transactions.iter().filter(|t| t.smart_contract) {
            let mut record = common(transaction.application_order);
            let range = transaction.operation_events.clone();
            let events = if transaction.successful { range.len() } else { 0 };
            merge(
                &mut record,
                json!({
                    "tx": transaction.hash.to_string(),
                    "successful": transaction.successful,
                    "fee_bump": transaction.inner_hash.is_some(),
                    "inner_tx": transaction.inner_hash.map(|hash| hash.to_string()),
                    "source_account": strkey(&transaction.source_account),
                    "fee_account": strkey(&transaction.fee_account),
                    "fee_charged": transaction.fee_charged.to_string(),
                    "contracts": transaction.contracts.iter().map(ToString::to_string).collect::<Vec<_>>(),
                    "event_count": events,
                    "envelope_xdr": STANDARD.encode(&transaction.envelope),
                    "result_xdr": STANDARD.encode(&transaction.result),
                    "meta_xdr": STANDARD.encode(&transaction.meta),
                }),
            );
            self.transactions.push(record);
        }
        for event in &ledger.events {
            let transaction = &ledger.transactions[event.transaction];
            let Placement::Operation { operation, event_index } = event.placement else { continue };
            if !transaction.smart_contract || !transaction.successful {
                continue;
            }
            let mut record = common(transaction.application_order);
            let topics: Vec<_> = event.topics.iter().map(|topic| STANDARD.encode(topic)).collect();
            merge(
                &mut record,
                json!({
                    "id": self.events.len() + 1,
                    "contract_id": event.contract.map_or(String::new(), |id| ContractId(id).to_string()),
                    "data": STANDARD.encode(&event.data),
                    "tx": transaction.hash.to_string(),
                    "event_index": event_index,
                    "type": if event.event_type == EventType::System { "system" } else { "contract" },
                    "op_index": operation,
                }),
            );
            for position in 0..10 {
                record[format!("topic{}", position + 1)] = json!(topics.get(position));
            }
            self.events.push(record);
        }
    }
}

/// Close time in RFC 3339, with three digits of milliseconds when the ledger has them.
fn closed_at(ledger: &full::Ledger) -> String {
    let time = time::OffsetDateTime::from_unix_timestamp(ledger.close_time as i64).unwrap();
    match ledger.close_time_ms {
        None => time.format(&time::format_description::well_known::Rfc3339).unwrap(),
        Some(milliseconds) => {
            let (date, (hour, minute, second)) = (time.date(), time.to_hms());
            format!("{date}T{hour:02}:{minute:02}:{second:02}.{:03}Z", milliseconds % 1000)
        }
    }
}

fn strkey(account: &Account) -> String {
    MuxedAccountView { ed25519: &account.ed25519, id: account.id }.to_string()
}

fn merge(into: &mut Value, from: Value) {
    let Value::Object(from) = from else { return };
    into.as_object_mut().unwrap().extend(from);
}

/// Topics of an event record that are not null.
pub fn topics(event: &Value) -> Vec<&str> {
    (1..=10).filter_map(|position| event[format!("topic{position}")].as_str()).collect()
}
