//! Streams of candidates from the indexes: unions and intersections of lists of index rows, walked
//! in either direction, with work proportional to what is taken.
//!
//! A row's key ends in a number (the id of a block, the position of a transaction); all rows with
//! the same prefix before it form one ordered list. Streams yield numbers, each with the positions
//! within the block that may match. Whether they do is decided from the record itself.

use std::cell::RefCell;
use std::rc::Rc;

use orrery_ledger::domain::Direction;
use rocksdb::DBRawIterator;

use super::query::Meter;
use crate::db::snapshot::Snapshot;
use crate::encoding::bytes::Malformed;
use crate::encoding::columns::Family;
use crate::encoding::error::{StoreError, corrupt};
use crate::encoding::positions::Positions;
use crate::indexes::events_by_address;

/// Number of streams with an iterator of their own; further streams share one per family, which
/// then seeks for every step.
const PRIVATE_ITERATORS: usize = 16;

/// A number, with the positions in its block that may match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub number: u64,
    pub positions: Positions,
}

/// An ordered stream of candidates.
pub(crate) enum Stream<'a> {
    /// Rows under one prefix.
    Rows(Rows<'a>),
    /// A list in walking order.
    List(std::iter::Peekable<std::vec::IntoIter<Candidate>>),
    /// Union of streams.
    Any(Vec<Stream<'a>>),
    /// Intersection of streams.
    All(Vec<Stream<'a>>),
}

/// State that all streams of one query share.
pub(crate) struct Walk<'a> {
    snapshot: &'a Snapshot<'a>,
    direction: Direction,
    shared: Vec<(Family, Rc<RefCell<Shared<'a>>>)>,
    lists: usize,
    meter: Rc<Meter<'a>>,
}

/// Result of [`Stream::next`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The next candidate.
    At(Candidate),
    /// No candidate is left.
    End,
    /// The cost bounds are reached, and no candidate comes before this number.
    OverBudget(u64),
}

struct Shared<'a> {
    rows: DBRawIterator<'a>,
    /// Number of the list on which the iterator stands; 0 at the start.
    list: usize,
}

/// The rows of one list.
pub(crate) struct Rows<'a> {
    family: Family,
    shared: Rc<RefCell<Shared<'a>>>,
    list: usize,
    prefix: Vec<u8>,
    tail_len: usize,
    direction: Direction,
    head: Head,
    meter: Rc<Meter<'a>>,
}

#[derive(Clone, Copy)]
enum Head {
    Unknown,
    At(Candidate),
    End,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(
        snapshot: &'a Snapshot<'a>,
        direction: Direction,
        meter: &Rc<Meter<'a>>,
    ) -> Self {
        Self { snapshot, direction, shared: Vec::new(), lists: 0, meter: Rc::clone(meter) }
    }

