//! Writes the outcomes of attempts into the rows of deliveries and subscriptions, many in one
//! write.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use super::job::{Note, Outcome, Written};
use super::mailbox::{Mailbox, Message};
use crate::registry::{Doubt, Registry};
use crate::rows::{DELIVERIES, Delivery, FINISHED, QUEUE, State};
use crate::schedule::MAX_FAILING_TIME;
use crate::subscription::{Row, State as SubscriptionState, Subscription};
use crate::time::Moment;
use crate::{CONSUMER, WebhookError};
use orrery_runtime::observe::health::Health;
use orrery_store::{ConsumerEffects, Store};

/// Maximum number of notes in one write.
const MAX_NOTES_PER_WRITE: usize = 1024;
/// How long outcomes are gathered before they are written. Each write is synced to the disk, and new
/// ledgers are not stored meanwhile: without this delay, a busy subscription causes thousands of
/// them a second.
const GATHERING_TIME: Duration = Duration::from_millis(5);
/// Delay before a failed write is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Name of the thread that writes outcomes.
pub(super) const WRITER: &str = "webhook-notes";
/// Name of webhooks in the health report.
pub const COMPONENT: &str = "webhooks";

/// Writes notes.
pub struct Writer {
    pub store: Arc<Store>,
    pub registry: Arc<Registry>,
    pub health: Arc<Health>,
    pub mailbox: Mailbox,
    pub stopping: Arc<AtomicBool>,
}

impl Writer {
    /// Writes notes until all senders are gone. `batch` holds the notes that are being written, so
    /// that a call after a panic begins with them.
    pub fn run(&self, notes: &Receiver<Note>, batch: &mut Arc<Vec<Note>>) {
        loop {
            if batch.is_empty() {
                let Ok(first) = notes.recv() else { return };
                thread::sleep(GATHERING_TIME);
                let rest = notes.try_iter().take(MAX_NOTES_PER_WRITE - 1);
                *batch = Arc::new(std::iter::once(first).chain(rest).collect());
            }
            self.health.injected().panic_if(WRITER);
            while !self.write(batch) {
                if self.stopping.load(Ordering::SeqCst) {
                    tracing::error!(
                        "the outcomes of webhook attempts were not recorded: they are made again"
                    );
                    break;
                }
                thread::sleep(RETRY_DELAY);
            }
            *batch = Arc::default();
        }
    }

    /// Writes notes, and returns whether that succeeded.
    fn write(&self, notes: &Arc<Vec<Note>>) -> bool {
        let (own, registry) = (Arc::clone(notes), Arc::clone(&self.registry));
        let written = self
            .store
            .change_consumer_rows(CONSUMER, move |effects| note_all(&own, &registry, effects));
        match written {
            Ok((written, changed)) => {
                changed.into_iter().for_each(|doubt| self.registry.end_doubt(doubt));
                if self.health.is_down(COMPONENT) {
                    self.health.up(COMPONENT);
                }
                self.mailbox.send(Message::Written(written));
                true
            }
            Err(error) => {
                tracing::error!("the outcomes of webhook attempts cannot be recorded: {error}");
                self.health.down(COMPONENT, "outcomes cannot be recorded: the log says why");
                false
            }
        }
    }
}

/// States of the subscriptions that notes refer to; `None` for a deleted subscription.
type States = BTreeMap<u32, Option<KnownState>>;

/// State of a subscription, with the changes that notes make.
struct KnownState {
    subscription: Arc<Subscription>,
    state: SubscriptionState,
    has_changed: bool,
}

impl KnownState {
    /// Returns the stored state of a subscription, which is also in memory, unless it is in doubt.
    fn of(
        id: u32,
        registry: &Registry,
        effects: &ConsumerEffects<'_>,
    ) -> Result<Option<Self>, WebhookError> {
        let Some(subscription) = registry.get(id) else { return Ok(None) };
        let state = if subscription.is_in_doubt() {
            Row::of(effects, id)?.map(|row| row.state)
        } else {
            Some(subscription.state())
        };
        Ok(state.map(|state| Self { subscription, state, has_changed: false }))
    }
}

