//! Random interfaces over every type, nested, with events that fit and events that are broken in
//! one place.

use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use stellar_xdr::{
    ClaimableBalanceId, Duration, Hash, Int256Parts, MuxedEd25519Account, PoolId, ScAddress,
    ScError, ScErrorCode, ScSpecEntry, ScVal, TimePoint, UInt256Parts, Uint256,
};

use super::account_events::{account, address, contract};
use super::specs::{
    Map, SingleValue, Type, Vector, bytes_n, errors, event, map, numbers, option, result,
    structure, tuple, udt, union, vec,
};
use super::values::{bytes, i128, list, map as map_of, string, symbol, u128};

/// A type together with what its values need: the generator's own form of a type.
#[derive(Debug, Clone)]
pub enum Kind {
    /// A type without parts.
    Leaf(Type),
    BytesN(u32),
    Option(Box<Kind>),
    Result(Box<Kind>),
    Vec(Box<Kind>),
    Map(Box<Kind>, Box<Kind>),
    Tuple(Vec<Kind>),
    Struct(String, Vec<(String, Kind)>),
    TupleStruct(String, Vec<Kind>),
    Union(String, Vec<(String, Vec<Kind>)>),
    Enum(String, Vec<u32>),
    Errors(String, Vec<u32>),
}

/// The error enum that results have.
const ERRORS: &str = "Errors";

pub struct Generator {
    random: ChaCha8Rng,
    /// Whether only types are made whose values the official client reads: no errors, no results,
    /// none that may be anything, and text in UTF-8.
    for_client: bool,
    definitions: Vec<ScSpecEntry>,
}

impl Generator {
    pub fn new(seed: u64, for_client: bool) -> Self {
        let definitions = vec![errors(ERRORS, &[1, 5])];
        Self { random: ChaCha8Rng::seed_from_u64(seed), for_client, definitions }
    }

    fn kind(&mut self, depth: u32) -> Kind {
        let leaves = [
            Type::Val,
            Type::Error,
            Type::Bool,
            Type::Void,
            Type::U32,
            Type::I32,
            Type::U64,
            Type::I64,
            Type::Timepoint,
            Type::Duration,
            Type::U128,
            Type::I128,
            Type::U256,
            Type::I256,
            Type::Bytes,
            Type::String,
            Type::Symbol,
            Type::Address,
            Type::MuxedAddress,
        ];
        if depth == 0 || self.random.random_bool(0.4) {
            return match self.random.random_range(0..8) {
                0 => Kind::BytesN(self.random.random_range(0..40)),
                _ => {
                    let leaves = &leaves[2 * usize::from(self.for_client)..];
                    Kind::Leaf(leaves.choose(&mut self.random).unwrap().clone())
                }
            };
        }
        match self.random.random_range(0..10) {
            0 => Kind::Option(Box::new(self.kind(depth - 1))),
            1 if !self.for_client => Kind::Result(Box::new(self.kind(depth - 1))),
            2 => Kind::Vec(Box::new(self.kind(depth - 1))),
            3 => Kind::Map(Box::new(self.kind(0)), Box::new(self.kind(depth - 1))),
            4 => Kind::Tuple(self.kinds(depth, 0)),
            _ => self.defined(depth),
        }
    }

    fn kinds(&mut self, depth: u32, least: usize) -> Vec<Kind> {
        let count = self.random.random_range(least..5);
        (0..count).map(|_| self.kind(depth - 1)).collect()
    }

    /// Adds a definition and returns its type.
    fn defined(&mut self, depth: u32) -> Kind {
        let name = |of: &Self| format!("D{}", of.definitions.len());
        let (kind, entry) = match self.random.random_range(0..5 - u32::from(self.for_client)) {
            0 => {
                let fields = self.kinds(depth, 0).into_iter().enumerate();
                let fields: Vec<_> = fields.map(|(at, it)| (format!("f{at}"), it)).collect();
                let typed: Vec<_> = fields.iter().map(|(it, of)| (it.clone(), of.of())).collect();
                let name = name(self);
                (Kind::Struct(name.clone(), fields), structure(&name, &typed))
            }
            1 => {
                let kinds = self.kinds(depth, 1);
                let typed: Vec<_> =
                    kinds.iter().enumerate().map(|(at, of)| (at.to_string(), of.of())).collect();
                let name = name(self);
                (Kind::TupleStruct(name.clone(), kinds), structure(&name, &typed))
            }
            2 => {
                let mut cases = vec![("Nothing".to_owned(), Vec::new())];
                for at in 0..self.random.random_range(0..4) {
                    cases.push((format!("Case{at}"), self.kinds(depth, 1)));
                }
                let typed = |(name, of): &(String, Vec<Kind>)| {
                    let types = (!of.is_empty()).then(|| of.iter().map(Kind::of).collect());
                    (name.clone(), types)
                };
                let typed: Vec<_> = cases.iter().map(typed).collect();
                let name = name(self);
                (Kind::Union(name.clone(), cases), union(&name, &typed))
            }
            3 => {
                let name = name(self);
                (Kind::Enum(name.clone(), vec![0, 3, 9]), numbers(&name, &[0, 3, 9]))
            }
            _ => {
                let name = name(self);
                (Kind::Errors(name.clone(), vec![2, 4]), errors(&name, &[2, 4]))
            }
        };
        self.definitions.push(entry);
        kind
    }

