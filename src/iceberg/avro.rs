//! Writes Avro object container files (Avro specification 1.11, sections *Binary Encoding* and *Object
//! Container Files*): what Iceberg's manifests need, and no more. The same records give the same bytes.

use flate2::{Compress, Compression, FlushCompress, Status};
use sha2::{Digest, Sha256};

const MAGIC: &[u8; 4] = b"Obj\x01";
/// Number of bytes of the marker between blocks.
const MARKER: usize = 16;

/// Bytes of encoded values.
#[derive(Debug, Default)]
pub struct Encoder(Vec<u8>);

impl Encoder {
    /// Appends an `int` or `long`: zigzag, in groups of seven bits, the lowest first.
    pub fn long(&mut self, value: i64) {
        let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
        while rest > 0x7f {
            self.0.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.0.push(rest as u8);
    }

    /// Appends a number of things as `int` or `long`. None is as large as the largest `long`.
    pub fn count(&mut self, value: u64) {
        self.long(i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// Appends `bytes`, or a `string`.
    pub fn bytes(&mut self, value: &[u8]) {
        self.count(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    /// Appends the first branch of a union with `null`.
    pub fn null(&mut self) {
        self.long(0);
    }

    /// Begins the second branch of a union with `null`; its value follows.
    pub fn some(&mut self) {
        self.long(1);
    }

    /// Appends an `array`, each element with `append`.
    pub fn array<T>(&mut self, elements: &[T], append: impl Fn(&mut Self, &T)) {
        if !elements.is_empty() {
            self.count(elements.len() as u64);
            elements.iter().for_each(|element| append(self, element));
        }
        self.long(0);
    }
}

/// An object container file that is being written. It has one block.
#[derive(Debug)]
pub struct Container<'a> {
    schema: &'a str,
    metadata: Vec<(&'a str, String)>,
    records: u64,
    block: Encoder,
}

impl<'a> Container<'a> {
    /// Begins a file of records with this schema (JSON), which has `metadata` beside it.
    pub fn new(schema: &'a str, metadata: Vec<(&'a str, String)>) -> Self {
        Self { schema, metadata, records: 0, block: Encoder::default() }
    }

    /// Appends a record, whose fields `append` encodes in the order of the schema.
    pub fn push(&mut self, append: impl FnOnce(&mut Encoder)) {
        append(&mut self.block);
        self.records += 1;
    }

    /// Returns the bytes of the file.
    pub fn finish(self) -> Vec<u8> {
        let Self { schema, metadata, records, block } = self;
        let marker = marker(schema, &block.0);
        let (codec, block) = match deflated(&block.0) {
            Some(deflated) => ("deflate", deflated),
            None => ("null", block.0),
        };
        let mut file = Encoder(MAGIC.to_vec());
        let own = [("avro.schema", schema), ("avro.codec", codec)];
        let given = metadata.iter().map(|(key, value)| (*key, value.as_str()));
        let pairs: Vec<(&str, &str)> = own.into_iter().chain(given).collect();
        // A map is encoded as an array of pairs.
        file.array(&pairs, |file, (key, value)| {
            file.bytes(key.as_bytes());
            file.bytes(value.as_bytes());
        });
        file.0.extend_from_slice(&marker);
        if records > 0 {
            file.count(records);
            file.bytes(&block);
            file.0.extend_from_slice(&marker);
        }
        file.0
    }
}

/// Returns the marker between blocks, which only has to be improbable inside of them.
fn marker(schema: &str, block: &[u8]) -> [u8; MARKER] {
    let hash = Sha256::new().chain_update(schema).chain_update(block).finalize();
    std::array::from_fn(|at| hash[at])
}

/// Compresses a block (codec `deflate`, RFC 1951); `None` if that fails, which memory never does.
fn deflated(block: &[u8]) -> Option<Vec<u8>> {
    let mut compress = Compress::new(Compression::default(), false);
    let mut deflated = Vec::with_capacity(block.len() / 2 + 64);
    loop {
        let read = usize::try_from(compress.total_in()).ok()?;
        let rest = block.get(read..)?;
        match compress.compress_vec(rest, &mut deflated, FlushCompress::Finish).ok()? {
            Status::StreamEnd => return Some(deflated),
            Status::Ok | Status::BufError => deflated.reserve(deflated.capacity()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(append: impl FnOnce(&mut Encoder)) -> Vec<u8> {
        let mut encoder = Encoder::default();
        append(&mut encoder);
        encoder.0
    }

    #[test]
    fn values_are_encoded_as_the_specification_shows() {
        for (value, bytes) in [
            (0, &[0][..]),
            (-1, &[1]),
            (1, &[2]),
            (-64, &[0x7f]),
            (64, &[0x80, 0x01]),
            (i64::MAX, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]),
            (i64::MIN, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]),
        ] {
            assert_eq!(encoded(|it| it.long(value)), bytes, "{value}");
        }
        assert_eq!(encoded(|it| it.bytes(b"foo")), [0x06, 0x66, 0x6f, 0x6f]);
        assert_eq!(encoded(|it| it.array(&[3, 27], |it, n| it.long(*n))), [0x04, 0x06, 0x36, 0]);
        assert_eq!(encoded(|it| it.array(&[], |it, n| it.long(*n))), [0]);
    }

    #[test]
    fn a_file_has_its_metadata_and_one_block() {
        let file = |records: u8| {
            let mut container = Container::new(r#""bytes""#, vec![("k", "v".to_owned())]);
            (0..records).for_each(|n| container.push(|it| it.bytes(&[n; 40])));
            container.finish()
        };
        let (none, two) = (file(0), file(2));
        assert!(
            none.starts_with(b"Obj\x01\x06\x16avro.schema\x0e\"bytes\"\x14avro.codec\x0edeflate")
        );
        assert_eq!(none[none.len() - MARKER - 5..][..5], *b"\x02k\x02v\0");
        assert_eq!(two[two.len() - MARKER..], two[none.len() - MARKER..none.len()]);
        assert_eq!(two, file(2));
    }
}
