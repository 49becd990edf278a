//! Questions about events: pages by filter, and all events of a transaction.

use std::ops::ControlFlow;
use std::rc::Rc;

use super::block::Block;
use super::bytes::Malformed;
use super::columns::{BlockKey, ContractTag, Family, Key, TransactionKey};
use super::database::{Snapshot, corrupt};
use super::indexes::at;
use super::indexes::events_by_topic::TopicTag;
use super::indexes::tx_by_hash::{HashEntry, HashRole, HashTag};
use super::intervals::{Interval, Intervals};
use super::positions::Positions;
use super::query::{
    Bounds, EventQuery, EventRecord, Interrupted, Meter, QueryCost, TopicFilter,
    TransactionPosition, Walked,
};
use super::streams::{Next, Stream, Walk, step};
use super::{Store, StoreError};
use crate::domain::{ContractId, Direction, EventId, TxHash};

/// Bytes of a block's id at the end of an index key.
const BLOCK_TAIL: usize = 8;
/// Beyond this many lists, topics are checked on the events of the contracts instead of looked up.
const MOST_TOPIC_LISTS: usize = 256;
/// A topic with more rows than this, of whatever contract, is found soon enough by walking.
const MOST_ROWS_COLLECTED: usize = 4096;

impl Store {
    /// Visits the events of a page in its order.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails or a record is damaged.
    pub fn events(
        &self,
        query: &EventQuery,
        mut visit: impl FnMut(&EventRecord<'_>),
    ) -> Result<QueryCost, StoreError> {
        let visit_all = |record: &EventRecord<'_>| {
            visit(record);
            ControlFlow::Continue(())
        };
        Ok(self.events_within(query, Bounds::NONE, visit_all)?.cost)
    }