    /// A value of any kind.
    fn anything(&mut self) -> ScVal {
        let kind = self.kind(1);
        self.definitions.truncate(1);
        self.value(&kind)
    }

    fn value(&mut self, kind: &Kind) -> ScVal {
        let count = self.random.random_range(0..4);
        match kind {
            Kind::Leaf(kind) => self.leaf(kind),
            Kind::BytesN(n) => bytes(&vec![self.random.random(); *n as usize]),
            Kind::Option(of) | Kind::Result(of) if self.random.random_bool(0.7) => self.value(of),
            Kind::Option(_) => ScVal::Void,
            Kind::Result(_) => ScVal::Error(ScError::Contract(5)),
            Kind::Vec(of) => list((0..count).map(|_| self.value(of)).collect::<Vec<_>>()),
            Kind::Map(key, of) => {
                let entries = (0..count).map(|_| (self.value(key), self.value(of)));
                map_of(entries.collect::<std::collections::BTreeMap<_, _>>())
            }
            Kind::Tuple(kinds) | Kind::TupleStruct(_, kinds) => {
                list(kinds.iter().map(|of| self.value(of)).collect::<Vec<_>>())
            }
            Kind::Struct(_, fields) => {
                let field = |(name, of): &(String, Kind)| (symbol(name), self.value(of));
                map_of(fields.iter().map(field).collect::<Vec<_>>())
            }
            Kind::Union(_, cases) => {
                let (name, kinds) = cases.choose(&mut self.random).unwrap();
                let values = kinds.iter().map(|of| self.value(of)).collect::<Vec<_>>();
                list([symbol(name)].into_iter().chain(values))
            }
            Kind::Enum(_, values) => ScVal::U32(*values.choose(&mut self.random).unwrap()),
            Kind::Errors(_, codes) => {
                ScVal::Error(ScError::Contract(*codes.choose(&mut self.random).unwrap()))
            }
        }
    }

    fn leaf(&mut self, kind: &Type) -> ScVal {
        let random = &mut self.random;
        match kind {
            Type::Val => self.anything(),
            Type::Bool => ScVal::Bool(random.random()),
            Type::Void => ScVal::Void,
            Type::Error => ScVal::Error(ScError::Auth(ScErrorCode::InvalidInput)),
            Type::U32 => ScVal::U32(random.random()),
            Type::I32 => ScVal::I32(random.random()),
            Type::U64 => ScVal::U64(random.random()),
            Type::I64 => ScVal::I64(random.random()),
            Type::Timepoint => ScVal::Timepoint(TimePoint(random.random())),
            Type::Duration => ScVal::Duration(Duration(random.random())),
            Type::U128 => u128(random.random()),
            Type::I128 => i128(random.random()),
            Type::U256 => ScVal::U256(UInt256Parts {
                hi_hi: random.random(),
                hi_lo: random.random(),
                lo_hi: random.random(),
                lo_lo: random.random(),
            }),
            Type::I256 => ScVal::I256(Int256Parts {
                hi_hi: random.random(),
                hi_lo: random.random(),
                lo_hi: random.random(),
                lo_lo: random.random(),
            }),
            Type::Bytes => bytes(&random.random::<[u8; 3]>()),
            Type::String if self.for_client => string(format!("é{}", random.random::<char>())),
            Type::String => string(random.random::<[u8; 4]>()),
            Type::Symbol => symbol(&format!("s{}", random.random::<u16>())),
            Type::Address => address(&plain_address(random)),
            Type::MuxedAddress if random.random() => ScVal::Address(muxed()),
            Type::MuxedAddress => address(&plain_address(random)),
            other => panic!("{other:?} is no leaf"),
        }
    }

