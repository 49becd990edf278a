//! Names that a condition has of a change of contract data.

use std::sync::LazyLock;

use stellar_xdr::{ScSpecTypeDef, ScVal};

use orrery_conditions::{Condition, Fields, Kind, Kinds, Misfit, Name, Value};
use orrery_interfaces::{Plain, PlainData, Types, data_name, value_kind};

/// The names, in the order of bodies.
const KEY_NAME: &str = "key_name";
const KEY_ARGS: &str = "key_args";
const CHANGE: &str = "change";
const VALUE: &str = "value";
const PREVIOUS: &str = "previous";

static NO_TYPES: LazyLock<Types> = LazyLock::new(Types::default);

/// A value with its type, if one is declared.
pub(super) struct TypedValue<'a> {
    value: &'a ScVal,
    declared: Option<(ScSpecTypeDef, &'a Types)>,
}

impl<'a> TypedValue<'a> {
    /// Returns the value under a key, by the first of these interfaces that fits.
    pub fn of(data: &PlainData<'a>, key: &ScVal, value: &'a ScVal) -> Self {
        let declared =
            data.0.iter().find_map(|(types, _)| Some((value_kind(key, value, types)?, *types)));
        Self { value, declared }
    }

    fn plain(&self) -> Value<'_> {
        Value::of(match &self.declared {
            Some((kind, types)) => Plain::new(self.value, kind, types),
            None => Plain::undeclared(self.value, &NO_TYPES),
        })
    }
}

/// A change of contract data.
pub(super) struct DataFields<'a> {
    pub change: &'static str,
    pub key: Option<&'a ScVal>,
    pub value: Option<TypedValue<'a>>,
    pub previous: Option<TypedValue<'a>>,
}

impl Fields for DataFields<'_> {
    fn field(&self, name: &Name) -> Option<Value<'_>> {
        let named = self.key.and_then(data_name);
        Some(if name.is(KEY_NAME) {
            named.map_or(Value::Null, |(name, _)| {
                Value::Text(orrery_ledger::domain::text(name).into())
            })
        } else if name.is(KEY_ARGS) {
            let of_arg = |arg| Value::of(Plain::undeclared(arg, &NO_TYPES));
            named.map_or(Value::Null, |(_, args)| Value::List(args.iter().map(of_arg).collect()))
        } else if name.is(CHANGE) {
            Value::Text(self.change.into())
        } else if name.is(VALUE) {
            self.value.as_ref().map_or(Value::Null, TypedValue::plain)
        } else if name.is(PREVIOUS) {
            self.previous.as_ref().map_or(Value::Null, TypedValue::plain)
        } else {
            return None;
        })
    }
}

struct DataKinds;

impl Kinds for DataKinds {
    fn kind(&self, name: &Name) -> Option<Kind<'_>> {
        let kinds = [
            (KEY_NAME, Kind::Text),
            (KEY_ARGS, Kind::List),
            (CHANGE, Kind::Text),
            (VALUE, Kind::Any),
            (PREVIOUS, Kind::Any),
        ];
        kinds.into_iter().find(|(known, _)| name.is(known)).map(|(_, kind)| kind)
    }
}

/// Checks whether changes of contract data can meet a condition. The error continues the sentence after the
/// condition's name.
///
/// # Errors
/// A part of a sentence, when none can.
pub(crate) fn check(condition: &Condition) -> Result<(), String> {
    condition.check(&DataKinds).map_err(|misfit| match misfit {
        Misfit::Lacks(name) => format!(
            "names '{name}', and a change of data has {KEY_NAME}, {KEY_ARGS}, {VALUE}, {PREVIOUS} and {CHANGE}"
        ),
        Misfit::Type(problem) => format!("can be met by no change of data: {problem}"),
    })
}
