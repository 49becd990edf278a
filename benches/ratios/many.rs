//! Millions of distinct events in ledgers shaped like the recorded ones. Makes decoded views
//! directly, because making whole ledgers would take hours: there is no raw ledger, and
//! transactions keep their envelopes and results but only the smallest metadata.

use std::ops::Range;
use std::sync::mpsc::sync_channel;
use std::thread;

use orrery::decode::{EventType, EventView, HeaderView, LedgerView, Placement, TransactionView};
use orrery::domain::{Hash32, LedgerSeq, RpcEventId};
use orrery::store::{Durability, IndexOptions, PreparedLedger, Store};
use stellar_xdr::{ContractEventBody, Limits, ReadXdr, ScVal};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::amplify::CLOSE_INTERVAL;
use super::recorded::xdr;
use super::variation::{Regulars, Variation, spread};

/// One event in `RARE_EVERY` is emitted by one of `RARE_CONTRACTS` rare contracts.
const RARE_EVERY: u64 = 4096;
const RARE_CONTRACTS: u64 = 100;
/// XDR of the metadata of a transaction that changes nothing: `TransactionMeta` with the version 4 and
/// empty lists. Consumers of the feed read the metadata of every transaction.
const EMPTY_META: &[u8] = &{
    let mut xdr = [0; 32];
    xdr[3] = 4;
    xdr
};
/// Prepared ledgers that each preparing thread may queue for storing.
const LEDGERS_AHEAD: usize = 16;

/// Indexing options of the load: events of smart-contract and classic operations are stored.
pub fn options(raw_ledgers: bool) -> IndexOptions {
    IndexOptions { classic_events: true, fee_events: false, contracts: None, raw_ledgers }
}

/// Returns the id of a contract that emits only a few dozen events.
pub fn rare_contract(number: u64) -> [u8; 32] {
    spread(number % RARE_CONTRACTS + (1 << 40))
}

/// Generates ledgers modelled on recorded ones.
pub struct Generator<'a> {
    templates: Vec<Template<'a>>,
    regulars: &'a Regulars,
}

struct Template<'a> {
    view: LedgerView<'a>,
    /// The events of operations, with their decoded bodies.
    events: Vec<(EventView<'a>, ContractEventBody)>,
}

/// A generated ledger, which owns its bytes.
pub struct Generated<'t> {
    template: &'t Template<'t>,
    sequence: LedgerSeq,
    close_time: u64,
    hashes: Vec<[u8; 32]>,
    bytes: Vec<u8>,
    events: Vec<GeneratedEvent>,
}

struct GeneratedEvent {
    whole: Range<usize>,
    contract: Range<usize>,
    topics: Vec<Range<usize>>,
    data: Range<usize>,
}

impl<'a> Generator<'a> {
    /// Creates a generator from views of recorded ledgers.
    pub fn new(views: Vec<LedgerView<'a>>, regulars: &'a Regulars) -> Self {
        Self { templates: views.into_iter().map(template).collect(), regulars }
    }

    /// Returns the number of ledgers that hold about this many events.
    pub fn ledgers_for(&self, events: u64) -> u64 {
        let in_all: usize = self.templates.iter().map(|template| template.events.len()).sum();
        events * self.templates.len() as u64 / in_all as u64
    }

