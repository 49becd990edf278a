//! The ledgers of a standalone network, from the moment when its only node has written them until
//! they are stored.
//!
//! Other networks can stream a ledger again; this one cannot, because its node has no archive. So
//! its stream is a file, which outlives both processes, instead of a pipe.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use orrery_ledger::domain::{LONGEST_LEDGER, LedgerSeq, sequence_of};
use orrery_runtime::durable::write_atomically;

use super::error::CoreError;
use super::storage::{Storage, failed};
use crate::records::record_length;

/// Number of fetched ledgers that are kept, because they may not be stored yet.
const LEDGERS_KEPT: usize = 64;

/// The file, ready for the next run of core.
pub(super) struct Ledgers {
    /// File to which core writes.
    pub writer: File,
    /// File positioned at the first needed ledger.
    pub reader: File,
    /// Byte offset of that position.
    pub offset: u64,
}

/// Position of one ledger in the file.
struct Entry {
    sequence: LedgerSeq,
    begin: u64,
    end: u64,
}

/// Returns the oldest ledger in the file, if there is one.
pub(super) fn oldest(storage: &Storage) -> Option<LedgerSeq> {
    let file = File::open(storage.standalone_ledgers()).ok()?;
    next_entry(&mut BufReader::new(file), 0).ok()?.map(|entry| entry.sequence)
}

/// Opens the file of a network whose node has closed `closed`, positioned at `needed`. Ledgers that
/// the node wrote but did not close are removed, because it will close them anew, perhaps
/// differently. Ledgers that are no longer needed are removed when the file is longer than
/// `longest` bytes.
///
/// # Errors
/// [`CoreError::Gone`] when the file lacks a ledger between `needed` and `closed`, or the
/// network has not come to `needed`.
pub(super) fn open(
    storage: &Storage,
    closed: LedgerSeq,
    needed: LedgerSeq,
    longest: u64,
) -> Result<Ledgers, CoreError> {
    let path = storage.standalone_ledgers();
    let failed = failed(&path);
    let mut file =
        File::options().read(true).append(true).create(true).open(&path).map_err(&failed)?;
    let mut entries = scan(&file).map_err(&failed)?;
    while entries.last().is_some_and(|entry| entry.sequence > closed) {
        entries.pop();
    }
    let first = first_needed(&entries, closed, needed)
        .map_err(|state| CoreError::standalone_lost(storage.root(), &state, needed))?;
    let end = entries.last().map_or(0, |entry| entry.end);
    file.set_len(end).map_err(&failed)?;
    let mut offset = entries.get(first).map_or(end, |entry| entry.begin);
    let useless = entries.get(first.saturating_sub(LEDGERS_KEPT)).map_or(0, |entry| entry.begin);
    if end > longest && useless > 0 {
        file = without_beginning(&path, file, useless).map_err(&failed)?;
        offset -= useless;
    }
    let mut reader = File::open(&path).map_err(&failed)?;
    reader.seek(SeekFrom::Start(offset)).map_err(&failed)?;
    Ok(Ledgers { writer: file, reader, offset })
}

/// Returns the index of the entry of `needed`, or the number of entries when that ledger comes
/// next. The error follows "the standalone network".
fn first_needed(entries: &[Entry], closed: LedgerSeq, needed: LedgerSeq) -> Result<usize, String> {
    if closed.next() == Some(needed) {
        return Ok(entries.len());
    }
    if needed > closed {
        return Err(format!("has reached ledger {closed} only"));
    }
    // If a ledger was written more than once, the last entry is valid.
    let first = entries.iter().rposition(|entry| entry.sequence == needed);
    let whole = first.filter(|first| {
        let there = entries[*first..].iter().map(|entry| entry.sequence.0);
        there.eq(needed.0..=closed.0)
    });
    whole.ok_or_else(|| {
        let shown = runs(entries);
        format!("has reached ledger {closed} and can replay these ledgers only: {shown}")
    })
}

/// Formats the ranges of ledgers that the entries hold.
fn runs(entries: &[Entry]) -> String {
    let follows = |a: &Entry, b: &Entry| a.sequence.next() == Some(b.sequence);
    let runs = entries.chunk_by(follows).filter_map(|run| Some((run.first()?, run.last()?)));
    let runs: Vec<_> =
        runs.map(|(first, last)| format!("{} to {}", first.sequence, last.sequence)).collect();
    if runs.is_empty() { "none".to_owned() } else { runs.join(" and ") }
}

/// Returns all complete ledgers at the beginning; the file may end inside another one.
fn scan(file: &File) -> io::Result<Vec<Entry>> {
    let mut reader = BufReader::new(file);
    reader.seek(SeekFrom::Start(0))?;
    let mut entries: Vec<Entry> = Vec::new();
    loop {
        let begin = entries.last().map_or(0, |entry| entry.end);
        match next_entry(&mut reader, begin)? {
            Some(entry) => entries.push(entry),
            None => return Ok(entries),
        }
    }
}

fn next_entry(reader: &mut impl Read, begin: u64) -> io::Result<Option<Entry>> {
    let mut mark = [0; 4];
    if !filled(reader, &mut mark)? {
        return Ok(None);
    }
    // The file ends at a damaged record.
    let Ok(length) = record_length(u32::from_be_bytes(mark), begin, LONGEST_LEDGER) else {
        return Ok(None);
    };
    let mut record = Vec::new();
    let read = reader.take(length).read_to_end(&mut record)? as u64;
    let sequence = sequence_of(&record).ok().filter(|_| read == length);
    Ok(sequence.map(|sequence| Entry { sequence, begin, end: begin + 4 + length }))
}

/// Fills the buffer. Returns false if the input ended before.
fn filled(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match reader.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Atomically replaces the file by its part from `begin` on.
fn without_beginning(path: &Path, mut file: File, begin: u64) -> io::Result<File> {
    file.seek(SeekFrom::Start(begin))?;
    write_atomically(path, |shorter| io::copy(&mut file, shorter).map(drop))?;
    File::options().append(true).open(path)
}
