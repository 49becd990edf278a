//! Random values as programs might emit them: every type of the network, nested, mostly of one kind
//! per field.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use stellar_xdr::{
    AccountId, ContractId, Duration, Hash, Int256Parts, PublicKey, ScAddress, ScError, ScErrorCode,
    ScSpecEntry, ScSpecTypeDef, ScSpecTypeMap, ScSpecTypeUdt, ScSpecTypeVec,
    ScSpecUdtStructFieldV0, ScSpecUdtStructV0, ScVal, TimePoint, UInt256Parts, Uint256,
};

use super::values::{bytes, i128, list, map, string, symbol, u128};

/// Kind of the values of a field.
#[derive(Debug, Clone)]
pub enum Template {
    Nothing,
    Bool,
    Int,
    Text,
    Bytes,
    /// Values without a SQL type.
    Odd,
    List(Box<Template>),
    Map(Box<Template>, Box<Template>),
    /// Lists with values of several kinds.
    Mixed,
    /// The struct `Inner` of [`specification`].
    Struct,
}

/// Names of the kinds of map keys.
pub const KEYS: [&str; 6] = ["ints", "texts", "blobs", "flags", "lists", "maps"];

impl Template {
    /// Returns the kind's name among [`KEYS`].
    pub fn name(&self) -> &'static str {
        match self {
            Self::Int => KEYS[0],
            Self::Text => KEYS[1],
            Self::Bytes => KEYS[2],
            Self::Bool => KEYS[3],
            Self::List(_) => KEYS[4],
            _ => KEYS[5],
        }
    }
}

/// Target whose columns [`specification`] defines.
pub const SPECIFIED: &str = "s";

pub fn specified() -> Vec<Template> {
    let inner = || Box::new(Template::Struct);
    vec![
        Template::List(inner()),
        Template::Map(Box::new(Template::Text), inner()),
        Template::Struct,
        Template::Map(inner(), Box::new(Template::Int)),
    ]
}

/// Returns a specification with structs inside lists, maps and keys of maps.
pub fn specification() -> Vec<ScSpecEntry> {
    let inner = || ScSpecTypeDef::Udt(ScSpecTypeUdt { name: "Inner".try_into().unwrap() });
    let list = |of| ScSpecTypeDef::Vec(Box::new(ScSpecTypeVec { element_type: Box::new(of) }));
    let map = |key, value| {
        let (key_type, value_type) = (Box::new(key), Box::new(value));
        ScSpecTypeDef::Map(Box::new(ScSpecTypeMap { key_type, value_type }))
    };
    let structure = |name: &str, fields: Vec<(&str, ScSpecTypeDef)>| {
        let field = |(name, type_): (&str, ScSpecTypeDef)| ScSpecUdtStructFieldV0 {
            doc: Default::default(),
            name: name.try_into().unwrap(),
            type_,
        };
        let fields: Vec<_> = fields.into_iter().map(field).collect();
        ScSpecEntry::UdtStructV0(ScSpecUdtStructV0 {
            doc: Default::default(),
            lib: Default::default(),
            name: name.try_into().unwrap(),
            fields: fields.try_into().unwrap(),
        })
    };
    let number = ScSpecTypeDef::U32;
    vec![
        structure("Inner", vec![("x", number.clone()), ("y", list(number.clone()))]),
        structure(
            "S",
            vec![
                ("a", list(inner())),
                ("b", map(ScSpecTypeDef::String, inner())),
                ("c", inner()),
                ("d", map(inner(), number)),
            ],
        ),
    ]
}

/// Picks a random kind with at most `depth` levels of nesting.
pub fn template(random: &mut ChaCha8Rng, depth: u32) -> Template {
    let most = if depth == 0 { 7 } else { 13 };
    match random.random_range(0..most) {
        0 => Template::Nothing,
        1 => Template::Bool,
        2 | 3 => Template::Int,
        4 => Template::Text,
        5 => Template::Bytes,
        6 => Template::Odd,
        7..=9 => Template::List(Box::new(template(random, depth - 1))),
        10 | 11 => {
            let keys = key_template(random);
            Template::Map(Box::new(keys), Box::new(template(random, depth - 1)))
        }
        _ => Template::Mixed,
    }
}

/// Picks a random kind of map keys.
pub fn key_template(random: &mut ChaCha8Rng) -> Template {
    match random.random_range(0..9) {
        0..=2 => Template::Int,
        3 | 4 => Template::Text,
        5 => Template::Bytes,
        6 => Template::Bool,
        7 => Template::List(Box::new(Template::Int)),
        _ => Template::Map(Box::new(Template::Text), Box::new(Template::Int)),
    }
}

