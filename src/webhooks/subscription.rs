//! A subscription: who wants which events where, as a row of the store and in memory.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::filter::{Filter, TOPICS};
use super::rows::{self, SUBSCRIPTIONS};
use super::target::Endpoint;
use super::{Sealer, Secret, WebhookError};
use crate::domain::{ContractId, Owner};
use crate::store::{ConsumerEffects, FedLedger, StoreError};

/// A subscription as it is stored: what it is, and how it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// What it is.
    #[serde(flatten)]
    pub definition: Definition,
    /// How it is.
    #[serde(flatten)]
    pub state: State,
}

/// What of a subscription never changes. Contract, topics and address are spelled as users spell them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// Whose it is.
    pub owner: Owner,
    /// Where deliveries go.
    pub endpoint: String,
    /// Only events of this contract.
    pub contract: Option<String>,
    /// Only events with these topics.
    pub topics: [Option<String>; TOPICS],
    /// Only events that name this address in a topic.
    pub address: Option<String>,
    /// Whether events of older ledgers are wanted that are filled in later.
    pub include_backfill: bool,
    /// Drawn by lot: ids of its deliveries begin with it, so that they are nobody else's.
    pub tag: String,
    /// Its secret, sealed.
    pub secret: String,
    /// When it was made, in UNIX milliseconds.
    pub made: u64,
}

/// What of a subscription changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Whether events are delivered.
    pub enabled: bool,
    /// Why they are not.
    pub disabled_reason: Option<String>,
    /// When the first attempt failed since one succeeded, in UNIX milliseconds.
    pub failing_since: Option<u64>,
    /// Place in the feed after which ledgers concern it.
    pub after_place: u64,
    /// Newest ledger when it was made: older ones are backfills.
    pub after_ledger: u32,
}

impl Row {
    /// As it is stored.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and numbers serialize")
    }

    /// What a row says.
    ///
    /// # Errors
    /// [`WebhookError::Damaged`]
    pub fn decode(id: u32, row: &[u8]) -> Result<Self, WebhookError> {
        let damaged = |_| WebhookError::Damaged(format!("webhook subscription {id}"));
        serde_json::from_slice(row).map_err(damaged)
    }

    /// The row of a subscription, with what was changed before it was written.
    ///
    /// # Errors
    /// What the store says, and [`WebhookError::Damaged`].
    pub fn of(effects: &ConsumerEffects<'_>, id: u32) -> Result<Option<Self>, WebhookError> {
        let row = effects.get(SUBSCRIPTIONS, &rows::subscription_key(id))?;
        row.map(|row| Self::decode(id, &row)).transpose()
    }

    /// Whether events of a ledger concern it.
    pub fn concerns(&self, fed: &FedLedger) -> bool {
        self.state.concerns(self.definition.include_backfill, fed)
    }

    /// Puts the row of a subscription.
    ///
    /// # Errors
    /// What the store says.
    pub fn put(&self, effects: &mut ConsumerEffects<'_>, id: u32) -> Result<(), StoreError> {
        effects.put(SUBSCRIPTIONS, rows::subscription_key(id), self.encode())
    }
}

impl State {
    fn concerns(&self, include_backfill: bool, fed: &FedLedger) -> bool {
        let is_new = include_backfill || fed.ledger.0 > self.after_ledger;
        self.enabled && fed.place > self.after_place && is_new
    }

    /// Ends deliveries, and says why.
    pub fn disable(&mut self, reason: impl Into<String>) {
        self.enabled = false;
        self.disabled_reason = Some(reason.into());
    }

    /// Begins deliveries again with ledgers after that place: what was missed is not sent by itself.
    pub fn enable(&mut self, place: u64) {
        self.enabled = true;
        self.disabled_reason = None;
        self.failing_since = None;
        self.after_place = self.after_place.max(place);
    }
}

