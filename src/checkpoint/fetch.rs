//! Downloads the buckets of a state, reads each of them once, and counts what the sort will take.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use orrery_ledger::decode::BucketRecord;
use orrery_ledger::domain::Hash32;
use orrery_runtime::durable::create_draft;

use crate::archive::{Archive, Source, bucket_file, open_file};
use crate::bucket::BucketReader;
use crate::error::{CheckpointError, Result};
use crate::sort::gives_back;
use crate::space;
use crate::state::{Bucket, NetworkState};
use crate::wanted::Tally;
use crate::work::{Step, Work};

/// Number of records, and of bytes after decompression, between two reports.
const REPORT_RECORDS: u64 = 1024;
const REPORT_BYTES: u64 = 8 << 20;
/// Bytes that are downloaded between two looks at the free disk.
const LOOK_BYTES: u64 = 32 << 20;
/// Beginning of the names of downloaded buckets.
const KEPT: &str = "bucket-";

/// A state whose buckets are all there, and right when they were read.
#[derive(Debug, Clone)]
pub struct Fetched {
    pub(crate) state: NetworkState,
    pub(crate) archive: Archive,
    /// Records of all buckets.
    pub(crate) records: u64,
    disk: u64,
}

/// What was read so far.
#[derive(Default)]
struct Progress {
    done: u32,
    bytes: u64,
    records: u64,
    tally: Tally,
}

impl NetworkState {
    /// Downloads the buckets that are not in the directory of `work` yet, reads all of them, and checks
    /// that there is disk for the sort. Buckets in a directory are read where they are.
    ///
    /// # Errors
    /// [`CheckpointError::Refused`] when a bucket is not what its name says, or not well formed.
    pub fn fetch(self, archive: &Archive, work: &Work<'_>) -> Result<Fetched> {
        remove_others(&self, work.directory)
            .map_err(|error| CheckpointError::disk(work.directory.display(), &error))?;
        if !archive.is_local() {
            check_download(&self, archive, work)?;
        }
        let mut progress = Progress::default();
        for bucket in &self.buckets {
            read_whole(&self, bucket, archive, work, &mut progress)?;
            progress.done += 1;
            let of = self.buckets.len() as u32;
            work.tell(Step::Check { done: progress.done, of, bytes: progress.bytes })?;
        }
        let gives_back = gives_back(work.directory)
            .map_err(|error| CheckpointError::disk(work.directory.display(), &error))?;
        let disk = progress.tally.disk(work.bounds.memory, gives_back);
        space::check(work.directory, "sorting the state", disk, work.bounds.spare)?;
        work.tell(Step::Sort { disk })?;
        Ok(Fetched { state: self, archive: archive.clone(), records: progress.records, disk })
    }
}

impl Fetched {
    /// Returns how many bytes of disk the sort takes at most.
    pub fn disk(&self) -> u64 {
        self.disk
    }

    /// Opens a bucket that [`NetworkState::fetch`] has read.
    pub(crate) fn open(&self, bucket: &Bucket, directory: &Path) -> Result<(String, Source)> {
        if self.archive.is_local() {
            return of_archive(&self.archive, bucket);
        }
        let path = kept_path(directory, &bucket.hash);
        let shown = path.display().to_string();
        match open_file(&path)? {
            Some(file) => Ok((shown, Source::Local(file))),
            None => Err(CheckpointError::Failed(format!("{shown} was removed: begin again"))),
        }
    }
}

/// Returns where a downloaded bucket is kept.
fn kept_path(directory: &Path, hash: &Hash32) -> PathBuf {
    directory.join(format!("{KEPT}{hash}.xdr.gz"))
}