    /// A value that differs from one of the type in one place; `None` where anything is one.
    fn broken(&mut self, kind: &Kind) -> Option<ScVal> {
        let alien = Some(ScVal::LedgerKeyContractInstance);
        match kind {
            Kind::Leaf(Type::Val) => None,
            Kind::Leaf(kind) => Some(near(kind)),
            Kind::BytesN(n) => Some(bytes(&vec![1; *n as usize + 1])),
            // An option's broken value is not void, and a result's no error of the enum.
            Kind::Option(of) => {
                let broken = self.broken(of)?;
                if broken == ScVal::Void { alien } else { Some(broken) }
            }
            Kind::Result(of) => {
                let broken = self.broken(of)?;
                if matches!(broken, ScVal::Error(_)) { alien } else { Some(broken) }
            }
            Kind::Vec(of) => match self.broken(of) {
                Some(broken) => Some(list([self.value(of), broken])),
                None => alien,
            },
            Kind::Map(key, of) => match (self.broken(key), self.broken(of)) {
                (Some(key), _) if self.random.random() => Some(map_of([(key, self.value(of))])),
                (_, Some(of)) => Some(map_of([(self.value(key), of)])),
                _ => alien,
            },
            Kind::Tuple(kinds) | Kind::TupleStruct(_, kinds) => Some(list(self.items(kinds))),
            Kind::Struct(_, fields) => Some(self.fields(fields)),
            Kind::Union(_, cases) => {
                let (name, kinds) = cases.choose(&mut self.random).unwrap().clone();
                let items = self.items(&kinds);
                let tag = match self.random.random_range(0..3) {
                    0 => string(&name),
                    1 => symbol("Unknown"),
                    _ => symbol(&name),
                };
                Some(list([tag].into_iter().chain(items)))
            }
            Kind::Enum(..) => {
                [ScVal::U32(1), ScVal::I32(3), ScVal::U64(3)].choose(&mut self.random).cloned()
            }
            Kind::Errors(..) => {
                let other = ScVal::Error(ScError::Auth(ScErrorCode::InvalidInput));
                let unknown = ScVal::Error(ScError::Contract(1));
                [unknown, other, ScVal::U32(2)].choose(&mut self.random).cloned()
            }
        }
    }

    /// Items of which one is broken, missing or too much.
    fn items(&mut self, kinds: &[Kind]) -> Vec<ScVal> {
        let mut items: Vec<_> = kinds.iter().map(|of| self.value(of)).collect();
        match self.random.random_range(0..3) {
            0 if !items.is_empty() => _ = items.pop(),
            1 if !items.is_empty() => {
                let at = self.random.random_range(0..items.len());
                match self.broken(&kinds[at]) {
                    Some(broken) => items[at] = broken,
                    None => items.push(ScVal::Void),
                }
            }
            _ => items.push(ScVal::Void),
        }
        items
    }

    /// A struct of which one field is broken, missing, too much or has another name.
    fn fields(&mut self, fields: &[(String, Kind)]) -> ScVal {
        let mut entries: Vec<_> =
            fields.iter().map(|(name, of)| (symbol(name), self.value(of))).collect();
        let at = self.random.random_range(0..entries.len().max(1));
        let broken = fields.get(at).and_then(|(_, of)| self.broken(of));
        match (self.random.random_range(0..4), broken) {
            _ if entries.is_empty() => entries.push((symbol("more"), ScVal::Void)),
            (0, Some(broken)) => entries[at].1 = broken,
            (1, _) => _ = entries.remove(at),
            (2, _) => entries[at].0 = string(&fields[at].0),
            _ => entries.push((symbol("more"), ScVal::Void)),
        }
        map_of(entries)
    }
}

impl Kind {
    fn of(&self) -> Type {
        let all = |kinds: &[Self]| kinds.iter().map(Self::of).collect();
        match self {
            Self::Leaf(kind) => kind.clone(),
            Self::BytesN(n) => bytes_n(*n),
            Self::Option(of) => option(of.of()),
            Self::Result(of) => result(of.of(), udt(ERRORS)),
            Self::Vec(of) => vec(of.of()),
            Self::Map(key, of) => map(key.of(), of.of()),
            Self::Tuple(kinds) => tuple(all(kinds)),
            Self::Struct(name, _)
            | Self::TupleStruct(name, _)
            | Self::Union(name, _)
            | Self::Enum(name, _)
            | Self::Errors(name, _) => udt(name),
        }
    }
}

fn plain_address(random: &mut ChaCha8Rng) -> ScAddress {
    match random.random_range(0..4) {
        0 => account(random.random()),
        1 => contract(random.random()),
        2 => ScAddress::LiquidityPool(PoolId(Hash(random.random()))),
        _ => ScAddress::ClaimableBalance(ClaimableBalanceId::ClaimableBalanceIdTypeV0(Hash(
            random.random(),
        ))),
    }
}

