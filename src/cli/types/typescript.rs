//! Generates TypeScript types.

use std::fmt::Write;

use super::column::Kind;
use super::{Table, in_comment, literal};

const HEAD: &str = "\
// Rows of tables, as `orrery types --lang ts` prints them.

/** A number up to 2^53 - 1 in magnitude, else its decimal digits. */
export type Integer = number | string;
/** What a program emitted without a type: values in their tagged form. */
export type Anything = unknown;
";

pub fn of(tables: &[Table]) -> String {
    let mut out = HEAD.to_owned();
    for Table { name, called, columns } in tables {
        let called = in_comment(called);
        // Writing to memory does not fail.
        let _ = write!(out, "\n/** A row of `{called}`. */\nexport interface {name} {{\n");
        for (column, kind) in columns {
            let _ = writeln!(out, "  {}: {};", member(column), nullable(kind));
        }
        out.push_str("}\n");
    }
    out
}

/// Returns the name of a member, as a JSON string when it is not an identifier.
pub fn member(name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    if name.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_')
        && name.chars().all(is_plain)
    {
        name.to_owned()
    } else {
        literal(name)
    }
}

fn nullable(kind: &Kind) -> String {
    match kind {
        Kind::Any => "Anything".to_owned(),
        Kind::Present(of) => plain(of),
        kind => format!("{} | null", plain(kind)),
    }
}

fn plain(kind: &Kind) -> String {
    match kind {
        Kind::Boolean => "boolean".to_owned(),
        Kind::Number => "number".to_owned(),
        Kind::Integer => "Integer".to_owned(),
        Kind::Text => "string".to_owned(),
        Kind::Present(of) => plain(of),
        Kind::List(of) => format!("({})[]", nullable(of)),
        Kind::Map(of) => format!("Record<string, {}>", nullable(of)),
        Kind::Record(members) => {
            let members =
                members.iter().map(|(name, kind)| format!("{}: {}", member(name), nullable(kind)));
            format!("{{ {} }}", members.collect::<Vec<_>>().join("; "))
        }
        Kind::Any => "Anything".to_owned(),
    }
}
