//! Where the values of names come from.

use super::kind::Kind;
use super::name::Name;
use super::value::Value;

/// Something with named values, such as an event.
pub trait Fields {
    /// Returns the value of a name; `None` where there is none of this name. A value that may be there
    /// and is not is [`Value::Null`].
    fn field(&self, name: &Name) -> Option<Value<'_>>;
}

/// What is known of something with named values before there is one.
pub trait Kinds {
    /// Returns what values a name has; `None` where there is none of this name.
    fn kind(&self, name: &Name) -> Option<Kind<'_>>;
}
