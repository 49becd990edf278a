//! The form of declared events all of whose parameters are scalars, read from their XDR without a tree
//! of values.

use stellar_xdr::{ScSpecEventDataFormat, ScSpecEventV0, ScSpecTypeDef};

/// Largest number of declarations with one number of topics among which the one of an event is
/// looked for.
const MOST_TRIED: usize = 64;
/// Largest number of different numbers of topics that the declarations with one prefix may have: with
/// more, the search by values counts steps that could exceed its budget.
const MOST_NUMBERS: usize = 6;
/// Longest symbol (SCSYMBOL_LIMIT).
const LONGEST_SYMBOL: usize = 32;

/// Discriminants of `ScVal`, `ScAddressType` and `PublicKeyType` (Stellar-contract.x, Stellar-types.x).
mod tag {
    pub const BOOL: u32 = 0;
    pub const VOID: u32 = 1;
    pub const U32: u32 = 3;
    pub const I32: u32 = 4;
    pub const U64: u32 = 5;
    pub const I64: u32 = 6;
    pub const TIMEPOINT: u32 = 7;
    pub const DURATION: u32 = 8;
    pub const U128: u32 = 9;
    pub const I128: u32 = 10;
    pub const BYTES: u32 = 13;
    pub const STRING: u32 = 14;
    pub const SYMBOL: u32 = 15;
    pub const VEC: u32 = 16;
    pub const MAP: u32 = 17;
    pub const ADDRESS: u32 = 18;
    pub const ACCOUNT: u32 = 0;
    pub const CONTRACT: u32 = 1;
    pub const ED25519: u32 = 0;
}

