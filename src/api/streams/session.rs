//! One stream: where it has got to, and what it sends next. Made of pieces, each at most a little longer
//! than [`PIECE`]; the next one is made when the HTTP library asks for it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep, sleep_until};

use super::batch::Batch;
use super::hub::{News, Next};
use super::{Context, Opening, ROOM, frames};
use crate::api::budgets::place;
use crate::api::client::Unfinished;
use crate::api::{ApiError, json};
use crate::domain::{ContractId, Direction, EventId, Page};
use crate::store::{Bounds, EventQuery, Interrupted, StoreError, TopicFilter};
use crate::webhooks::filter::Filter;

/// Bytes after which a piece ends.
const PIECE: usize = 32 << 10;

/// How often a stream looks whether its token still holds.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long a stream that finds no place for reading the store waits before it asks again.
const PLACE_PAUSE: Duration = Duration::from_millis(200);

/// What one turn of reading the store may cost; then another request has its turn.
const TURN: Duration = Duration::from_millis(50);
const TURN_RECORDS: u64 = 1000;
const TURN_INDEX_ROWS: u64 = 10_000;

/// A stream.
pub(super) struct Session {
    context: Arc<Context>,
    news: News,
    filter: Filter,
    /// The id up to which nothing is left out.
    position: EventId,
    has_begun: bool,
    /// Whether the client knows how far it has got.
    is_told: bool,
    /// When the client is to hear something, if only that there is nothing new.
    heartbeat: Instant,
    /// Keeps the connection from counting as idle.
    unfinished: Unfinished,
    opening: Opening,
    has_ended: bool,
}

/// Why a stream ends.
enum End {
    /// Nobody reads it.
    Unread,
    /// The reason is for the client.
    Told(String),
}

impl From<StoreError> for End {
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "a stream ends because the store failed");
        Self::Told(ApiError::Store(error).to_string())
    }
}

impl Session {
    /// A stream of the events after `position` that match.
    pub(super) fn new(
        context: Arc<Context>,
        news: News,
        filter: Filter,
        position: EventId,
        opening: Opening,
    ) -> Self {
        let unfinished = opening.client.begin();
        let heartbeat = Instant::now();
        Self {
            context,
            news,
            filter,
            position,
            has_begun: false,
            is_told: false,
            heartbeat,
            unfinished,
            opening,
            has_ended: false,
        }
    }

