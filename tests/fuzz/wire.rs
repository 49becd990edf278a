//! Frames between the service and its SQL worker, read as both sides read them: no more bytes are
//! read or allocated than a frame may have, and a parsed frame is unchanged after it is written and
//! read again.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{self, ErrorKind, Read};
use std::mem::discriminant;

use orrery::confinement::Confinement;
use orrery::domain::ProgramId;
use orrery::tables::chain::ChainTable;
use orrery::tables::query::{Format, Numbers};
use orrery::tables::wire::{
    self, ChainOpening, ChainPart, Definition, Failure, FileOfTable, Filling, Opening, PartOfTable,
    PartsOfTable, QuerySpec, Reply, Request, SentParts,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

/// Length of the fixed start of a frame, before its head and body, in bytes.
const START: usize = 12;
/// Maximum frame lengths: one that the inputs exceed, and one that no length exceeds.
const LONGEST: [usize; 2] = [1 << 9, u32::MAX as usize];
/// Memory that may be allocated before any of a frame's content has arrived, in bytes.
const INITIAL_CAPACITY: usize = 1 << 20;

pub fn seeds() -> Vec<Vec<u8>> {
    let opening = Opening {
        file: "1.duckdb".to_owned(),
        memory: 1 << 30,
        threads: 2,
        queries: 4,
        file_bytes: 1 << 40,
        process_wall: true,
        gate: true,
        lock: true,
        chain: Some(ChainOpening {
            directories: vec!["/export/data/events".to_owned()],
            tables: vec![ChainTable { name: "events".to_owned(), columns: Vec::new() }],
        }),
    };
    let definition = Definition {
        program: ProgramId(7),
        project: "swaps".to_owned(),
        own: true,
        schema: crate::wasm::schema("types_program.wasm"),
    };
    let filling =
        Filling { program: ProgramId(7), schema: definition.schema.clone(), complete_at: 3 };
    let query = QuerySpec {
        sql: "SELECT ?, '\u{e9}'".to_owned(),
        params: vec![json!(null), json!([1, -1.5, true, "a"]), json!(u64::MAX), json!({"a": []})],
        rows: 1_000,
        bytes: 1 << 20,
        milliseconds: 10_000,
        numbers: Numbers::Exact,
        format: Format::Columns,
        chain: Some(SentParts {
            tables: vec![PartsOfTable { table: "events".to_owned(), files: 1, rows: vec![2] }],
        }),
    };
    let watermarks = BTreeMap::from([(ProgramId(7), 3), (ProgramId(8), u64::MAX)]);
    let requests = [
        Request::Open(opening.clone()),
        Request::Try(opening),
        Request::Begin,
        Request::Define(definition.clone()),
        Request::Fill(filling.clone()),
        Request::Discard { program: ProgramId(7) },
        Request::Swap { program: ProgramId(7) },
        Request::Append { table: "program_7_swap".to_owned() },
        Request::Drop { program: ProgramId(8) },
        Request::Commit { commit: 9, watermarks: watermarks.clone() },
        Request::Abort,
        Request::Chain(ChainPart {
            number: 1,
            part: PartOfTable::Files(vec![FileOfTable {
                directory: 0,
                name: "a.parquet".to_owned(),
                rows: u64::MAX,
                ledgers: (2, u32::MAX),
            }]),
        }),
        Request::Chain(ChainPart { number: 2, part: PartOfTable::Rows { ledgers: (3, 3) } }),
        Request::ForgetChain { parts: vec![1, u64::MAX] },
        Request::Query(query),
        Request::Digest,
        Request::Stop,
    ];
    let replies = [
        Reply::Ready(Confinement { files: true, calls: false }),
        Reply::Opened {
            commit: 9,
            programs: vec![definition],
            watermarks,
            fillings: vec![filling],
        },
        Reply::Appended,
        Reply::Committed,
        Reply::Answered,
        Reply::Digest("00ff".to_owned()),
        Reply::Failed(Failure::Refused("a \"quoted\" line\n".to_owned())),
        Reply::Failed(Failure::TimedOut),
    ];
    let requests = requests.iter().map(|head| frame(head, b"rows"));
    let mut seeds: Vec<_> = requests.chain(replies.iter().map(|head| frame(head, b""))).collect();
    seeds.push(seeds.concat());
    seeds
}

fn frame(head: &impl Serialize, body: &[u8]) -> Vec<u8> {
    let mut written = Vec::new();
    wire::write(&mut written, 7, head, body).unwrap();
    written
}

/// A stream that counts the bytes that are read from it.
struct Counted<'a> {
    rest: &'a [u8],
    taken: usize,
}

impl Read for Counted<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        // Parts of varying length, as from a socket.
        let part = to.len().min(1 + self.taken % 7_919);
        let read = self.rest.read(&mut to[..part])?;
        self.taken += read;
        Ok(read)
    }
}

pub fn check(bytes: &[u8]) {
    for longest in LONGEST {
        read_all::<Request>(bytes, longest);
        read_all::<Reply>(bytes, longest);
    }
}

fn read_all<H: Serialize + DeserializeOwned + Debug>(bytes: &[u8], longest: usize) {
    let mut from = Counted { rest: bytes, taken: 0 };
    loop {
        let before = from.taken;
        match wire::read::<H>(&mut from, longest) {
            Ok(None) => return assert!(from.rest.is_empty() && from.taken == before),
            Ok(Some(frame)) => {
                let length = from.taken - before - START;
                assert!(length <= longest && frame.body.len() <= length, "{length} bytes");
                assert!(
                    frame.body.capacity() <= INITIAL_CAPACITY.max(3 * length),
                    "{length} bytes"
                );
                is_the_same_again(&frame);
            }
            Err(error) => {
                let kinds = [ErrorKind::InvalidData, ErrorKind::UnexpectedEof];
                assert!(kinds.contains(&error.kind()), "{error:?}");
                let taken = from.taken - before;
                assert!(taken <= START + longest, "{taken} bytes were taken");
                assert!(taken >= START || from.rest.is_empty(), "{taken} bytes were enough");
                return;
            }
        }
    }
}

fn is_the_same_again<H: Serialize + DeserializeOwned + Debug>(frame: &wire::Frame<H>) {
    let mut written = Vec::new();
    wire::write(&mut written, frame.id, &frame.head, &frame.body).unwrap();
    let again = wire::read::<H>(&mut &written[..], written.len()).unwrap().expect("a frame");
    assert_eq!((again.id, &again.body), (frame.id, &frame.body));
    assert_eq!(discriminant(&again.head), discriminant(&frame.head));
    // The last digit of a decimal fraction may differ.
    let text = format!("{:?}", frame.head);
    if !text.contains("Number(") {
        assert_eq!(format!("{:?}", again.head), text);
    }
}
