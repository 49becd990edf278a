//! Journal of a sandbox network: the input from outside of each ledger, written before the ledger
//! is passed on, so that the same ledgers can be regenerated after a restart.
//!
//! Contains one line of JSON per ledger. A crash may tear the last line; its ledger was not passed
//! on then. Lines are never removed: the ledgers themselves take far more space.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use orrery_ledger::domain::LedgerSeq;
use orrery_runtime::durable::write_atomically;
use serde::{Deserialize, Serialize};
use stellar_xdr::{Limits, ReadXdr, ScAddress, TransactionEnvelope, WriteXdr};

use super::error::SandboxNetworkError;
use crate::network::Batch;

/// Maximum nesting depth of a transaction, the same as in the sources.
const DEPTH: u32 = 500;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Line {
    ledger: u32,
    close_time_ms: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    in_milliseconds: bool,
    /// Base64 of XDR.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    transactions: Vec<String>,
    /// Base64 of XDR.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    funded: Vec<String>,
}

/// An open journal.
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    /// Length of the complete lines in bytes. Anything after them is an incomplete line.
    whole: u64,
}

impl Journal {
    /// Creates an empty journal at `path`, unless one exists.
    pub(super) fn begin(path: &Path) -> Result<(), SandboxNetworkError> {
        if path.try_exists().map_err(SandboxNetworkError::of_file(path))? {
            Ok(())
        } else {
            write_atomically(path, |_| Ok(())).map_err(SandboxNetworkError::of_file(path))
        }
    }

    /// Opens the journal at `path` and returns its batches for ledgers after `known`, in order.
    pub(super) fn open(
        path: &Path,
        known: LedgerSeq,
    ) -> Result<(Self, Vec<(LedgerSeq, Batch)>), SandboxNetworkError> {
        let mut reader =
            BufReader::new(File::open(path).map_err(SandboxNetworkError::of_file(path))?);
        let (mut batches, mut last, mut whole) = (Vec::new(), None, 0);
        loop {
            let mut text = Vec::new();
            let bytes =
                reader.read_until(b'\n', &mut text).map_err(SandboxNetworkError::of_file(path))?;
            if !text.ends_with(b"\n") {
                break;
            }
            whole += bytes as u64;
            let line: Line = serde_json::from_slice(&text).map_err(|_| damaged(path, "a line"))?;
            let ledger = line.ledger;
            if last.is_some_and(|last: u32| last.checked_add(1) != Some(ledger)) {
                return Err(damaged(path, "the order of its lines"));
            }
            last = Some(ledger);
            if ledger > known.0 {
                let batch = line.batch().ok_or_else(|| damaged(path, "a transaction"))?;
                batches.push((LedgerSeq(ledger), batch));
            }
        }
        let file = OpenOptions::new()
            .append(true)
            .open(path)
            .map_err(SandboxNetworkError::of_file(path))?;
        Ok((Self { path: path.to_owned(), file, whole }, batches))
    }

    /// Appends the batch of a ledger and syncs it to disk. After a failure the next append
    /// truncates what was written.
    pub(super) fn append(
        &mut self,
        ledger: LedgerSeq,
        batch: &Batch,
    ) -> Result<(), SandboxNetworkError> {
        let line = Line::new(ledger, batch).map_err(|_| damaged(&self.path, "a transaction"))?;
        let mut text = serde_json::to_vec(&line).map_err(|_| damaged(&self.path, "a line"))?;
        text.push(b'\n');
        // Removes an incomplete line, left by a crash or a full disk, before writing the next.
        let written = self
            .file
            .set_len(self.whole)
            .and_then(|()| self.file.write_all(&text))
            .and_then(|()| self.file.sync_data());
        written.map_err(SandboxNetworkError::of_file(&self.path))?;
        self.whole += text.len() as u64;
        Ok(())
    }
}

impl Line {
    fn new(ledger: LedgerSeq, batch: &Batch) -> Result<Self, stellar_xdr::Error> {
        let spelled = |transaction: &TransactionEnvelope| transaction.to_xdr_base64(Limits::none());
        let Batch { close_time_ms, in_milliseconds, transactions, funded } = batch;
        Ok(Self {
            ledger: ledger.0,
            close_time_ms: *close_time_ms,
            in_milliseconds: *in_milliseconds,
            transactions: transactions.iter().map(spelled).collect::<Result<_, _>>()?,
            funded: funded
                .iter()
                .map(|address| address.to_xdr_base64(Limits::none()))
                .collect::<Result<_, _>>()?,
        })
    }

    fn batch(&self) -> Option<Batch> {
        fn read<T: ReadXdr>(text: &String) -> Option<T> {
            T::from_xdr_base64(text, Limits { depth: DEPTH, len: text.len() }).ok()
        }
        Some(Batch {
            close_time_ms: self.close_time_ms,
            in_milliseconds: self.in_milliseconds,
            transactions: self.transactions.iter().map(read).collect::<Option<_>>()?,
            funded: self.funded.iter().map(read::<ScAddress>).collect::<Option<_>>()?,
        })
    }
}

fn damaged(path: &Path, what: &str) -> SandboxNetworkError {
    SandboxNetworkError::damaged(path, format_args!("{what} cannot be read"))
}
