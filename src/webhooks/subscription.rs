//! A subscription: which events an owner wants at which endpoint, as a row of the store and in
//! memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::filter::{Filter, TOPICS};
use super::rows::SUBSCRIPTIONS;
use super::secret::SealedSecrets;
use super::target::Endpoint;
use super::time::Moment;
use super::{Sealer, Secrets, WebhookError};
use orrery_ledger::domain::{ContractId, Owner};
use orrery_store::{ConsumerEffects, FedLedger, Mark, StoreError};

/// A subscription as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The part that never changes.
    #[serde(flatten)]
    pub definition: Definition,
    /// The secrets that sign its deliveries.
    #[serde(flatten)]
    pub secrets: SealedSecrets,
    /// The part that changes.
    #[serde(flatten)]
    pub state: State,
}

/// The immutable part of a subscription. Contract, topics and address are written as users spell
/// them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// Owner of the subscription.
    pub owner: Owner,
    /// URL that deliveries go to.
    pub endpoint: String,
    /// Strkey of the only contract whose events are delivered; `None` for any contract.
    pub contract: Option<String>,
    /// Topics that events must have at these positions: base64 of the XDR of an `ScVal`.
    pub topics: [Option<String>; TOPICS],
    /// Strkey of an address that events must have as a topic.
    pub address: Option<String>,
    /// Whether events of older ledgers that are backfilled later are delivered.
    pub include_backfill: bool,
    /// Random hexadecimal prefix of the delivery ids, which makes them unique.
    pub tag: String,
    /// UNIX time in milliseconds at which it was created.
    pub made: u64,
}

/// The mutable part of a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Whether events are delivered.
    pub enabled: bool,
    /// Why it is disabled; `None` while it is enabled.
    pub disabled_reason: Option<String>,
    /// UNIX time in milliseconds of the first failed attempt since the last success.
    pub failing_since: Option<u64>,
    /// [`Moment::noted`] at the end of that attempt, or of the first one since that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_kept: Option<u64>,
    /// Why the last of the failed attempts since then failed, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_because: Option<String>,
    /// Place in the feed when it was created or last enabled; only events of later ledgers are
    /// delivered.
    pub after_place: u64,
    /// Newest ledger when it was created; older ledgers count as backfilled.
    pub after_ledger: u32,
}

impl Row {
    /// Encodes the row.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and numbers serialize")
    }

    /// Decodes a row.
    ///
    /// # Errors
    /// [`WebhookError::Damaged`]
    pub fn decode(id: u32, row: &[u8]) -> Result<Self, WebhookError> {
        let damaged = |_| WebhookError::Damaged(format!("webhook subscription {id}"));
        serde_json::from_slice(row).map_err(damaged)
    }

    /// Reads the row of a subscription, including changes in `effects` that are not written yet.
    ///
    /// # Errors
    /// Errors of the store, and [`WebhookError::Damaged`].
    pub fn of(effects: &ConsumerEffects<'_>, id: u32) -> Result<Option<Self>, WebhookError> {
        let row = SUBSCRIPTIONS.get(effects, &(Mark, id))?;
        row.map(|row| Self::decode(id, &row)).transpose()
    }

    /// Whether events of a ledger are to be delivered.
    pub fn concerns(&self, fed: &FedLedger) -> bool {
        self.state.concerns(self.definition.include_backfill, fed)
    }

    /// Puts the row of a subscription into `effects`.
    pub fn put(&self, effects: &mut ConsumerEffects<'_>, id: u32) -> Result<(), StoreError> {
        SUBSCRIPTIONS.put(effects, &(Mark, id), &self.encode())
    }
}

impl State {
    fn concerns(&self, include_backfill: bool, fed: &FedLedger) -> bool {
        let is_new = include_backfill || fed.ledger.0 > self.after_ledger;
        self.enabled && fed.place > self.after_place && is_new
    }

    /// Notes a success.
    pub fn succeed(&mut self) {
        (self.failing_since, self.failing_kept, self.failing_because) = (None, None, None);
    }

