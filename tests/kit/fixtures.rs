//! Loads the recorded ledgers, independently of the program's own loader.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use orrery_ledger::decode::DEEPEST;
use orrery_ledger::domain::Network;
use stellar_xdr::{LedgerCloseMeta, LedgerCloseMetaBatch, Limits, ReadXdr, WriteXdr};

use super::data;

/// One recorded file.
pub struct Fixture {
    /// Path below the folder of ledgers.
    pub name: String,
    /// Network of the ledgers.
    pub network: Network,
    /// `LedgerCloseMeta` of each ledger, in the file's order.
    pub ledgers: Vec<Vec<u8>>,
}

/// The folder of recorded ledgers. Prints a message to standard error and returns `None` when it is
/// absent.
pub fn folder() -> Option<PathBuf> {
    if data::missing() { None } else { data::folder().map(|folder| folder.join("ledgers")) }
}

/// Whether the tests run at full size.
pub fn full_size() -> bool {
    std::env::var("ORRERY_TEST_SIZE").is_ok_and(|size| size == "full")
}

/// All files of ledgers below `folder`, sorted by name.
pub fn files(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(current) = folders.pop() {
        for entry in fs::read_dir(current).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if matches!(
                path.extension().and_then(|e| e.to_str()),
                Some("gz" | "zst" | "zstd" | "xdr")
            ) {
                names.push(path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    names.sort();
    names
}

/// Loads one of [`files`].
pub fn load(folder: &Path, name: &str) -> Fixture {
    let bytes = decompress(&fs::read(folder.join(name)).unwrap());
    Fixture { name: name.to_owned(), network: network_of(name), ledgers: split(&bytes) }
}

fn network_of(name: &str) -> Network {
    let passphrase = match name.split('/').next().unwrap() {
        "pubnet" | "lake-pubnet" => "mainnet",
        "testnet" => "testnet",
        "core-tests" => "(V) (;,,;) (V)",
        "local-vault.xdr.zst" => "local",
        "synthetic" if name.contains("standalone") => "local",
        "synthetic" => "Apply Load",
        other => panic!("no network is known for {other}"),
    };
    Network::from_name_or_passphrase(passphrase)
}

fn decompress(bytes: &[u8]) -> Vec<u8> {
    match bytes {
        [0x1f, 0x8b, ..] => unpacked(flate2::read::MultiGzDecoder::new(bytes)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            unpacked(ruzstd::decoding::StreamingDecoder::new(bytes).unwrap())
        }
        _ => bytes.to_vec(),
    }
}

fn unpacked(mut decoder: impl Read) -> Vec<u8> {
    let mut plain = Vec::new();
    decoder.read_to_end(&mut plain).unwrap();
    plain
}

/// Splits a file into ledgers: a framed stream, one `LedgerCloseMeta`, or one
/// `LedgerCloseMetaBatch`.
fn split(bytes: &[u8]) -> Vec<Vec<u8>> {
    if bytes[0] & 0x80 != 0 {
        let mut ledgers = Vec::new();
        let mut rest = bytes;
        while let Some((mark, after)) = rest.split_first_chunk() {
            let length = u32::from_be_bytes(*mark) & 0x7fff_ffff;
            let (ledger, after) = after.split_at(length as usize);
            ledgers.push(ledger.to_vec());
            rest = after;
        }
        return ledgers;
    }
    if LedgerCloseMeta::from_xdr(bytes, Limits::depth(DEEPEST)).is_ok() {
        return vec![bytes.to_vec()];
    }
    let batch = LedgerCloseMetaBatch::from_xdr(bytes, Limits::depth(DEEPEST)).unwrap();
    batch.ledger_close_metas.iter().map(|meta| meta.to_xdr(Limits::none()).unwrap()).collect()
}
