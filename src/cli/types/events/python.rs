//! Types of decoded events in Python. Each type may name any other, also one that follows: names stand
//! in quotation marks.

use std::fmt::Write;

use super::super::{in_comment, literal};
use super::shape::{ANYTHING, ERROR, Form, Member, Shape, Shapes, UNION, UNNAMED};

const HEAD: &str = "\
# Decoded events, as `orrery types --events --lang python` prints them.

from typing import Any, Dict, List, Literal, TypedDict, Union

# A value without a declared type.
Anything = Any
# An error of a contract or of the network.
ContractError = TypedDict(\"ContractError\", {\"error\": Anything})
";

const TAIL: &str = "
# An event that has no declaration among these.
UnnamedEvent = TypedDict(\"UnnamedEvent\", {\"name\": None, \"params\": None}, total=False)
# `decoded` of an event in answers and the stream, or `event` of a webhook: told apart by `name`.
";

pub fn of(shapes: &Shapes) -> String {
    let mut out = HEAD.to_owned();
    // Writing to memory does not fail.
    for named in &shapes.named {
        let (name, of) = (&named.name, in_comment(&named.of));
        let _ = write!(out, "\n# `{of}`\n");
        match &named.form {
            // A name in quotation marks would be a text and no type.
            Form::Alias(shape) => {
                let _ = writeln!(out, "{name} = Union[{}]", plain(shape));
            }
            Form::Record(members) => record(name, members, &mut out),
        }
    }
    for event in &shapes.events {
        let (name, params) = (literal(&event.name), &event.params);
        let _ = write!(
            out,
            "\n{0} = TypedDict(\"{0}\", {{\"name\": Literal[{name}], \"params\": \"{params}\"}})\n",
            event.type_name
        );
    }
    out.push_str(TAIL);
    let events = shapes.events.iter().map(|event| event.type_name.as_str());
    let all: Vec<_> = events.chain([UNNAMED]).collect();
    let _ = writeln!(out, "{UNION} = Union[\n    {},\n]", all.join(",\n    "));
    out
}

/// Writes the definition of an object. What it may lack stands in a type of its own, from which it
/// derives: `NotRequired` came with Python 3.11.
fn record(name: &str, members: &[Member], out: &mut String) {
    let (lacking, present): (Vec<&Member>, Vec<_>) = members.iter().partition(|it| it.may_lack);
    if lacking.is_empty() {
        return table(name, &present, "", out);
    }
    let (required, optional) = (format!("_{name}Always"), format!("_{name}Perhaps"));
    table(&required, &present, "", out);
    table(&optional, &lacking, ", total=False", out);
    let _ = write!(out, "class {name}({required}, {optional}):\n    pass\n");
}

fn table(name: &str, members: &[&Member], end: &str, out: &mut String) {
    let _ = writeln!(out, "{name} = TypedDict(\"{name}\", {{");
    for member in members {
        // A JSON string literal is also a Python string literal.
        let _ = writeln!(out, "    {}: {},", literal(&member.name), plain(&member.shape));
    }
    let _ = writeln!(out, "}}{end})");
}

fn plain(shape: &Shape) -> String {
    match shape {
        Shape::Anything => ANYTHING.to_owned(),
        Shape::Error => ERROR.to_owned(),
        Shape::Null => "None".to_owned(),
        Shape::Boolean => "bool".to_owned(),
        Shape::Number => "int".to_owned(),
        Shape::Numbers(values) if values.is_empty() => "int".to_owned(),
        Shape::Numbers(values) => format!("Literal[{}]", joined(values.iter().map(u32::to_string))),
        Shape::Text => "str".to_owned(),
        Shape::Word(word) => format!("Literal[{}]", literal(word)),
        Shape::List(of) => format!("List[{}]", plain(of)),
        Shape::Tuple(of) => format!("List[{}]", union(of)),
        Shape::Map(of) => format!("Dict[str, {}]", plain(of)),
        Shape::Either(of) => union(of),
        Shape::Named(name) => format!("\"{name}\""),
    }
}

/// Returns the type of a value of one of these; that of an array without items has any.
fn union(of: &[Shape]) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in of.iter().map(plain) {
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    match parts.as_slice() {
        [] => ANYTHING.to_owned(),
        [one] => one.clone(),
        _ => format!("Union[{}]", joined(parts.into_iter())),
    }
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}
