//! Rows of ledgers that are in no file yet, in memory: each ledger's are made once. Ledgers that follow each other are
//! joined in pieces of [`PIECE`], so that thousands of them are few parts.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::compute::concat_batches;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use arrow::record_batch::RecordBatch;
use orrery_ledger::domain::{LedgerRange, LedgerSeq, LedgerSet};
use orrery_tables::chain::{ChainRows, MAX_BATCH_ROWS};

/// Number of ledgers in a piece. It begins at a multiple of that many ledgers in its portion, and ends with it.
const PIECE: u32 = 64;

/// Rows of a table in memory.
#[derive(Debug, Default)]
pub struct Tail {
    /// By their first ledgers; they do not overlap.
    pieces: BTreeMap<LedgerSeq, Piece>,
}

#[derive(Debug, Clone)]
struct Piece {
    ledgers: LedgerRange,
    /// `None` when these ledgers have no rows.
    rows: Option<Arc<ChainRows>>,
}

/// How rows are made.
pub struct Making<'a, E> {
    /// Number of ledgers in a portion of the export.
    pub portion: u32,
    /// Maximum size of all rows in bytes.
    pub bytes: usize,
    /// Ledgers whose rows are not kept, because they will be others soon.
    pub unsettled: &'a LedgerSet,
    /// Makes the rows of ledgers, all of them; it may fail when they are more than so many bytes.
    pub make: &'a mut dyn FnMut(LedgerRange, usize) -> Result<Vec<RecordBatch>, E>,
}

/// Why there are no rows.
#[derive(Debug, PartialEq, Eq)]
pub enum NoTail<E> {
    /// They are more than the maximum.
    TooLarge,
    /// They could not be made.
    Failed(E),
}

impl Tail {
    /// Returns the rows of these ledgers, and forgets those of others.
    ///
    /// # Errors
    /// [`NoTail`]. Rows that were made stay.
    pub fn rows<E: From<ArrowError>>(
        &mut self,
        ledgers: &LedgerSet,
        making: &mut Making<'_, E>,
    ) -> Result<Vec<Arc<ChainRows>>, NoTail<E>> {
        let is_whole =
            |piece: &Piece| ledgers.within(piece.ledgers).ledgers() == piece.ledgers.len();
        self.pieces.retain(|_, piece| is_whole(piece));
        let (mut rows, mut bytes) = (Vec::new(), 0);
        for range in ledgers.ranges() {
            let mut next = Some(range.first);
            while let Some(first) = next.filter(|first| *first <= range.last) {
                let piece = piece_at(first, making.portion);
                let is_complete = piece.first == first && piece.last <= range.last;
                let wanted = if is_complete { piece } else { LedgerRange { first, last: first } };
                let left = making.bytes.saturating_sub(bytes);
                let piece = self.piece(wanted, left, making).map_err(NoTail::Failed)?;
                if let Some(found) = piece.rows {
                    bytes += found.bytes().len();
                    rows.push(found);
                }
                if bytes > making.bytes {
                    return Err(NoTail::TooLarge);
                }
                next = piece.ledgers.last.next();
            }
        }
        Ok(rows)
    }

    /// Returns the piece of these ledgers, or one that has them and others.
    fn piece<E: From<ArrowError>>(
        &mut self,
        ledgers: LedgerRange,
        bytes: usize,
        making: &mut Making<'_, E>,
    ) -> Result<Piece, E> {
        if let Some(known) = self.pieces.get(&ledgers.first)
            && known.ledgers.last >= ledgers.last
        {
            return Ok(known.clone());
        }
        let mut batches = Vec::new();
        let mut missing = LedgerSet::from(ledgers);
        let parts: Vec<_> = self.pieces.range(ledgers.first..=ledgers.last).collect();
        for (_, part) in parts {
            missing.remove_all(&part.ledgers.into());
            if let Some(rows) = &part.rows {
                batches.push((part.ledgers.first, read(rows)?));
            }
        }
        for range in missing.ranges() {
            batches.push((range.first, (making.make)(*range, bytes)?));
        }
        batches.sort_by_key(|(first, _)| *first);
        let batches: Vec<_> = batches.into_iter().flat_map(|(_, batches)| batches).collect();
        let rows = written(&batches)?.map(|bytes| Arc::new(ChainRows::new(ledgers, bytes)));
        let piece = Piece { ledgers, rows };
        if making.unsettled.within(ledgers).is_empty() {
            self.pieces.retain(|first, _| !ledgers.contains(*first));
            self.pieces.insert(ledgers.first, piece.clone());
        }
        Ok(piece)
    }
}

/// Returns the ledgers of the piece that has this one.
fn piece_at(ledger: LedgerSeq, portion: u32) -> LedgerRange {
    let portion = portion.max(1);
    let begin = ledger.0 - ledger.0 % portion;
    let first = begin + (ledger.0 - begin) / PIECE * PIECE;
    let end = begin.saturating_add(portion - 1);
    LedgerRange::new(first, first.saturating_add(PIECE - 1).min(end))
}

fn read(rows: &ChainRows) -> Result<Vec<RecordBatch>, ArrowError> {
    StreamReader::try_new(rows.bytes(), None)?.collect()
}

