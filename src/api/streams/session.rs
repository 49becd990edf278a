//! One stream: its position, and what it sends next. Its output consists of pieces, each a little
//! longer than [`PIECE`] at most; the next one is produced when the HTTP library asks for it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep, sleep_until};

use super::batch::Batch;
use super::context::{Context, Opening, RESERVED_BYTES};
use super::frames;
use super::hub::{Next, Subscription};
use super::members::{Kept, LOOK_EVERY, Members};
use super::names::{Names, Piece};
use crate::client::InFlightGuard;
use crate::{ApiError, json};
use orrery_conditions::Condition;
use orrery_executables::{InterfaceReader, Lacking};
use orrery_ledger::domain::{ContractId, EventId, LedgerSeq, Page};
use orrery_membership::Selected;
use orrery_store::{
    Bounds, EventQuery, EventRecord, Interrupted, RowBounds, StoreError, TopicFilter,
};
use orrery_webhooks::filter::Filter;
use orrery_webhooks::followed::ended;
use orrery_webhooks::judging::{JudgedEvent, Verdict};
use orrery_webhooks::unmet::Unmet;

/// Size in bytes at which a piece ends.
const PIECE: usize = 32 << 10;

/// Maximum time between two checks of a stream's token.
const TOKEN_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Delay before a stream that was refused a readers slot tries again.
const SLOT_RETRY_DELAY: Duration = Duration::from_millis(200);

/// Cost limits of one store read, after which the readers slot is released for other requests.
const MAX_READ_TIME: Duration = Duration::from_millis(50);
const MAX_READ_RECORDS: u64 = 1000;
const MAX_READ_INDEX_ROWS: u64 = 10_000;

/// An open stream.
pub(super) struct Session {
    context: Arc<Context>,
    subscription: Subscription,
    wanted: Wanted,
    /// Whether events are sent with their names.
    is_decoded: bool,
    /// The wait for names, if events have them, or a condition reads them. They are read from the store
    /// then, each stream for itself.
    names: Option<Names>,
    /// Id up to which all matching events have been sent.
    position: EventId,
    has_begun: bool,
    /// Whether the client has received `position` as an id.
    position_sent: bool,
    /// Time by which the client must receive a message, even if there is nothing new.
    heartbeat: Instant,
    /// Keeps the connection from counting as idle.
    in_flight: InFlightGuard,
    opening: Opening,
    has_ended: bool,
}

/// Which events a stream sends.
pub(super) struct Wanted {
    pub filter: Filter,
    pub condition: Option<Condition>,
    /// The project whose events these are, if they are of one.
    pub members: Option<Members>,
}

/// Reason why a stream ends.
enum End {
    /// The client has disconnected.
    Disconnected,
    /// The reason is sent to the client.
    Reported(String),
}

impl From<StoreError> for End {
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "a stream ends because the store failed");
        Self::Reported(ApiError::Store(error).to_string())
    }
}

impl Session {
    /// Creates a stream of the events after `position` that match.
    pub(super) fn new(
        context: Arc<Context>,
        subscription: Subscription,
        wanted: Wanted,
        is_decoded: bool,
        position: EventId,
        opening: Opening,
    ) -> Self {
        let in_flight = opening.client.begin();
        let heartbeat = Instant::now();
        Self {
            context,
            subscription,
            is_decoded,
            names: (is_decoded || wanted.condition.is_some() || wanted.members.is_some())
                .then(Names::default),
            wanted,
            position,
            has_begun: false,
            position_sent: false,
            heartbeat,
            in_flight,
            opening,
            has_ended: false,
        }
    }

