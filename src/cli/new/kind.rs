//! Types of a contract's interface, as written in Rust with `soroban-sdk`.

use std::fmt;

use stellar_xdr::ScSpecTypeDef;

use super::error::Unwritable;
use super::rust;

/// A type of a contract's interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A type of the Rust language.
    Plain(&'static str),
    /// A type of the SDK, by its name there.
    Sdk(&'static str),
    /// A byte array of this length.
    BytesN(u32),
    /// An optional value.
    Option(Box<Kind>),
    /// A list of values.
    Vec(Box<Kind>),
    /// A map from keys to values.
    Map(Box<Kind>, Box<Kind>),
    /// A tuple.
    Tuple(Vec<Kind>),
    /// A value or an error.
    Result(Box<Kind>, Box<Kind>),
    /// A type that the interface refers to by name.
    Named(String),
}

impl Kind {
    /// Reads the type of a parameter or a field.
    pub fn of(spec: &ScSpecTypeDef) -> Result<Self, Unwritable> {
        let boxed = |spec: &ScSpecTypeDef| Self::of(spec).map(Box::new);
        Ok(match spec {
            ScSpecTypeDef::Bool => Self::Plain("bool"),
            ScSpecTypeDef::Void => Self::Plain("()"),
            ScSpecTypeDef::U32 => Self::Plain("u32"),
            ScSpecTypeDef::I32 => Self::Plain("i32"),
            ScSpecTypeDef::U64 => Self::Plain("u64"),
            ScSpecTypeDef::I64 => Self::Plain("i64"),
            ScSpecTypeDef::U128 => Self::Plain("u128"),
            ScSpecTypeDef::I128 => Self::Plain("i128"),
            ScSpecTypeDef::Val => Self::Sdk("Val"),
            ScSpecTypeDef::Error => Self::Sdk(rust::ERROR),
            ScSpecTypeDef::Timepoint => Self::Sdk("Timepoint"),
            ScSpecTypeDef::Duration => Self::Sdk("Duration"),
            ScSpecTypeDef::U256 => Self::Sdk("U256"),
            ScSpecTypeDef::I256 => Self::Sdk("I256"),
            ScSpecTypeDef::Bytes => Self::Sdk("Bytes"),
            ScSpecTypeDef::String => Self::Sdk("String"),
            ScSpecTypeDef::Symbol => Self::Sdk("Symbol"),
            ScSpecTypeDef::Address => Self::Sdk("Address"),
            ScSpecTypeDef::MuxedAddress => Self::Sdk("MuxedAddress"),
            ScSpecTypeDef::BytesN(bytes) => Self::BytesN(bytes.n),
            ScSpecTypeDef::Option(option) => Self::Option(boxed(&option.value_type)?),
            ScSpecTypeDef::Vec(list) => Self::Vec(boxed(&list.element_type)?),
            ScSpecTypeDef::Map(map) => Self::Map(boxed(&map.key_type)?, boxed(&map.value_type)?),
            ScSpecTypeDef::Tuple(tuple) => {
                Self::Tuple(tuple.value_types.iter().map(Self::of).collect::<Result<_, _>>()?)
            }
            ScSpecTypeDef::Result(_) => {
                return Err(Unwritable::Misplaced("a Result within another type".to_owned()));
            }
            ScSpecTypeDef::Udt(named) => {
                let name = named.name.to_utf8_string_lossy();
                if rust::is_type(&name) {
                    Self::Named(name)
                } else {
                    return Err(Unwritable::Name { what: "a type", name });
                }
            }
        })
    }

    /// Reads the return type of a function, the only place where a `Result` is allowed.
    pub fn returned(spec: &ScSpecTypeDef) -> Result<Self, Unwritable> {
        match spec {
            ScSpecTypeDef::Result(result) => {
                let (value, error) = (Self::of(&result.ok_type)?, Self::of(&result.error_type)?);
                Ok(Self::Result(Box::new(value), Box::new(error)))
            }
            other => Self::of(other),
        }
    }

    /// Returns this type and all types that it is composed of, without the definitions of named
    /// types.
    pub fn parts(&self) -> Vec<&Self> {
        let mut parts = vec![self];
        let mut next = 0;
        while let Some(part) = parts.get(next).copied() {
            match part {
                Self::Option(one) | Self::Vec(one) => parts.push(one),
                Self::Map(one, other) | Self::Result(one, other) => {
                    parts.extend([&**one, &**other])
                }
                Self::Tuple(all) => parts.extend(all),
                Self::Plain(_) | Self::Sdk(_) | Self::BytesN(_) | Self::Named(_) => {}
            }
            next += 1;
        }
        parts
    }

    /// Returns the named types whose values are embedded in a value of this type, that is, not
    /// through a list or a map.
    pub fn embedded_named_types(&self) -> Vec<&str> {
        let mut names = Vec::new();
        let mut left = vec![self];
        while let Some(part) = left.pop() {
            match part {
                Self::Named(name) => names.push(name.as_str()),
                Self::Option(one) => left.push(one),
                Self::Result(one, other) => left.extend([&**one, &**other]),
                Self::Tuple(all) => left.extend(all),
                _ => {}
            }
        }
        names
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(name) | Self::Sdk(name) => f.write_str(name),
            Self::BytesN(count) => write!(f, "BytesN<{count}>"),
            Self::Option(value) => write!(f, "Option<{value}>"),
            Self::Vec(element) => write!(f, "Vec<{element}>"),
            Self::Map(key, value) => write!(f, "Map<{key}, {value}>"),
            Self::Result(value, error) => write!(f, "Result<{value}, {error}>"),
            Self::Named(name) => f.write_str(name),
            Self::Tuple(values) => {
                let names: Vec<_> = values.iter().map(Self::to_string).collect();
                let last = if names.len() == 1 { "," } else { "" };
                write!(f, "({}{last})", names.join(", "))
            }
        }
    }
}