    /// Notes a failed attempt that ended at `ended`, in UNIX milliseconds, and returns for how long
    /// there has been no success.
    pub fn fail(&mut self, ended: u64, now: Moment, because: Option<String>) -> Duration {
        self.failing_because = because;
        self.failing_since.get_or_insert(ended);
        let since = *self.failing_kept.get_or_insert(now.noted);
        Duration::from_millis(now.kept.saturating_sub(since))
    }

    /// Disables the subscription for this reason.
    pub fn disable(&mut self, reason: impl Into<String>) {
        self.enabled = false;
        self.disabled_reason = Some(reason.into());
    }

    /// Enables the subscription for ledgers after `place`. Missed events are not sent
    /// automatically.
    pub fn enable(&mut self, place: u64) {
        self.enabled = true;
        self.disabled_reason = None;
        self.succeed();
        self.after_place = self.after_place.max(place);
    }
}

impl Definition {
    /// Parses the filter.
    ///
    /// # Errors
    /// [`WebhookError::Filter`]
    pub fn filter(&self) -> Result<Filter, WebhookError> {
        let topics = self.topics.each_ref().map(Option::as_deref);
        Ok(Filter::parse(self.contract.as_deref(), topics, self.address.as_deref())?)
    }

    /// Returns the contract; `None` when the subscription is not limited to one.
    pub fn contract(&self) -> Option<ContractId> {
        self.contract.as_deref()?.parse().ok()
    }

    /// Returns the hash of all that makes two subscriptions identical.
    pub fn fingerprint(&self) -> [u8; 32] {
        let Self { owner, endpoint, contract, topics, address, include_backfill, .. } = self;
        let same = (owner, endpoint, contract, topics, address, include_backfill);
        Sha256::digest(serde_json::to_vec(&same).expect("texts serialize")).into()
    }
}

/// Returns the canonical spelling of a topic for users.
pub fn encode_topic(topic: &[u8]) -> String {
    STANDARD.encode(topic)
}

/// The secrets of a subscription in memory.
struct HeldSecrets {
    sealed: SealedSecrets,
    /// `None` when they cannot be decrypted.
    opened: Option<Arc<Secrets>>,
}

impl HeldSecrets {
    fn of(sealed: SealedSecrets, tag: &str, sealer: &Sealer) -> Self {
        let opened = sealer.open_all(tag, &sealed).map(Arc::new);
        Self { sealed, opened }
    }
}

/// A subscription in memory.
pub struct Subscription {
    /// Number of the subscription.
    pub id: u32,
    /// The immutable part of its row.
    pub definition: Definition,
    /// Filter parsed from the definition.
    pub filter: Filter,
    /// Endpoint that deliveries go to.
    pub endpoint: Endpoint,
    secrets: Mutex<HeldSecrets>,
    /// State as last written, unless `in_doubt` is set.
    state: Mutex<State>,
    in_doubt: AtomicBool,
    deleted: AtomicBool,
    waiting: AtomicI64,
}

impl Subscription {
    /// Builds a subscription from its row.
    ///
    /// # Errors
    /// [`WebhookError::Damaged`]
    pub fn new(id: u32, row: Row, sealer: &Sealer) -> Result<Self, WebhookError> {
        let Row { definition, secrets, state } = row;
        let damaged = || WebhookError::Damaged(format!("webhook subscription {id}"));
        Ok(Self {
            id,
            filter: definition.filter().map_err(|_| damaged())?,
            endpoint: definition.endpoint.parse().map_err(|_| damaged())?,
            secrets: Mutex::new(HeldSecrets::of(secrets, &definition.tag, sealer)),
            definition,
            state: Mutex::new(state),
            in_doubt: AtomicBool::new(false),
            deleted: AtomicBool::new(false),
            waiting: AtomicI64::new(0),
        })
    }

    /// Returns its row with another state.
    pub fn row(&self, state: State) -> Row {
        Row {
            definition: self.definition.clone(),
            secrets: self.secrets.lock().sealed.clone(),
            state,
        }
    }

