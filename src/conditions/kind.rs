//! What values a name can have, as far as that is declared.

use orrery_interfaces::{Definition, Types};
use stellar_xdr::ScSpecTypeDef;

use super::value::Step;

/// What values a name can have.
#[derive(Debug, Clone, Copy)]
pub enum Kind<'a> {
    /// Anything.
    Any,
    /// Numbers.
    Number,
    /// Texts.
    Text,
    /// Booleans.
    Bool,
    /// Lists of anything.
    List,
    /// Objects of JSON, whose members are not declared.
    Object,
    /// Values of a declared type.
    Declared(&'a ScSpecTypeDef, &'a Types),
}

/// The type of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    /// Not known before there is a value.
    Any,
    Number,
    Text,
    Bool,
    /// A value with parts, which cannot stand beside another: what it is called.
    Parts(&'static str),
}

impl Type {
    /// What values of the type are called.
    pub fn called(self) -> &'static str {
        match self {
            Self::Any => "a value",
            Self::Number => "a number",
            Self::Text => "a text",
            Self::Bool => "true or false",
            Self::Parts(called) => called,
        }
    }
}

pub(crate) const A_LIST: &str = "a list";
const A_MAP: &str = "a map";
pub(crate) const A_STRUCT: &str = "a struct";
pub(crate) const A_UNION: &str = "a union";

impl<'a> Kind<'a> {
    /// Returns the kind of a part; `None` where there is no such part.
    pub(crate) fn part(self, step: &Step) -> Option<Kind<'a>> {
        let Kind::Declared(declared, types) = self else {
            return match (self, step) {
                (Kind::Any | Kind::List, Step::Item(_))
                | (Kind::Any | Kind::Object, Step::Member(_)) => Some(Kind::Any),
                _ => None,
            };
        };
        let of = |kind| Some(Kind::Declared(kind, types));
        match (inner(declared), step) {
            (ScSpecTypeDef::Val, _) => Some(Kind::Any),
            (ScSpecTypeDef::Vec(vec), Step::Item(_)) => of(&vec.element_type),
            (ScSpecTypeDef::Map(map), Step::Member(_)) => of(&map.value_type),
            (ScSpecTypeDef::Tuple(tuple), Step::Item(number)) => {
                of(tuple.value_types.get(number.checked_sub(1)?)?)
            }
            (ScSpecTypeDef::Udt(named), step) => match (types.get(named.name.as_slice())?, step) {
                (Definition::Struct(fields), Step::Member(name)) => {
                    let is = |field: &[u8]| str::from_utf8(field).is_ok_and(|it| name.is(it));
                    let exact = fields.get(name.written().as_bytes());
                    let folded = || fields.iter().find(|(field, _)| is(field)).map(|it| it.1);
                    of(exact.or_else(folded)?)
                }
                (Definition::Tuple(kinds), Step::Item(number)) => {
                    of(kinds.get(number.checked_sub(1)?)?)
                }
                (Definition::Union(_), Step::Member(name)) if name.is("tag") => Some(Kind::Text),
                (Definition::Union(_), Step::Member(name)) if name.is("values") => Some(Kind::List),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the type of its values.
    pub(crate) fn scalar(self) -> Type {
        let (declared, types) = match self {
            Self::Any => return Type::Any,
            Self::Number => return Type::Number,
            Self::Text => return Type::Text,
            Self::Bool => return Type::Bool,
            Self::List => return Type::Parts(A_LIST),
            Self::Object => return Type::Parts(A_STRUCT),
            Self::Declared(declared, types) => (inner(declared), types),
        };
        match declared {
            ScSpecTypeDef::Val | ScSpecTypeDef::Void => Type::Any,
            ScSpecTypeDef::Bool => Type::Bool,
            ScSpecTypeDef::U32
            | ScSpecTypeDef::I32
            | ScSpecTypeDef::U64
            | ScSpecTypeDef::I64
            | ScSpecTypeDef::Timepoint
            | ScSpecTypeDef::Duration
            | ScSpecTypeDef::U128
            | ScSpecTypeDef::I128
            | ScSpecTypeDef::U256
            | ScSpecTypeDef::I256 => Type::Number,
            ScSpecTypeDef::Bytes
            | ScSpecTypeDef::BytesN(_)
            | ScSpecTypeDef::String
            | ScSpecTypeDef::Symbol
            | ScSpecTypeDef::Address
            | ScSpecTypeDef::MuxedAddress => Type::Text,
            ScSpecTypeDef::Error => Type::Parts("an error"),
            ScSpecTypeDef::Vec(_) | ScSpecTypeDef::Tuple(_) => Type::Parts(A_LIST),
            ScSpecTypeDef::Map(_) => Type::Parts(A_MAP),
            // Removed by `inner`.
            ScSpecTypeDef::Option(_) | ScSpecTypeDef::Result(_) => Type::Any,
            ScSpecTypeDef::Udt(named) => match types.get(named.name.as_slice()) {
                Some(Definition::Struct(_)) => Type::Parts(A_STRUCT),
                Some(Definition::Tuple(_)) => Type::Parts(A_LIST),
                Some(Definition::Union(_)) => Type::Parts(A_UNION),
                Some(Definition::Enum(_)) => Type::Number,
                Some(Definition::Errors(_)) => Type::Parts("an error"),
                None => Type::Any,
            },
        }
    }
}

/// Returns a type without the options and results around it.
fn inner(mut kind: &ScSpecTypeDef) -> &ScSpecTypeDef {
    loop {
        kind = match kind {
            ScSpecTypeDef::Option(of) => &of.value_type,
            ScSpecTypeDef::Result(of) => &of.ok_type,
            kind => return kind,
        };
    }
}
