//! Real archives, made by stellar-core: `archives` in the folder of test data holds one per directory,
//! with the headers of its checkpoints.

use std::fs::{File, read_dir};
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use orrery_checkpoint::{Archive, Commitment, Work};
use orrery_ledger::domain::Network;
use orrery_testkit::archive::naive;
use orrery_testkit::data;
use orrery_testkit::scratch::scratch;
use orrery_testkit::size;
use sha2::{Digest, Sha256};

use super::world::{collected, small};

/// All files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let found = entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] });
    let mut found: Vec<_> = found.collect();
    found.sort();
    found
}

/// The header of a checkpoint, the last one in its file of ledgers; its hash is checked.
fn header(archive: &Path, digits: &str) -> Vec<u8> {
    let directory = format!("ledger/{}/{}/{}", &digits[..2], &digits[2..4], &digits[4..6]);
    let path = archive.join(directory).join(format!("ledger-{digits}.xdr.gz"));
    let mut bytes = Vec::new();
    GzDecoder::new(File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
    let (mut rest, mut last) = (&bytes[..], &[][..]);
    while let Some((mark, others)) = rest.split_first_chunk() {
        let length = (u32::from_be_bytes(*mark) & 0x7fff_ffff) as usize;
        (last, rest) = others.split_at(length);
    }
    // The hash stands before the header, an extension without content behind it.
    let (hash, header) = last.split_at(32);
    let header = &header[..header.len() - 4];
    assert_eq!(Sha256::digest(header)[..], *hash);
    header.to_vec()
}

#[test]
fn real_archives_are_read_as_the_naive_reader_reads_them() {
    let archives = data::location().join("archives");
    if !archives.is_dir() {
        eprintln!("skipped: no real archives in {}", archives.display());
        return;
    }
    for directory in read_dir(&archives).unwrap().map(|entry| entry.unwrap().path()) {
        let states = files(&directory.join("history"));
        let count = (size::choose(6, 1000) as usize).min(states.len());
        let chosen = (1..=count).map(|number| &states[number * states.len() / count - 1]);
        let mut entries = 0;
        for path in chosen {
            let name = path.file_name().unwrap().to_str().unwrap();
            let digits = name.strip_prefix("history-").unwrap().strip_suffix(".json").unwrap();
            let state: serde_json::Value =
                serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
            let passphrase = state["networkPassphrase"].as_str().unwrap();
            let network = Network::from_passphrase(passphrase);
            let commitment = Commitment::of_header(&header(&directory, digits)).unwrap();
            let expected = naive::read(&directory, commitment.ledger.0);
            let archive = Archive::directory(&directory);
            let work_directory = scratch();
            let work = Work {
                directory: work_directory.path(),
                contracts: None,
                bounds: small(),
                observe: &|_| true,
            };
            let state = archive.state(commitment, &network).unwrap();
            let found = state.fetch(&archive, &work).unwrap().entries(&work).unwrap();
            let found = collected(found.collect::<Result<_, _>>().unwrap());
            assert_eq!(found, expected, "{}", path.display());
            entries += found.data.len();
            assert!(found.data.values().all(|held| held.is_evicted || held.live_until.is_some()));
        }
        println!("{}: {count} checkpoints, {entries} entries of data", directory.display());
        assert!(entries > 0);
    }
}