    /// Returns the secrets that sign its deliveries; `None` when they cannot be decrypted.
    pub fn secrets(&self) -> Option<Arc<Secrets>> {
        self.secrets.lock().opened.clone()
    }

    /// Returns the time in UNIX milliseconds at which the last secret before the present one ends;
    /// `None` when none signs any more at `now`.
    pub fn previous_secrets_until(&self, now: u64) -> Option<u64> {
        let held = self.secrets.lock();
        held.sealed.previous_secrets.iter().map(|it| it.until).filter(|until| now < *until).max()
    }

    /// Returns the stored form of its secrets.
    pub(super) fn sealed_secrets(&self) -> SealedSecrets {
        self.secrets.lock().sealed.clone()
    }

    /// Sets the secrets. Must be called by the code that writes the row, before the write, while no other
    /// write can happen, because every write of the row takes them from here.
    pub(super) fn set_secrets(&self, sealed: SealedSecrets, sealer: &Sealer) {
        *self.secrets.lock() = HeldSecrets::of(sealed, &self.definition.tag, sealer);
    }

    /// Returns the current state.
    pub fn state(&self) -> State {
        self.state.lock().clone()
    }

    /// Sets the state. Must be called by the code that writes the row, before the write, while no
    /// other write can happen.
    pub fn set_state(&self, state: State) {
        *self.state.lock() = state;
    }

    /// Whether events of a ledger are to be delivered.
    pub fn concerns(&self, fed: &FedLedger) -> bool {
        self.state.lock().concerns(self.definition.include_backfill, fed)
    }

    /// Whether deliveries are created and sent.
    pub fn is_enabled(&self) -> bool {
        self.state.lock().enabled
    }

    /// Whether the state in memory may differ from the stored row, which then decides.
    pub fn is_in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::SeqCst)
    }

    /// Sets whether the state in memory may differ from the stored row. Called by the registry alone,
    /// which lists the subscriptions in doubt ([`super::registry::Registry::begin_doubt`]).
    pub(super) fn set_in_doubt(&self, in_doubt: bool) {
        self.in_doubt.store(in_doubt, Ordering::SeqCst);
    }

    /// Whether its owner has deleted it: nothing more may be sent.
    pub fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::SeqCst)
    }

    /// Sets whether its owner has deleted it.
    pub fn set_deleted(&self, deleted: bool) {
        self.deleted.store(deleted, Ordering::SeqCst);
    }

    /// Adds to the number of waiting deliveries; `more` is negative when deliveries end.
    pub fn add_waiting(&self, more: i64) {
        self.waiting.fetch_add(more, Ordering::Relaxed);
    }

    /// Sets the number of waiting deliveries.
    pub fn set_waiting(&self, count: i64) {
        self.waiting.store(count, Ordering::Relaxed);
    }

    /// Returns the number of waiting deliveries.
    pub fn waiting(&self) -> u64 {
        u64::try_from(self.waiting.load(Ordering::Relaxed)).unwrap_or(0)
    }
}

/// Returns a subscription that is enabled, for tests.
#[cfg(test)]
pub(super) fn sample(id: u32) -> Arc<Subscription> {
    let sealer = Sealer::new(&[7; 32]).unwrap();
    let tag = "00112233aabbccdd".to_owned();
    let definition = Definition {
        owner: Owner("ana".to_owned()),
        endpoint: "https://example.com/".to_owned(),
        contract: None,
        topics: Default::default(),
        address: None,
        include_backfill: false,
        tag,
        made: 0,
    };
    let secrets = Secrets { present: super::Secret::generate(), previous: Vec::new() };
    let secrets = sealer.seal_all(&definition.tag, &secrets).unwrap();
    let state = State {
        enabled: true,
        disabled_reason: None,
        failing_since: None,
        failing_kept: None,
        failing_because: None,
        after_place: 0,
        after_ledger: 0,
    };
    Arc::new(Subscription::new(id, Row { definition, secrets, state }, &sealer).unwrap())
}