/// Puts the outcomes into `effects`. Returns the result of each note, and a doubt for each
/// subscription whose state has changed, which ends when the write has succeeded.
fn note_all(
    notes: &[Note],
    registry: &Registry,
    effects: &mut ConsumerEffects<'_>,
) -> Result<(Vec<Written>, Vec<Doubt>), WebhookError> {
    let (mut states, now) = (States::new(), registry.now());
    registry.put_kept(effects, now)?;
    let written: Result<Vec<_>, _> =
        notes.iter().map(|note| note_one(note, now, registry, &mut states, effects)).collect();
    let written = written?;
    let changed: Vec<_> = states.into_values().flatten().filter(|it| it.has_changed).collect();
    for KnownState { subscription, state, .. } in &changed {
        subscription.row(state.clone()).put(effects, subscription.id)?;
    }
    let change = |KnownState { subscription, state, .. }| {
        let doubt = registry.begin_doubt(&subscription);
        subscription.set_state(state);
        doubt
    };
    Ok((written, changed.into_iter().map(change).collect()))
}

fn note_one(
    note: &Note,
    now: Moment,
    registry: &Registry,
    states: &mut States,
    effects: &mut ConsumerEffects<'_>,
) -> Result<Written, WebhookError> {
    let Note { queued, .. } = note;
    let mut written =
        Written { queued: *queued, next: None, is_finished: false, is_disabled: false };
    let id = queued.subscription;
    if let std::collections::btree_map::Entry::Vacant(place) = states.entry(id) {
        place.insert(KnownState::of(id, registry, effects)?);
    }
    // A deleted subscription has no rows, and must not get any.
    let Some(Some(KnownState { state, has_changed, .. })) = states.get_mut(&id) else {
        return Ok(written);
    };
    let key = (id, queued.number);
    let delivery = DELIVERIES.get(effects, &key)?;
    let claimed = delivery.as_ref().and_then(|it| it.queued(id, queued.number));
    if claimed != Some(*queued) || !matches!(note.outcome, Outcome::Stray) {
        QUEUE.delete(effects, queued)?;
    }
    let Some(mut delivery) = delivery else {
        written.is_finished = true;
        return Ok(written);
    };
    note.attempt.iter().for_each(|attempt| delivery.add(attempt.clone()));
    // A replay has queued the delivery again in a newer round, or the queue row was stray.
    if delivery.round != note.round || claimed != Some(*queued) {
        DELIVERIES.put(effects, &key, &delivery)?;
        return Ok(written);
    }
    delivery.apply_outcome(note, now);
    let was_enabled = state.enabled;
    *has_changed |= apply_to_subscription(note, now, state);
    written.is_disabled = was_enabled && !state.enabled;
    written.next = delivery.queued(id, queued.number);
    if let Some(next) = &written.next {
        QUEUE.put(effects, next, &())?;
    }
    if let Some(finished) = delivery.finished(id, queued.number) {
        written.is_finished = true;
        FINISHED.put(effects, &finished, &())?;
    }
    DELIVERIES.put(effects, &key, &delivery)?;
    Ok(written)
}

/// Applies the outcome in a note to the state of the subscription. Returns whether that has changed it.
fn apply_to_subscription(note: &Note, now: Moment, state: &mut SubscriptionState) -> bool {
    let before = state.clone();
    let is_test = note.queued.number.test().is_some();
    match &note.outcome {
        Outcome::Delivered if !is_test => state.succeed(),
        Outcome::Gone(status) if !is_test && state.enabled => {
            state.disable(format!("its endpoint {}, which ends deliveries", answered(*status)));
        }
        Outcome::Failed(_) if !is_test => {
            let because = note.attempt.as_ref().map(|attempt| attempt.failure());
            let failing = state.fail(note.ended, now, because);
            if failing >= MAX_FAILING_TIME && state.enabled {
                state.disable("no delivery has arrived for five days");
            }
        }
        Outcome::Abandoned(reason, true) if state.enabled => state.disable(reason.clone()),
        _ => {}
    }
    *state != before
}

/// Describes an answer that ends deliveries.
fn answered(status: u16) -> String {
    let meaning = if status == 410 { "Gone" } else { "Not Found" };
    format!("answered {status} ({meaning})")
}