/// A scalar value of an event, as it stands in its XDR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar<'a> {
    /// `Void`: an option without a value.
    Absent,
    /// `Bool`.
    Bool(bool),
    /// `U32`.
    U32(u32),
    /// `I32`.
    I32(i32),
    /// `U64`, `Timepoint` or `Duration`.
    U64(u64),
    /// `I64`.
    I64(i64),
    /// `U128`.
    U128(u128),
    /// `I128`.
    I128(i128),
    /// `Bytes`.
    Bytes(&'a [u8]),
    /// `String` or `Symbol`.
    Text(&'a [u8]),
    /// `Address` of an account: its key.
    Account(&'a [u8; 32]),
    /// `Address` of a contract: its id.
    Contract(&'a [u8; 32]),
}

/// The kind of a scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScalarKind {
    /// `Bool`.
    Bool,
    /// `U32`.
    U32,
    /// `I32`.
    I32,
    /// `U64`, `Timepoint` or `Duration`.
    U64,
    /// `I64`.
    I64,
    /// `U128`.
    U128,
    /// `I128`.
    I128,
    /// `Bytes`.
    Bytes,
    /// `String`, `Symbol`, or `Address` of an account or contract.
    Text,
}

/// The form of a declared event all of whose parameters are scalars.
#[derive(Debug, Clone)]
pub(crate) struct Flat {
    topics: Vec<Part>,
    data: Data,
    /// Kinds of the parameters, in declared order.
    kinds: Vec<ScalarKind>,
}

#[derive(Debug, Clone)]
enum Data {
    Void,
    Single(Part),
    Items(Vec<Part>),
    /// XDR of each key with its value, in the order of the keys in a map.
    Entries(Vec<(Vec<u8>, Part)>),
}

/// A declared parameter.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// Its number.
    at: usize,
    is_option: bool,
    tag: u32,
    /// Length that is declared (`BytesN`).
    length: Option<usize>,
}

impl Flat {
    /// Returns the form of an event; `None` when a parameter may be more than a scalar. Takes the numbers
    /// of the parameters in topics and of those in the data.
    pub(crate) fn of(
        declared: &ScSpecEventV0,
        in_topics: &[usize],
        in_data: &[usize],
    ) -> Option<Self> {
        let params = declared.params.as_slice();
        let part = |at: &usize| Part::of(*at, &params[*at].type_);
        let topics = in_topics.iter().map(part).collect::<Option<_>>()?;
        let parts = in_data.iter().map(part).collect::<Option<Vec<_>>>()?;
        let data = match (declared.data_format, parts.as_slice()) {
            (ScSpecEventDataFormat::SingleValue, []) => Data::Void,
            (ScSpecEventDataFormat::SingleValue, [part]) => Data::Single(*part),
            (ScSpecEventDataFormat::SingleValue, _) => return None,
            (ScSpecEventDataFormat::Vec, _) => Data::Items(parts),
            (ScSpecEventDataFormat::Map, _) => {
                let name = |part: &Part| params[part.at].name.as_slice();
                let mut parts = parts;
                parts.sort_by(|a, b| name(a).cmp(name(b)));
                // Of parameters with one name, only the first has the key.
                if parts.windows(2).any(|pair| name(&pair[0]) == name(&pair[1])) {
                    return None;
                }
                let key = |part: &Part| Some((symbol(name(part))?, *part));
                Data::Entries(parts.iter().map(key).collect::<Option<_>>()?)
            }
        };
        let kinds = (0..params.len()).map(|at| Part::of(at, &params[at].type_)?.kind());
        Some(Self { topics, data, kinds: kinds.collect::<Option<_>>()? })
    }

    /// Kinds of the parameters, in declared order.
    pub(crate) fn kinds(&self) -> &[ScalarKind] {
        &self.kinds
    }

    /// Memory that it takes, in bytes: an estimate.
    pub(crate) fn bytes(&self) -> usize {
        let keys = match &self.data {
            Data::Entries(entries) => entries.iter().map(|(key, _)| 24 + key.len()).sum(),
            Data::Void | Data::Single(_) | Data::Items(_) => 0,
        };
        keys + 2 * self.kinds.len() * size_of::<Part>()
    }

    /// Reads the parameters from the topics behind the prefix and the data; `None` when they are not
    /// exactly those of this form.
    pub(crate) fn read<'x>(
        &self,
        topics: impl Iterator<Item = &'x [u8]>,
        data: &'x [u8],
        mut take: impl FnMut(usize, Scalar<'x>),
    ) -> Option<()> {
        for (part, topic) in self.topics.iter().zip(topics) {
            let mut rest = Reader(topic);
            take(part.at, rest.scalar(part)?);
            rest.end()?;
        }
        let mut rest = Reader(data);
        match &self.data {
            Data::Void => (rest.u32()? == tag::VOID).then_some(())?,
            Data::Single(part) => take(part.at, rest.scalar(part)?),
            Data::Items(parts) => {
                rest.present(tag::VEC, parts.len())?;
                for part in parts {
                    take(part.at, rest.scalar(part)?);
                }
            }
            Data::Entries(entries) => {
                rest.present(tag::MAP, entries.len())?;
                for (key, part) in entries {
                    rest.exactly(key)?;
                    take(part.at, rest.scalar(part)?);
                }
            }
        }
        rest.end()
    }
}

impl Part {
    fn of(at: usize, kind: &ScSpecTypeDef) -> Option<Self> {
        let (kind, is_option) = match kind {
            ScSpecTypeDef::Option(of) => (&*of.value_type, true),
            kind => (kind, false),
        };
        let (tag, length) = match kind {
            ScSpecTypeDef::Bool => (tag::BOOL, None),
            ScSpecTypeDef::U32 => (tag::U32, None),
            ScSpecTypeDef::I32 => (tag::I32, None),
            ScSpecTypeDef::U64 => (tag::U64, None),
            ScSpecTypeDef::I64 => (tag::I64, None),
            ScSpecTypeDef::Timepoint => (tag::TIMEPOINT, None),
            ScSpecTypeDef::Duration => (tag::DURATION, None),
            ScSpecTypeDef::U128 => (tag::U128, None),
            ScSpecTypeDef::I128 => (tag::I128, None),
            ScSpecTypeDef::Bytes => (tag::BYTES, None),
            ScSpecTypeDef::BytesN(of) => (tag::BYTES, Some(of.n as usize)),
            ScSpecTypeDef::String => (tag::STRING, None),
            ScSpecTypeDef::Symbol => (tag::SYMBOL, None),
            ScSpecTypeDef::Address | ScSpecTypeDef::MuxedAddress => (tag::ADDRESS, None),
            _ => return None,
        };
        Some(Self { at, is_option, tag, length })
    }

    fn kind(&self) -> Option<ScalarKind> {
        Some(match self.tag {
            tag::BOOL => ScalarKind::Bool,
            tag::U32 => ScalarKind::U32,
            tag::I32 => ScalarKind::I32,
            tag::U64 | tag::TIMEPOINT | tag::DURATION => ScalarKind::U64,
            tag::I64 => ScalarKind::I64,
            tag::U128 => ScalarKind::U128,
            tag::I128 => ScalarKind::I128,
            tag::BYTES => ScalarKind::Bytes,
            tag::STRING | tag::SYMBOL | tag::ADDRESS => ScalarKind::Text,
            _ => return None,
        })
    }
}

/// Whether the declarations can be told apart here: whether there are few enough of them.
pub(crate) fn may_be_flat(numbers_of_prefix: usize, with_topics: usize) -> bool {
    numbers_of_prefix <= MOST_NUMBERS && with_topics <= MOST_TRIED
}

/// Returns the XDR of a symbol.
fn symbol(name: &[u8]) -> Option<Vec<u8>> {
    if name.len() > LONGEST_SYMBOL {
        return None;
    }
    let mut xdr = tag::SYMBOL.to_be_bytes().to_vec();
    xdr.extend_from_slice(&u32::try_from(name.len()).ok()?.to_be_bytes());
    xdr.extend_from_slice(name);
    xdr.resize(xdr.len().next_multiple_of(4), 0);
    Some(xdr)
}

/// Whether a value is `Void`, by its discriminant.
pub(crate) fn is_void(value: &[u8]) -> bool {
    value.starts_with(&tag::VOID.to_be_bytes())
}

/// Whether a value is a vector, by its discriminant.
pub(crate) fn is_vec(value: &[u8]) -> bool {
    value.starts_with(&tag::VEC.to_be_bytes())
}

/// Whether a value is a map, by its discriminant.
pub(crate) fn is_map(value: &[u8]) -> bool {
    value.starts_with(&tag::MAP.to_be_bytes())
}

/// Whether a topic is this text, as a symbol or a string.
pub(crate) fn is_text(topic: &[u8], text: &[u8]) -> bool {
    let mut rest = Reader(topic);
    let is_kind = |tag| matches!(tag, tag::SYMBOL | tag::STRING);
    rest.u32().is_some_and(is_kind) && rest.bytes() == Some(text) && rest.end().is_some()
}

struct Reader<'x>(&'x [u8]);

