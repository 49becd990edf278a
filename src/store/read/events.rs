//! Queries for events: pages by filter, and all events of a transaction.

use std::ops::ControlFlow;
use std::rc::Rc;

use orrery_ledger::domain::{ContractId, Direction, EventId, TxHash};

use super::id_intervals::{Interval, Intervals};
use super::index_scan::{Candidate, Next, Stream, Walk, step};
use super::query::{Bounds, EventQuery, Interrupted, Meter, QueryCost, TopicFilter, WalkOutcome};
use crate::db::snapshot::Snapshot;
use crate::encoding::block::Block;
use crate::encoding::bytes::Malformed;
use crate::encoding::columns::{BlockKey, ContractTag, Family, Key, TransactionKey};
use crate::encoding::error::{StoreError, corrupt};
use crate::encoding::positions::{EVENTS_PER_BLOCK, Positions};
use crate::encoding::records::{EventRecord, TransactionPosition};
use crate::indexes::events_by_address::{self, AddressTag};
use crate::indexes::events_by_topic::TopicTag;
use crate::indexes::index::record_key;
use crate::indexes::tx_by_hash::{HashEntry, HashRole, HashTag};
use crate::state::store::Store;

/// Length of the block id at the end of an index key, in bytes.
const BLOCK_TAIL: usize = 8;
/// Maximum number of index lists for one topic condition (contracts × values); beyond it, topics
/// are compared on the events of the contracts instead of looked up.
const MAX_TOPIC_LISTS: usize = 256;
/// Maximum number of index rows collected for a topic when no contract is given; events with a more
/// frequent topic are found soon enough by a scan.
const MAX_COLLECTED_ROWS: usize = 4096;

impl Store {
    /// Calls `visit` for the events of a page, in page order.
    pub fn events(
        &self,
        query: &EventQuery,
        mut visit: impl FnMut(&EventRecord<'_>),
    ) -> Result<QueryCost, StoreError> {
        let visit_all = |record: &EventRecord<'_>| {
            visit(record);
            ControlFlow::<()>::Continue(())
        };
        Ok(self.events_within(query, Bounds::NONE, visit_all)?.cost)
    }

