//! A subscription: which events an owner wants at which endpoint, as a row of the store and in
//! memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::contracts::Contracts;
use super::filter::{Filter, TOPICS};
use super::message::format::{Format, Rate};
use super::message::{Facts, Message};
use super::rows::{Bodies, SUBSCRIPTIONS};
use super::secret::SealedSecrets;
use super::target::Endpoint;
use super::time::Moment;
use super::trigger::Trigger;
use super::{Sealer, Secrets, WebhookError};
use orrery_conditions::{Condition, Problem};
use orrery_ledger::domain::{ContractId, Owner};
use orrery_store::{Arrival, ConsumerEffects, FedLedger, Mark, StoreError};

/// Why nothing is sent to an endpoint that cannot be decrypted.
pub(super) const VOID_ENDPOINT: &str = "its endpoint cannot be read any more, because it was sealed under \
                                        another key: delete the subscription, and make it again";

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
    /// URL that deliveries go to; of a chat, what is shown of it ([`Endpoint::hidden`]).
    pub endpoint: String,
    /// The URL of a chat, encrypted, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed_endpoint: Option<String>,
    /// SHA-256 of the URL of a chat in hexadecimal digits, which tells endpoints apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_digest: Option<String>,
    /// Form of the deliveries.
    #[serde(default, skip_serializing_if = "Format::is_service")]
    pub format: Format,
    /// Template of the messages; `None` where deliveries are JSON for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Strkey of the only contract whose events are delivered; `None` for any contract.
    pub contract: Option<String>,
    /// Name of the project whose events are delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Topics that events must have at these positions: base64 of the XDR of an `ScVal`.
    pub topics: [Option<String>; TOPICS],
    /// Strkey of an address that events must have as a topic.
    pub address: Option<String>,
    /// What must be true of an event.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// Whether events of older ledgers that are backfilled later are delivered.
    pub include_backfill: bool,
    /// What it is told of.
    #[serde(default, skip_serializing_if = "Trigger::is_event")]
    pub trigger: Trigger,
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

impl State {
    /// That of a subscription that delivers what comes after this place in the feed; ledgers up to
    /// `after_ledger` count as backfilled.
    pub fn enabled(after_place: u64, after_ledger: u32) -> Self {
        Self {
            enabled: true,
            disabled_reason: None,
            failing_since: None,
            failing_kept: None,
            failing_because: None,
            after_place,
            after_ledger,
        }
    }
}

impl Row {
    /// Encodes the row.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a row has texts and numbers, and no map: these serialize")
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

    /// Whether what happens in a ledger is to be delivered.
    pub fn concerns(&self, fed: &FedLedger) -> bool {
        self.state.concerns(&self.definition, fed)
    }

    /// Puts the row of a subscription into `effects`.
    pub fn put(&self, effects: &mut ConsumerEffects<'_>, id: u32) -> Result<(), StoreError> {
        SUBSCRIPTIONS.put(effects, &(Mark, id), &self.encode())
    }
}

