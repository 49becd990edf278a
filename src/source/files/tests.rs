use orrery_ledger::domain::LedgerSeq;
use orrery_testkit::fixtures::folder;

use super::*;

fn sequences(paths: &[PathBuf]) -> Vec<u32> {
    LedgerFiles::new(paths).map(|ledger| ledger.unwrap().sequence.0).collect()
}

#[test]
fn file_names_are_sorted_in_natural_order() {
    let mut names = [
        "ledger-10.xdr",
        "ledger-9.xdr",
        "ledger-09b.xdr",
        "FC3D4709--63092982.xdr.zst",
        "FC3D46FE--63092993.xdr.zst",
        "FFFFFFFF--0-63999",
        "b",
        "a",
    ];
    names.sort_by(|a, b| natural_order(a, b));
    assert_eq!(
        names,
        [
            "FFFFFFFF--0-63999",
            "FC3D4709--63092982.xdr.zst",
            "FC3D46FE--63092993.xdr.zst",
            "a",
            "b",
            "ledger-9.xdr",
            "ledger-09b.xdr",
            "ledger-10.xdr",
        ]
    );
}

#[test]
fn the_same_ledgers_in_any_format_give_the_same_bytes() {
    let Some(data) = folder() else { return };
    let single: Vec<PathBuf> =
        (63_092_982..=63_092_993).map(|n| data.join(format!("pubnet/ledger-{n}.xdr.gz"))).collect();
    let lake = [data.join("lake-pubnet")];
    let left = LedgerFiles::new(&single).map(|ledger| ledger.unwrap());
    let right = LedgerFiles::new(&lake).map(|ledger| ledger.unwrap());
    let mut count = 0;
    for (left, right) in left.zip(right) {
        assert_eq!((left.sequence, &left.xdr), (right.sequence, &right.xdr));
        count += 1;
    }
    assert_eq!(count, 12);
}

#[test]
fn every_recorded_file_can_be_read() {
    let Some(data) = folder() else { return };
    assert_eq!(sequences(&[data.join("testnet")]).len(), 18);
    assert_eq!(sequences(&[data.join("pubnet")]).len(), 20);
    let bundle = data.join("synthetic/horizon-load-test-ledgers-v28.xdr.zstd");
    assert_eq!(sequences(&[bundle]), (10_048..=10_077).collect::<Vec<_>>());
    let suite = data.join("core-tests/InvokeHostFunctionTests/03df1dc73d71eb00.xdr.zst");
    assert_eq!(sequences(&[suite]), (2..=34).collect::<Vec<_>>());
}

#[test]
fn a_manifest_of_another_network_is_refused_by_name() {
    let Some(data) = folder() else { return };
    let survey = Survey::of(&[data.join("lake-pubnet")]).unwrap();
    assert_eq!(survey.files, 12);
    assert_eq!(survey.network().unwrap().name(), "mainnet");
    let testnet = Network::from_name_or_passphrase("testnet");
    let error = survey.check_network(&testnet).unwrap_err().to_string();
    assert!(error.contains("of the network mainnet, not of testnet"), "{error}");
}

#[test]
fn errors_name_the_file_and_the_byte_offset() {
    let Some(data) = folder() else { return };
    let directory = tempfile::tempdir().unwrap();
    let good = fs::read(data.join("testnet/ledger-10.xdr.zst")).unwrap();
    fs::write(directory.path().join("1.xdr"), &good).unwrap();
    fs::write(directory.path().join("2.xdr"), &good[..good.len() / 2]).unwrap();
    fs::write(directory.path().join("3.xdr"), &good).unwrap();
    let paths = [directory.path().to_owned()];
    let mut files = LedgerFiles::new(&paths);
    assert_eq!(files.next().unwrap().unwrap().sequence, LedgerSeq(10));
    let error = files.next().unwrap().unwrap_err().to_string();
    assert!(error.contains("2.xdr: it is cut off") && error.contains("byte 0"), "{error}");
    assert!(files.next().is_none(), "nothing comes after an error");
}

#[test]
fn missing_and_empty_paths_are_errors() {
    let directory = tempfile::tempdir().unwrap();
    let empty = [directory.path().to_owned()];
    let error = Survey::of(&empty).unwrap_err().to_string();
    assert_eq!(error, format!("{} holds no ledger files", directory.path().display()));
    let missing = [directory.path().join("missing")];
    let error = LedgerFiles::new(&missing).next().unwrap().unwrap_err().to_string();
    assert!(error.starts_with("cannot read ") && error.contains("missing"), "{error}");
}

