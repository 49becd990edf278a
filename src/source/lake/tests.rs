use std::fs;
use std::path::Path;
use std::sync::Arc;

use futures_util::TryStreamExt;
use orrery_ledger::domain::{Fetched, LedgerRange, LedgerSeq, LedgerSource, Network, RawLedger};
use orrery_testkit::fixtures::folder;

use super::*;

fn mainnet() -> Network {
    Network::from_name_or_passphrase("mainnet")
}

async fn open(root: &Path, network: &Network) -> Result<Lake, LakeError> {
    Lake::open(Arc::new(Directory::new(root)), network).await
}

/// Returns a copy of the lake with the twelve public ledgers, for a test to change.
fn copied_lake() -> Option<tempfile::TempDir> {
    let original = folder()?.join("lake-pubnet");
    let copy = tempfile::tempdir().unwrap();
    let partition = "FC3E15FF--63040000-63103999";
    fs::create_dir(copy.path().join(partition)).unwrap();
    fs::copy(original.join(".config.json"), copy.path().join(".config.json")).unwrap();
    for entry in fs::read_dir(original.join(partition)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(partition).join(entry.file_name())).unwrap();
    }
    Some(copy)
}

fn file_of(lake: &Lake, root: &Path, ledger: u32) -> std::path::PathBuf {
    root.join(lake.layout().key_of(LedgerSeq(ledger)))
}

async fn sequences(lake: &Lake, first: u32, last: u32) -> Result<Vec<u32>, LakeError> {
    lake.read(LedgerRange::new(first, last)).map_ok(|ledger| ledger.sequence.0).try_collect().await
}

