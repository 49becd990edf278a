use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use orrery_ledger::domain::{Fetched, LedgerRange, LedgerSource, Network, SourceError};

use super::super::directory::Directory;
use super::super::files::LakeFiles;
use super::super::layout::Manifest;
use super::super::source::LakeSource;
use super::*;
use crate::records::generated;

/// A directory that cannot be listed, as behind a web server.
struct Unlisted(Directory);

impl LakeFiles for Unlisted {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, LakeError>> {
        self.0.get(key)
    }

    fn exists<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<bool, LakeError>> {
        self.0.exists(key)
    }

    fn keys_after<'a>(
        &'a self,
        _: &'a str,
        _: usize,
    ) -> BoxFuture<'a, Result<Option<Vec<String>>, LakeError>> {
        std::future::ready(Ok(None)).boxed()
    }

    fn directories(&self) -> BoxFuture<'_, Result<Option<Vec<String>>, LakeError>> {
        std::future::ready(Ok(None)).boxed()
    }

    fn misnamed(&self) -> BoxFuture<'_, Result<Option<String>, LakeError>> {
        std::future::ready(Ok(None)).boxed()
    }

    fn below(&self, _: &str) -> Arc<dyn LakeFiles> {
        unreachable!("there is one directory")
    }

    fn place(&self, key: &str) -> String {
        self.0.place(key)
    }
}

fn layout((ledgers_per_batch, batches_per_partition): (u32, u32)) -> Layout {
    let manifest = Manifest { network_passphrase: None, ledgers_per_batch, batches_per_partition };
    Layout::new(&manifest).with_extension(Some("zst".to_owned()))
}

fn write_manifest(root: &Path, (batch, partition): (u32, u32)) {
    let text = format!(
        r#"{{"networkPassphrase":"it","ledgersPerBatch":{batch},"batchesPerPartition":{partition}}}"#
    );
    fs::write(root.join(Manifest::FILE_NAME), text).unwrap();
}

/// Writes the ledgers of whole files.
fn write_files(root: &Path, sizes: (u32, u32), (first, last): (u32, u32)) {
    let (layout, mut next) = (layout(sizes), first);
    while next <= last {
        let batch = layout.batch_of(LedgerSeq(next));
        let ledgers = (next..=batch.last.0).map(|sequence| generated::ledger(sequence, 0));
        let path = root.join(layout.key_of(LedgerSeq(next)));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, generated::batch(next, batch.last.0, ledgers)).unwrap();
        next = batch.last.0 + 1;
    }
}

async fn follow(root: &Path, lists: bool) -> LakeSource {
    let directory = Directory::new(root);
    let store: Arc<dyn LakeFiles> =
        if lists { Arc::new(directory) } else { Arc::new(Unlisted(directory)) };
    let network = Network::from_passphrase("it");
    LakeSource::new(Lake::open(store, &network).await.unwrap(), &network)
}

/// Asks as a follower does whose next ledger is `from`: for the range, then for the ledger. Returns
/// the sentence that it reports at last, and how often it was told to wait before.
async fn refusal(source: &mut LakeSource, from: u32) -> (String, usize) {
    let mut waited = 0;
    for _ in 0..200 {
        let answer = async {
            source.range().await?;
            source.fetch(LedgerSeq(from)).await
        };
        match answer.await {
            Err(error) if error.to_string().contains("no ledger was found near") => {}
            Err(error) => return (error.to_string(), waited),
            Ok(Fetched::NotYet) => waited += 1,
            Ok(_) => panic!("ledger {from} is in no file of that layout"),
        }
    }
    panic!("it waits for ever");
}