    /// Visits the events of a page in its order, until `visit` breaks off or the walk costs more than
    /// `bounds`. It gets further with every call: the cursor of an interrupted walk lies beyond that of
    /// the query.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails or a record is damaged.
    pub fn events_within(
        &self,
        query: &EventQuery,
        bounds: Bounds<'_>,
        mut visit: impl FnMut(&EventRecord<'_>) -> ControlFlow<()>,
    ) -> Result<Walked<EventId>, StoreError> {
        let direction = query.page.direction;
        let intervals = Intervals::of_query(self, query);
        let mut interval = intervals.first()?;
        let meter = Rc::new(Meter::new(bounds));
        let snapshot = self.database.snapshot();
        let mut walk = Walk::new(&snapshot, direction, &meter);
        let mut stream = candidates(&mut walk, query)?;
        let mut page = PageWalk {
            query,
            snapshot: &snapshot,
            meter: &meter,
            skip: query.page.skip(),
            left: query.page.limit,
        };
        let mut beyond = None;
        while let Some(ids) = interval {
            let from = match (direction, beyond) {
                (Direction::NewestFirst, beyond) => ids.last.min(beyond.unwrap_or(u64::MAX)),
                (Direction::OldestFirst, Some(beyond)) => ids.first.max(beyond),
                // The cursor may stand in the middle of a block, and blocks go by their first id.
                (Direction::OldestFirst, None) => block_that_may_hold(&snapshot, ids.first)?,
            };
            let spent = match page.interval(ids, from, &mut stream, &mut visit)? {
                Passed::Done => break,
                Passed::Beyond(id) => {
                    beyond = Some(id);
                    page.cursor_if_spent(id)?
                }
                Passed::Spent(cursor) => Some(cursor),
            };
            if let Some(cursor) = spent {
                let skipped = query.page.skip() - page.skip;
                let interrupted = Some(Interrupted { cursor, skipped });
                return Ok(Walked { cost: meter.cost(), interrupted });
            }
            interval = beyond.map_or(Ok(None), |id| intervals.at_or_after(id))?;
        }
        Ok(Walked { cost: meter.cost(), interrupted: None })
    }

    /// Visits all events of a transaction, found by outer or inner hash, in the chain's order.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails or a record is damaged.
    pub fn events_of_transaction(
        &self,
        hash: &TxHash,
        mut visit: impl FnMut(&EventRecord<'_>),
    ) -> Result<QueryCost, StoreError> {
        let snapshot = self.database.snapshot();
        let mut cost = QueryCost::default();
        for (position, entry) in hash_entries(&snapshot, hash, &mut cost)? {
            let ids = entry.ids();
            let mut rest = ids.as_slice();
            while let Some(&id) = rest.first() {
                cost.records += 1;
                // Beyond the first block, events go on where a block begins.
                let likely = if id == entry.first_event { entry.first_block() } else { id };
                rest = visit_in_one_block(&snapshot, rest, likely, |event| {
                    let is_outer = event.tx == hash.as_bytes();
                    let is_inner = entry.role == HashRole::Inner(*hash)
                        && event.application_order == position.application_order;
                    if event.ledger == position.ledger && (is_outer || is_inner) {
                        visit(event);
                    }
                })?;
                debug_assert!(rest.first() != Some(&id), "every round takes at least one id");
            }
        }
        Ok(cost)
    }
}

/// The walk over one page.
struct PageWalk<'q> {
    query: &'q EventQuery,
    snapshot: &'q Snapshot<'q>,
    meter: &'q Meter<'q>,
    skip: u64,
    left: usize,
}

/// What came of the walk over an interval.
enum Passed {
    /// The page is full, or nothing is left.
    Done,
    /// The interval is over; the next one is to be looked for from this id on.
    Beyond(u64),
    /// The walk has cost what it may, and goes on after this cursor.
    Spent(EventId),
}

impl PageWalk<'_> {
    /// Visits what matches in an interval, beginning with the block at `bound`.
    fn interval(
        &mut self,
        interval: Interval,
        mut bound: u64,
        stream: &mut Stream<'_>,
        visit: &mut impl FnMut(&EventRecord<'_>) -> ControlFlow<()>,
    ) -> Result<Passed, StoreError> {
        let direction = self.query.page.direction;
        while self.left > 0 {
            let candidate = match stream.next(bound, direction, self.meter)? {
                Next::At(candidate) => candidate,
                Next::End => return Ok(Passed::Done),
                Next::Spent(further) => match self.cursor_before(further)? {
                    Some(cursor) => return Ok(Passed::Spent(cursor)),
                    None => {
                        bound = further;
                        continue;
                    }
                },
            };
            let number = candidate.number;
            let beyond = match direction {
                Direction::NewestFirst => number < interval.first,
                Direction::OldestFirst => number > interval.last,
            };
            if beyond {
                return Ok(Passed::Beyond(number));
            }
            if self.block(number, candidate.positions, interval, visit)? {
                let next = match direction {
                    Direction::NewestFirst => interval.first.checked_sub(1),
                    Direction::OldestFirst => interval.last.checked_add(1),
                };
                return Ok(next.map_or(Passed::Done, Passed::Beyond));
            }
            let Some(next) = step(number, direction) else { return Ok(Passed::Done) };
            bound = next;
            if let Some(cursor) = self.cursor_if_spent(bound)? {
                return Ok(Passed::Spent(cursor));
            }
        }
        Ok(Passed::Done)
    }

    /// Where to go on, when the walk has cost what it may and there is anything left to look for.
    fn cursor_if_spent(&self, bound: u64) -> Result<Option<EventId>, StoreError> {
        match self.left > 0 && self.meter.is_spent() {
            true => self.cursor_before(bound),
            false => Ok(None),
        }
    }

    /// The cursor after which a walk goes on with the first block that begins at `bound` or beyond it in
    /// walking order; none when the query's own cursor, or its beginning, is no further back.
    fn cursor_before(&self, bound: u64) -> Result<Option<EventId>, StoreError> {
        let mut rows = self.snapshot.rows(Family::Events)?;
        let direction = self.query.page.direction;
        // Backwards, the block at the bound ends where the next one begins.
        let from = match direction {
            Direction::OldestFirst => Some(bound),
            Direction::NewestFirst => bound.checked_add(1),
        };
        let Some(from) = from else { return Ok(None) };
        rows.seek(BlockKey(EventId(from)).encode());
        let block = rows.key().and_then(BlockKey::decode).map(|key| key.0.0);
        rows.status()?;
        let asked = self.query.page.cursor;
        Ok(match direction {
            Direction::OldestFirst => block
                .and_then(|first| first.checked_sub(1))
                .map(EventId)
                .filter(|cursor| asked.is_none_or(|asked| *cursor > asked)),
            Direction::NewestFirst => {
                block.map(EventId).filter(|cursor| asked.is_none_or(|asked| *cursor < asked))
            }
        })
    }

    /// Visits what matches in one block; says whether the interval ends in or before it.
    fn block(
        &mut self,
        number: u64,
        candidates: Positions,
        interval: Interval,
        visit: &mut impl FnMut(&EventRecord<'_>) -> ControlFlow<()>,
    ) -> Result<bool, StoreError> {
        let first = EventId(number);
        let key = BlockKey(first).encode();
        // Rows of an index go before or after their block when pruning stops half way.
        let Some(bytes) = self.snapshot.event_block(first)? else { return Ok(false) };
        self.meter.record();
        let block = Block::open(first, &bytes).map_err(corrupt(Family::Events, key))?;
        let position_of =
            |id: u64| usize::try_from(id.saturating_sub(number)).unwrap_or(usize::MAX);
        let end = position_of(interval.last).saturating_add(1).min(block.len());
        let start = position_of(interval.first).min(end);
        let wanted = candidates.intersection(Positions::range(start, end));
        self.positions(&block, wanted, visit).map_err(corrupt(Family::Events, key))?;
        Ok(match self.query.page.direction {
            Direction::NewestFirst => number <= interval.first,
            Direction::OldestFirst => number.saturating_add(block.len() as u64) > interval.last,
        })
    }

    fn positions(
        &mut self,
        block: &Block<'_>,
        mut wanted: Positions,
        visit: &mut impl FnMut(&EventRecord<'_>) -> ControlFlow<()>,
    ) -> Result<(), Malformed> {
        let mut topics = Vec::with_capacity(8);
        while self.left > 0 {
            let next = match self.query.page.direction {
                Direction::NewestFirst => wanted.pop_highest(),
                Direction::OldestFirst => wanted.pop_lowest(),
            };
            let Some(position) = next else { break };
            if !is_of(&self.query.contracts, block.contract(position)?) {
                continue;
            }
            let event = block.event(position, &mut topics)?;
            if !self.query.topics.matches(event.topics) {
                continue;
            }
            if self.skip > 0 {
                self.skip -= 1;
                continue;
            }
            self.left -= 1;
            if visit(&event).is_break() {
                self.left = 0;
            }
        }
        Ok(())
    }
}

fn is_of(contracts: &[ContractId], emitter: Option<&[u8; 32]>) -> bool {
    contracts.is_empty()
        || emitter.is_some_and(|id| contracts.iter().any(|contract| contract.as_bytes() == id))
}

/// The candidates for a query: the narrowest combination of index lists that cannot miss an event.
fn candidates<'a>(walk: &mut Walk<'a>, query: &EventQuery) -> Result<Stream<'a>, StoreError> {
    let mut conditions = Vec::new();
    let contracts: Vec<ContractTag> = query.contracts.iter().map(ContractTag::from).collect();
    for values in topic_conditions(&query.topics) {
        if contracts.is_empty() {
            conditions.extend(any_contract(walk, &values)?);
        } else if contracts.len() * values.len() <= MOST_TOPIC_LISTS {
            conditions.push(of_contracts(walk, &contracts, &values)?);
        }
    }
    if conditions.is_empty() && !contracts.is_empty() {
        let lists = contracts.iter().map(|c| walk.rows(Family::EventsByContract, &c.0, BLOCK_TAIL));
        conditions.push(Stream::Any(lists.collect::<Result<_, _>>()?));
    }
    Ok(match conditions.len() {
        0 => walk.rows(Family::Events, &[], BLOCK_TAIL)?,
        1 => conditions.remove(0),
        _ => Stream::All(conditions),
    })
}

/// Conditions that must all hold; of each, one of the values must occur among the topics.
fn topic_conditions(filter: &TopicFilter) -> Vec<Vec<&[u8]>> {
    let mut conditions: Vec<Vec<&[u8]>> =
        filter.positional.iter().flatten().map(|value| vec![value.as_slice()]).collect();
    let anywhere = filter.anywhere.iter().map(Vec::as_slice);
    if filter.all {
        conditions.extend(anywhere.map(|value| vec![value]));
    } else if !filter.anywhere.is_empty() {
        conditions.push(anywhere.collect());
    }
    conditions
}

fn of_contracts<'a>(
    walk: &mut Walk<'a>,
    contracts: &[ContractTag],
    values: &[&[u8]],
) -> Result<Stream<'a>, StoreError> {
    let mut lists = Vec::with_capacity(contracts.len() * values.len());
    for value in values {
        for contract in contracts {
            let tag = TopicTag::new(value, *contract);
            lists.push(walk.rows(Family::EventsByTopic, &tag.0, BLOCK_TAIL)?);
        }
    }
    Ok(Stream::Any(lists))
}

