//! Memory does not grow with the state: measured in a process of its own.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use orrery_checkpoint::{Archive, Bounds, Commitment, Found, Work};
use orrery_ledger::domain::{Hash32, LedgerSeq};
use orrery_testkit::archive::naive::key_hash;
use orrery_testkit::archive::{RawState, bucket_file_of, framed, made, metadata};
use orrery_testkit::kills::test_process;
use orrery_testkit::size;
use orrery_testkit::values::{bytes, list, symbol};
use sha2::{Digest, Sha256};
use stellar_xdr::{
    BucketEntry, ContractDataDurability, ContractId, Hash, LedgerEntry, LedgerEntryData,
    LedgerEntryExt, Limits, ScAddress, ScVal, TtlEntry, WriteXdr,
};

use super::world::{network, small};

const DIRECTORY: &str = "ORRERY_TEST_LARGE_ARCHIVE";
const HASH: &str = "ORRERY_TEST_LARGE_HASH";
const COUNT: &str = "ORRERY_TEST_LARGE_COUNT";

/// Hash and compressed file of a bucket that is written piece by piece.
struct BucketWriter {
    digest: Sha256,
    file: GzEncoder<BufWriter<File>>,
}

impl BucketWriter {
    fn add(&mut self, record: &BucketEntry) {
        let record = framed(&record.to_xdr(Limits::none()).unwrap());
        self.digest.update(&record);
        self.file.write_all(&record).unwrap();
    }
}

/// Writes an archive whose oldest bucket holds so many entries of data, half of which are in the newest
/// bucket as well, each with its lifetime; returns the hash of the list.
fn write_large(directory: &Path, count: u64) -> [u8; 32] {
    let mut raw = RawState::empty(127, 22);
    let mut names = [[0; 32]; 2];
    for (name, every) in names.iter_mut().zip([2, 1]) {
        let draft = directory.join("draft");
        let file = BufWriter::new(File::create(&draft).unwrap());
        let file = GzEncoder::new(file, Compression::fast());
        let mut bucket = BucketWriter { digest: Sha256::new(), file };
        bucket.add(&BucketEntry::Metaentry(metadata(22, None)));
        for number in (0..count).filter(|number| number % every == 0) {
            let contract = ScAddress::Contract(ContractId(Hash([(number % 251) as u8; 32])));
            let key = list([symbol("Balance"), ScVal::U64(number)]);
            let val = bytes(&Sha256::digest(number.to_be_bytes()));
            let data = made::data(contract, key, ContractDataDurability::Persistent, val);
            let entry = LedgerEntry {
                last_modified_ledger_seq: every as u32,
                data,
                ext: LedgerEntryExt::V0,
            };
            let ttl = LedgerEntryData::Ttl(TtlEntry {
                key_hash: Hash(key_hash(&entry.to_key())),
                live_until_ledger_seq: 1000 + every as u32,
            });
            bucket.add(&BucketEntry::Liveentry(LedgerEntry { data: ttl, ..entry.clone() }));
            bucket.add(&BucketEntry::Liveentry(entry));
        }
        *name = bucket.digest.finalize().into();
        bucket.file.finish().unwrap().into_inner().unwrap().sync_all().unwrap();
        let path = directory.join(bucket_file_of(*name));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::rename(draft, path).unwrap();
    }
    // Only the names of the two buckets are needed for the list.
    let mut state = raw.state();
    state["currentBuckets"][0]["curr"] = Hash32(names[0]).to_string().into();
    state["currentBuckets"][10]["snap"] = Hash32(names[1]).to_string().into();
    let path = directory.join(raw.state_file());
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, serde_json::to_vec(&state).unwrap()).unwrap();
    raw.live.clear();
    let mut levels = Vec::new();
    for level in 0..11 {
        let curr = if level == 0 { names[0] } else { [0; 32] };
        let snap = if level == 10 { names[1] } else { [0; 32] };
        levels.extend(Sha256::digest([curr, snap].concat()));
    }
    Sha256::digest(levels).into()
}

/// Reads that archive in this process and checks its peak of memory.
#[test]
fn reads_a_large_state() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let directory = Path::new(&directory);
    let count: u64 = std::env::var(COUNT).unwrap().parse().unwrap();
    let commitment = Commitment {
        ledger: LedgerSeq(127),
        protocol: 22,
        bucket_list_hash: std::env::var(HASH).unwrap().parse().unwrap(),
    };
    let is_small = count < 1_000_000;
    let bounds = if is_small { Bounds { memory: 4 << 20, ..small() } } else { Bounds::default() };
    let work_directory = directory.join("work");
    std::fs::create_dir(&work_directory).unwrap();
    let most_disk = AtomicU64::new(0);
    let observe = |_| {
        most_disk.fetch_max(disk_of_unnamed_files(&work_directory), Ordering::Relaxed);
        true
    };
    let work = Work { directory: &work_directory, contracts: None, bounds, observe: &observe };
    let archive = Archive::directory(directory);
    let before = peak();
    let fetched = archive.state(commitment, &network()).unwrap().fetch(&archive, &work).unwrap();
    let mut found = 0;
    for entry in fetched.entries(&work).unwrap() {
        let Found::Data(data) = entry.unwrap() else { panic!("only data") };
        let modified = data.entry.first_chunk().copied().map(u32::from_be_bytes);
        assert!(matches!(
            (modified, data.live_until),
            (Some(2), Some(LedgerSeq(1002))) | (Some(1), Some(LedgerSeq(1001)))
        ));
        found += 1;
    }
    assert_eq!(found, count);
    let (peak, disk, taken) = (peak(), fetched.disk(), most_disk.load(Ordering::Relaxed));
    eprintln!(
        "{count} entries: {} MB of memory before, {} MB at most; {} MB of disk announced, {} MB taken",
        before >> 20,
        peak >> 20,
        disk >> 20,
        taken >> 20
    );
    let most = if is_small { before + (40 << 20) } else { 512 << 20 };
    assert!(peak < most, "{peak} bytes of memory, of {most}");
    // The state is larger than the memory. File systems take whole blocks.
    assert!(taken > count * 200 && taken <= disk + (32 << 20), "{taken} of {disk} bytes of disk");
}

/// Disk of files of this process below a directory that have no names, in bytes.
fn disk_of_unnamed_files(directory: &Path) -> u64 {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    let files = open.filter(|it| std::fs::read_link(it).is_ok_and(|to| to.starts_with(directory)));
    files.filter_map(|it| Some(std::fs::metadata(it).ok()?.blocks() * 512)).sum()
}

/// The most memory that this process has had, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn memory_has_a_bound() {
    let count = size::choose(150_000, 20_000_000);
    // On disk: memory is what is measured.
    let directory = tempfile::tempdir().unwrap();
    let hash = write_large(directory.path(), count);
    let mut process = test_process("memory::reads_a_large_state");
    process
        .env(DIRECTORY, directory.path())
        .env(HASH, Hash32(hash).to_string())
        .env(COUNT, count.to_string());
    assert!(process.status().unwrap().success());
}