impl<'x> Reader<'x> {
    fn array<const N: usize>(&mut self) -> Option<&'x [u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(|bytes| u32::from_be_bytes(*bytes))
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(|bytes| u64::from_be_bytes(*bytes))
    }

    fn exactly(&mut self, bytes: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(bytes)?;
        Some(())
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }

    /// Reads an optional array of this many parts that is there.
    fn present(&mut self, tag: u32, parts: usize) -> Option<()> {
        let is = self.u32()? == tag && self.u32()? == 1 && self.u32()? as usize == parts;
        is.then_some(())
    }

    fn bytes(&mut self) -> Option<&'x [u8]> {
        let length = self.u32()? as usize;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        let padding = length.next_multiple_of(4) - length;
        let (zeros, rest) = rest.split_at_checked(padding)?;
        self.0 = rest;
        zeros.iter().all(|byte| *byte == 0).then_some(bytes)
    }

    fn scalar(&mut self, part: &Part) -> Option<Scalar<'x>> {
        let tag = self.u32()?;
        if tag == tag::VOID && part.is_option {
            return Some(Scalar::Absent);
        }
        if tag != part.tag {
            return None;
        }
        Some(match tag {
            tag::BOOL => match self.u32()? {
                0 => Scalar::Bool(false),
                1 => Scalar::Bool(true),
                _ => return None,
            },
            tag::U32 => Scalar::U32(self.u32()?),
            tag::I32 => Scalar::I32(self.u32()?.cast_signed()),
            tag::U64 | tag::TIMEPOINT | tag::DURATION => Scalar::U64(self.u64()?),
            tag::I64 => Scalar::I64(self.u64()?.cast_signed()),
            tag::U128 => Scalar::U128(self.array().map(|bytes| u128::from_be_bytes(*bytes))?),
            tag::I128 => Scalar::I128(self.array().map(|bytes| i128::from_be_bytes(*bytes))?),
            tag::BYTES => {
                let bytes = self.bytes()?;
                if part.length.is_some_and(|length| length != bytes.len()) {
                    return None;
                }
                Scalar::Bytes(bytes)
            }
            tag::STRING => Scalar::Text(self.bytes()?),
            tag::SYMBOL => Scalar::Text(self.bytes().filter(|it| it.len() <= LONGEST_SYMBOL)?),
            tag::ADDRESS => match self.u32()? {
                tag::ACCOUNT if self.u32()? == tag::ED25519 => Scalar::Account(self.array()?),
                tag::CONTRACT => Scalar::Contract(self.array()?),
                // Muxed accounts, claimable balances and liquidity pools are rare.
                _ => return None,
            },
            _ => return None,
        })
    }
}
