//! The journal of a sandbox network: what came into each ledger from outside, written before the ledger is passed on,
//! so that the same ledgers can be made again after a start.
//!
//! Lines of JSON, one for each ledger. The last one may be torn by a crash; its ledger was passed on to nobody. No line is ever removed: the ledgers themselves take far more room.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stellar_xdr::{Limits, ReadXdr, ScAddress, TransactionEnvelope, WriteXdr};

use super::SandboxNetworkError;
use crate::domain::LedgerSeq;
use crate::durable::write_atomically;
use crate::source::sandbox::Batch;

/// Deepest nesting of a transaction, as sources have it.
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
    /// Bytes of its whole lines. What is behind them was not written to its end.
    whole: u64,
}

impl Journal {
    /// Begins a journal at `path`; one that is there already, and empty, is as good.
    pub(super) fn begin(path: &Path) -> Result<(), SandboxNetworkError> {
        match path.try_exists().map_err(failed(path))? {
            true => Ok(()),
            false => write_atomically(path, |_| Ok(())).map_err(failed(path)),
        }
    }

    /// Opens the journal at `path`; returns what it says of ledgers after `known`, in order.
    pub(super) fn open(
        path: &Path,
        known: LedgerSeq,
    ) -> Result<(Self, Vec<(LedgerSeq, Batch)>), SandboxNetworkError> {
        let mut reader = BufReader::new(File::open(path).map_err(failed(path))?);
        let (mut batches, mut last, mut whole) = (Vec::new(), None, 0);
        loop {
            let mut text = Vec::new();
            let bytes = reader.read_until(b'\n', &mut text).map_err(failed(path))?;
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
        let file = OpenOptions::new().append(true).open(path).map_err(failed(path))?;
        Ok((Self { path: path.to_owned(), file, whole }, batches))
    }

    /// Notes what comes into a ledger; it is on the disk when this returns. After a failure it is as if nothing had
    /// been written.
    pub(super) fn append(
        &mut self,
        ledger: LedgerSeq,
        batch: &Batch,
    ) -> Result<(), SandboxNetworkError> {
        let line = Line::new(ledger, batch).map_err(|_| damaged(&self.path, "a transaction"))?;
        let mut text = serde_json::to_vec(&line).map_err(|_| damaged(&self.path, "a line"))?;
        text.push(b'\n');
        // A part of a line, from a crash or a full disk, goes before the next is written.
        let written = self
            .file
            .set_len(self.whole)
            .and_then(|()| self.file.write_all(&text))
            .and_then(|()| self.file.sync_data());
        written.map_err(failed(&self.path))?;
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
    let reason = format!("{what} cannot be read");
    SandboxNetworkError::Beginning { path: path.to_owned(), reason }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> SandboxNetworkError {
    let path = path.to_owned();
    move |source| SandboxNetworkError::File { path: path.clone(), source }
}
