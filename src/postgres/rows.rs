//! Rows of a table as a binary `COPY` wants them, with a digest that the server can compute from its own rows.
//! Format: <https://www.postgresql.org/docs/current/sql-copy.html#id-1.9.3.55.9.4>, and the `_send` functions of
//! the types.

use bytes::{Bytes, BytesMut};
use sha2::{Digest as _, Sha256};

use super::json;
use super::names;
use super::types::{ColumnType, RowKey, Table, Value};

/// Signature, flags and length of the extension, which there is none of.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// Number of columns that ends the data.
static END: [u8; 2] = (-1_i16).to_be_bytes();
/// Length of a null.
const NULL: [u8; 4] = (-1_i32).to_be_bytes();
/// Bytes that are sent at a time.
const PART: usize = 64 << 10;
/// Digits of a `numeric` are grouped by four.
const GROUP: u128 = 10_000;
const NEGATIVE: u16 = 0x4000;
/// Decimal digits of the widest column.
const MOST_DIGITS: usize = 78;
/// Microseconds from 1970 to 2000, when PostgreSQL's time begins.
const EPOCH: i64 = 946_684_800_000_000;

/// Number and digest of rows, whatever their order: two sums of 64 bits of the SHA-256 of each, of which are the key
/// and, sorted by it, the mark of each column that is not null with the value as it is sent. It detects accidents, and
/// nobody's intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowsDigest {
    /// Number of rows.
    pub rows: u64,
    /// Sums of the first and of the second eight bytes of the rows' hashes.
    pub sums: [i128; 2],
}

impl RowsDigest {
    /// Adds other rows.
    pub fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        for (sum, other) in self.sums.iter_mut().zip(other.sums) {
            *sum = sum.wrapping_add(other);
        }
    }

    /// Adds a row with this hash.
    fn add_row(&mut self, hash: &[u8]) {
        let part = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&hash[at..at + 8]);
            i128::from(i64::from_be_bytes(bytes))
        };
        self.add(&Self { rows: 1, sums: [part(0), part(8)] });
    }
}

/// Why a row does not fit into its table: a mistake of the feeder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the column {column} of {target} is {kind}, and a row of ledger {ledger} has another value"
)]
pub struct Misfit {
    target: String,
    column: String,
    kind: String,
    ledger: u32,
}

/// Rows of one table, as they are sent.
#[derive(Debug, Clone)]
pub struct TableRows {
    target: String,
    columns: Vec<(String, ColumnType)>,
    /// Mark and position of each column, sorted.
    marks: Vec<([u8; 8], usize)>,
    data: BytesMut,
    digest: RowsDigest,
    nuls: u64,
    ledgers: Option<(u32, u32)>,
    /// Key of the first row that was added.
    first_key: Vec<u8>,
}

impl TableRows {
    /// Returns no rows of a table.
    pub fn new(table: &Table) -> Self {
        let columns: Vec<_> =
            table.columns.iter().map(|it| (it.name.clone(), it.kind.clone())).collect();
        let mut marks: Vec<_> =
            columns.iter().enumerate().map(|(at, (name, _))| (names::mark(name), at)).collect();
        marks.sort_unstable();
        Self {
            marks,
            target: table.target.clone(),
            columns,
            data: BytesMut::from(HEADER),
            digest: RowsDigest::default(),
            nuls: 0,
            ledgers: None,
            first_key: Vec::new(),
        }
    }

    /// Adds a row, with the values of the table's columns in their order. Those that are missing at the end are
    /// null.
    ///
    /// # Errors
    /// When a value does not fit into its column. Then the row is not added.
    pub fn push(&mut self, key: RowKey, values: &[Value]) -> Result<(), Misfit> {
        self.push_tied(key, &[], values)
    }

