//! Files of ledgers to import, and what a store holds once all of them are imported.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::write::GzEncoder;
use orrery_ledger::domain::{LedgerSeq, Network};
use orrery_source::files::LedgerFiles;
use tempfile::TempDir;

use super::contents::Contents;
use super::data;
use super::sandbox::{local, sandbox};

const LEDGERS_PER_FILE: u32 = 100;
/// Consecutive ledgers of the public network among the real ledgers.
const PUBLIC_LEDGERS: std::ops::RangeInclusive<u32> = 63_092_982..=63_092_993;

pub struct Material {
    pub network: Network,
    /// In the order of their ledgers.
    pub files: Vec<PathBuf>,
    /// The last ledger of each file.
    pub ends: Vec<LedgerSeq>,
    /// Content of a store after all files are imported.
    pub whole: Contents,
    _directory: Option<TempDir>,
}

impl Material {
    /// Sandbox ledgers in files with record marks, uncompressed and compressed.
    pub fn made(ledgers: u32) -> Self {
        Self::made_in_files(ledgers, LEDGERS_PER_FILE)
    }

    /// As [`Self::made`], with this many ledgers per file.
    pub fn made_in_files(ledgers: u32, per_file: u32) -> Self {
        let network = local();
        let mut sandbox = sandbox(1, 0..=24).with_milliseconds(LedgerSeq(12), 3);
        let directory = tempfile::tempdir().unwrap();
        let (mut files, mut ends, mut whole) = (Vec::new(), Vec::new(), Contents::default());
        for number in 0..ledgers.div_ceil(per_file) {
            let mut framed = Vec::new();
            for _ in 0..per_file.min(ledgers - number * per_file) {
                let xdr = sandbox.next_ledger().unwrap();
                whole.add(&xdr, &network);
                // Record mark (RFC 5531): the flag of the last fragment, and its length.
                framed.extend_from_slice(&(1 << 31 | xdr.len() as u32).to_be_bytes());
                framed.extend_from_slice(&xdr);
            }
            files.push(write(directory.path(), number, &framed));
            ends.push(sandbox.latest_ledger());
        }
        Self { network, files, ends, whole, _directory: Some(directory) }
    }

    /// Real ledgers. Prints a message and returns `None` when they are not available.
    pub fn public() -> Option<Self> {
        let directory = data::location().join("ledgers/pubnet");
        if !directory.exists() {
            println!(
                "skipped the ledgers of the public network: {} does not exist",
                directory.display()
            );
            return None;
        }
        let name = |sequence| directory.join(format!("ledger-{sequence}.xdr.gz"));
        let files: Vec<PathBuf> = PUBLIC_LEDGERS.map(name).collect();
        let network = Network::from_name_or_passphrase("mainnet");
        let mut whole = Contents::default();
        for ledger in LedgerFiles::new(&files) {
            whole.add(&ledger.unwrap().xdr, &network);
        }
        let ends = PUBLIC_LEDGERS.map(LedgerSeq).collect();
        Some(Self { network, files, ends, whole, _directory: None })
    }
}

/// Writes a file uncompressed, with gzip or with zstd, in turn.
fn write(directory: &Path, number: u32, framed: &[u8]) -> PathBuf {
    let suffix = ["", ".gz", ".zst"][number as usize % 3];
    let path = directory.join(format!("ledgers-{number}.xdr{suffix}"));
    let mut file = File::create(&path).unwrap();
    match suffix {
        ".gz" => {
            let mut encoder = GzEncoder::new(file, flate2::Compression::fast());
            encoder.write_all(framed).unwrap();
            encoder.finish().unwrap();
        }
        ".zst" => zstd::stream::copy_encode(framed, file, 1).unwrap(),
        _ => file.write_all(framed).unwrap(),
    }
    path
}