#[tokio::test]
async fn files_of_other_sizes_than_the_manifest_says_are_named() {
    let cases = [
        ((1, 64_000), (4, 64_000)),
        ((1, 64_000), (4, 16_000)),
        ((1, 64), (1, 8)),
        ((4, 1), (1, 1)),
        ((1, 1), (1, 64)),
        ((64, 10), (1, 64_000)),
    ];
    for (said, found) in cases {
        for lists in [true, false] {
            let root = tempfile::tempdir().unwrap();
            write_manifest(root.path(), said);
            write_files(root.path(), found, (128, 255));
            let mut source = follow(root.path(), lists).await;
            let _ = source.fetch(LedgerSeq(128)).await;
            let (sentence, waited) = refusal(&mut source, 128).await;
            let of_manifest = layout(said);
            for part in [of_manifest.words().as_str(), "its .config.json says", "has FFFFFF"] {
                let part = part.replace(" (.xdr.zst)", "");
                let plain = sentence.replace(" (.xdr.zst)", "");
                assert!(plain.contains(&part), "{said:?} {found:?} {lists}: {sentence}");
            }
            assert_eq!(waited, 0, "{said:?} {found:?} {lists}");
        }
    }
}

#[tokio::test]
async fn sizes_that_change_within_a_lake_are_named_where_they_do_and_corrected() {
    for lists in [true, false] {
        let (before, after) = ((1, 64), (4, 16));
        let root = tempfile::tempdir().unwrap();
        write_manifest(root.path(), before);
        write_files(root.path(), before, (2, 143));
        write_files(root.path(), after, (144, 255));
        let mut source = follow(root.path(), lists).await;
        // A follower gives its next ledger when it connects.
        assert!(matches!(source.fetch(LedgerSeq(2)).await.unwrap(), Fetched::Ledgers(_)));
        for next in 2..=143 {
            source.range().await.unwrap();
            let fetched = source.fetch(LedgerSeq(next)).await.unwrap();
            assert!(matches!(fetched, Fetched::Ledgers(_)), "{next}");
        }
        let (sentence, waited) = refusal(&mut source, 144).await;
        assert!(sentence.contains("a file of 4 ledgers in the directory"), "{sentence}");
        assert!(sentence.contains("says files of 1 ledger"), "{sentence}");
        assert!(if lists { waited == 0 } else { waited < 40 }, "{waited}");
        // It stays named.
        for _ in 0..50 {
            let (again, waited) = refusal(&mut source, 144).await;
            assert_eq!((again, waited), (sentence.clone(), 0), "{lists}");
        }
        write_manifest(root.path(), after);
        let answer = async {
            source.range().await?;
            source.fetch(LedgerSeq(144)).await
        };
        let fetched: Result<Fetched, SourceError> = answer.await;
        assert!(matches!(&fetched, Ok(Fetched::Ledgers(four)) if four.len() == 4), "{fetched:?}");
        assert_eq!(source.range().await.unwrap(), Some(LedgerRange::new(144, 255)));
    }
}

#[tokio::test]
async fn a_hole_that_files_of_other_sizes_fill_is_named() {
    let (ours, others) = ((1, 64_000), (4, 2));
    let root = tempfile::tempdir().unwrap();
    write_manifest(root.path(), ours);
    write_files(root.path(), ours, (100, 143));
    write_files(root.path(), others, (144, 199));
    write_files(root.path(), ours, (200, 255));
    let mut source = follow(root.path(), true).await;
    for wanted in [144, 150, 199] {
        let (sentence, _) = refusal(&mut source, wanted).await;
        assert!(sentence.contains("a file of 4 ledgers"), "{wanted}: {sentence}");
    }
    assert!(matches!(source.fetch(LedgerSeq(200)).await.unwrap(), Fetched::Ledgers(_)));
    assert!(matches!(source.fetch(LedgerSeq(256)).await.unwrap(), Fetched::NotYet));
}

#[tokio::test]
async fn ledgers_in_files_that_are_misnamed_are_not_an_empty_lake() {
    for name in ["pubnet/FFFFFFFB--4.xdr.zst", "0-63.xdr.gz", "a/b/ledgers.xdr"] {
        let root = tempfile::tempdir().unwrap();
        write_manifest(root.path(), (1, 1));
        let mut source = follow(root.path(), true).await;
        assert_eq!(source.range().await.unwrap(), None, "an exporter has not begun");
        fs::write(root.path().join("FFFFFFFD--2.xdr.zst.tmp~"), "half").unwrap();
        assert_eq!(source.range().await.unwrap(), None, "it has begun");
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
        let error = source.range().await.unwrap_err().to_string();
        assert!(error.contains(&format!("has {name}, but no file of ledgers")), "{error}");
    }
}
