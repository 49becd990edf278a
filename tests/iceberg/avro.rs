//! Reads Avro files of manifests and manifest lists, by the names that their schemas give.

use std::collections::BTreeMap;
use std::io::Read;

use serde_json::{Value, json};

/// Rows of a file, and its metadata.
pub struct Contents {
    pub metadata: BTreeMap<String, String>,
    pub rows: Vec<Value>,
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take(&mut self, count: usize) -> &[u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn long(&mut self) -> i64 {
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let byte = self.take(1)[0];
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return (value >> 1).cast_signed() ^ -(value & 1).cast_signed();
            }
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let count = self.long() as usize;
        self.take(count).to_vec()
    }

    fn text(&mut self) -> String {
        String::from_utf8(self.bytes()).unwrap()
    }

    fn value(&mut self, schema: &Value) -> Value {
        match schema {
            Value::Array(branches) => {
                let branch = self.long() as usize;
                self.value(&branches[branch])
            }
            Value::Object(of) if of["type"] == "record" => {
                let fields = of["fields"].as_array().unwrap().iter();
                let field = |field: &Value| {
                    (field["name"].as_str().unwrap().to_owned(), self.value(&field["type"]))
                };
                Value::Object(fields.map(field).collect())
            }
            Value::Object(of) if of["type"] == "array" => {
                let mut elements = Vec::new();
                loop {
                    let count = self.long();
                    if count == 0 {
                        return Value::Array(elements);
                    }
                    elements.extend((0..count).map(|_| self.value(&of["items"])));
                }
            }
            Value::String(kind) => match kind.as_str() {
                "null" => Value::Null,
                "int" | "long" => json!(self.long()),
                "string" => json!(self.text()),
                "bytes" => json!(self.bytes()),
                other => panic!("{other}"),
            },
            other => panic!("{other}"),
        }
    }
}

/// Reads a file.
pub fn read(bytes: &[u8]) -> Contents {
    let mut file = Reader(bytes.strip_prefix(b"Obj\x01").unwrap());
    let mut metadata = BTreeMap::new();
    loop {
        let count = file.long();
        if count == 0 {
            break;
        }
        for _ in 0..count {
            let key = file.text();
            metadata.insert(key, file.text());
        }
    }
    let marker = file.take(16).to_vec();
    let schema: Value = serde_json::from_str(&metadata["avro.schema"]).unwrap();
    let mut rows = Vec::new();
    while !file.0.is_empty() {
        let (count, block) = (file.long(), file.bytes());
        let mut plain = Vec::new();
        flate2::read::DeflateDecoder::new(&*block).read_to_end(&mut plain).unwrap();
        let mut block = Reader(&plain);
        rows.extend((0..count).map(|_| block.value(&schema)));
        assert!(block.0.is_empty());
        assert_eq!(file.take(16), marker);
    }
    Contents { metadata, rows }
}