/// A named pipe, into which a thread writes `bytes` in pieces.
fn pipe(path: &Path, bytes: Vec<u8>) -> std::thread::JoinHandle<()> {
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    let path = path.to_owned();
    std::thread::spawn(move || {
        let mut file = File::options().write(true).open(path).unwrap();
        // The first piece is shorter than what tells the compression.
        std::io::Write::write_all(&mut file, &bytes[..1]).unwrap();
        std::io::Write::write_all(&mut file, &bytes[1..]).unwrap();
    })
}

#[test]
fn a_pipe_is_read_as_a_stream_of_unknown_size() {
    let Some(data) = folder() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = [directory.path().join("pipe")];
    let bytes = fs::read(data.join("testnet/ledger-10.xdr.zst")).unwrap();
    let writer = pipe(&path[0], bytes);
    assert_eq!(Survey::of(&path).unwrap().streams, 1);
    let opened = OpenFile::open(path[0].clone(), Arc::default()).unwrap();
    assert!(opened.records.is_streamed(), "nothing more than a ledger is in memory");
    let mut files = LedgerFiles { file: Some(opened), ..LedgerFiles::new(&[]) };
    assert_eq!(files.next().unwrap().unwrap().sequence, LedgerSeq(10));
    assert!(files.next().is_none());
    writer.join().unwrap();
    assert_eq!(Survey::of(&[data.join("testnet/ledger-10.xdr.zst")]).unwrap().streams, 0);
}

#[test]
fn skippable_frames_may_come_first_and_large_windows_are_explained() {
    let Some(data) = folder() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.zst");
    let plain = fs::read(data.join("testnet/ledger-10.xdr.zst")).unwrap();
    for kind in [0x50, 0x5a, 0x5f] {
        let skipped = [&[kind, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3][..], &plain].concat();
        fs::write(&path, skipped).unwrap();
        assert_eq!(sequences(std::slice::from_ref(&path)), [10]);
    }
    // A frame header with a window of 2 GiB (RFC 8878, section 3.1.1.1.2).
    let window = (31 - 10) << 3;
    fs::write(&path, [0x28, 0xb5, 0x2f, 0xfd, 0, window, 0, 0, 0, 0, 0, 0]).unwrap();
    let error = LedgerFiles::new(&[path]).next().unwrap().unwrap_err().to_string();
    assert!(error.contains("decompress it first, with `zstd -d --long=31`"), "{error}");
}

/// What file managers, interrupted copies and links leave beside ledger files.
#[test]
fn what_is_no_ledger_file_in_a_directory_is_skipped() {
    use std::os::unix::fs::symlink;

    let Some(data) = folder() else { return };
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let good = fs::read(data.join("testnet/ledger-10.xdr.zst")).unwrap();
    fs::create_dir(at("0-63999")).unwrap();
    fs::write(at("0-63999/10.xdr.zst"), &good).unwrap();
    fs::write(at("0-63999/11.xdr.zst.part"), &good[..good.len() / 2]).unwrap();
    fs::write(at("Thumbs.db"), [0xd0, 0xcf, 0x11, 0xe0, 0xa1, 0xb1, 0x1a, 0xe1]).unwrap();
    fs::write(at("README.md"), "Ledgers of testnet.\n").unwrap();
    fs::write(at("notes"), "pictures").unwrap();
    fs::write(at("desktop.ini"), "").unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    symlink("itself", at("itself")).unwrap();
    symlink("..", at("0-63999/up")).unwrap();
    symlink(".", at("here")).unwrap();
    let paths = [directory.path().to_owned()];
    let survey = Survey::of(&paths).unwrap();
    assert_eq!(survey.files, 5, "the content of the others is looked at later");
    assert_eq!(sequences(&paths), [10]);

    // What the user names, and what has the name of a ledger file, is not skipped.
    for name in ["Thumbs.db", "dangling", "desktop.ini"] {
        assert!(LedgerFiles::new(&[at(name)]).next().unwrap().is_err(), "{name}");
    }
    fs::write(at("0-63999/12.xdr.zst"), "nothing").unwrap();
    let error = LedgerFiles::new(&paths).nth(1).unwrap().unwrap_err().to_string();
    assert!(error.contains("12.xdr.zst: it holds no ledgers"), "{error}");

    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("Thumbs.db"), "x").unwrap();
    let error = LedgerFiles::new(&[other.path().to_owned()]).next().unwrap().unwrap_err();
    let nothing = format!("{} holds no ledger files", other.path().display());
    assert_eq!(error.to_string(), nothing);
}