    /// What is sent next; none when the stream has ended. Waits for news.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        if self.has_ended {
            return None;
        }
        let piece = match self.has_begun {
            false => Ok(frames::beginning(self.position.0).into_bytes()),
            true => self.piece().await,
        };
        let piece = match piece {
            Ok(piece) => piece,
            Err(End::Unread) => return None,
            Err(End::Told(reason)) => {
                self.has_ended = true;
                frames::end(&reason).into_bytes()
            }
        };
        self.is_told = self.is_told || !self.has_begun;
        self.has_begun = true;
        self.heartbeat = Instant::now() + self.context.heartbeat;
        // What it takes more is there already.
        self.opening.room.set((2 * piece.len() as u64).max(ROOM));
        self.unfinished.goes_on_with(piece.len() + ROOM as usize);
        Some(piece.into())
    }

    async fn piece(&mut self) -> Result<Vec<u8>, End> {
        loop {
            if self.news.stops() {
                return Err(End::Told("the service is stopping".to_owned()));
            }
            let now = (self.context.clock)();
            let token = self.context.tokens.verify_at(&self.opening.token, now);
            token.map_err(|error| End::Told(error.to_string()))?;
            let piece = match self.news.after(self.position.0) {
                Next::InMemory(batch) => self.of_batch(&batch),
                Next::Stored => self.of_store().await?,
                Next::Nothing => {
                    self.wait().await?;
                    Vec::new()
                }
            };
            if !piece.is_empty() {
                return Ok(piece);
            }
            if Instant::now() >= self.heartbeat {
                let position = (!self.is_told).then_some(self.position.0);
                self.is_told = true;
                return Ok(frames::heartbeat(position).into_bytes());
            }
        }
    }

    /// Waits until there is something to look at.
    async fn wait(&mut self) -> Result<(), End> {
        let look = self.heartbeat.min(Instant::now() + LOOK_EVERY);
        tokio::select! {
            () = self.news.changed() => Ok(()),
            () = sleep_until(look) => Ok(()),
            () = self.opening.client.gives_up() => Err(End::Unread),
        }
    }

    fn of_batch(&mut self, batch: &Batch) -> Vec<u8> {
        let mut piece = Vec::new();
        let reached = batch.append(&self.filter, self.position.0, PIECE, &mut piece);
        self.moves_to(EventId(reached), &piece);
        piece
    }

    /// What follows the position in the store, as far as one turn gets.
    async fn of_store(&mut self) -> Result<Vec<u8>, End> {
        // Others that wait for this thread come first.
        tokio::task::yield_now().await;
        let Opening { client, holder, .. } = &self.opening;
        if client.has_hung_up() {
            return Err(End::Unread);
        }
        let place = place(&self.context.budgets.readers, *holder, client, "reads").await;
        let _place = match place {
            Ok(place) => place,
            Err(ApiError::HungUp) => return Err(End::Unread),
            Err(_) => {
                sleep(PLACE_PAUSE).await;
                return Ok(Vec::new());
            }
        };
        let context = Arc::clone(&self.context);
        let (piece, reached) = context.watch.during(|| self.read())?;
        self.moves_to(reached, &piece);
        Ok(piece)
    }

    /// Notes how far it has got. Behind the last message of a piece there may be events that do not match.
    fn moves_to(&mut self, position: EventId, piece: &[u8]) {
        self.is_told = self.is_told && position == self.position && piece.is_empty();
        self.position = position;
    }

    /// Messages that follow the position, and the id up to which nothing is left out then.
    fn read(&self) -> Result<(Vec<u8>, EventId), StoreError> {
        let store = &self.context.store;
        loop {
            let newest = store.last_durable_event();
            let lost = store.lost_events(self.position)?;
            let last = match lost {
                Some(lost) if lost.first.0 == self.position.0 + 1 => {
                    return Ok((frames::gap(&lost).into_bytes(), lost.last));
                }
                Some(lost) => newest.min(EventId(lost.first.0 - 1)),
                None => newest,
            };
            let (piece, reached) = self.walk(last)?;
            // What retention removed meanwhile may be missing in it.
            let lost = store.lost_events(self.position)?;
            if lost.is_none_or(|lost| lost.first > reached) {
                return Ok((piece, reached));
            }
        }
    }

    /// Messages of events up to `last`, and the id up to which nothing is left out then.
    fn walk(&self, last: EventId) -> Result<(Vec<u8>, EventId), StoreError> {
        let began = Instant::now();
        let is_over = || began.elapsed() >= TURN || self.opening.client.has_hung_up();
        let bounds =
            Bounds { records: TURN_RECORDS, index_rows: TURN_INDEX_ROWS, interrupted: &is_over };
        let mut list = json::List::loose();
        let mut full_at = None;
        let walked = self.context.store.events_within(&self.query(), bounds, |event| {
            if event.id > last {
                return ControlFlow::Break(());
            }
            frames::event(&mut list, event);
            match list.written() < PIECE {
                true => ControlFlow::Continue(()),
                false => {
                    full_at = Some(event.id);
                    ControlFlow::Break(())
                }
            }
        })?;
        let reached = match (full_at, walked.interrupted) {
            (Some(id), _) => id,
            (None, Some(Interrupted { cursor, .. })) => cursor.min(last).max(self.position),
            (None, None) => last,
        };
        Ok((list.take(), reached))
    }

    fn query(&self) -> EventQuery {
        let Filter { contract, topics, address } = &self.filter;
        EventQuery {
            ledgers: None,
            contracts: contract.map(ContractId).into_iter().collect(),
            topics: TopicFilter {
                anywhere: address.iter().cloned().collect(),
                all: true,
                positional: topics.clone(),
            },
            page: Page {
                direction: Direction::OldestFirst,
                cursor: Some(self.position),
                offset: 0,
                limit: usize::MAX,
            },
        }
    }
}