    /// As [`TableRows::push`], for a row whose key has these bytes behind its numbers: they tell it from others that
    /// have the same ones.
    ///
    /// # Errors
    /// As there.
    pub fn push_tied(&mut self, key: RowKey, tie: &[u8], values: &[Value]) -> Result<(), Misfit> {
        let begin = self.data.len();
        let fields = i16::try_from(self.columns.len() + 1).unwrap_or(i16::MAX);
        self.data.extend_from_slice(&fields.to_be_bytes());
        put(&mut self.data, |data| {
            data.extend_from_slice(&key.bytes());
            data.extend_from_slice(tie);
        });
        let mut nuls = 0;
        let mut fields = Vec::with_capacity(self.columns.len());
        for (number, (column, kind)) in self.columns.iter().enumerate() {
            let value = values.get(number).unwrap_or(&Value::Null);
            let at = self.data.len();
            if put_value(&mut self.data, kind, value, &mut nuls).is_none() {
                self.data.truncate(begin);
                let (column, kind) = (column.clone(), kind.to_string());
                return Err(Misfit {
                    target: self.target.clone(),
                    column,
                    kind,
                    ledger: key.ledger,
                });
            }
            fields.push((*value != Value::Null).then_some(at..self.data.len()));
        }
        let mut hash = Sha256::new_with_prefix(key.bytes());
        hash.update(tie);
        for (mark, at) in &self.marks {
            if let Some(field) = &fields[*at] {
                hash.update(mark);
                hash.update(&self.data[field.clone()]);
            }
        }
        if self.digest.rows == 0 {
            self.first_key = [&key.bytes(), tie].concat();
        }
        self.digest.add_row(&hash.finalize());
        self.nuls += nuls;
        let (first, last) = self.ledgers.unwrap_or((key.ledger, key.ledger));
        self.ledgers = Some((first.min(key.ledger), last.max(key.ledger)));
        Ok(())
    }

    /// The target of the table.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Number and digest of the rows.
    pub fn digest(&self) -> RowsDigest {
        self.digest
    }

    /// Number of characters U+0000 in the texts, which are written as `\x00`.
    pub fn nuls(&self) -> u64 {
        self.nuls
    }

    /// Number of bytes that are sent.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// The oldest and the newest ledger of the rows.
    pub fn ledgers(&self) -> Option<(u32, u32)> {
        self.ledgers
    }

