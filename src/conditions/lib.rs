//! Conditions over named values, such as those of events: `amount >= 1000 and lower(code) like 'usd%'`
//! ([`Condition`]). Values ([`Value`]) are exact, and come from whatever has names for them ([`Fields`]):
//! an event by itself ([`Event`], or one read from its bytes, [`FlatEvent`]), or what others implement. Also
//! the names themselves, with the way to a part of a value ([`Path`]). Does no I/O, and links no native
//! library.

mod check;
mod condition;
mod cost;
mod evaluate;
mod event;
mod fields;
mod integer;
mod kind;
mod lexer;
mod like;
mod name;
mod node;
mod parser;
mod path;
mod value;

pub use condition::{Condition, Misfit};
pub use event::{DeclaredKinds, Event, FlatEvent, Judgement, Own, check_names};
pub use fields::{Fields, Kinds};
pub use integer::Integer;
pub use kind::Kind;
pub use lexer::Problem;
pub use name::Name;
pub use path::Path;
pub use value::{Step, Value};
