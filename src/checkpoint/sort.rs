//! Sorts records on disk: fills memory up to a limit, writes what it holds in order as a run, and
//! merges the runs. The files have no names, so that nothing is left of them after a crash. What was
//! read of a run is given back to the disk at once, where the file system can do that.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};

/// Maximum number of runs that are merged at once, and of open files.
const FAN_IN: usize = 128;
/// Buffer of each run that is read or written, in bytes.
const BUFFER: usize = 64 << 10;
/// Bytes of a run that were read before they are given back.
const GIVEN_BACK: u64 = 1 << 20;
/// Bytes before the key of a record: the length of what follows the key.
const LENGTH: usize = 4;

/// Returns the size of a record on disk, in bytes, whose key has `key` and whose content has `content`.
pub(crate) fn record_size(key: usize, content: usize) -> u64 {
    (LENGTH + key + content) as u64
}

/// Returns how much disk the sort of records of `size` bytes takes at most, if it has `memory` and
/// nothing is given back before its end.
pub(crate) fn disk(size: u64, memory: usize) -> u64 {
    // A run may be half empty, before a record that does not fit.
    let runs = size / (memory as u64 / 2).max(1) + 1;
    if runs < FAN_IN as u64 { size } else { size.saturating_mul(2) }
}

/// Bytes that may wait to be given back, of the runs of two sorts.
pub(crate) const NOT_YET_GIVEN_BACK: u64 = 2 * FAN_IN as u64 * (GIVEN_BACK + BUFFER as u64);

/// Whether parts of files in a directory can be given back before the file is removed.
pub(crate) fn gives_back(directory: &Path) -> io::Result<bool> {
    let mut file = tempfile::tempfile_in(directory)?;
    file.write_all(&[1; BUFFER])?;
    Ok(give_back(&file, 0, BUFFER as u64))
}

/// Frees the disk of a part of a file, whose bytes become zeros; returns whether that is possible.
fn give_back(file: &File, from: u64, length: u64) -> bool {
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(file, hole, from, length).is_ok()
}

/// Takes records in any order. Each has a key of `K` bytes.
pub(crate) struct Sorter<const K: usize> {
    directory: PathBuf,
    memory: usize,
    /// Records in the order of arrival, and where each of them begins.
    records: Vec<u8>,
    begins: Vec<u32>,
    runs: Vec<File>,
}

impl<const K: usize> Sorter<K> {
    /// Sorts below `directory`, with so many bytes of `memory` besides its buffers.
    pub fn new(directory: &Path, memory: usize) -> Self {
        let memory = memory.min(u32::MAX as usize);
        // Pages are taken when they are written to.
        let records = Vec::with_capacity(memory);
        let directory = directory.to_owned();
        Self { directory, memory, records, begins: Vec::new(), runs: Vec::new() }
    }

    /// Adds a record whose content consists of these parts.
    pub fn push(&mut self, key: &[u8; K], content: &[&[u8]]) -> io::Result<()> {
        let length: usize = content.iter().map(|part| part.len()).sum();
        let size = LENGTH + K + length + size_of::<u32>();
        let taken = self.records.len() + self.begins.len() * size_of::<u32>();
        if !self.records.is_empty() && taken + size > self.memory {
            self.spill()?;
        }
        // Bounded by the size of a record in a bucket.
        let length = u32::try_from(length).map_err(io::Error::other)?;
        self.begins.push(u32::try_from(self.records.len()).map_err(io::Error::other)?);
        self.records.extend_from_slice(&length.to_be_bytes());
        self.records.extend_from_slice(key);
        content.iter().for_each(|part| self.records.extend_from_slice(part));
        Ok(())
    }

    /// Returns all records in the order of their keys.
    pub fn finish(mut self) -> io::Result<Sorted<K>> {
        self.spill()?;
        Sorted::new(self.runs)
    }

    fn spill(&mut self) -> io::Result<()> {
        let Self { records, begins, .. } = self;
        let key = |begin: u32| &records[begin as usize + LENGTH..][..K];
        begins.sort_unstable_by(|a, b| key(*a).cmp(key(*b)));
        let mut run = self.new_run()?;
        for begin in &self.begins {
            let record = &self.records[*begin as usize..];
            let length = record.first_chunk().copied().map_or(0, u32::from_be_bytes);
            run.write_all(&record[..LENGTH + K + length as usize])?;
        }
        self.runs.push(finished(run)?);
        self.records.clear();
        self.begins.clear();
        if self.runs.len() == FAN_IN {
            let merged = self.merge()?;
            self.runs.push(merged);
        }
        Ok(())
    }