    /// Key of one of the rows, in hexadecimal digits; empty without rows.
    pub(super) fn a_key(&self) -> String {
        self.first_key.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The names of the columns that the rows have, without the key.
    pub(super) fn columns(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the data in parts, each copied when it is its turn: the rows stay, in case they are sent again.
    pub(super) fn parts(&self) -> impl Iterator<Item = Bytes> {
        let parts = self.data.chunks(PART).map(Bytes::copy_from_slice);
        parts.chain(std::iter::once(Bytes::from_static(&END)))
    }
}

/// Writes a field: its length, and what `write` writes.
fn put(data: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    let at = data.len();
    data.extend_from_slice(&NULL);
    write(data);
    // A field is shorter than the rows of a ledger.
    let length = i32::try_from(data.len() - at - 4).unwrap_or(i32::MAX);
    data[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// Writes a value as a field; `None` when it does not fit.
fn put_value(data: &mut BytesMut, kind: &ColumnType, value: &Value, nuls: &mut u64) -> Option<()> {
    if *value == Value::Null {
        data.extend_from_slice(&NULL);
        return Some(());
    }
    let mut fits = None;
    put(data, |data| fits = write(data, kind, value, nuls));
    fits
}

fn write(data: &mut BytesMut, kind: &ColumnType, value: &Value, nuls: &mut u64) -> Option<()> {
    match (kind, value) {
        (ColumnType::Boolean, Value::Boolean(truth)) => data.extend_from_slice(&[u8::from(*truth)]),
        (ColumnType::Bytes, Value::Bytes(bytes)) => data.extend_from_slice(bytes),
        (ColumnType::Text, Value::Text(text)) => {
            for (number, part) in text.split('\0').enumerate() {
                if number > 0 {
                    data.extend_from_slice(br"\x00");
                    *nuls += 1;
                }
                data.extend_from_slice(part.as_bytes());
            }
        }
        (ColumnType::Json, Value::Json(text)) => {
            // The version of the form.
            let mut written = vec![1];
            *nuls += json::canonical(text, &mut written)?;
            data.extend_from_slice(&written);
        }
        (ColumnType::Time, Value::Time(microseconds)) => {
            data.extend_from_slice(&microseconds.checked_sub(EPOCH)?.to_be_bytes());
        }
        (ColumnType::List(of), Value::List(items)) => write_list(data, of, items, nuls)?,
        (kind, Value::Integer(number)) => write_integer(data, kind, *number)?,
        (kind, Value::Digits(digits)) => write_digits(data, kind, digits)?,
        _ => return None,
    }
    Some(())
}

fn write_list(data: &mut BytesMut, of: &ColumnType, items: &[Value], nuls: &mut u64) -> Option<()> {
    let has_null = items.contains(&Value::Null);
    let dimensions = i32::from(!items.is_empty());
    data.extend_from_slice(&dimensions.to_be_bytes());
    data.extend_from_slice(&i32::from(has_null).to_be_bytes());
    data.extend_from_slice(&of.oid().to_be_bytes());
    if items.is_empty() {
        return Some(());
    }
    data.extend_from_slice(&i32::try_from(items.len()).ok()?.to_be_bytes());
    // The number of the first element.
    data.extend_from_slice(&1_i32.to_be_bytes());
    items.iter().try_for_each(|item| put_value(data, of, item, nuls))
}

fn write_integer(data: &mut BytesMut, kind: &ColumnType, number: i128) -> Option<()> {
    match kind {
        ColumnType::Int32 => data.extend_from_slice(&i32::try_from(number).ok()?.to_be_bytes()),
        ColumnType::UInt32 => {
            data.extend_from_slice(&i64::from(u32::try_from(number).ok()?).to_be_bytes());
        }
        ColumnType::Int64 => data.extend_from_slice(&i64::try_from(number).ok()?.to_be_bytes()),
        ColumnType::UInt64 => numeric(data, false, groups_of(u64::try_from(number).ok()?.into())),
        ColumnType::Int128 | ColumnType::Int256 => {
            numeric(data, number < 0, groups_of(number.unsigned_abs()));
        }
        _ => return None,
    }
    Some(())
}

fn write_digits(data: &mut BytesMut, kind: &ColumnType, text: &str) -> Option<()> {
    let (is_negative, digits) =
        text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    if digits.is_empty() || !digits.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    match kind {
        ColumnType::Int128 => {
            let number: u128 = digits.parse().ok()?;
            numeric(data, is_negative && number > 0, groups_of(number));
        }
        ColumnType::Int256 if digits.len() <= MOST_DIGITS => {
            let groups = digits.as_bytes().rchunks(4).map(|group| {
                group.iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0'))
            });
            let groups: Vec<u16> = groups.collect();
            let is_zero = groups.iter().all(|group| *group == 0);
            numeric(data, is_negative && !is_zero, groups);
        }
        _ => write_integer(data, kind, text.parse().ok()?)?,
    }
    Some(())
}

/// Returns the groups of four digits of a number, the last ones first.
fn groups_of(mut number: u128) -> Vec<u16> {
    let mut groups = Vec::with_capacity(10);
    while number > 0 {
        // Below 10,000.
        groups.push((number % GROUP) as u16);
        number /= GROUP;
    }
    groups
}

/// Writes a `numeric` without digits behind the point, of whose groups the last ones come first.
fn numeric(data: &mut BytesMut, is_negative: bool, mut groups: Vec<u16>) {
    while groups.last() == Some(&0) {
        groups.pop();
    }
    // The power of 10,000 of the first group.
    let weight = i16::try_from(groups.len()).unwrap_or(i16::MAX).saturating_sub(1).max(0);
    let zeros = groups.iter().take_while(|group| **group == 0).count();
    let count = u16::try_from(groups.len() - zeros).unwrap_or(u16::MAX);
    data.extend_from_slice(&count.to_be_bytes());
    data.extend_from_slice(&weight.to_be_bytes());
    data.extend_from_slice(&(if is_negative { NEGATIVE } else { 0 }).to_be_bytes());
    data.extend_from_slice(&0_u16.to_be_bytes());
    for group in groups.iter().skip(zeros).rev() {
        data.extend_from_slice(&group.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Column;

    fn table(kind: ColumnType) -> Table {
        let columns = vec![Column::new("v", kind)];
        Table { target: "t".to_owned(), name: "t".to_owned(), columns, comment: String::new() }
    }

    const KEY: RowKey = RowKey { ledger: 7, transaction: 1, number: 2 };

    #[test]
    fn values_that_do_not_fit_leave_no_trace() {
        let text = |text: &str| Value::Text(text.to_owned());
        let digits = |text: &str| Value::Digits(text.to_owned());
        for (kind, value) in [
            (ColumnType::Int32, Value::Integer(1 << 31)),
            (ColumnType::UInt32, Value::Integer(-1)),
            (ColumnType::UInt64, Value::Integer(1 << 64)),
            (ColumnType::Int64, Value::Integer(1 << 63)),
            (ColumnType::Int256, digits(&"1".repeat(79))),
            (ColumnType::Int256, digits("1e5")),
            (ColumnType::Int256, digits("-")),
            (ColumnType::Int128, digits(&"9".repeat(40))),
            (ColumnType::Text, Value::Boolean(true)),
            (ColumnType::Json, Value::Json("{".to_owned())),
            (ColumnType::list(ColumnType::Text), Value::List(vec![text("a"), Value::Integer(1)])),
        ] {
            let mut rows = TableRows::new(&table(kind.clone()));
            assert!(rows.push(KEY, std::slice::from_ref(&value)).is_err(), "{kind:?} {value:?}");
            assert_eq!((rows.bytes(), rows.digest()), (HEADER.len(), RowsDigest::default()));
        }
    }

    #[test]
    fn digests_do_not_depend_on_the_order() {
        let other = RowKey { number: 3, ..KEY };
        let digest = |keys: &[RowKey]| {
            let mut rows = TableRows::new(&table(ColumnType::UInt32));
            keys.iter().for_each(|key| rows.push(*key, &[Value::Integer(5)]).unwrap());
            rows.digest()
        };
        assert_eq!(digest(&[KEY, other]), digest(&[other, KEY]));
        assert_ne!(digest(&[KEY, other]), digest(&[KEY, KEY]));
        let mut sum = digest(&[KEY]);
        sum.add(&digest(&[other]));
        assert_eq!(sum, digest(&[KEY, other]));
    }

    #[test]
    fn nul_is_written_as_text_and_counted() {
        let mut rows = TableRows::new(&table(ColumnType::list(ColumnType::Text)));
        let items = ["a\0b\0", "c"].map(|it| Value::Text(it.to_owned())).to_vec();
        rows.push(KEY, &[Value::List(items)]).unwrap();
        assert_eq!((rows.nuls(), rows.ledgers()), (2, Some((7, 7))));
        let data: Vec<u8> = rows.parts().collect::<Vec<_>>().concat();
        assert!(data.windows(10).any(|it| it == br"a\x00b\x00"), "{data:?}");
    }

    #[test]
    fn large_data_is_sent_in_parts() {
        let mut rows = TableRows::new(&table(ColumnType::Bytes));
        rows.push(KEY, &[Value::Bytes(vec![1; 200_000])]).unwrap();
        let parts: Vec<Bytes> = rows.parts().collect();
        assert!(parts.len() > 3 && parts.iter().all(|part| part.len() <= PART));
        assert_eq!(parts.concat()[HEADER.len()..].len(), rows.bytes() - HEADER.len() + END.len());
    }
}
