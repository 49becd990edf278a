//! Types of decoded events in TypeScript.

use std::fmt::Write;

use super::super::typescript::member;
use super::super::{in_comment, literal};
use super::shape::{ANYTHING, ERROR, Form, Shape, Shapes, UNION, UNNAMED};

const HEAD: &str = "\
// Decoded events, as `orrery types --events --lang ts` prints them.

/** A value without a declared type. */
export type Anything = unknown;
/** An error of a contract or of the network. */
export interface ContractError {
  error: Anything;
}
";

const TAIL: &str = "
/** An event that has no declaration among these. */
export interface UnnamedEvent {
  name?: null;
  params?: null;
}

/** `decoded` of an event in answers and the stream, or `event` of a webhook: told apart by `name`. */
";

pub fn of(shapes: &Shapes) -> String {
    let mut out = HEAD.to_owned();
    // Writing to memory does not fail.
    for named in &shapes.named {
        let (name, of) = (&named.name, in_comment(&named.of));
        let _ = write!(out, "\n/** `{of}` */\n");
        let _ = match &named.form {
            Form::Alias(shape) => writeln!(out, "export type {name} = {};", plain(shape)),
            Form::Record(members) => {
                let _ = writeln!(out, "export interface {name} {{");
                for one in members {
                    let lack = if one.may_lack { "?" } else { "" };
                    let _ = writeln!(out, "  {}{lack}: {};", member(&one.name), plain(&one.shape));
                }
                writeln!(out, "}}")
            }
        };
    }
    for event in &shapes.events {
        let (name, params) = (literal(&event.name), &event.params);
        let _ = write!(
            out,
            "\nexport interface {} {{\n  name: {name};\n  params: {params};\n}}\n",
            event.type_name
        );
    }
    out.push_str(TAIL);
    let events = shapes.events.iter().map(|event| event.type_name.as_str());
    let all: Vec<_> = events.chain([UNNAMED]).collect();
    let _ = writeln!(out, "export type {UNION} =\n  | {};", all.join("\n  | "));
    out
}

fn plain(shape: &Shape) -> String {
    match shape {
        Shape::Anything => ANYTHING.to_owned(),
        Shape::Error => ERROR.to_owned(),
        Shape::Null => "null".to_owned(),
        Shape::Boolean => "boolean".to_owned(),
        Shape::Number => "number".to_owned(),
        Shape::Numbers(values) if values.is_empty() => "never".to_owned(),
        Shape::Numbers(values) => joined(values.iter().map(u32::to_string), " | "),
        Shape::Text => "string".to_owned(),
        Shape::Word(word) => literal(word),
        Shape::List(of) => format!("({})[]", plain(of)),
        Shape::Tuple(of) => format!("[{}]", joined(of.iter().map(plain), ", ")),
        Shape::Map(of) => format!("{{ [key: string]: {} }}", plain(of)),
        Shape::Either(of) if of.is_empty() => "never".to_owned(),
        Shape::Either(of) => joined(of.iter().map(plain), " | "),
        Shape::Named(name) => name.clone(),
    }
}

fn joined(parts: impl Iterator<Item = String>, sign: &str) -> String {
    parts.collect::<Vec<_>>().join(sign)
}
