//! Ledgers that wait on disk when there are too many for memory. The file has no name, so it
//! vanishes when this process ends; its ledgers are then streamed again.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use orrery_ledger::domain::{LedgerSeq, Origin, RawLedger};

/// Ledgers on disk, first in, first out.
pub(super) struct Spill {
    directory: PathBuf,
    /// Created with the first ledger.
    file: Option<File>,
    waiting: VecDeque<Waiting>,
    end: u64,
}

struct Waiting {
    sequence: LedgerSeq,
    origin: Origin,
    at: u64,
    length: usize,
}

impl Spill {
    /// Creates an empty queue, which will create its file in `directory`.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory, file: None, waiting: VecDeque::new(), end: 0 }
    }

    /// Returns whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the size of the file. It shrinks only when all ledgers were taken.
    pub fn bytes(&self) -> u64 {
        self.end
    }

    /// Adds a ledger. If writing it fails, it is not added.
    pub fn push(&mut self, ledger: &RawLedger) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(tempfile::tempfile_in(&self.directory)?);
        }
        let Some(file) = &self.file else { return Ok(()) };
        file.write_all_at(&ledger.xdr, self.end)?;
        let (sequence, origin) = (ledger.sequence, ledger.origin.clone());
        let length = ledger.xdr.len();
        self.waiting.push_back(Waiting { sequence, origin, at: self.end, length });
        self.end += length as u64;
        Ok(())
    }

    /// Drops all ledgers.
    pub fn clear(&mut self) {
        *self = Self::new(std::mem::take(&mut self.directory));
    }

    /// Takes the oldest ledger.
    pub fn pop(&mut self) -> io::Result<Option<RawLedger>> {
        let (Some(file), Some(next)) = (&self.file, self.waiting.front()) else { return Ok(None) };
        let mut xdr = vec![0; next.length];
        file.read_exact_at(&mut xdr, next.at)?;
        let ledger = RawLedger {
            sequence: next.sequence,
            xdr,
            compressed: None,
            origin: next.origin.clone(),
        };
        self.waiting.pop_front();
        if self.waiting.is_empty() {
            self.end = 0;
            // Frees the disk space at once; a failure only delays that.
            let _ = file.set_len(0);
        }
        Ok(Some(ledger))
    }
}