    /// Calls `visit` for the events of a page, in page order, until it breaks or the walk exceeds
    /// `bounds`. Every call makes progress: the cursor of an interrupted walk lies beyond that of
    /// the query.
    pub fn events_within<B>(
        &self,
        query: &EventQuery,
        bounds: Bounds<'_>,
        visit: impl FnMut(&EventRecord<'_>) -> ControlFlow<B>,
    ) -> Result<WalkOutcome<EventId, B>, StoreError> {
        let direction = query.page.direction;
        let intervals = Intervals::of_query(self, query);
        let mut interval = intervals.first()?;
        let meter = Rc::new(Meter::new(bounds));
        let snapshot = self.database.snapshot();
        let mut walk = Walk::new(&snapshot, direction, &meter);
        let in_memory = self.blocks_in_memory(query)?;
        let mut stream = match &in_memory {
            Some(blocks) => list_of_blocks(blocks, direction),
            None => candidates(&mut walk, query)?,
        };
        let mut page = PageWalk {
            query,
            snapshot: &snapshot,
            meter: &meter,
            skip: query.page.skip(),
            remaining: query.page.limit,
            visit,
            broken_off: None,
        };
        let mut beyond = None;
        while let Some(ids) = interval {
            let from = match (direction, beyond) {
                (Direction::NewestFirst, beyond) => ids.last.min(beyond.unwrap_or(u64::MAX)),
                (Direction::OldestFirst, Some(beyond)) => ids.first.max(beyond),
                (Direction::OldestFirst, None) => first_block(&snapshot, &in_memory, ids.first)?,
            };
            let resume_at = match page.interval(ids, from, &mut stream)? {
                IntervalOutcome::PageDone => break,
                IntervalOutcome::Beyond(id) => {
                    beyond = Some(id);
                    page.cursor_if_over_budget(id)?
                }
                IntervalOutcome::OverBudget(cursor) => Some(cursor),
            };
            if let Some(cursor) = resume_at {
                let skipped = query.page.skip() - page.skip;
                let interrupted = Some(Interrupted { cursor, skipped });
                return Ok(WalkOutcome { cost: meter.cost(), broken_off: None, interrupted });
            }
            interval = beyond.map_or(Ok(None), |id| intervals.at_or_after(id))?;
        }
        Ok(WalkOutcome { cost: meter.cost(), broken_off: page.broken_off, interrupted: None })
    }

    /// Returns the ids of the blocks of the ledger that a query is limited to, ascending, if all of
    /// them are in memory: to look at each costs less than to find in the indexes which of them may
    /// have matching events.
    fn blocks_in_memory(&self, query: &EventQuery) -> Result<Option<Vec<u64>>, StoreError> {
        let Some(ledgers) = query.ledgers.filter(|it| it.first == it.last) else { return Ok(None) };
        let Some(row) = self.ledger(ledgers.first)? else { return Ok(None) };
        let end = row.first_event.0.saturating_add(row.counts.events());
        let blocks: Vec<_> = (row.first_event.0..end).step_by(EVENTS_PER_BLOCK).collect();
        let are_in_memory = blocks.iter().all(|it| self.database.has_event_block(EventId(*it)));
        Ok(are_in_memory.then_some(blocks))
    }

    /// Calls `visit` for all events of a transaction, found by its outer or inner hash, in chain
    /// order.
    pub fn events_of_transaction(
        &self,
        hash: &TxHash,
        mut visit: impl FnMut(&EventRecord<'_>),
    ) -> Result<QueryCost, StoreError> {
        let snapshot = self.database.snapshot();
        let mut cost = QueryCost::default();
        for (position, entry) in self.hash_entries(&snapshot, hash, &mut cost)? {
            let ids = entry.ids();
            let mut rest = ids.as_slice();
            while let Some(&id) = rest.first() {
                cost.records += 1;
                // After the first block, the events of the operations continue at the start of a
                // block.
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

    /// Returns the rows of `tx_by_hash` that may be for this hash; the record that a row leads to must
    /// be compared.
    pub(crate) fn hash_entries(
        &self,
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
            let position = record_key::<TransactionKey>(HashTag::LEN, key).map_err(damaged)?.0;
            let is_of_hash = !matches!(entry.role, HashRole::Inner(inner) if inner != *hash);
            if is_of_hash && self.range_of(position.ledger).is_some() {
                entries.push((position, entry));
            }
            rows.next();
        }
        rows.status()?;
        Ok(entries)
    }
}

/// State of the walk over one page.
struct PageWalk<'q, V, B> {
    query: &'q EventQuery,
    snapshot: &'q Snapshot<'q>,
    meter: &'q Meter<'q>,
    skip: u64,
    remaining: usize,
    visit: V,
    broken_off: Option<B>,
}

/// Outcome of the walk over an interval.
enum IntervalOutcome {
    /// The page is full, or nothing is left.
    PageDone,
    /// The interval ended; the search for the next one begins at this id.
    Beyond(u64),
    /// The walk has exceeded its bounds, and continues after this cursor.
    OverBudget(EventId),
}

impl<B, V: FnMut(&EventRecord<'_>) -> ControlFlow<B>> PageWalk<'_, V, B> {
    /// Visits the matching events of an interval, beginning with the block at `bound`.
    fn interval(
        &mut self,
        interval: Interval,
        mut bound: u64,
        stream: &mut Stream<'_>,
    ) -> Result<IntervalOutcome, StoreError> {
        let direction = self.query.page.direction;
        while self.remaining > 0 {
            let candidate = match stream.next(bound, direction, self.meter)? {
                Next::At(candidate) => candidate,
                Next::End => return Ok(IntervalOutcome::PageDone),
                Next::OverBudget(further) => match self.cursor_before(further)? {
                    Some(cursor) => return Ok(IntervalOutcome::OverBudget(cursor)),
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
                return Ok(IntervalOutcome::Beyond(number));
            }
            if self.block(number, candidate.positions, interval)? {
                let next = match direction {
                    Direction::NewestFirst => interval.first.checked_sub(1),
                    Direction::OldestFirst => interval.last.checked_add(1),
                };
                return Ok(next.map_or(IntervalOutcome::PageDone, IntervalOutcome::Beyond));
            }
            let Some(next) = step(number, direction) else { return Ok(IntervalOutcome::PageDone) };
            bound = next;
            if let Some(cursor) = self.cursor_if_over_budget(bound)? {
                return Ok(IntervalOutcome::OverBudget(cursor));
            }
        }
        Ok(IntervalOutcome::PageDone)
    }

    /// Returns the cursor at which to continue, if the walk has exceeded its bounds and the page is
    /// not full.
    fn cursor_if_over_budget(&self, bound: u64) -> Result<Option<EventId>, StoreError> {
        match self.remaining > 0 && self.meter.is_over_budget() {
            true => self.cursor_before(bound),
            false => Ok(None),
        }
    }

    /// Returns the cursor after which a walk continues with the first block at or beyond `bound` in
    /// walking order; `None` when there is no such cursor beyond the query's own one.
    fn cursor_before(&self, bound: u64) -> Result<Option<EventId>, StoreError> {
        let mut rows = self.snapshot.rows(Family::Events)?;
        let direction = self.query.page.direction;
        // For a backward walk, the block at the bound ends where the next block begins.
        let from = match direction {
            Direction::OldestFirst => Some(bound),
            Direction::NewestFirst => bound.checked_add(1),
        };
        let Some(from) = from else { return Ok(None) };
        rows.seek(BlockKey(EventId(from)).encode());
        let block = rows.key().and_then(BlockKey::decode).map(|key| key.0.0);
        rows.status()?;
        let query_cursor = self.query.page.cursor;
        Ok(match direction {
            Direction::OldestFirst => block
                .and_then(|first| first.checked_sub(1))
                .map(EventId)
                .filter(|cursor| query_cursor.is_none_or(|query_cursor| *cursor > query_cursor)),
            Direction::NewestFirst => block
                .map(EventId)
                .filter(|cursor| query_cursor.is_none_or(|query_cursor| *cursor < query_cursor)),
        })
    }

    /// Visits the matching events of one block, and returns whether the interval ends in or before
    /// it.
    fn block(
        &mut self,
        number: u64,
        candidates: Positions,
        interval: Interval,
    ) -> Result<bool, StoreError> {
        let first = EventId(number);
        let key = BlockKey(first).encode();
        // Pruning that stopped half way may leave index rows whose block is removed.
        let Some(bytes) = self.snapshot.event_block(first)? else { return Ok(false) };
        self.meter.record();
        let block = Block::open(first, &bytes).map_err(corrupt(Family::Events, key))?;
        let position_of =
            |id: u64| usize::try_from(id.saturating_sub(number)).unwrap_or(usize::MAX);
        let end = position_of(interval.last).saturating_add(1).min(block.len());
        let start = position_of(interval.first).min(end);
        let wanted = candidates.intersection(Positions::range(start, end));
        self.visit_positions(&block, wanted).map_err(corrupt(Family::Events, key))?;
        Ok(match self.query.page.direction {
            Direction::NewestFirst => number <= interval.first,
            Direction::OldestFirst => number.saturating_add(block.len() as u64) > interval.last,
        })
    }

    fn visit_positions(
        &mut self,
        block: &Block<'_>,
        mut wanted: Positions,
    ) -> Result<(), Malformed> {
        let mut topics = Vec::with_capacity(8);
        while self.remaining > 0 {
            let next = match self.query.page.direction {
                Direction::NewestFirst => wanted.pop_highest(),
                Direction::OldestFirst => wanted.pop_lowest(),
            };
            let Some(position) = next else { break };
            if !emitted_by_any(&self.query.contracts, block.contract(position)?) {
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
            self.remaining -= 1;
            if let ControlFlow::Break(with) = (self.visit)(&event) {
                self.remaining = 0;
                self.broken_off = Some(with);
            }
        }
        Ok(())
    }
}

fn emitted_by_any(contracts: &[ContractId], emitter: Option<&[u8; 32]>) -> bool {
    contracts.is_empty()
        || emitter.is_some_and(|id| contracts.iter().any(|contract| contract.as_bytes() == id))
}

/// Returns the candidates for a query: the narrowest combination of index lists that cannot miss an
/// event.
fn candidates<'a>(walk: &mut Walk<'a>, query: &EventQuery) -> Result<Stream<'a>, StoreError> {
    let mut conditions = Vec::new();
    let contracts: Vec<ContractTag> = query.contracts.iter().map(ContractTag::from).collect();
    if let Some(address) = &query.topics.address {
        // Of contracts, the list per contract is narrower.
        conditions.push(match contracts.len() {
            1..=MAX_TOPIC_LISTS => of_contracts(walk, &contracts, &[address])?,
            _ => {
                let tag = AddressTag::of(address);
                walk.rows(Family::Index(events_by_address::FAMILY), &tag.0, BLOCK_TAIL)?
            }
        });
    }
    for values in topic_conditions(&query.topics) {
        if contracts.is_empty() {
            conditions.extend(any_contract(walk, &values)?);
        } else if contracts.len() * values.len() <= MAX_TOPIC_LISTS {
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

/// Returns conditions that must all hold. A condition holds when one of its values occurs among the
/// topics.
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

/// Returns the blocks in which one of the values occurs, or `None` when there are too many rows to
/// collect.
fn any_contract<'a>(walk: &Walk<'a>, values: &[&[u8]]) -> Result<Option<Stream<'a>>, StoreError> {
    let mut lists = Vec::with_capacity(values.len());
    for value in values {
        let prefix = TopicTag::topic_part(value);
        match walk.collect(Family::EventsByTopic, &prefix, MAX_COLLECTED_ROWS)? {
            Some(list) => lists.push(list),
            None => return Ok(None),
        }
    }
    Ok(Some(Stream::Any(lists)))
}

/// Returns all events of these blocks, which are ascending, as candidates.
fn list_of_blocks<'a>(blocks: &[u64], direction: Direction) -> Stream<'a> {
    let all = |number: &u64| Candidate { number: *number, positions: Positions::ALL };
    let list: Vec<_> = match direction {
        Direction::OldestFirst => blocks.iter().map(all).collect(),
        Direction::NewestFirst => blocks.iter().rev().map(all).collect(),
    };
    Stream::List(list.into_iter().peekable())
}

/// Returns the id at which a walk from `id` begins: the cursor may point into the middle of a block, and blocks
/// are sought by their first id.
fn first_block(
    snapshot: &Snapshot<'_>,
    in_memory: &Option<Vec<u64>>,
    id: u64,
) -> Result<u64, StoreError> {
    match in_memory {
        Some(blocks) => Ok(last_at_or_before(blocks, id)),
        None => block_at_or_before(snapshot, id),
    }
}

/// Returns the last of these blocks, which are ascending, that begins at or before `id`, or `id`
/// when there is none.
fn last_at_or_before(blocks: &[u64], id: u64) -> u64 {
    let after = blocks.partition_point(|block| *block <= id);
    after.checked_sub(1).and_then(|last| blocks.get(last)).copied().unwrap_or(id)
}

/// Returns the id of the last block that begins at or before `id`, or `id` when there is none.
fn block_at_or_before(snapshot: &Snapshot<'_>, id: u64) -> Result<u64, StoreError> {
    let mut rows = snapshot.rows(Family::Events)?;
    rows.seek_for_prev(BlockKey(EventId(id)).encode());
    let block = rows.key().and_then(BlockKey::decode).map_or(id, |key| key.0.0);
    rows.status()?;
    Ok(block)
}

/// Visits the events of the block that contains the first of the ids, which probably begins at
/// `likely`, and returns the ids after that block.
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
            let first = EventId(block_at_or_before(snapshot, id.0)?);
            // Without a block here, the id's block has been pruned.
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
    // When the id's block was pruned, the block found ends before the id: the id is skipped.
    Ok(&ids[here.max(1)..])
}