/// Removes buckets of other states, and what a killed download has left.
fn remove_others(state: &NetworkState, directory: &Path) -> io::Result<()> {
    let kept = state.buckets.iter().map(|bucket| kept_path(directory, &bucket.hash));
    let kept: BTreeSet<_> = kept.collect();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let is_bucket = entry.file_name().to_string_lossy().starts_with(KEPT);
        if is_bucket && !kept.contains(&entry.path()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Checks that there is disk for the buckets that are not there yet.
fn check_download(state: &NetworkState, archive: &Archive, work: &Work<'_>) -> Result<()> {
    let hashes: BTreeSet<_> = state.buckets.iter().map(|bucket| bucket.hash).collect();
    let mut bytes = 0_u64;
    for hash in hashes.iter().filter(|hash| !kept_path(work.directory, hash).exists()) {
        // What is wrong with the server, the download says.
        let Ok(length) = archive.length(&bucket_file(hash)) else { break };
        bytes = bytes.saturating_add(length.unwrap_or(0));
        work.tell(Step::Download { bytes })?;
    }
    space::check(work.directory, "downloading the state", bytes, work.bounds.spare)?;
    work.tell(Step::Download { bytes })
}

/// Reads one bucket to its end, and downloads it meanwhile if it is not there.
fn read_whole(
    state: &NetworkState,
    bucket: &Bucket,
    archive: &Archive,
    work: &Work<'_>,
    progress: &mut Progress,
) -> Result<()> {
    if archive.is_local() {
        let (shown, file) = of_archive(archive, bucket)?;
        return read(state, bucket, shown, file, work, progress);
    }
    let path = kept_path(work.directory, &bucket.hash);
    if let Some(file) = open_file(&path)? {
        let before = progress.tally;
        match read(state, bucket, path.display().to_string(), file, work, progress) {
            // The disk has lost something of it since it was downloaded.
            Err(CheckpointError::Refused(_)) => progress.tally = before,
            done => return done,
        }
    }
    let (shown, source) = of_archive(archive, bucket)?;
    let disk = |error: io::Error| CheckpointError::disk(work.directory.display(), &error);
    let draft_path = path.with_extension("gz.new");
    let draft = create_draft(&draft_path).map_err(disk)?;
    let copy = Copy { source, draft: &draft, work, written: 0 };
    let done = read(state, bucket, shown, copy, work, progress).and_then(|()| {
        draft.sync_all().map_err(disk)?;
        fs::rename(&draft_path, &path).map_err(disk)?;
        File::open(work.directory).and_then(|directory| directory.sync_all()).map_err(disk)
    });
    if done.is_err() {
        // The first error is the cause; what is left is removed the next time.
        let _ = fs::remove_file(&draft_path);
    }
    done
}

fn of_archive(archive: &Archive, bucket: &Bucket) -> Result<(String, Source)> {
    let file = bucket_file(&bucket.hash);
    let shown = archive.shown(&file);
    match archive.source(&file)? {
        Some(source) => Ok((shown, source)),
        None => Err(CheckpointError::refused(shown, "the history archive does not have it")),
    }
}

fn read(
    state: &NetworkState,
    bucket: &Bucket,
    shown: String,
    file: impl Read,
    work: &Work<'_>,
    progress: &mut Progress,
) -> Result<()> {
    let left = work.bounds.total.saturating_sub(progress.bytes);
    let protocol = state.commitment.protocol;
    let mut reader = BucketReader::new(shown.clone(), *bucket, protocol, file, &work.bounds, left);
    let (mut records, mut told) = (0, 0);
    let Progress { done, bytes, tally, .. } = progress;
    let mut take = |record: BucketRecord<'_>| tally.add(&shown, bucket, &record, work);
    while reader.next(&mut take)? {
        records += 1;
        if records % REPORT_RECORDS == 0 || reader.inflated() - told >= REPORT_BYTES {
            told = reader.inflated();
            let of = state.buckets.len() as u32;
            work.tell(Step::Check { done: *done, of, bytes: *bytes + told })?;
        }
    }
    progress.records += records;
    progress.bytes += reader.inflated();
    Ok(())
}

/// Writes a file to disk while it is read.
struct Copy<'a> {
    source: Source,
    draft: &'a File,
    work: &'a Work<'a>,
    /// Bytes since the last look at the free disk.
    written: u64,
}

impl Read for Copy<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        let Work { directory, bounds, .. } = self.work;
        self.draft.write_all(&buffer[..count]).map_err(|error| {
            io::Error::other(CheckpointError::disk(directory.display(), &error))
        })?;
        self.written += count as u64;
        if self.written >= LOOK_BYTES {
            self.written = 0;
            space::check(directory, "downloading the state", LOOK_BYTES, bounds.spare)
                .map_err(io::Error::other)?;
        }
        Ok(count)
    }
}