    /// Returns the list of rows whose key is `prefix` followed by a number in `tail_len` bytes.
    pub(crate) fn rows(
        &mut self,
        family: Family,
        prefix: &[u8],
        tail_len: usize,
    ) -> Result<Stream<'a>, StoreError> {
        let shared = self.iterator(family)?;
        self.lists += 1;
        Ok(Stream::Rows(Rows {
            family,
            shared,
            list: self.lists,
            prefix: prefix.to_vec(),
            tail_len,
            direction: self.direction,
            head: Head::Unknown,
            meter: Rc::clone(&self.meter),
        }))
    }

    fn iterator(&mut self, family: Family) -> Result<Rc<RefCell<Shared<'a>>>, StoreError> {
        let open = || -> Result<_, StoreError> {
            let rows = self.snapshot.rows(family)?;
            Ok(Rc::new(RefCell::new(Shared { rows, list: 0 })))
        };
        if self.lists < PRIVATE_ITERATORS {
            return open();
        }
        if let Some((_, iterator)) = self.shared.iter().find(|(f, _)| *f == family) {
            return Ok(Rc::clone(iterator));
        }
        let iterator = open()?;
        self.shared.push((family, Rc::clone(&iterator)));
        Ok(iterator)
    }

    /// Reads a whole list whose keys have further parts between prefix and number; `None` when it
    /// has more than `most` rows. Candidates are in walking order, those of one number united.
    pub(crate) fn collect(
        &self,
        family: Family,
        prefix: &[u8],
        most: usize,
    ) -> Result<Option<Stream<'a>>, StoreError> {
        let mut rows = self.snapshot.rows(family)?;
        let mut found = std::collections::BTreeMap::<u64, Positions>::new();
        rows.seek(prefix);
        let mut count = 0;
        while let Some((key, value)) = rows.item() {
            if !key.starts_with(prefix) {
                break;
            }
            count += 1;
            self.meter.index_row();
            if count > most {
                return Ok(None);
            }
            let (number, positions) = key
                .last_chunk::<8>()
                .map(|tail| u64::from_be_bytes(*tail))
                .zip(Positions::decode(value))
                .ok_or(Malformed)
                .map_err(corrupt(family, key))?;
            let united = found.entry(number).or_default();
            *united = united.union(positions);
            rows.next();
        }
        rows.status()?;
        let candidates =
            found.into_iter().map(|(number, positions)| Candidate { number, positions });
        let list: Vec<_> = match self.direction {
            Direction::OldestFirst => candidates.collect(),
            Direction::NewestFirst => candidates.rev().collect(),
        };
        Ok(Some(Stream::List(list.into_iter().peekable())))
    }
}

impl Stream<'_> {
    /// Returns the first candidate at `bound` or beyond it in walking order. The bounds of
    /// successive calls must not go back.
    pub(crate) fn at_or_after(
        &mut self,
        mut bound: u64,
        direction: Direction,
    ) -> Result<Option<Candidate>, StoreError> {
        match self {
            Self::Rows(rows) => rows.at_or_after(bound),
            Self::List(list) => {
                while list.next_if(|c| precedes(c.number, bound, direction)).is_some() {}
                Ok(list.peek().copied())
            }
            Self::Any(streams) => any(streams, bound, direction),
            Self::All(streams) => loop {
                // An intersection inside another stream is not interrupted; each round makes
                // progress.
                match intersect_once(streams, bound, direction)? {
                    IntersectionStep::At(candidate) => return Ok(Some(candidate)),
                    IntersectionStep::NotBefore(next) => bound = next,
                    IntersectionStep::Never => return Ok(None),
                }
            },
        }
    }

    /// Like [`Self::at_or_after`], but stops when the cost bounds are reached: the next candidate
    /// of an intersection may be far away or not exist.
    pub(crate) fn next(
        &mut self,
        mut bound: u64,
        direction: Direction,
        meter: &Meter<'_>,
    ) -> Result<Next, StoreError> {
        let Self::All(streams) = self else {
            return Ok(self.at_or_after(bound, direction)?.map_or(Next::End, Next::At));
        };
        loop {
            match intersect_once(streams, bound, direction)? {
                IntersectionStep::At(candidate) => return Ok(Next::At(candidate)),
                IntersectionStep::NotBefore(next) => bound = next,
                IntersectionStep::Never => return Ok(Next::End),
            }
            if meter.is_over_budget() {
                return Ok(Next::OverBudget(bound));
            }
        }
    }
}

/// Result of one round over the streams of an intersection.
enum IntersectionStep {
    /// All streams have this candidate.
    At(Candidate),
    /// No common candidate before this number.
    NotBefore(u64),
    /// No further common candidate.
    Never,
}

/// Returns whether `number` comes before `bound` in walking order.
fn precedes(number: u64, bound: u64, direction: Direction) -> bool {
    match direction {
        Direction::OldestFirst => number < bound,
        Direction::NewestFirst => number > bound,
    }
}

/// Returns the number after this one in walking order.
pub(crate) fn step(number: u64, direction: Direction) -> Option<u64> {
    match direction {
        Direction::OldestFirst => number.checked_add(1),
        Direction::NewestFirst => number.checked_sub(1),
    }
}

