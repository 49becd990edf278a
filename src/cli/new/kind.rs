//! Types of a contract's interface, as written in Rust with `soroban-sdk`.

use std::collections::BTreeSet;
use std::fmt;

use stellar_xdr::ScSpecTypeDef;

use super::interface::{Body, Interface, Unwritable};
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

/// Names that a source file must import.
#[derive(Debug, Default)]
pub struct Imports {
    /// Names from `soroban_sdk`.
    pub sdk: BTreeSet<String>,
    /// Names from the project's `interface` module.
    pub own: BTreeSet<String>,
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
                match rust::is_type(&name) {
                    true => Self::Named(name),
                    false => return Err(Unwritable::Name { what: "a type", name }),
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

    /// Whether the Rust type is `Copy`, so that using a value twice needs no clone.
    pub fn is_copy(&self, interface: &Interface) -> bool {
        match self {
            Self::Plain(_) | Self::Sdk("Val" | rust::ERROR) => true,
            Self::Named(name) => match interface.definition(name) {
                Some(definition) => matches!(definition.body, Body::Enum(_) | Body::Errors(_)),
                None => interface.undefined.contains(name),
            },
            _ => false,
        }
    }

    /// Whether the SDK supports the type in a native test. It supports neither a `Val` outside
    /// lists and maps nor errors of the contract.
    pub fn is_native(&self, interface: &Interface) -> bool {
        let is_error = |name: &str| {
            let definition = interface.definition(name);
            definition.is_some_and(|one| matches!(one.body, Body::Errors(_)))
        };
        let mut left = vec![(self, false)];
        while let Some((part, listed)) = left.pop() {
            match part {
                Self::Sdk("Val") if !listed => return false,
                Self::Sdk(name) if is_error(name) => return false,
                Self::Named(name) if is_error(name) => return false,
                Self::Named(name) if interface.undefined.contains(name) && !listed => return false,
                Self::Option(one) => left.push((one, listed)),
                Self::Tuple(all) => left.extend(all.iter().map(|one| (one, listed))),
                Self::Vec(one) => left.push((one, true)),
                Self::Map(one, other) => left.extend([(&**one, true), (&**other, true)]),
                _ => {}
            }
        }
        true
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

impl Imports {
    /// Adds the names that a type needs.
    pub fn add(&mut self, kind: &Kind, interface: &Interface) {
        for part in kind.parts() {
            let (name, of_sdk) = match part {
                Kind::Plain(_) | Kind::Option(_) | Kind::Tuple(_) | Kind::Result(..) => continue,
                Kind::BytesN(_) => ("BytesN", true),
                Kind::Vec(_) => ("Vec", true),
                Kind::Map(..) => ("Map", true),
                Kind::Sdk(name) => (*name, true),
                Kind::Named(name) => (name.as_str(), false),
            };
            if interface.definition(name).is_some() || interface.undefined.contains(name) {
                self.own.insert(name.to_owned());
            } else if of_sdk {
                self.sdk.insert(name.to_owned());
            } else {
                self.sdk.extend(rust::sdk_path(name));
            }
        }
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