impl Definition {
    /// What it matches.
    ///
    /// # Errors
    /// [`WebhookError::Filter`]
    pub fn filter(&self) -> Result<Filter, WebhookError> {
        let topics = self.topics.each_ref().map(Option::as_deref);
        Ok(Filter::parse(self.contract.as_deref(), topics, self.address.as_deref())?)
    }

    /// The contract, if it is about one.
    pub fn contract(&self) -> Option<ContractId> {
        self.contract.as_deref()?.parse().ok()
    }

    /// Hash of what makes two subscriptions the same.
    pub fn fingerprint(&self) -> [u8; 32] {
        let Self { owner, endpoint, contract, topics, address, include_backfill, .. } = self;
        let same = (owner, endpoint, contract, topics, address, include_backfill);
        Sha256::digest(serde_json::to_vec(&same).expect("texts serialize")).into()
    }
}

/// Topics as users spell them, in the one way in which this service spells them.
pub fn spelled(topic: &[u8]) -> String {
    STANDARD.encode(topic)
}

/// A subscription in memory.
pub struct Subscription {
    /// Its number.
    pub id: u32,
    /// What it is.
    pub definition: Definition,
    /// What it matches.
    pub filter: Filter,
    /// Where deliveries go.
    pub endpoint: Endpoint,
    /// What signs them; none when it cannot be read any more.
    pub secret: Option<Secret>,
    /// As it was written last, unless it is in doubt.
    state: Mutex<State>,
    in_doubt: AtomicBool,
    gone: AtomicBool,
    waiting: AtomicI64,
}

impl Subscription {
    /// A stored subscription.
    ///
    /// # Errors
    /// [`WebhookError::Damaged`]
    pub fn new(id: u32, row: Row, sealer: &Sealer) -> Result<Self, WebhookError> {
        let Row { definition, state } = row;
        let damaged = || WebhookError::Damaged(format!("webhook subscription {id}"));
        Ok(Self {
            id,
            filter: definition.filter().map_err(|_| damaged())?,
            endpoint: definition.endpoint.parse().map_err(|_| damaged())?,
            secret: sealer.open(&definition.tag, &definition.secret),
            definition,
            state: Mutex::new(state),
            in_doubt: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            waiting: AtomicI64::new(0),
        })
    }

    /// How it is.
    pub fn state(&self) -> State {
        self.state.lock().clone()
    }

    /// Says how it is: to be called by whoever writes it, before the write, and nobody else may write
    /// meanwhile.
    pub fn set_state(&self, state: State) {
        *self.state.lock() = state;
    }

    /// Whether events of a ledger concern it.
    pub fn concerns(&self, fed: &FedLedger) -> bool {
        self.state.lock().concerns(self.definition.include_backfill, fed)
    }

    /// Whether deliveries are made and sent.
    pub fn is_enabled(&self) -> bool {
        self.state.lock().enabled
    }

    /// Whether what is in memory may not be what is written: the row decides.
    pub fn is_in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::SeqCst)
    }

    /// Says whether what is in memory may not be what is written.
    pub fn set_in_doubt(&self, in_doubt: bool) {
        self.in_doubt.store(in_doubt, Ordering::SeqCst);
    }

    /// Whether its owner has deleted it: nothing may be sent any more.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    /// Says whether its owner has deleted it.
    pub fn set_gone(&self, gone: bool) {
        self.gone.store(gone, Ordering::SeqCst);
    }

    /// Counts deliveries that are to be sent, or are not any more.
    pub fn count_waiting(&self, more: i64) {
        self.waiting.fetch_add(more, Ordering::Relaxed);
    }

    /// Says how many deliveries are to be sent.
    pub fn set_waiting(&self, count: i64) {
        self.waiting.store(count, Ordering::Relaxed);
    }

    /// Deliveries that are to be sent.
    pub fn waiting(&self) -> u64 {
        u64::try_from(self.waiting.load(Ordering::Relaxed)).unwrap_or(0)
    }
}