fn any(
    streams: &mut [Stream<'_>],
    bound: u64,
    direction: Direction,
) -> Result<Option<Candidate>, StoreError> {
    let mut first: Option<Candidate> = None;
    for stream in streams {
        let Some(candidate) = stream.at_or_after(bound, direction)? else { continue };
        first = Some(match first {
            Some(best) if best.number == candidate.number => Candidate {
                number: best.number,
                positions: best.positions.union(candidate.positions),
            },
            Some(best) if precedes(best.number, candidate.number, direction) => best,
            _ => candidate,
        });
    }
    Ok(first)
}

fn intersect_once(
    streams: &mut [Stream<'_>],
    bound: u64,
    direction: Direction,
) -> Result<IntersectionStep, StoreError> {
    let mut positions = Positions::ALL;
    let mut furthest = bound;
    for stream in streams.iter_mut() {
        let Some(candidate) = stream.at_or_after(furthest, direction)? else {
            return Ok(IntersectionStep::Never);
        };
        furthest = candidate.number;
        positions = positions.intersection(candidate.positions);
    }
    if furthest != bound {
        return Ok(IntersectionStep::NotBefore(furthest));
    }
    if !positions.is_empty() {
        return Ok(IntersectionStep::At(Candidate { number: bound, positions }));
    }
    // The streams have this number in common, but no position.
    Ok(step(bound, direction).map_or(IntersectionStep::Never, IntersectionStep::NotBefore))
}

impl Rows<'_> {
    /// Iterator steps tried before a seek, because the next candidate is usually close.
    const STEPS: usize = 3;

    fn at_or_after(&mut self, bound: u64) -> Result<Option<Candidate>, StoreError> {
        match self.head {
            Head::End => return Ok(None),
            Head::At(head) if !precedes(head.number, bound, self.direction) => {
                return Ok(Some(head));
            }
            Head::At(_) | Head::Unknown => {}
        }
        let shared = Rc::clone(&self.shared);
        let mut shared = shared.borrow_mut();
        let is_positioned = shared.list == self.list;
        shared.list = self.list;
        for _ in 0..if is_positioned { Self::STEPS } else { 0 } {
            match self.direction {
                Direction::OldestFirst => shared.rows.next(),
                Direction::NewestFirst => shared.rows.prev(),
            }
            match self.read(&shared.rows)? {
                Some(head) if precedes(head.number, bound, self.direction) => {}
                head => return Ok(head),
            }
        }
        let mut key = self.prefix.clone();
        key.extend_from_slice(&bound.to_be_bytes()[8 - self.tail_len..]);
        match self.direction {
            Direction::OldestFirst => shared.rows.seek(&key),
            Direction::NewestFirst => shared.rows.seek_for_prev(&key),
        }
        self.read(&shared.rows)
    }

    /// Takes the row on which the iterator stands as the new head, if it belongs to this list.
    fn read(&mut self, rows: &DBRawIterator<'_>) -> Result<Option<Candidate>, StoreError> {
        let Some((key, value)) = rows.item() else {
            rows.status()?;
            self.head = Head::End;
            return Ok(None);
        };
        self.meter.index_row();
        let tail = match key.strip_prefix(self.prefix.as_slice()) {
            Some(tail) if tail.len() == self.tail_len => tail,
            _ => {
                self.head = Head::End;
                return Ok(None);
            }
        };
        let mut number = [0; 8];
        number[8 - self.tail_len..].copy_from_slice(tail);
        let head = Candidate {
            number: u64::from_be_bytes(number),
            positions: self.positions(value).ok_or(Malformed).map_err(corrupt(self.family, key))?,
        };
        self.head = Head::At(head);
        Ok(Some(head))
    }

    /// Decodes positions from rows of event indexes; rows of other families stand for the whole
    /// record.
    fn positions(&self, value: &[u8]) -> Option<Positions> {
        match self.family {
            Family::EventsByContract
            | Family::EventsByTopic
            | Family::Index(events_by_address::FAMILY) => Positions::decode(value),
            _ => Some(Positions::ALL),
        }
    }
}
