//! Streams of candidates from the indexes: unions and intersections of key-only rows, walked in
//! either direction with work proportional to what is taken out.
//!
//! A row's key ends in a number (the id of a block, the position of a transaction); all rows that
//! share the part before it form one ordered list. Streams yield numbers, each with the positions
//! within the block that may match. "May": the record itself decides.

use std::cell::RefCell;
use std::rc::Rc;

use rocksdb::DBRawIterator;

use super::StoreError;
use super::bytes::Malformed;
use super::columns::Family;
use super::database::{Snapshot, corrupt};
use super::positions::Positions;
use super::query::Meter;
use crate::domain::Direction;

/// Streams beyond this many share one iterator, which then seeks for every step.
const PRIVATE_ITERATORS: usize = 16;

/// A number and the positions that may match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub number: u64,
    pub positions: Positions,
}

/// An ordered stream of candidates.
pub(super) enum Stream<'a> {
    /// Rows under one prefix.
    Rows(Rows<'a>),
    /// A list in walking order.
    List(std::iter::Peekable<std::vec::IntoIter<Candidate>>),
    /// Candidates of any of the streams.
    Any(Vec<Stream<'a>>),
    /// Candidates of all of the streams.
    All(Vec<Stream<'a>>),
}

/// What all streams of one query share.
pub(super) struct Walk<'a> {
    snapshot: &'a Snapshot<'a>,
    direction: Direction,
    shared: Vec<(Family, Rc<RefCell<Shared<'a>>>)>,
    lists: usize,
    meter: Rc<Meter<'a>>,
}

/// Where a stream goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// The next candidate.
    At(Candidate),
    /// No candidate is left.
    End,
    /// The walk has cost what it may, and no candidate comes before this number.
    Spent(u64),
}

struct Shared<'a> {
    rows: DBRawIterator<'a>,
    /// Number of the list that it stands on; 0 at the start.
    list: usize,
}

/// The rows of one list.
pub(super) struct Rows<'a> {
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
    pub(super) fn new(
        snapshot: &'a Snapshot<'a>,
        direction: Direction,
        meter: &Rc<Meter<'a>>,
    ) -> Self {
        Self { snapshot, direction, shared: Vec::new(), lists: 0, meter: Rc::clone(meter) }
    }

    /// The list of rows whose key is `prefix` and then a number in `tail_len` bytes.
    pub(super) fn rows(
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

    /// Reads a whole list whose keys have more parts between prefix and number, if it has at most
    /// `most` rows; candidates come back in walking order, those of one number united.
    pub(super) fn collect(
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
    /// The first candidate at `bound` or beyond it in walking order. Bounds of successive calls
    /// must not go back.
    pub(super) fn at_or_after(
        &mut self,
        mut bound: u64,
        direction: Direction,
    ) -> Result<Option<Candidate>, StoreError> {
        match self {
            Self::Rows(rows) => rows.at_or_after(bound),
            Self::List(list) => {
                while list.next_if(|c| before(c.number, bound, direction)).is_some() {}
                Ok(list.peek().copied())
            }
            Self::Any(streams) => any(streams, bound, direction),
            Self::All(streams) => loop {
                // Within another stream nothing is interrupted: each round gets further.
                match meet(streams, bound, direction)? {
                    Met::At(candidate) => return Ok(Some(candidate)),
                    Met::NotBefore(next) => bound = next,
                    Met::Never => return Ok(None),
                }
            },
        }
    }

    /// As [`Self::at_or_after`], unless looking for it costs more than the walk may. What is looked for
    /// in every list of an intersection can be far away, or nowhere.
    pub(super) fn next(
        &mut self,
        mut bound: u64,
        direction: Direction,
        meter: &Meter<'_>,
    ) -> Result<Next, StoreError> {
        let Self::All(streams) = self else {
            return Ok(self.at_or_after(bound, direction)?.map_or(Next::End, Next::At));
        };
        loop {
            match meet(streams, bound, direction)? {
                Met::At(candidate) => return Ok(Next::At(candidate)),
                Met::NotBefore(next) => bound = next,
                Met::Never => return Ok(Next::End),
            }
            if meter.is_spent() {
                return Ok(Next::Spent(bound));
            }
        }
    }
}

/// What one round over the streams of an intersection found out.
enum Met {
    /// All of them have this candidate.
    At(Candidate),
    /// Nothing before this number.
    NotBefore(u64),
    /// Nothing any more.
    Never,
}

/// Whether `number` comes before `bound` in walking order.
fn before(number: u64, bound: u64, direction: Direction) -> bool {
    match direction {
        Direction::OldestFirst => number < bound,
        Direction::NewestFirst => number > bound,
    }
}

/// The number after this one in walking order.
pub(super) fn step(number: u64, direction: Direction) -> Option<u64> {
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
            Some(best) if before(best.number, candidate.number, direction) => best,
            _ => candidate,
        });
    }
    Ok(first)
}

fn meet(streams: &mut [Stream<'_>], bound: u64, direction: Direction) -> Result<Met, StoreError> {
    let mut positions = Positions::ALL;
    let mut furthest = bound;
    for stream in streams.iter_mut() {
        let Some(candidate) = stream.at_or_after(furthest, direction)? else {
            return Ok(Met::Never);
        };
        furthest = candidate.number;
        positions = positions.intersection(candidate.positions);
    }
    if furthest != bound {
        return Ok(Met::NotBefore(furthest));
    }
    if !positions.is_empty() {
        return Ok(Met::At(Candidate { number: bound, positions }));
    }
    // The streams meet here in no common position.
    Ok(step(bound, direction).map_or(Met::Never, Met::NotBefore))
}

impl Rows<'_> {
    /// Steps tried before a seek: neighbours are usually wanted.
    const STEPS: usize = 3;

    fn at_or_after(&mut self, bound: u64) -> Result<Option<Candidate>, StoreError> {
        match self.head {
            Head::End => return Ok(None),
            Head::At(head) if !before(head.number, bound, self.direction) => {
                return Ok(Some(head));
            }
            Head::At(_) | Head::Unknown => {}
        }
        let shared = Rc::clone(&self.shared);
        let mut shared = shared.borrow_mut();
        let stands_here = shared.list == self.list;
        shared.list = self.list;
        for _ in 0..if stands_here { Self::STEPS } else { 0 } {
            match self.direction {
                Direction::OldestFirst => shared.rows.next(),
                Direction::NewestFirst => shared.rows.prev(),
            }
            match self.read(&shared.rows)? {
                Some(head) if before(head.number, bound, self.direction) => {}
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

    /// Takes the row that the iterator stands on as the new head, if it is of this list.
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

    /// Only indexes of events say which positions; rows of other families mean the whole record.
    fn positions(&self, value: &[u8]) -> Option<Positions> {
        match self.family {
            Family::EventsByContract | Family::EventsByTopic => Positions::decode(value),
            _ => Some(Positions::ALL),
        }
    }
}