    /// Merges all runs into one.
    fn merge(&mut self) -> io::Result<File> {
        let mut sorted = Sorted::<K>::new(std::mem::take(&mut self.runs))?;
        let mut run = self.new_run()?;
        while let Some((key, content)) = sorted.next()? {
            let length = u32::try_from(content.len()).map_err(io::Error::other)?;
            run.write_all(&length.to_be_bytes())?;
            run.write_all(&key)?;
            run.write_all(content)?;
        }
        finished(run)
    }

    fn new_run(&self) -> io::Result<BufWriter<File>> {
        Ok(BufWriter::with_capacity(BUFFER, tempfile::tempfile_in(&self.directory)?))
    }
}

/// Returns the file of a run that was written, at its beginning.
fn finished(run: BufWriter<File>) -> io::Result<File> {
    let mut file = run.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.rewind()?;
    Ok(file)
}

/// A run that is read.
struct Run {
    file: BufReader<File>,
    /// Bytes that were read, and how many of them were given back.
    read: u64,
    given_back: u64,
}

impl Run {
    fn new(file: File) -> Self {
        Self { file: BufReader::with_capacity(BUFFER, file), read: 0, given_back: 0 }
    }

    fn read_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact(buffer)?;
        self.read += buffer.len() as u64;
        if self.read - self.given_back >= GIVEN_BACK {
            // Where it is not possible, the disk is free at the end.
            give_back(self.file.get_ref(), self.given_back, self.read - self.given_back);
            self.given_back = self.read;
        }
        Ok(())
    }
}

/// Yields records in the order of their keys.
pub(crate) struct Sorted<const K: usize> {
    runs: Vec<Run>,
    /// Key of the next record of each run, which run it is, and the length of its content.
    heads: BinaryHeap<Reverse<([u8; K], usize, u32)>>,
    content: Vec<u8>,
}

impl<const K: usize> Sorted<K> {
    fn new(runs: Vec<File>) -> io::Result<Self> {
        let runs = runs.into_iter().map(Run::new).collect();
        let mut sorted = Self { runs, heads: BinaryHeap::new(), content: Vec::new() };
        for run in 0..sorted.runs.len() {
            sorted.advance(run)?;
        }
        Ok(sorted)
    }

    /// Returns the next record, whose content is valid until the next call.
    pub fn next(&mut self) -> io::Result<Option<([u8; K], &[u8])>> {
        let Some(Reverse((key, run, length))) = self.heads.pop() else { return Ok(None) };
        self.content.resize(length as usize, 0);
        self.runs[run].read_exact(&mut self.content)?;
        self.advance(run)?;
        Ok(Some((key, &self.content)))
    }

    /// Reads the key of a run's next record.
    fn advance(&mut self, run: usize) -> io::Result<()> {
        let file = &mut self.runs[run];
        let mut length = [0; LENGTH];
        match file.read_exact(&mut length) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        let mut key = [0; K];
        file.read_exact(&mut key)?;
        self.heads.push(Reverse((key, run, u32::from_be_bytes(length))));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn sorts(count: u32, memory: usize) {
        let directory = tempfile::tempdir().unwrap();
        let mut sorter = Sorter::<4>::new(directory.path(), memory);
        let mut expected = BTreeMap::new();
        for number in 0..count {
            let key = number.wrapping_mul(2_654_435_761).to_be_bytes();
            let content = vec![number as u8; number as usize % 50];
            let (one, two) = content.split_at(content.len() / 2);
            sorter.push(&key, &[one, two]).unwrap();
            expected.insert(key, content);
        }
        let mut sorted = sorter.finish().unwrap();
        let mut found = BTreeMap::new();
        let mut last = None;
        while let Some((key, content)) = sorted.next().unwrap() {
            assert!(last < Some(key), "in order");
            last = Some(key);
            found.insert(key, content.to_vec());
        }
        assert_eq!(found, expected);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "no names");
    }

    #[test]
    fn records_are_sorted_in_one_run_in_several_and_in_more_than_are_merged_at_once() {
        for (count, memory) in [(0, 1000), (1, 1000), (300, 1 << 20), (300, 1000), (20_000, 1000)] {
            sorts(count, memory);
        }
        // A record that is larger than the memory is a run of its own.
        sorts(300, 10);
        // Parts of the runs are given back.
        sorts(200_000, 2 << 20);
    }

    #[test]
    fn more_disk_is_counted_when_runs_are_merged_in_between() {
        assert_eq!(disk(1000, 1000), 1000);
        assert_eq!(disk(1_000_000, 1000), 2_000_000);
        assert_eq!(record_size(34, 6), 44);
    }
}