    /// Returns the next piece, waiting for new events if necessary; `None` when the stream has
    /// ended.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        if self.has_ended {
            return None;
        }
        let piece = if self.has_begun {
            self.piece().await
        } else {
            Ok(frames::beginning(self.position.0).into_bytes())
        };
        let piece = match piece {
            Ok(piece) => piece,
            Err(End::Disconnected) => return None,
            Err(End::Reported(reason)) => {
                self.has_ended = true;
                frames::end(&reason).into_bytes()
            }
        };
        self.position_sent = self.position_sent || !self.has_begun;
        self.has_begun = true;
        self.heartbeat = Instant::now() + self.context.heartbeat;
        // Set whatever is left of the budget, because the piece already exists.
        self.opening.bytes.set((2 * piece.len() as u64).max(RESERVED_BYTES));
        self.in_flight.reset_deadline(piece.len() + RESERVED_BYTES as usize);
        Some(piece.into())
    }

    async fn piece(&mut self) -> Result<Vec<u8>, End> {
        loop {
            if self.subscription.is_stopping() {
                return Err(End::Reported("the service is stopping".to_owned()));
            }
            if let Some(token) = &self.opening.token {
                let verified = self.context.tokens.verify_at(token, (self.context.clock)());
                verified.map_err(|error| End::Reported(error.to_string()))?;
            }
            if let Some(members) = self.wanted.members.as_ref().filter(|it| !it.is_readable()) {
                return Err(End::Reported(ended(&members.name)));
            }
            let piece = match self.subscription.after(self.position.0) {
                Next::InMemory(batch) if self.names.is_none() => self.piece_of_batch(&batch),
                Next::InMemory(_) | Next::Stored => self.piece_of_store().await?,
                Next::Nothing => {
                    self.wait().await?;
                    Vec::new()
                }
            };
            if !piece.is_empty() {
                return Ok(piece);
            }
            if Instant::now() >= self.heartbeat {
                let position = (!self.position_sent).then_some(self.position.0);
                self.position_sent = true;
                return Ok(frames::heartbeat(position).into_bytes());
            }
        }
    }

    /// Waits for new events, the next token check or the heartbeat.
    async fn wait(&mut self) -> Result<(), End> {
        let next_check = self.heartbeat.min(Instant::now() + TOKEN_CHECK_INTERVAL);
        tokio::select! {
            () = self.subscription.changed() => Ok(()),
            () = sleep_until(next_check) => Ok(()),
            () = self.opening.client.wait_for_hangup() => Err(End::Disconnected),
        }
    }

    fn piece_of_batch(&mut self, batch: &Batch) -> Vec<u8> {
        let mut piece = Vec::new();
        let reached = batch.append(&self.wanted.filter, self.position.0, PIECE, &mut piece);
        self.advance_to(EventId(reached), &piece);
        piece
    }

    /// Reads what follows the position from the store, within the cost limits of one read.
    async fn piece_of_store(&mut self) -> Result<Vec<u8>, End> {
        if !self.has_waited_for_names().await? {
            return Ok(Vec::new());
        }
        let position = self.position;
        let mut told = String::new();
        if let Some(members) = &mut self.wanted.members {
            if !members.may_read(&self.context.store, position) {
                sleep(LOOK_EVERY).await;
                return Ok(Vec::new());
            }
            told = members.late(position);
        }
        if !told.is_empty() {
            return Ok(told.into_bytes());
        }
        // Other tasks of this thread run first.
        tokio::task::yield_now().await;
        let Opening { client, identity, .. } = &self.opening;
        if client.has_hung_up() {
            return Err(End::Disconnected);
        }
        let _slot = match self.context.budgets.read_slot(identity, client).await {
            Ok(slot) => slot,
            Err(ApiError::HungUp) => return Err(End::Disconnected),
            Err(_) => {
                sleep(SLOT_RETRY_DELAY).await;
                return Ok(Vec::new());
            }
        };
        let context = Arc::clone(&self.context);
        let Piece { text, reached, ledger, lacking } = context.watch.run_read(|| self.read())?;
        if self.names.as_mut().is_some_and(|names| names.holds_back(lacking)) {
            return Ok(Vec::new());
        }
        self.advance_to(reached, &text);
        if let Some(members) = &mut self.wanted.members {
            members.pass(reached, ledger);
        }
        Ok(text)
    }

    /// Waits for the names that the next piece lacked when it was read, for a moment. Returns whether
    /// it is to be read now.
    async fn has_waited_for_names(&mut self) -> Result<bool, End> {
        let Some(names) = &mut self.names else { return Ok(true) };
        let Some((lacking, until)) = names.begin_waiting(self.context.names.interfaces()) else {
            return Ok(true);
        };
        let until = until.min(self.heartbeat).min(Instant::now() + TOKEN_CHECK_INTERVAL);
        tokio::select! {
            has = self.context.names.wait_for(&lacking, until) => Ok(has),
            () = self.subscription.stopping() => Ok(false),
            () = self.opening.client.wait_for_hangup() => Err(End::Disconnected),
        }
    }

    /// Records the position. It may be after the last message of the piece, because later events
    /// did not match.
    fn advance_to(&mut self, position: EventId, piece: &[u8]) {
        self.position_sent = self.position_sent && position == self.position && piece.is_empty();
        self.position = position;
    }

    /// Returns the messages after the position.
    fn read(&self) -> Result<Piece, StoreError> {
        let store = &self.context.store;
        loop {
            let newest = store.last_durable_event();
            let limit = self.wanted.members.as_ref().and_then(Members::limit);
            let newest = limit.map_or(newest, |limit| limit.min(newest));
            let lost = store.lost_events(self.position)?;
            let last = match lost {
                Some(lost) if lost.first.0 == self.position.0 + 1 => {
                    let (text, reached) = (frames::gap(&lost).into_bytes(), lost.last);
                    let (ledger, lacking) = (Some(lost.ledgers.last), Lacking::default());
                    return Ok(Piece { text, reached, ledger, lacking });
                }
                Some(lost) => newest.min(EventId(lost.first.0 - 1)),
                None => newest,
            };
            let piece = self.walk(last)?;
            // Events that retention removed meanwhile may be missing from the piece.
            let lost = store.lost_events(self.position)?;
            if lost.is_none_or(|lost| lost.first > piece.reached) {
                return Ok(piece);
            }
        }
    }

    /// Returns the messages of events up to `last`.
    fn walk(&self, last: EventId) -> Result<Piece, StoreError> {
        let began = Instant::now();
        let is_over = || began.elapsed() >= MAX_READ_TIME || self.opening.client.has_hung_up();
        let bounds = Bounds {
            records: MAX_READ_RECORDS,
            index_rows: MAX_READ_INDEX_ROWS,
            interrupted: &is_over,
        };
        let interrupted = || RowBounds { interrupted: Box::new(is_over), ..RowBounds::none() };
        let interfaces = self.context.names.interfaces();
        let names = self.names.as_ref().map(|_| interfaces.reader(interrupted())).transpose()?;
        let mut list = json::List::without_array();
        let network = *self.context.store.network().id();
        if let Some(names) = names.as_ref().filter(|_| self.is_decoded) {
            list = list.decoding(network, names);
        }
        let (mut unmet, mut of_ledger) = (Unmet::default(), None);
        let walked = self.context.store.events_within(&self.query(), bounds, |event| {
            if event.id > last {
                return ControlFlow::Break(Ok(last));
            }
            match self.passes_on(event, names.as_ref(), (&mut of_ledger, &mut unmet)) {
                Ok(true) => {}
                // A condition may take long.
                Ok(false) if is_over() => return ControlFlow::Break(Ok(event.id)),
                Ok(false) => return ControlFlow::Continue(()),
                Err(error) => return ControlFlow::Break(Err(error)),
            }
            frames::event(&mut list, event);
            if list.written() < PIECE {
                return ControlFlow::Continue(());
            }
            ControlFlow::Break(Ok(event.id))
        })?;
        let broken_off = walked.broken_off.transpose()?;
        names.as_ref().map(InterfaceReader::finish).transpose()?;
        let lacking = names.as_ref().map(InterfaceReader::lacking).unwrap_or_default();
        let reached = match (broken_off, walked.interrupted) {
            (Some(id), _) => id,
            (None, Some(Interrupted { cursor, .. })) => cursor.min(last).max(self.position),
            (None, None) => last,
        };
        let mut text = list.take();
        frames::unmet(&unmet, reached, &mut text);
        let ledger = of_ledger.as_ref().map(|kept| kept.ledger);
        if let (Some(members), Some(kept)) = (&self.wanted.members, of_ledger) {
            members.keep(kept);
        }
        Ok(Piece { text, reached, ledger, lacking })
    }

    /// Whether an event is sent. Notes what the condition could not be asked of.
    fn passes_on(
        &self,
        event: &EventRecord<'_>,
        names: Option<&InterfaceReader<'_>>,
        (of_ledger, unmet): (&mut Option<Kept>, &mut Unmet),
    ) -> Result<bool, StoreError> {
        let selected = self.selected(event.ledger, of_ledger)?;
        if selected.is_some_and(|it| !it.may_have(event.id)) {
            return Ok(false);
        }
        if let (Some(names), Some(selected)) = (names, selected) {
            names.supply(selected.supplied.clone());
        }
        let judged = JudgedEvent::new(event, self.context.store.network().id(), names);
        let verdict = judged.of_project(self.wanted.condition.as_ref(), selected);
        if verdict != Verdict::Matches {
            unmet.add(event.ledger, &verdict);
        }
        Ok(verdict == Verdict::Matches)
    }

    /// Returns the events of a ledger that the stream's project selects; `None` without one.
    fn selected<'l>(
        &self,
        ledger: LedgerSeq,
        last: &'l mut Option<Kept>,
    ) -> Result<Option<&'l Selected>, StoreError> {
        let Some(members) = &self.wanted.members else { return Ok(None) };
        if last.as_ref().is_none_or(|kept| kept.ledger != ledger) {
            *last = Some(members.selected(ledger)?);
        }
        Ok(last.as_ref().map(|kept| &kept.selected))
    }

    fn query(&self) -> EventQuery {
        let Filter { contract, topics, address } = &self.wanted.filter;
        EventQuery {
            ledgers: None,
            contracts: contract.map(ContractId).into_iter().collect(),
            topics: TopicFilter {
                positional: topics.clone(),
                address: address.clone(),
                ..TopicFilter::default()
            },
            page: Page { cursor: Some(self.position), ..Page::all() },
        }
    }
}
