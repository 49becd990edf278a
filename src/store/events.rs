//! Questions about events: pages by filter, and all events of a transaction.

use super::block::Block;
use super::bytes::Malformed;
use super::columns::{BlockKey, ContractTag, Family, HashKey, HashTag, Key, TopicTag};
use super::database::{Snapshot, corrupt};
use super::intervals::{Interval, Intervals};
use super::lookup::{HashEntry, HashRole};
use super::positions::Positions;
use super::query::{EventQuery, EventRecord, QueryCost, TopicFilter};
use super::streams::{Stream, Walk, step};
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
        let intervals = Intervals::of_query(self, query);
        let mut interval = intervals.first()?;
        let snapshot = self.database.snapshot();
        let mut walk = Walk::new(&snapshot, query.page.direction);
        let mut stream = candidates(&mut walk, query)?;
        let mut page = PageWalk {
            query,
            snapshot: &snapshot,
            skip: query.page.skip(),
            left: query.page.limit,
            records: 0,
        };
        let mut beyond = None;
        while let Some(ids) = interval {
            let from = match (query.page.direction, beyond) {
                (Direction::NewestFirst, beyond) => ids.last.min(beyond.unwrap_or(u64::MAX)),
                (Direction::OldestFirst, Some(beyond)) => ids.first.max(beyond),
                // The cursor may stand in the middle of a block, and blocks go by their first id.
                (Direction::OldestFirst, None) => block_that_may_hold(&snapshot, ids.first)?,
            };
            beyond = page.interval(ids, from, &mut stream, &mut visit)?;
            interval = match beyond {
                Some(id) => intervals.at_or_after(id)?,
                None => None,
            };
        }
        Ok(QueryCost { index_rows: walk.rows_read(), records: page.records })
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
        for (key, entry) in hash_entries(&snapshot, hash, &mut cost)? {
            let ids = entry.ids();
            let mut rest = ids.as_slice();
            while let Some(&id) = rest.first() {
                cost.records += 1;
                // Beyond the first block, events go on where a block begins.
                let likely = if id == entry.first_event { entry.first_block() } else { id };
                rest = visit_in_one_block(&snapshot, rest, likely, |event| {
                    let is_outer = event.tx == hash.as_bytes();
                    let is_inner = entry.role == HashRole::Inner(*hash)
                        && event.application_order == key.position.application_order;
                    if event.ledger == key.position.ledger && (is_outer || is_inner) {
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
    skip: u64,
    left: usize,
    records: u64,
}

impl PageWalk<'_> {
    /// Visits what matches in an interval, beginning with the block at `bound`. Says from where on to
    /// look for the next interval, when the page wants more and there may be more.
    fn interval(
        &mut self,
        interval: Interval,
        mut bound: u64,
        stream: &mut Stream<'_>,
        visit: &mut impl FnMut(&EventRecord<'_>),
    ) -> Result<Option<u64>, StoreError> {
        let direction = self.query.page.direction;
        while self.left > 0 {
            let Some(candidate) = stream.at_or_after(bound, direction)? else { return Ok(None) };
            let number = candidate.number;
            let beyond = match direction {
                Direction::NewestFirst => number < interval.first,
                Direction::OldestFirst => number > interval.last,
            };
            if beyond {
                return Ok(Some(number));
            }
            if self.block(number, candidate.positions, interval, visit)? {
                return Ok(match direction {
                    Direction::NewestFirst => interval.first.checked_sub(1),
                    Direction::OldestFirst => interval.last.checked_add(1),
                });
            }
            let Some(next) = step(number, direction) else { return Ok(None) };
            bound = next;
        }
        Ok(None)
    }

    /// Visits what matches in one block; says whether the interval ends in or before it.
    fn block(
        &mut self,
        number: u64,
        candidates: Positions,
        interval: Interval,
        visit: &mut impl FnMut(&EventRecord<'_>),
    ) -> Result<bool, StoreError> {
        let first = EventId(number);
        let key = BlockKey(first).encode();
        // Rows of an index go before or after their block when pruning stops half way.
        let Some(bytes) = self.snapshot.event_block(first)? else { return Ok(false) };
        self.records += 1;
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
        visit: &mut impl FnMut(&EventRecord<'_>),
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
            visit(&event);
            self.left -= 1;
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
) -> Result<Vec<(HashKey, HashEntry)>, StoreError> {
    let tag = HashTag::from(hash);
    let mut rows = snapshot.rows_by_hash()?;
    rows.seek(tag.0);
    let mut entries = Vec::with_capacity(1);
    while let Some((key, value)) = rows.item() {
        if !key.starts_with(&tag.0) {
            break;
        }
        cost.index_rows += 1;
        let entry = HashEntry::decode(value).map_err(corrupt(Family::TxByHash, key))?;
        let parsed =
            HashKey::decode(key).ok_or(Malformed).map_err(corrupt(Family::TxByHash, key))?;
        if !matches!(entry.role, HashRole::Inner(inner) if inner != *hash) {
            entries.push((parsed, entry));
        }
        rows.next();
    }
    rows.status()?;
    Ok(entries)
}
