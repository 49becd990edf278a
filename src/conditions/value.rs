//! Values that names have: null, scalars, and parts of what contracts emit and hold.

use std::borrow::Cow;
use std::fmt;

use orrery_interfaces::{Plain, Scalar};
use orrery_ledger::domain::{ContractId, text};
use stellar_xdr::{AccountId, PublicKey, ScAddress, ScVal, Uint256};

use super::integer::Integer;
use super::name::Name;

/// A step from a value to one of its parts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// To a member of a struct, the value under a key of a map, or `tag` and `values` of a union.
    Member(Name),
    /// To the item of a list with this number, from 1.
    Item(usize),
}

/// A value.
#[derive(Debug, Clone)]
pub enum Value<'a> {
    /// Nothing: `Void`, an option without a value, what is not there.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number of any type, times included.
    Number(Integer),
    /// Text: a symbol, a string, an address as a strkey, bytes in hexadecimal digits. What is not UTF-8
    /// is spelled as plain JSON spells it.
    Text(Cow<'a, str>),
    /// A value with parts: a list, a map, a struct, a tuple, a union, or an error.
    Plain(Plain<'a>),
    /// Several values.
    List(Vec<Value<'a>>),
    /// JSON that a trigger sends.
    Json(&'a serde_json::Value),
}

impl<'a> Value<'a> {
    /// The value of an `ScVal` by its declared type.
    pub fn of(plain: Plain<'a>) -> Self {
        let owned = |text: String| Self::Text(Cow::Owned(text));
        match plain.value() {
            ScVal::Void => Self::Null,
            ScVal::Bool(value) => Self::Bool(*value),
            ScVal::U32(number) => Self::Number((*number).into()),
            ScVal::I32(number) => Self::Number((*number).into()),
            ScVal::U64(number) => Self::Number((*number).into()),
            ScVal::I64(number) => Self::Number((*number).into()),
            ScVal::Timepoint(number) => Self::Number(number.0.into()),
            ScVal::Duration(number) => Self::Number(number.0.into()),
            ScVal::U128(number) => {
                let number = u128::from(number.hi) << 64 | u128::from(number.lo);
                Self::Number(number.into())
            }
            ScVal::I128(number) => {
                let number = i128::from(number.hi) << 64 | i128::from(number.lo);
                Self::Number(number.into())
            }
            ScVal::U256(number) => Self::Number(number.into()),
            ScVal::I256(number) => Self::Number(number.into()),
            ScVal::Bytes(bytes) => owned(hex::encode(bytes.as_slice())),
            ScVal::String(string) => Self::text_of(string.as_slice()),
            ScVal::Symbol(symbol) => Self::text_of(symbol.as_slice()),
            ScVal::Address(address) => owned(address.to_string()),
            ScVal::Error(_)
            | ScVal::Vec(_)
            | ScVal::Map(_)
            | ScVal::ContractInstance(_)
            | ScVal::LedgerKeyContractInstance
            | ScVal::LedgerKeyNonce(_)
            | ScVal::ExecutableTag(_) => Self::Plain(plain),
        }
    }

    /// The value of a scalar that was read from its bytes.
    pub fn of_scalar(scalar: Scalar<'a>) -> Self {
        let owned = |text: String| Self::Text(Cow::Owned(text));
        match scalar {
            Scalar::Absent => Self::Null,
            Scalar::Bool(value) => Self::Bool(value),
            Scalar::U32(number) => Self::Number(number.into()),
            Scalar::I32(number) => Self::Number(number.into()),
            Scalar::U64(number) => Self::Number(number.into()),
            Scalar::I64(number) => Self::Number(number.into()),
            Scalar::U128(number) => Self::Number(number.into()),
            Scalar::I128(number) => Self::Number(number.into()),
            Scalar::Bytes(bytes) => owned(hex::encode(bytes)),
            Scalar::Text(bytes) => Self::text_of(bytes),
            Scalar::Account(key) => {
                let key = PublicKey::PublicKeyTypeEd25519(Uint256(*key));
                owned(ScAddress::Account(AccountId(key)).to_string())
            }
            Scalar::Contract(id) => owned(ContractId(*id).to_string()),
        }
    }

    /// The value of a member of JSON: text, booleans, whole numbers, null, and what has parts.
    pub fn of_json(json: &'a serde_json::Value) -> Self {
        match json {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(value) => Self::Bool(*value),
            serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(number), _) => Self::Number(number.into()),
                (None, Some(number)) => Self::Number(number.into()),
                (None, None) => Self::Text(Cow::Owned(number.to_string())),
            },
            serde_json::Value::String(text) => Self::Text(Cow::Borrowed(text)),
            serde_json::Value::Array(_) | serde_json::Value::Object(_) => Self::Json(json),
        }
    }

    /// The value of bytes that should be UTF-8.
    pub fn text_of(bytes: &'a [u8]) -> Self {
        Self::Text(match str::from_utf8(bytes) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => Cow::Owned(text(bytes)),
        })
    }

    /// Returns a part of the value; null where it has no such part.
    #[must_use]
    pub fn part(&self, step: &Step) -> Value<'a> {
        let part = match (self, step) {
            (Self::Plain(plain), Step::Item(number)) => item(plain, *number).map(Value::of),
            (Self::Plain(plain), Step::Member(name)) => match plain.case() {
                Some((tag, _)) if name.is("tag") => Some(Value::of(tag)),
                Some((_, values)) if name.is("values") => {
                    Some(Value::List(values.into_iter().map(Value::of).collect()))
                }
                Some(_) => None,
                None => plain.member(name.written()).map(Value::of),
            },
            (Self::List(values), Step::Item(number)) => {
                number.checked_sub(1).and_then(|at| values.get(at)).cloned()
            }
            (Self::Json(serde_json::Value::Array(items)), Step::Item(number)) => {
                number.checked_sub(1).and_then(|at| items.get(at)).map(Value::of_json)
            }
            (Self::Json(serde_json::Value::Object(members)), Step::Member(name)) => {
                let exact = members.get(name.written());
                let folds = || members.iter().find(|(key, _)| name.is(key)).map(|(_, value)| value);
                exact.or_else(folds).map(Value::of_json)
            }
            _ => None,
        };
        part.unwrap_or(Value::Null)
    }

    /// Whether there is no value.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }
}

fn item<'a>(plain: &Plain<'a>, number: usize) -> Option<Plain<'a>> {
    plain.item(number.checked_sub(1)?)
}

/// As text in a message: scalars as columns and plain JSON spell them, null as `null`, and what has
/// parts as plain JSON without blanks.
impl fmt::Display for Value<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = |text: serde_json::Result<String>| text.map_err(|_| fmt::Error);
        match self {
            Self::Null => out.write_str("null"),
            Self::Bool(value) => value.fmt(out),
            Self::Number(number) => number.fmt(out),
            Self::Text(text) => out.write_str(text),
            Self::Plain(plain) => out.write_str(&json(serde_json::to_string(plain))?),
            Self::Json(value) => out.write_str(&json(serde_json::to_string(value))?),
            Self::List(values) => {
                out.write_str("[")?;
                for (at, value) in values.iter().enumerate() {
                    if at > 0 {
                        out.write_str(",")?;
                    }
                    match value {
                        Self::Text(text) => out.write_str(&json(serde_json::to_string(text))?)?,
                        value => value.fmt(out)?,
                    }
                }
                out.write_str("]")
            }
        }
    }
}
