//! An export for a year, in portions of 80 minutes with made rows: how many files a table has, how large its
//! metadata is, how much of it seven days are, and that nothing is left of what has expired.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Int64Array, ListBuilder, StringArray, StringBuilder, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::RecordBatch;
use orrery_iceberg::{DataFile, TableState};
use orrery_ledger::domain::LedgerRange;

use super::files::TableWriter;
use super::rows::{EventColumns, Rows};
use super::{Destination, EVENTS, Export, Interrupt, Options, columns};

/// Ledgers of a portion, and the time in milliseconds that they take.
const LEDGERS: u32 = 1000;
const PORTION_MS: i64 = 80 * 60_000;
/// Portions of a year.
const YEAR: u32 = 6570;
/// Size of files, of which a portion has about a sixteenth as on the public network.
const FILE_BYTES: usize = 64 << 10;
const BEGIN_MS: i64 = 1_800_000_000_000;

/// Rows of a portion: one for each tenth ledger.
fn rows(schema: &Schema, portion: u32) -> RecordBatch {
    let ledgers: Vec<i64> =
        (0..LEDGERS / 10).map(|at| i64::from(portion * LEDGERS + at * 10)).collect();
    let text = |ledger: &i64| {
        format!("{:016x}", ledger.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64.cast_signed()))
    };
    let column = |field: &Arc<Field>| -> ArrayRef {
        match field.data_type() {
            DataType::Int64 => Arc::new(Int64Array::from(ledgers.clone())),
            DataType::Timestamp(..) => {
                let times = ledgers.iter().map(|ledger| BEGIN_MS * 1000 + ledger * 4_800_000);
                Arc::new(TimestampMicrosecondArray::from_iter_values(times).with_timezone("UTC"))
            }
            DataType::Utf8 if field.name() == "data" => {
                Arc::new(ledgers.iter().map(|it| Some(text(it))).collect::<StringArray>())
            }
            DataType::Utf8 => {
                Arc::new(ledgers.iter().map(|_| Some("same")).collect::<StringArray>())
            }
            DataType::List(element) => {
                let mut lists =
                    ListBuilder::new(StringBuilder::new()).with_field(Arc::clone(element));
                for _ in &ledgers {
                    lists.values().append_value("same");
                    lists.append(true);
                }
                Arc::new(lists.finish())
            }
            other => panic!("{other}"),
        }
    };
    let columns = schema.fields().iter().map(column).collect();
    RecordBatch::try_new(Arc::new(schema.clone()), columns).unwrap()
}

fn export(directory: &Path, portion: u32) {
    let now_ms = (BEGIN_MS + i64::from(portion + 1) * PORTION_MS).cast_unsigned();
    let mut options = Options::new(Interrupt::default());
    options.clock = Arc::new(move || now_ms);
    options.file_bytes = FILE_BYTES;
    let destination = Destination::directory(directory);
    let mut export = Export::open_with(&destination, "a passphrase", false, options).unwrap();
    let schema = Rows::<EventColumns>::new().take().unwrap().schema();
    let numbered = columns::numbered(&export.manifest.chain.events.identity, &schema);
    let ledgers = LedgerRange::new(portion * LEDGERS, portion * LEDGERS + LEDGERS - 1);
    let mut writer = TableWriter::new(export.target(), EVENTS, numbered);
    writer.write(&rows(&schema, portion), ledgers).unwrap();
    let files = writer.finish().unwrap();
    let mut manifest = export.manifest.clone();
    manifest.add(ledgers, files, Vec::new());
    export.put(manifest, Vec::new()).unwrap();
    export.finish().unwrap();
}

fn table(directory: &Path) -> (TableState, Vec<DataFile>) {
    let destination = Destination::directory(directory);
    let manifest = destination.peek().unwrap().unwrap();
    (manifest.chain.events.state, manifest.tables.events)
}

fn bytes(files: &[DataFile]) -> u64 {
    files.iter().map(|file| file.bytes).sum()
}

/// Small: six weeks; full: a year.
#[test]
fn a_year_of_portions_is_few_files() {
    let is_whole = std::env::var("ORRERY_TEST_SIZE").is_ok_and(|size| size == "full");
    let portions = if is_whole { YEAR } else { YEAR / 9 };
    let memory = Path::new("/dev/shm");
    let directory = match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    };
    let directory = directory.path().join("x");
    let (mut metadata, mut most) = (0, 0);
    for portion in 0..portions {
        export(&directory, portion);
        if portion % 50 != 0 && portion + 1 != portions {
            continue;
        }
        let (state, files) = table(&directory);
        let live = files.len() as u64;
        let allowed = 2 + 2 * bytes(&files) / FILE_BYTES as u64;
        assert!(live <= allowed, "{live} files of at most {allowed}");
        let rows: u64 = files.iter().map(|file| file.rows).sum();
        assert_eq!(rows, u64::from(portion + 1) * u64::from(LEDGERS / 10));
        let path = directory.join(state.metadata_path().unwrap());
        metadata = metadata.max(fs::metadata(path).unwrap().len());
        most = most.max(fs::read_dir(directory.join("data/events")).unwrap().count() as u64 - live);
    }
    assert!(metadata <= 1_000_000, "{metadata} bytes of metadata");
    // Those of one day: of 18 portions, and of what they were merged to.
    assert!(most <= 18 * 4, "{most} files are of earlier snapshots");
    let (_, files) = table(&directory);
    assert!(files.iter().all(|file| file.sorted));
    let week = (3_000_000, 3_000_000 + 7 * 18_000 - 1);
    let week = if is_whole { week } else { (300_000, 300_000 + 18_000 - 1) };
    let overlaps = |file: &&DataFile| {
        let ledgers = file.bounds.unwrap().ledgers;
        ledgers.0 <= week.1 && ledgers.1 >= week.0
    };
    let read: u64 = files.iter().filter(overlaps).map(|file| file.bytes).sum();
    let of_hundred = read * 100 / bytes(&files);
    println!("{} files of {} bytes, {of_hundred} % are read", files.len(), bytes(&files));
    assert!(read > 0 && of_hundred <= if is_whole { 3 } else { 20 }, "{of_hundred} %");
}