#[tokio::test]
async fn both_ends_are_found_and_ledgers_read_in_order() {
    let Some(copy) = copied_lake() else { return };
    let lake = open(copy.path(), &mainnet()).await.unwrap();
    let newest = lake.newest(LedgerSeq::FIRST).await.unwrap().unwrap();
    assert_eq!(newest, LedgerSeq(63_092_993));
    assert_eq!(lake.oldest(newest).await.unwrap(), LedgerSeq(63_092_982));
    let partly = copy.path().join("FC3E15FF--63040000-63103999/FC3D46FD--63092994.xdr.zst.part");
    fs::write(partly, "half").unwrap();
    assert_eq!(lake.newest(LedgerSeq::FIRST).await.unwrap(), Some(newest));
    for known in 63_092_982..=63_092_993 {
        let probed = lake.newest_by_probing(LedgerSeq(known)).await.unwrap();
        assert_eq!(probed, newest, "from {known}");
    }
    for next in [63_092_994, 63_093_000] {
        assert_eq!(lake.newest_by_probing(LedgerSeq(next)).await.unwrap(), newest);
    }
    let error = lake.newest_by_probing(LedgerSeq(5)).await.unwrap_err().to_string();
    assert!(error.contains("no ledger was found near 5"), "{error}");
    assert_eq!(
        lake.newest_until(LedgerSeq(63_092_990)).await.unwrap(),
        Some(LedgerSeq(63_092_990))
    );
    assert_eq!(lake.newest_until(LedgerSeq(63_092_981)).await.unwrap(), None);
    let all: Vec<u32> = (63_092_982..=63_092_993).collect();
    assert_eq!(sequences(&lake, 63_092_982, 63_092_993).await.unwrap(), all);
    assert_eq!(sequences(&lake, 63_092_985, 63_092_986).await.unwrap(), all[3..5]);
    assert!(sequences(&lake, 5, 4).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_lake_of_another_network_is_refused_by_name() {
    let Some(copy) = copied_lake() else { return };
    let testnet = Network::from_name_or_passphrase("testnet");
    let error = open(copy.path(), &testnet).await.err().unwrap().to_string();
    assert!(error.contains("of the network mainnet, not of testnet"), "{error}");
    let empty = tempfile::tempdir().unwrap();
    let error = open(empty.path(), &testnet).await.err().unwrap().to_string();
    assert!(error.contains("is not a ledger lake"), "{error}");
}

#[tokio::test]
async fn a_missing_file_is_a_gap_in_a_range_and_polled_at_the_tip() {
    let Some(copy) = copied_lake() else { return };
    let lake = open(copy.path(), &mainnet()).await.unwrap();
    fs::remove_file(file_of(&lake, copy.path(), 63_092_988)).unwrap();
    let error = sequences(&lake, 63_092_982, 63_092_993).await.unwrap_err();
    let key = lake.layout().key_of(LedgerSeq(63_092_988));
    let gap = format!(
        "the lake {} has a gap: ledger 63092988 is missing (expected in {key})",
        lake.place()
    );
    assert_eq!(error.to_string(), gap);

    let mut source = LakeSource::new(lake, &mainnet());
    for sequence in [63_092_986, 63_092_987] {
        let before = source.fetch(LedgerSeq(sequence)).await.unwrap();
        assert!(matches!(before, Fetched::Ledgers(ledgers) if ledgers[0].sequence.0 == sequence));
    }
    let missing = source.fetch(LedgerSeq(63_092_988)).await.unwrap();
    assert!(matches!(missing, Fetched::NotYet));
    let range = source.range().await.unwrap().unwrap();
    assert_eq!(range, LedgerRange::new(63_092_982, 63_092_993), "it is a gap");
    let error = source.fetch(LedgerSeq(63_092_981)).await.unwrap_err();
    assert!(matches!(error, orrery_ledger::domain::SourceError::Gone(_)), "{error}");
    assert!(error.to_string().contains("begins at ledger 63092982"), "{error}");
    let tip = source.fetch(LedgerSeq(63_092_994)).await.unwrap();
    assert!(matches!(tip, Fetched::NotYet));
}

#[tokio::test]
async fn a_damaged_file_is_an_error_unless_it_is_the_newest() {
    let Some(copy) = copied_lake() else { return };
    let lake = open(copy.path(), &mainnet()).await.unwrap();
    for ledger in [63_092_984, 63_092_993] {
        let path = file_of(&lake, copy.path(), ledger);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    }
    let mut source = LakeSource::new(lake, &mainnet());
    let error = source.fetch(LedgerSeq(63_092_984)).await.unwrap_err().to_string();
    assert!(error.contains("FC3D4707--63092984.xdr.zst: it is cut off"), "{error}");
    let newest = source.fetch(LedgerSeq(63_092_993)).await.unwrap();
    assert!(matches!(newest, Fetched::NotYet));
}

#[tokio::test]
async fn batches_of_several_ledgers_start_at_ledger_2() {
    let Some(data) = folder() else { return };
    let core_test = data.join("core-tests/InvokeHostFunctionTests/03df1dc73d71eb00.xdr.zst");
    let whole: Vec<RawLedger> =
        crate::files::LedgerFiles::new(&[core_test]).map(Result::unwrap).collect();
    let root = tempfile::tempdir().unwrap();
    let manifest = r#"{"networkPassphrase":"(V) (;,,;) (V)","version":"1.0","compression":"zstd",
        "ledgersPerBatch":4,"batchesPerPartition":2}"#;
    fs::write(root.path().join(".config.json"), manifest).unwrap();
    let network = Network::from_passphrase("(V) (;,,;) (V)");
    let lake = open(root.path(), &network).await.unwrap();
    assert_eq!(lake.newest(LedgerSeq::FIRST).await.unwrap(), None);
    // Ledgers 2 to 34 in files of four; the last is left out because it is not full.
    for batch in (0..32u32).step_by(4) {
        let inside: Vec<&RawLedger> =
            whole.iter().filter(|l| (batch..batch + 4).contains(&l.sequence.0)).collect();
        let first = inside[0].sequence.0;
        let mut plain = Vec::new();
        for word in [first, batch + 3, inside.len() as u32] {
            plain.extend(word.to_be_bytes());
        }
        inside.iter().for_each(|ledger| plain.extend(&ledger.xdr));
        let path = file_of(&lake, root.path(), first);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, zstd::encode_all(&*plain, 1).unwrap()).unwrap();
    }
    assert_eq!(lake.newest(LedgerSeq::FIRST).await.unwrap(), Some(LedgerSeq(31)));
    assert_eq!(lake.newest_by_probing(LedgerSeq(5)).await.unwrap(), LedgerSeq(31));
    assert_eq!(lake.newest_until(LedgerSeq(9)).await.unwrap(), Some(LedgerSeq(9)));
    assert_eq!(lake.oldest(LedgerSeq(31)).await.unwrap(), LedgerSeq(2));
    let read: Vec<RawLedger> = lake.read(LedgerRange::new(2, 31)).try_collect().await.unwrap();
    assert!(read.iter().zip(&whole).all(|(left, right)| left.xdr == right.xdr));
    assert_eq!(read.len(), 30);
    assert_eq!(sequences(&lake, 6, 9).await.unwrap(), [6, 7, 8, 9]);

    let (from, to) = (file_of(&lake, root.path(), 4), file_of(&lake, root.path(), 8));
    fs::copy(from, to).unwrap();
    let error = sequences(&lake, 8, 9).await.unwrap_err().to_string();
    assert!(error.contains("holds ledgers 4 to 7, but its name promises 8–11"), "{error}");
}