/// Returns rows as an Arrow IPC stream whose batches have as many rows as they may; `None` when there are none.
fn written(batches: &[RecordBatch]) -> Result<Option<Vec<u8>>, ArrowError> {
    let Some(first) = batches.first() else { return Ok(None) };
    let schema = first.schema();
    let mut writer = StreamWriter::try_new(Vec::new(), &schema)?;
    let (mut joined, mut count) = (Vec::new(), 0);
    for batch in batches {
        let mut at = 0;
        while at < batch.num_rows() {
            let length = (batch.num_rows() - at).min(MAX_BATCH_ROWS - count);
            joined.push(batch.slice(at, length));
            (at, count) = (at + length, count + length);
            if count == MAX_BATCH_ROWS {
                writer.write(&concat_batches(&schema, &joined)?)?;
                (joined, count) = (Vec::new(), 0);
            }
        }
    }
    if count > 0 {
        writer.write(&concat_batches(&schema, &joined)?)?;
    }
    writer.finish()?;
    writer.into_inner().map(Some)
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::Int64Type;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// Each ledger has as many rows as its number modulo 5, which are the number.
    fn batch(ledgers: LedgerRange) -> Vec<RecordBatch> {
        let numbers = (ledgers.first.0..=ledgers.last.0)
            .flat_map(|ledger| std::iter::repeat_n(i64::from(ledger), ledger as usize % 5));
        let numbers: Vec<_> = numbers.collect();
        if numbers.is_empty() {
            return Vec::new();
        }
        let column: arrow::array::ArrayRef = Arc::new(Int64Array::from(numbers));
        vec![RecordBatch::try_from_iter([("ledger", column)]).unwrap()]
    }

    fn ledgers_of(rows: &[Arc<ChainRows>]) -> Vec<i64> {
        let mut found = Vec::new();
        for rows in rows {
            for batch in read(rows).unwrap() {
                assert!(batch.num_rows() <= MAX_BATCH_ROWS);
                found.extend(batch.column(0).as_primitive::<Int64Type>().values());
            }
        }
        found
    }

    #[test]
    fn each_ledger_is_made_once_and_none_lacks() {
        let mut random = ChaCha8Rng::seed_from_u64(5);
        for _ in 0..20 {
            let portion = [1, 7, 64, 100, 1000][random.random_range(0..5)];
            let mut tail = Tail::default();
            let (mut exported, mut newest) = (0u32, random.random_range(1..300));
            let mut made = BTreeMap::<u32, u32>::new();
            let gap = random.random_range(1..400);
            for _ in 0..60 {
                newest += random.random_range(0..40);
                if random.random_bool(0.2) {
                    exported = (newest - newest % portion).max(exported);
                }
                let mut ledgers = LedgerSet::from(LedgerRange::new(exported, newest));
                ledgers.remove_all(&LedgerRange::new(gap, gap + 3).into());
                let mut make = |ledgers: LedgerRange, _| {
                    (ledgers.first.0..=ledgers.last.0)
                        .for_each(|it| *made.entry(it).or_default() += 1);
                    Ok::<_, ArrowError>(batch(ledgers))
                };
                let unsettled = LedgerSet::default();
                let mut making =
                    Making { portion, bytes: usize::MAX, unsettled: &unsettled, make: &mut make };
                let rows = tail.rows(&ledgers, &mut making).unwrap();
                let expected: Vec<_> =
                    ledgers.ranges().iter().flat_map(|range| batch(*range)).collect();
                let expected: Vec<i64> = expected
                    .iter()
                    .flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec())
                    .collect();
                assert_eq!(ledgers_of(&rows), expected, "{portion} {exported} {newest} {gap}");
                let most =
                    ledgers.ledgers() as usize / PIECE.min(portion) as usize + 3 * PIECE as usize;
                assert!(rows.len() <= most, "{} parts", rows.len());
            }
            assert!(made.values().all(|times| *times == 1), "{portion} {gap} {made:?}");
        }
    }

    #[test]
    fn rows_are_limited_and_those_that_will_be_others_are_not_kept() {
        let mut tail = Tail::default();
        let ledgers = LedgerSet::from(LedgerRange::new(1, 200));
        let mut made = 0;
        let mut ask = |tail: &mut Tail, bytes: usize, unsettled: LedgerSet| {
            made = 0;
            let mut make = |ledgers: LedgerRange, _| {
                made += ledgers.len();
                Ok::<_, ArrowError>(batch(ledgers))
            };
            let mut making = Making { portion: 100, bytes, unsettled: &unsettled, make: &mut make };
            let rows = tail.rows(&ledgers, &mut making).map(|rows| ledgers_of(&rows).len());
            (rows.ok(), made)
        };
        let (rows, made) = ask(&mut tail, 1_500, LedgerSet::default());
        assert!(rows.is_none() && (1..200).contains(&made), "{made}");
        let unsettled = LedgerSet::from(LedgerRange::new(200, 200));
        let (rows, _) = ask(&mut tail, usize::MAX, unsettled.clone());
        assert_eq!(rows, Some(400));
        assert_eq!(ask(&mut tail, usize::MAX, unsettled), (Some(400), 1));
        assert_eq!(ask(&mut tail, usize::MAX, LedgerSet::default()), (Some(400), 1));
        assert_eq!(ask(&mut tail, usize::MAX, LedgerSet::default()), (Some(400), 0));
    }
}
