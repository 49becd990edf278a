//! A store of generated events, and queries against it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use orrery::domain::{ContractId, EventId, LedgerRange, Network, Page, TxHash};
use orrery::programs::storage;
use orrery::store::{Durability, EventQuery, Store, TopicFilter};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

use super::many::{Generator, rare_contract};
use super::measure::{sized, time};
use super::report::Report;

/// Events that are sampled, so that contracts and transactions are drawn in proportion to their
/// events.
const SAMPLED: usize = sized(20_000, 4_000);
/// Number of newest events from which recent transactions are drawn.
const RECENT_EVENTS: u64 = sized(100_000, 1_000);

/// A filled store and its number of ledgers.
pub struct Filled {
    pub store: Arc<Store>,
    pub ledgers: u64,
    pub directory: TempDir,
}

impl Filled {
    /// Stores this many events and compacts the store, as it would be after days of running.
    pub fn new(
        generator: &Generator<'_>,
        network: &Network,
        events: u64,
        parent: &Path,
        report: &mut Report,
    ) -> Self {
        let directory = tempfile::tempdir_in(parent).expect("a directory");
        let store = Store::open_with(directory.path(), Some(network), storage::extensions());
        let store = store.expect("a new store");
        let ledgers = generator.ledgers_for(events);
        let took = time(|| {
            generator.fill(&store, 0..ledgers, Durability::Deferred);
            store.compact().expect("compaction");
        });
        report.note(format!(
            "Queries are asked of {} generated events in {ledgers} ledgers, stored and compacted in {:.0} s. They \
             were made as decoded views without raw ledgers and with empty transaction metadata.",
            store.status().totals.events,
            took.as_secs_f64(),
        ));
        Self { store: Arc::new(store), ledgers, directory }
    }

    /// Returns the store's directory.
    pub fn path(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    /// Draws what to query from the store.
    pub fn sample(&self) -> QuerySample {
        QuerySample::of(&self.store)
    }
}

/// What to query. Drawn by event, so that contracts with many events occur often.
#[derive(Default)]
pub struct QuerySample {
    pub contracts: Vec<ContractId>,
    pub transactions: Vec<TxHash>,
    pub recent_transactions: Vec<TxHash>,
    /// The longest topic after the first, which names an account or asset, with the contract that
    /// emitted it.
    pub topics: Vec<(ContractId, Vec<u8>)>,
    /// The first topic of an event, with the contract that emitted it.
    pub first_topics: Vec<(ContractId, Vec<u8>)>,
    /// The newest event id.
    pub last: u64,
}

impl QuerySample {
    /// Draws what to query from a store.
    pub fn of(store: &Store) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let last = store.status().last_event_id.0;
        let mut questions = Self::default();
        let mut draw = |lowest: u64, questions: &mut Self| {
            let mut query = page(1);
            query.page.cursor = Some(EventId(random.random_range(lowest..=last)));
            let visited = store.events(&query, |event| {
                // Once per transaction, not once per event.
                if event.event_index() == Some(0) {
                    questions.transactions.push(TxHash::from(*event.tx));
                }
                questions.contracts.extend(event.contract.map(|id| ContractId(*id)));
                if let (Some(id), Some(topic)) = (event.contract, event.topics.first()) {
                    questions.first_topics.push((ContractId(*id), topic.to_vec()));
                }
                // Topics with an account or an id of their own are the rare ones.
                let topic = event.topics.iter().skip(1).max_by_key(|topic| topic.len());
                if let (Some(id), Some(topic)) = (event.contract, topic) {
                    questions.topics.push((ContractId(*id), topic.to_vec()));
                }
            });
            visited.expect("the store answers");
        };
        for _ in 0..SAMPLED {
            draw(2, &mut questions);
        }
        let anywhere = std::mem::take(&mut questions.transactions);
        let mut recent = Self::default();
        for _ in 0..SAMPLED / 10 {
            draw(last.saturating_sub(RECENT_EVENTS).max(2), &mut recent);
        }
        questions.transactions = anywhere;
        questions.recent_transactions = recent.transactions;
        questions.last = last;
        questions
    }

    /// Returns each contract once.
    pub fn distinct_contracts(&self) -> Vec<ContractId> {
        let mut distinct = self.contracts.clone();
        distinct.sort_unstable();
        distinct.dedup();
        distinct
    }

    /// Returns queries for pages of popular contracts, at random positions of their history.
    pub fn usual_pages(&self, count: usize) -> Vec<EventQuery> {
        self.queries(count, |random, questions| {
            let mut query = of_contract(*questions.contracts.choose(random).expect("a contract"));
            query.page.cursor = Some(EventId(random.random_range(2..=questions.last)));
            query
        })
    }

    /// Returns queries for pages of topics that few events have, over all ledgers.
    pub fn rare_topics(&self, count: usize) -> Vec<EventQuery> {
        self.queries(count, |random, questions| {
            let (contract, topic) = questions.topics.choose(random).expect("a topic");
            let mut query = of_contract(*contract);
            query.topics = TopicFilter { anywhere: vec![topic.clone()], ..TopicFilter::default() };
            query.ledgers = Some(LedgerRange::new(0, u32::MAX));
            query
        })
    }

    /// Returns queries for pages of contracts with a few dozen events, over all ledgers.
    pub fn rare_contracts(&self, count: usize) -> Vec<EventQuery> {
        self.queries(count, |random, _| {
            let mut query = of_contract(ContractId(rare_contract(random.random())));
            query.ledgers = Some(LedgerRange::new(0, u32::MAX));
            query
        })
    }

    fn queries(
        &self,
        count: usize,
        query: impl Fn(&mut ChaCha8Rng, &Self) -> EventQuery,
    ) -> Vec<EventQuery> {
        let mut random = ChaCha8Rng::seed_from_u64(count as u64);
        (0..count).map(|_| query(&mut random, self)).collect()
    }
}

/// Returns the query for the newest events of all contracts.
pub fn page(limit: usize) -> EventQuery {
    EventQuery {
        ledgers: None,
        contracts: Vec::new(),
        topics: TopicFilter::default(),
        page: Page::first(limit),
    }
}

/// Returns the query for the newest hundred events of a contract.
pub fn of_contract(contract: ContractId) -> EventQuery {
    EventQuery { contracts: vec![contract], ..page(100) }
}