    /// Returns the ledger with this index, from 0.
    pub fn ledger(&'a self, number: u64) -> Generated<'a> {
        let count = self.templates.len() as u64;
        let (copy, place) = (number / count, (number % count) as usize);
        let template = &self.templates[place];
        let mut variation = Variation::new(self.regulars, copy, place as u64);
        let mut bytes = Vec::with_capacity(template.events.len() * 320);
        let events = template
            .events
            .iter()
            .enumerate()
            .map(|(index, (event, body))| {
                let chance = xxh3_64_with_seed(&number.to_be_bytes(), index as u64);
                let rare = chance.is_multiple_of(RARE_EVERY);
                let contract = match event.contract {
                    Some(_) if rare => rare_contract(chance / RARE_EVERY),
                    Some(id) => *id,
                    None => [0; 32],
                };
                write_event(&mut bytes, &contract, &variation.body(body))
            })
            .collect();
        let hash = |t: &TransactionView<'_>| variation.bytes32(t.hash.as_bytes());
        let first = self.templates[0].view.header.clone();
        Generated {
            template,
            sequence: LedgerSeq(first.sequence.0 + number as u32),
            close_time: first.close_time + number * CLOSE_INTERVAL,
            hashes: template.view.transactions.iter().map(hash).collect(),
            bytes,
            events,
        }
    }

    /// Stores ledgers that two threads prepare.
    pub fn fill(&'a self, store: &Store, ledgers: Range<u64>, durability: Durability) {
        let options = options(false);
        thread::scope(|scope| {
            let [even, odd] = [0, 1].map(|remainder| {
                let (sender, receiver) = sync_channel(LEDGERS_AHEAD);
                let (numbers, options) = (ledgers.clone(), &options);
                scope.spawn(move || {
                    for number in numbers.filter(|number| number % 2 == remainder) {
                        let prepared = PreparedLedger::new(&self.ledger(number).view(), options);
                        if sender.send(prepared).is_err() {
                            return;
                        }
                    }
                });
                receiver
            });
            for number in ledgers {
                let next = if number % 2 == 0 { &even } else { &odd };
                let prepared = next.recv().expect("the thread sends all of them");
                let prepared = prepared.expect("compression does not fail");
                store.commit(prepared, durability).expect("the ledger is stored");
            }
        });
        store.flush().expect("what was stored reaches the disk");
    }
}

fn template(mut view: LedgerView<'_>) -> Template<'_> {
    for transaction in &mut view.transactions {
        transaction.meta = EMPTY_META;
        transaction.changed_entries.clear();
        transaction.restored_entries.clear();
    }
    let of_operations =
        view.events.iter().filter(|e| matches!(e.placement, Placement::Operation { .. }));
    let events = of_operations
        .map(|event| {
            // The fields of `ContractEvent` before its body: extension point, optional contract,
            // type.
            let start = 4 + 4 + event.contract.map_or(0, |id| id.len()) + 4;
            let body = ContractEventBody::from_xdr(&event.xdr[start..], Limits::none());
            (event.clone(), body.expect("the view was decoded from whole events"))
        })
        .collect();
    Template { view, events }
}

/// Appends a `ContractEvent` and returns the byte ranges of its parts.
fn write_event(
    out: &mut Vec<u8>,
    contract: &[u8; 32],
    ContractEventBody::V0(body): &ContractEventBody,
) -> GeneratedEvent {
    let start = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 1]);
    let contract_at = out.len();
    out.extend_from_slice(contract);
    let contract = contract_at..out.len();
    out.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0]);
    out.extend_from_slice(&(body.topics.len() as u32).to_be_bytes());
    let mut append = |value: &ScVal| {
        let start = out.len();
        out.extend_from_slice(&xdr(value));
        start..out.len()
    };
    let topics = body.topics.iter().map(&mut append).collect();
    let data = append(&body.data);
    GeneratedEvent { whole: start..data.end, contract, topics, data }
}

impl Generated<'_> {
    /// Returns the ledger as the decoder would return it.
    pub fn view(&self) -> LedgerView<'_> {
        let mut topics = Vec::with_capacity(4 * self.events.len());
        let templates = self.template.events.iter().map(|(event, _)| event);
        let events = self
            .events
            .iter()
            .zip(templates)
            .map(|(event, template)| {
                let first_topic = topics.len();
                topics.extend(event.topics.iter().map(|range| &self.bytes[range.clone()]));
                EventView {
                    transaction: template.transaction,
                    placement: template.placement,
                    contract: self.bytes[event.contract.clone()].first_chunk(),
                    event_type: EventType::Contract,
                    topics: first_topic..topics.len(),
                    data: &self.bytes[event.data.clone()],
                    xdr: &self.bytes[event.whole.clone()],
                    rpc_id: self.rpc_id(template),
                }
            })
            .collect();
        let transactions = self.template.view.transactions.iter().zip(&self.hashes);
        LedgerView {
            raw: &[],
            version: self.template.view.version,
            header: self.header(),
            transaction_set: &[],
            transactions: transactions
                .map(|(template, hash)| TransactionView { hash: Hash32(*hash), ..template.clone() })
                .collect(),
            events,
            topics,
            evicted: Vec::new(),
            conditions: Default::default(),
        }
    }

    fn header(&self) -> HeaderView<'_> {
        HeaderView {
            xdr: &[],
            hash: Hash32(spread(u64::from(self.sequence.0))),
            previous_hash: Hash32(spread(u64::from(self.sequence.0 - 1))),
            sequence: self.sequence,
            protocol: self.template.view.header.protocol,
            close_time: self.close_time,
            close_time_ms: None,
        }
    }

    fn rpc_id(&self, template: &EventView<'_>) -> RpcEventId {
        let toid = u64::from(self.sequence.0) << 32 | template.rpc_id.toid & 0xffff_ffff;
        RpcEventId { toid, index: template.rpc_id.index }
    }
}