impl State {
    fn concerns(&self, definition: &Definition, fed: &FedLedger) -> bool {
        let is_newer = fed.ledger.0 > self.after_ledger;
        let is_new = match definition.trigger.may_be_backfilled() {
            true => definition.include_backfill || is_newer,
            false => is_newer && fed.arrival == Arrival::Live,
        };
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

    /// Reads the condition.
    ///
    /// # Errors
    /// [`Problem`]
    pub fn condition(&self) -> Result<Option<Condition>, Problem> {
        self.condition.as_deref().map(Condition::parse).transpose()
    }

    /// Parses the message; `None` where deliveries are JSON for programs.
    ///
    /// # Errors
    /// [`WebhookError::Value`]
    pub fn message(&self) -> Result<Option<Message>, WebhookError> {
        let Some(template) = &self.message else { return Ok(None) };
        Ok(Some(Message::parse(self.format, template)?))
    }

    /// Parses the endpoint; `None` when it is secret and cannot be decrypted.
    ///
    /// # Errors
    /// [`WebhookError::Endpoint`]
    fn opened_endpoint(&self, sealer: &Sealer) -> Result<Option<Endpoint>, WebhookError> {
        let opened = match &self.sealed_endpoint {
            None => Some(self.endpoint.clone()),
            Some(sealed) => sealer.open_endpoint(&self.tag, sealed),
        };
        Ok(opened.map(|text| text.parse()).transpose()?)
    }

    /// Returns the contract; `None` when the subscription is not limited to one.
    pub fn contract(&self) -> Option<ContractId> {
        self.contract.as_deref()?.parse().ok()
    }

    /// Returns the contracts that it is about.
    pub fn contracts(&self) -> Contracts {
        match &self.project {
            Some(project) => Contracts::Project(project.clone()),
            None => self.contract().map_or(Contracts::Any, Contracts::One),
        }
    }

    /// Returns the hash of all that makes two subscriptions identical.
    pub fn fingerprint(&self) -> [u8; 32] {
        let Self { owner, endpoint, contract, topics, address, include_backfill, .. } = self;
        let same = (owner, endpoint, contract, topics, address, include_backfill);
        // Those of earlier versions have no condition and no message, and are of events: they keep their
        // hash.
        let json = "texts, numbers and lists of them serialize";
        let mut same = match (&self.condition, self.trigger.is_event()) {
            (None, true) => serde_json::to_vec(&same),
            (Some(condition), true) => serde_json::to_vec(&(same, condition)),
            (condition, false) => serde_json::to_vec(&(same, condition, &self.trigger)),
        }
        .expect(json);
        if let Some(project) = &self.project {
            same.extend(serde_json::to_vec(&("project", project)).expect(json));
        }
        let Self { endpoint_digest, format, message, .. } = self;
        if !format.is_service() {
            let more = (endpoint_digest, format, message);
            same.extend(serde_json::to_vec(&more).expect(json));
        }
        Sha256::digest(same).into()
    }
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
    /// Condition parsed from the definition.
    pub condition: Option<Condition>,
    /// The contracts that it is about.
    pub contracts: Contracts,
    /// Endpoint that deliveries go to; `None` when it is secret and cannot be decrypted.
    pub endpoint: Option<Endpoint>,
    /// What its deliveries say; `None` where they are JSON for programs.
    pub message: Option<Message>,
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
            condition: definition.condition().map_err(|_| damaged())?,
            contracts: definition.contracts(),
            endpoint: definition.opened_endpoint(sealer).map_err(|_| damaged())?,
            message: definition.message().map_err(|_| damaged())?,
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

    /// Returns scheme, host and port of the server that its deliveries go to.
    pub fn server(&self) -> Arc<str> {
        let hidden = &self.definition.endpoint;
        let shown = || hidden.rsplit_once('/').map_or(&**hidden, |(server, _)| server).into();
        self.endpoint.as_ref().map_or_else(shown, |endpoint| endpoint.origin().into())
    }

    /// Returns what tells its endpoint from that of other chats, and how often this takes messages; `None`
    /// where it is none of a chat.
    pub fn chat(&self) -> Option<(&str, Rate)> {
        self.definition.endpoint_digest.as_deref().zip(self.definition.format.rate())
    }

    /// Returns where the bodies of its deliveries are.
    pub fn bodies(&self) -> Bodies {
        Bodies { subscription: self.id, are_own: self.definition.project.is_some() }
    }

    /// Whether its messages have numbers in units of tokens, so that each delivery has their decimals.
    pub fn has_units(&self) -> bool {
        self.message.as_ref().is_some_and(|message| message.template().tokens().next().is_some())
    }

    /// Returns the body of a delivery as it is sent: the message, if it has one.
    pub fn written(
        &self,
        body: Bytes,
        decimals: &[Option<u32>],
        public_url: Option<&str>,
    ) -> Bytes {
        let facts = Facts { subscription: self.id, decimals, public_url };
        self.message.as_ref().map_or_else(|| body.clone(), |message| message.write(&body, &facts))
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

    /// Whether what happens in a ledger is to be delivered.
    pub fn concerns(&self, fed: &FedLedger) -> bool {
        self.state.lock().concerns(&self.definition, fed)
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
        sealed_endpoint: None,
        endpoint_digest: None,
        format: Format::Service,
        message: None,
        contract: None,
        project: None,
        topics: Default::default(),
        address: None,
        condition: None,
        include_backfill: false,
        trigger: Trigger::Event,
        tag,
        made: 0,
    };
    let secrets = Secrets { present: super::Secret::generate(), previous: Vec::new() };
    let secrets = sealer.seal_all(&definition.tag, &secrets).unwrap();
    let state = State::enabled(0, 0);
    Arc::new(Subscription::new(id, Row { definition, secrets, state }, &sealer).unwrap())
}
