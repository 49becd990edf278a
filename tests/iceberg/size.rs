//! A table with many files: what a commit writes and takes, how large the metadata is, and how much of the
//! table bounds leave out.

use std::fs;
use std::time::Duration;

use orrery_iceberg::{Change, is_due};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::avro;
use crate::disk::{Disk, Export, ROOT, file};

const PORTIONS: u64 = 10_000;
const MIB: u64 = 1 << 20;

/// Time that this thread has run: a commit waits for nothing, and the machine may be busy with other things.
fn processor_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}

#[test]
fn a_commit_among_ten_thousand_portions_is_small() {
    let (mut export, mut now_ms) = (Export::new(), 1_800_000_000_000);
    let (mut times, mut most, mut written, mut commits) = (Vec::new(), 0, 0, 0);
    let mut live = Disk::default();
    for number in 0..PORTIONS {
        let first = number as u32 * 1000;
        let mut made = file(number, (first, first + 999), 100 * MIB);
        // Names as files have them: they are what takes most of a manifest.
        made.path = format!("data/events/{}.parquet", hex::encode(Sha256::digest(made.path)));
        export.files.push(made);
        now_ms += 5_000;
        if !is_due(&export.state, ROOT, now_ms, number + 1 == PORTIONS) {
            continue;
        }
        let begun = processor_time();
        let commit = export.commit(Change::at(now_ms)).unwrap();
        times.push(processor_time() - begun);
        let bytes: Vec<_> = commit.files.iter().map(|file| file.bytes.len()).collect();
        let metadata = *bytes.last().unwrap();
        assert!(metadata <= 1_000_000, "{metadata} bytes of metadata");
        most = most.max(metadata);
        written += bytes.iter().sum::<usize>() - metadata;
        commits += 1;
        live.files.extend(commit.files.into_iter().map(|file| (file.path, file.bytes)));
    }
    // Of the last commits, which have the most files.
    let last = &mut times[commits - 99..];
    last.sort_unstable();
    let (median, slowest) = (last[50], last[98]);
    assert!(median <= Duration::from_millis(50), "{median:?}");
    let current = export.state.manifests.iter().filter(|it| it.until.is_none());
    let (count, bytes) = current.fold((0, 0), |all, it| (all.0 + 1, all.1 + it.bytes));
    assert!(count <= 16 + 2 * PORTIONS / 1000, "{count}");
    assert!(bytes <= 800_000, "{bytes} bytes of manifests");
    assert!(written / commits <= 120_000, "{} bytes a commit", written / commits);
    println!(
        "{commits} commits, {median:?}, slowest {slowest:?}, metadata {most}, {count} manifests of {bytes} bytes, {} bytes a commit",
        written / commits
    );
}

/// The least or greatest value of a column with this id in a row of a manifest.
fn bound(file: &Value, name: &str, id: u64) -> i64 {
    let bounds = file[name].as_array().unwrap().iter();
    let bound = bounds.clone().find(|it| it["key"] == id).unwrap()["value"].as_array().unwrap();
    let bytes: Vec<u8> = bound.iter().map(|byte| byte.as_u64().unwrap() as u8).collect();
    i64::from_le_bytes(bytes.try_into().unwrap())
}

#[test]
fn seven_days_of_a_year_are_little_of_it() {
    // A year of ledgers in files of 128 MiB, as merges leave them.
    let (mut export, files) = (Export::new(), 400);
    let ledgers = 6_307_200 / files;
    for number in 0..files {
        export.files.push(file(
            number.into(),
            (number * ledgers, (number + 1) * ledgers - 1),
            128 * MIB,
        ));
    }
    let commit = export.commit(Change::at(1_800_000_000_000)).unwrap();
    let week = (3_000_000, 3_000_000 + 7 * 17_280 - 1);
    let (mut read, mut all) = (0, 0);
    for manifest in commit.files.iter().filter(|it| it.path.contains("/m")) {
        if !manifest.path.contains("/metadata/m") || !manifest.path.ends_with(".avro") {
            continue;
        }
        for row in avro::read(&manifest.bytes).rows {
            let file = &row["data_file"];
            let bytes = file["file_size_in_bytes"].as_u64().unwrap();
            all += bytes;
            let begins = bound(file, "lower_bounds", 1) <= week.1;
            if begins && bound(file, "upper_bounds", 1) >= week.0 {
                read += bytes;
                let time = bound(file, "lower_bounds", 2);
                let expected = 1_700_000_000_000_000 + bound(file, "lower_bounds", 1) * 5_000_000;
                assert_eq!(time, expected);
                assert_eq!(file["sort_order_id"], 1);
            }
        }
    }
    assert_eq!(all, u64::from(files) * 128 * MIB);
    assert!(read * 100 <= 3 * all && read > 0, "{read} of {all}");
}