/// Returns a random value of a kind; sometimes null, rarely of another kind.
pub fn value(random: &mut ChaCha8Rng, like: &Template) -> ScVal {
    if random.random_bool(0.08) {
        return ScVal::Void;
    }
    if random.random_bool(0.02) {
        let other = template(random, 1);
        return plain_value(random, &other);
    }
    plain_value(random, like)
}

fn plain_value(random: &mut ChaCha8Rng, like: &Template) -> ScVal {
    match like {
        Template::Nothing => ScVal::Void,
        Template::Bool => ScVal::Bool(random.random()),
        Template::Int => integer(random),
        Template::Text => text(random),
        Template::Bytes => {
            let length = random.random_range(0..4);
            bytes(&(0..length).map(|_| random.random_range(0..3)).collect::<Vec<u8>>())
        }
        Template::Odd => match random.random_range(0..3) {
            0 => ScVal::Error(ScError::Contract(random.random_range(0..3))),
            1 => ScVal::Error(ScError::Budget(ScErrorCode::ExceededLimit)),
            _ => list([symbol("Some"), integer(random)]),
        },
        Template::List(of) => {
            let length = random.random_range(0..4);
            list((0..length).map(|_| value(random, of)).collect::<Vec<_>>())
        }
        Template::Map(keys, of) => map_of(random, keys, of, 3),
        Template::Struct => {
            let fields = [("x", Template::Int), ("y", Template::List(Box::new(Template::Int)))];
            let mut entries = Vec::new();
            for (name, like) in fields {
                if random.random_bool(0.8) {
                    entries.push((symbol(name), value(random, &like)));
                }
            }
            map(entries)
        }
        Template::Mixed => {
            let length = random.random_range(0..3);
            let one = |random: &mut ChaCha8Rng| match random.random_range(0..4) {
                0 => integer(random),
                1 => text(random),
                2 => list([]),
                _ => ScVal::Void,
            };
            list((0..length).map(|_| one(random)).collect::<Vec<_>>())
        }
    }
}

/// Returns a map without equal keys, as the contract host guarantees.
pub fn map_of(random: &mut ChaCha8Rng, keys: &Template, of: &Template, most: usize) -> ScVal {
    let length = random.random_range(0..=most);
    let mut entries: Vec<(ScVal, ScVal)> = Vec::new();
    for _ in 0..length {
        let key = plain_value(random, keys);
        if entries.iter().all(|(other, _)| *other != key) {
            entries.push((key, value(random, of)));
        }
    }
    map(entries)
}

/// Returns a number of random width. There are few different ones, so that numbers of different
/// widths are often equal, and among them are the limits of each type.
fn integer(random: &mut ChaCha8Rng) -> ScVal {
    let small = random.random_range(0..3_u32);
    let end = random.random_bool(0.1);
    // Narrow types are more frequent, so that wide numbers come late in a column.
    match random.random_range(0..24) {
        0..=7 => ScVal::U32(if end { u32::MAX } else { small }),
        8..=11 => ScVal::I32(if end { i32::MIN } else { small.cast_signed() }),
        12..=14 => ScVal::U64(if end { u64::MAX } else { small.into() }),
        15..=17 => ScVal::I64(if end { i64::MIN } else { small.into() }),
        18 => ScVal::Timepoint(TimePoint(small.into())),
        19 => ScVal::Duration(Duration(small.into())),
        20 => u128(if end { u128::MAX } else { small.into() }),
        21 => i128(if end { i128::MIN } else { small.into() }),
        22 => ScVal::U256(UInt256Parts { hi_hi: 0, hi_lo: 0, lo_hi: 0, lo_lo: small.into() }),
        _ => ScVal::I256(Int256Parts {
            hi_hi: if end { i64::MIN } else { 0 },
            hi_lo: 0,
            lo_hi: 0,
            lo_lo: small.into(),
        }),
    }
}

/// Returns a text of random type. There are few different ones, among them invalid UTF-8 and text
/// that looks like its escape.
fn text(random: &mut ChaCha8Rng) -> ScVal {
    const TEXTS: [&[u8]; 9] =
        [b"", b"a", b"b", b"\xff", b"\\xff", b"a\0b", b"\"'\n", "grün".as_bytes(), b"1"];
    match random.random_range(0..8) {
        0..=4 => string(TEXTS[random.random_range(0..TEXTS.len())]),
        5 | 6 => symbol(["a", "b", "c_1"][random.random_range(0..3)]),
        _ => address(random),
    }
}

fn address(random: &mut ChaCha8Rng) -> ScVal {
    let id = [random.random_range(0..3); 32];
    ScVal::Address(match random.random() {
        true => ScAddress::Contract(ContractId(Hash(id))),
        false => ScAddress::Account(AccountId(PublicKey::PublicKeyTypeEd25519(Uint256(id)))),
    })
}