fn muxed() -> ScAddress {
    ScAddress::MuxedAccount(MuxedEd25519Account { id: 3, ed25519: Uint256([7; 32]) })
}

/// A value that a careless reader would take for one of the type.
fn near(kind: &Type) -> ScVal {
    match kind {
        Type::Bool => ScVal::U32(1),
        Type::Void => ScVal::Bool(false),
        Type::Error => ScVal::U32(1),
        Type::U32 => ScVal::I32(1),
        Type::I32 => ScVal::U32(1),
        Type::U64 => ScVal::Timepoint(TimePoint(1)),
        Type::Timepoint => ScVal::U64(1),
        Type::I64 => ScVal::U64(1),
        Type::Duration => ScVal::Timepoint(TimePoint(1)),
        Type::U128 => i128(1),
        Type::I128 => ScVal::I64(1),
        Type::U256 => u128(1),
        Type::I256 => i128(1),
        Type::Bytes => string("bytes"),
        Type::String => symbol("text"),
        Type::Symbol => string("text"),
        Type::Address => ScVal::Address(muxed()),
        Type::MuxedAddress => string(muxed().to_string()),
        other => panic!("{other:?} is no leaf"),
    }
}

/// An event that was declared, with the kinds of its parameters.
pub struct Declared {
    prefix: usize,
    pub topics: Vec<Kind>,
    format: stellar_xdr::ScSpecEventDataFormat,
    pub data: Vec<Kind>,
}

const NAMES: [&str; 5] = ["d0", "d1", "d2", "d3", "d4"];
const TOPICS: [&str; 3] = ["t0", "t1", "t2"];

impl Generator {
    pub fn declared(&mut self) -> Declared {
        let prefix = self.random.random_range(0..3);
        let topics = (0..self.random.random_range(0..3)).map(|_| self.kind(2)).collect();
        let format = *[Map, Vector, SingleValue].choose(&mut self.random).unwrap();
        let most = if format == SingleValue { 2 } else { 5 };
        let data = (0..self.random.random_range(0..most)).map(|_| self.kind(4)).collect();
        Declared { prefix, topics, format, data }
    }

    /// The topics and the data of an event, each with what is broken in it if `broken` is the
    /// number of that parameter.
    pub fn event(&mut self, of: &Declared, broken: Option<usize>) -> Option<(Vec<ScVal>, ScVal)> {
        let mut values = Vec::new();
        for (at, kind) in of.topics.iter().chain(&of.data).enumerate() {
            let is_broken = broken == Some(at);
            values.push(if is_broken { self.broken(kind)? } else { self.value(kind) });
        }
        let data = values.split_off(of.topics.len());
        let text = if self.random.random() { symbol } else { |text: &str| string(text) };
        let prefix = (0..of.prefix).map(|at| text(&format!("p{at}")));
        let mut topics: Vec<_> = prefix.chain(values).collect();
        if self.random.random_bool(0.2) {
            topics.push(self.anything());
        }
        let data = match of.format {
            SingleValue => data.into_iter().next().unwrap_or(ScVal::Void),
            Vector => {
                let more = self.random.random_bool(0.2).then(|| self.anything());
                list(data.into_iter().chain(more))
            }
            Map => {
                let entries = data.into_iter().enumerate().map(|(at, val)| (NAMES[at], val));
                let mut entries: Vec<_> = entries.map(|(name, val)| (symbol(name), val)).collect();
                if broken.is_none() && !entries.is_empty() && self.random.random_bool(0.2) {
                    entries.remove(self.random.random_range(0..entries.len()));
                }
                if self.random.random_bool(0.2) {
                    entries.push((symbol("more"), self.anything()));
                }
                map_of(entries)
            }
        };
        Some((topics, data))
    }

    /// The entries of an interface with the event.
    pub fn entries(&self, of: &Declared) -> Vec<ScSpecEntry> {
        let of_kind = |(name, kind): (&&'static str, &Kind)| (*name, kind.of());
        let topics: Vec<_> = TOPICS.iter().zip(&of.topics).map(of_kind).collect();
        let data: Vec<_> = NAMES.iter().zip(&of.data).map(of_kind).collect();
        let entry = event("E", &["p0", "p1"][..of.prefix], &topics, of.format, &data);
        let other = event("Other", &["other"], &[], SingleValue, &[("v", Type::Val)]);
        [&[other, entry], &*self.definitions].concat()
    }
}