/// The blocks in which one of the values occurs, or `None` when they are too many to collect.
fn any_contract<'a>(walk: &Walk<'a>, values: &[&[u8]]) -> Result<Option<Stream<'a>>, StoreError> {
    let mut lists = Vec::with_capacity(values.len());
    for value in values {
        let prefix = TopicTag::topic_part(value);
        match walk.collect(Family::EventsByTopic, &prefix, MOST_ROWS_COLLECTED)? {
            Some(list) => lists.push(list),
            None => return Ok(None),
        }
    }
    Ok(Some(Stream::Any(lists)))
}

/// Id of the last block that begins at `id` or before, or `id` when there is none.
fn block_that_may_hold(snapshot: &Snapshot<'_>, id: u64) -> Result<u64, StoreError> {
    let mut rows = snapshot.rows(Family::Events)?;
    rows.seek_for_prev(BlockKey(EventId(id)).encode());
    let block = rows.key().and_then(BlockKey::decode).map_or(id, |key| key.0.0);
    rows.status()?;
    Ok(block)
}

/// Visits the events of the first of the ids' block, which is likely to begin at `likely`, and
/// returns the ids after that block.
fn visit_in_one_block<'i>(
    snapshot: &Snapshot<'_>,
    ids: &'i [EventId],
    likely: EventId,
    mut visit: impl FnMut(&EventRecord<'_>),
) -> Result<&'i [EventId], StoreError> {
    let Some(&id) = ids.first() else { return Ok(ids) };
    let (first, bytes) = match snapshot.event_block(likely)? {
        Some(bytes) => (likely, bytes),
        None => {
            let first = EventId(block_that_may_hold(snapshot, id.0)?);
            // Otherwise its block has been pruned.
            let Some(bytes) = snapshot.event_block(first)? else { return Ok(&ids[1..]) };
            (first, bytes)
        }
    };
    let damaged = |malformed| corrupt(Family::Events, BlockKey(first).encode())(malformed);
    let block = Block::open(first, &bytes).map_err(damaged)?;
    let end = first.0.saturating_add(block.len() as u64);
    let here = ids.partition_point(|id| id.0 < end);
    let mut topics = Vec::with_capacity(8);
    for id in &ids[..here] {
        let position = usize::try_from(id.0 - first.0).unwrap_or(usize::MAX);
        let event = block.event(position, &mut topics).map_err(damaged)?;
        visit(&event);
    }
    // A pruned block leaves the ids behind the block before it.
    Ok(&ids[here.max(1)..])
}

/// Rows of `tx_by_hash` that may be for this hash. The record that a row leads to decides.
pub(super) fn hash_entries(
    snapshot: &Snapshot<'_>,
    hash: &TxHash,
    cost: &mut QueryCost,
) -> Result<Vec<(TransactionPosition, HashEntry)>, StoreError> {
    let tag = HashTag::from(hash);
    let mut rows = snapshot.rows_by_hash()?;
    rows.seek(tag.0);
    let mut entries = Vec::with_capacity(1);
    while let Some((key, value)) = rows.item() {
        if !key.starts_with(&tag.0) {
            break;
        }
        cost.index_rows += 1;
        let damaged = |malformed| corrupt(Family::TxByHash, key)(malformed);
        let entry = HashEntry::decode(value).map_err(damaged)?;
        let position = at::<TransactionKey>(HashTag::LEN, key).map_err(damaged)?.0;
        if !matches!(entry.role, HashRole::Inner(inner) if inner != *hash) {
            entries.push((position, entry));
        }
        rows.next();
    }
    rows.status()?;
    Ok(entries)
}