/// A directory with an empty file for each key.
fn directory_of(keys: &[&str]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for key in keys {
        let path = root.path().join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    root
}

#[tokio::test]
async fn a_directory_can_be_listed_after_any_key() {
    let keys = [
        "FFFFFFF7--8-15/FFFFFFF5--10.xdr.zst",
        "FFFFFFF7--8-15/FFFFFFF6--9.xdr.zst",
        "FFFFFFF7--8-15/FFFFFFF7--8.xdr.zst",
        "FFFFFFFF--0-7/FFFFFFFC--3.xdr.zst",
        "FFFFFFFF--0-7/FFFFFFFD--2.xdr.zst",
    ];
    let root = directory_of(&keys);
    for other in [".config.json", "notes.txt", "FFFFFFF7--8-15/FFFFFFF5--10.tmp"] {
        fs::write(root.path().join(other), "").unwrap();
    }
    let store = Directory::new(root.path());
    for (skipped, after) in std::iter::once("").chain(keys).enumerate() {
        for most in 1..=6 {
            let listed = store.keys_after(after, most).await.unwrap().unwrap();
            let expected: Vec<&str> = keys.into_iter().skip(skipped).take(most).collect();
            assert_eq!(listed, expected, "{most} after {after}");
        }
    }
}

#[tokio::test]
async fn the_file_extension_is_detected() {
    let given = GivenLayout {
        ledgers_per_batch: Some(1),
        batches_per_partition: Some(8),
        ..GivenLayout::default()
    };
    for (keys, extension) in [
        (&["FFFFFFFF--0-7/FFFFFFFD--2.xdr.zstd"][..], "zstd"),
        (&["FFFFFFFF--0-7/FFFFFFFD--2.xdr.gz"], "gz"),
        (&["FFFFFFFF--0-7/FFFFFFFD--2.xdr.of-mine"], "of-mine"),
        (&["FFFFFFFF--0-7/FFFFFFFC--3.xdr.zst.part", "FFFFFFFF--0-7/FFFFFFFD--2.xdr.zst"], "zst"),
        (&["notes.txt"], "zst"),
    ] {
        let root = directory_of(keys);
        let store = Arc::new(Directory::new(root.path()));
        let lake = Lake::open_as(store, &mainnet(), &given, None).await.unwrap();
        let key = lake.layout().key_of(LedgerSeq(2));
        assert_eq!(key, format!("FFFFFFFF--0-7/FFFFFFFD--2.xdr.{extension}"));
    }
    let root = directory_of(&["FFFFFFFF--0-7/FFFFFFFD--2.xdr.zst"]);
    let store: Arc<dyn LakeFiles> = Arc::new(Directory::new(root.path()));
    let half = GivenLayout { ledgers_per_batch: Some(1), ..GivenLayout::default() };
    let error = Lake::open_as(store, &mainnet(), &half, None).await.err().unwrap().to_string();
    assert!(
        error.contains("give lake_ledgers_per_batch and lake_batches_per_partition"),
        "{error}"
    );
}

#[tokio::test]
async fn the_newest_directory_with_a_manifest_is_opened() {
    let root = directory_of(&["2026-01-01/notes.txt", "latest/.config.json", "2024-12-31/a"]);
    let manifest = |passphrase: &str| {
        format!(
            r#"{{"networkPassphrase":"{passphrase}","ledgersPerBatch":1,"batchesPerPartition":8}}"#
        )
    };
    for date in ["2024-12-31", "2025-08-14"] {
        fs::create_dir_all(root.path().join(date)).unwrap();
        fs::write(root.path().join(date).join(".config.json"), manifest("it")).unwrap();
    }
    let lake = open(root.path(), &Network::from_passphrase("it")).await.unwrap();
    assert!(lake.place().ends_with("/2025-08-14"), "{}", lake.place());
    lake.check_for_reset().await.unwrap();
    fs::write(root.path().join("2026-01-01/.config.json"), manifest("it")).unwrap();
    let error = lake.check_for_reset().await.unwrap_err();
    assert!(error.to_string().contains("/2026-01-01; start again"), "{error}");
    assert!(matches!(
        orrery_ledger::domain::SourceError::from(error),
        orrery_ledger::domain::SourceError::Fatal(_)
    ));
    // A manifest at the root takes precedence.
    fs::write(root.path().join(".config.json"), manifest("it")).unwrap();
    let lake = open(root.path(), &Network::from_passphrase("it")).await.unwrap();
    assert_eq!(lake.place(), root.path().display().to_string());
}