impl Delivery {
    /// Applies the outcome in a note to the delivery.
    fn apply_outcome(&mut self, note: &Note, now: Moment) {
        if note.attempt.is_some() {
            self.tries = self.tries.saturating_add(1);
        }
        let (state, due, reason) = match &note.outcome {
            Outcome::Delivered => (State::Delivered, None, None),
            Outcome::Gone(status) => {
                (State::Dead, None, Some(format!("the endpoint {}", answered(*status))))
            }
            Outcome::Failed(Some((_, due))) => (State::Retrying, Some(*due), None),
            Outcome::Failed(None) => {
                (State::Dead, None, Some("the last attempt failed".to_owned()))
            }
            Outcome::Abandoned(reason, _) => (State::Dead, None, Some(reason.clone())),
            Outcome::Stray => return,
        };
        self.state = state;
        self.due = due;
        self.reason = reason;
        self.ended = due.is_none().then_some(note.ended);
        self.ended_day = self.ended.map(|_| now.day());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WebhookConsumer;
    use crate::rows::{Class, Number, Queued};
    use crate::subscription::sample;
    use orrery_ledger::domain::{EventId, Network};
    use orrery_store::{Extensions, LedgerConsumer};

    const ID: u32 = 7;

    /// A store with one subscription and its first delivery.
    struct Scene {
        _directory: tempfile::TempDir,
        store: Store,
        registry: Arc<Registry>,
        subscription: Arc<Subscription>,
    }

    impl Scene {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let registry = Arc::<Registry>::default();
            let consumer = WebhookConsumer::new(Arc::clone(&registry));
            let extensions =
                Extensions { consumers: vec![consumer.spec()], ..Extensions::default() };
            let network = Network::from_passphrase("notes");
            let store = Store::open_with(directory.path(), Some(&network), extensions).unwrap();
            let subscription = sample(ID);
            registry.insert(&subscription);
            let row = subscription.row(subscription.state());
            let queued = Queued::first(ID, Number::of_event(EventId(1)));
            let written = store.change_consumer_rows(CONSUMER, move |effects| {
                row.put(effects, ID)?;
                let delivery = Delivery::new(1, Moment::default());
                DELIVERIES.put(effects, &(ID, queued.number), &delivery)?;
                QUEUE.put(effects, &queued, &())?;
                Ok::<_, WebhookError>(())
            });
            written.unwrap();
            Self { _directory: directory, store, registry, subscription }
        }

        /// Writes the note that the first attempt has failed at 5, and returns the stored state.
        fn note_failure(&self) -> SubscriptionState {
            let note = Note {
                queued: Queued::first(ID, Number::of_event(EventId(1))),
                round: 0,
                attempt: None,
                outcome: Outcome::Failed(Some((Class::Soon, 10))),
                ended: 5,
            };
            let registry = Arc::clone(&self.registry);
            let written = self.store.change_consumer_rows(CONSUMER, move |effects| {
                note_all(&[note], &registry, effects)?;
                Ok::<_, WebhookError>(Row::of(effects, ID)?.map(|row| row.state))
            });
            written.unwrap().unwrap()
        }
    }

    #[test]
    fn the_state_in_memory_equals_the_stored_one_unless_in_doubt() {
        let disabled = |scene: &Scene| {
            let mut state = scene.subscription.state();
            state.disable("test");
            state
        };
        let scene = Scene::new();
        let before = scene.subscription.state();
        // As after a failed write of this state.
        scene.registry.begin_doubt(&scene.subscription);
        scene.subscription.set_state(disabled(&scene));
        let expected =
            SubscriptionState { failing_since: Some(5), failing_kept: Some(0), ..before };
        assert_eq!(scene.note_failure(), expected);
        assert_eq!(scene.subscription.state(), expected);

        let scene = Scene::new();
        scene.subscription.set_state(disabled(&scene));
        let expected =
            SubscriptionState { failing_since: Some(5), failing_kept: Some(0), ..disabled(&scene) };
        assert_eq!(scene.note_failure(), expected, "the row is not read when there is no doubt");
    }
}
