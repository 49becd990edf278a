//! Generates Python types.

use std::fmt::Write;

use super::column::Kind;
use super::{Table, in_comment, literal};

const HEAD: &str = "\
# Rows of tables, as `orrery types --lang python` prints them.

from typing import Any, Dict, List, Optional, TypedDict, Union

# A number up to 2^53 - 1 in magnitude, else its decimal digits.
Integer = Union[int, str]
# What a program emitted without a type: values in their tagged form.
Anything = Any
";

pub fn of(tables: &[Table]) -> String {
    let mut out = HEAD.to_owned();
    for Table { name, called, columns } in tables {
        let called = in_comment(called);
        let _ = write!(out, "\n# A row of `{called}`.\n");
        out.push_str(&record(name, columns));
    }
    out
}

/// Returns the definition of a type, after those of the types inside it. Uses the functional form
/// of `TypedDict`, because members may have names that class attributes cannot have.
fn record(name: &str, members: &[(String, Kind)]) -> String {
    let mut inner = String::new();
    let mut own = format!("{name} = TypedDict(\"{name}\", {{\n");
    for (number, (member, kind)) in members.iter().enumerate() {
        let kind = nullable(kind, &format!("{name}{}", number + 1), &mut inner);
        // A JSON string literal is also a Python string literal.
        let member = literal(member);
        // Writing to memory does not fail.
        let _ = writeln!(own, "    {member}: {kind},");
    }
    own.push_str("})\n");
    inner + &own
}

/// Returns the type of a member. For objects, appends the definition of a separate type called
/// `name` to `inner`.
fn nullable(kind: &Kind, name: &str, inner: &mut String) -> String {
    match kind {
        Kind::Any => "Anything".to_owned(),
        Kind::Present(of) => plain(of, name, inner),
        kind => format!("Optional[{}]", plain(kind, name, inner)),
    }
}

fn plain(kind: &Kind, name: &str, inner: &mut String) -> String {
    match kind {
        Kind::Boolean => "bool".to_owned(),
        Kind::Number => "int".to_owned(),
        Kind::Integer => "Integer".to_owned(),
        Kind::Text => "str".to_owned(),
        Kind::Present(of) => plain(of, name, inner),
        Kind::List(of) => format!("List[{}]", nullable(of, name, inner)),
        Kind::Map(of) => format!("Dict[str, {}]", nullable(of, name, inner)),
        Kind::Record(members) => {
            inner.push_str(&record(name, members));
            name.to_owned()
        }
        Kind::Any => "Anything".to_owned(),
    }
}
