//! Generates the source of a contract's types and events.

use super::imports::Imports;
use super::interface::{Content, Definition, Form, Interface, Member};
use super::{kind, rust};

const HEAD: &str = "\
//! The types and events of the contract, as its module tells of them. Entries of its storage and arguments of
//! its functions are read and written with these names and types, so leave them as they are.
";

/// Returns the content of `src/interface.rs`; `None` for an interface that needs no types of its
/// own.
pub fn source(interface: &Interface) -> Option<String> {
    if interface.type_names().is_empty() {
        return None;
    }
    let kinds = interface.definitions.iter().flat_map(Definition::kinds);
    let mut imports = Imports::of(kinds, interface, &[]);
    imports.sdk.extend(interface.definitions.iter().map(|one| macro_of(&one.form).to_owned()));
    if !interface.undefined.is_empty() {
        imports.sdk.insert("Val".to_owned());
    }
    let mut source = format!("{HEAD}\n{}", rust::import("soroban_sdk", &imports.sdk));
    for name in &interface.undefined {
        source.push_str(&format!(
            "\n// The interface names this type without defining it: it may be anything.\n\
             pub type {name} = Val;\n"
        ));
    }
    for one in &interface.definitions {
        source.push('\n');
        source.push_str(&define(one, interface));
    }
    Some(source)
}

fn macro_of(form: &Form) -> &'static str {
    match form {
        Form::Event { .. } => "contractevent",
        Form::Errors => "contracterror",
        Form::Struct | Form::Tuple | Form::Union | Form::Enum => "contracttype",
    }
}

fn define(definition: &Definition, interface: &Interface) -> String {
    let Definition { doc, lib, name, original, form, members } = definition;
    let original = original.as_ref().map_or_else(String::new, |original| {
        format!(
            "// The module calls this {original}, too, and the first of that name has kept it.\n"
        )
    });
    let lib = (!lib.is_empty()).then(|| format!("lib = {lib:?}"));
    let event = match form {
        Form::Event { topics, format: "map" } => Some(format!("topics = {topics:?}")),
        Form::Event { topics, format } => {
            Some(format!("topics = {topics:?}, data_format = {format:?}"))
        }
        _ => None,
    };
    let arguments: Vec<_> = lib.into_iter().chain(event).collect();
    let arguments =
        if arguments.is_empty() { String::new() } else { format!("({})", arguments.join(", ")) };
    let derives = match form {
        Form::Enum | Form::Errors => "Clone, Copy, Debug, PartialEq, Eq",
        _ if interface.unprintable.contains(name) => "Clone",
        _ if interface.incomparable.contains(name) => "Clone, Debug",
        _ => "Clone, Debug, PartialEq, Eq",
    };
    let head = match form {
        Form::Enum | Form::Errors => format!("#[repr(u32)]\npub enum {name}"),
        Form::Union => format!("pub enum {name}"),
        Form::Struct | Form::Tuple | Form::Event { .. } => format!("pub struct {name}"),
    };
    let content = match form {
        Form::Tuple => tuple(&head, definition),
        _ if members.is_empty() => format!("{head} {{}}\n"),
        _ => format!("{head} {{\n{}}}\n", members.iter().map(member).collect::<String>()),
    };
    format!(
        "{original}{}#[{}{arguments}]\n#[derive({derives})]\n{content}",
        rust::doc(doc, 0),
        macro_of(form)
    )
}

fn tuple(head: &str, definition: &Definition) -> String {
    let fields: Vec<_> =
        definition.kinds().map(|kind| format!("pub {}", kind::in_rust(kind))).collect();
    let docs: Vec<_> = definition.members.iter().map(|one| rust::doc(&one.doc, 4)).collect();
    if docs.iter().all(String::is_empty) {
        return rust::list(head, &fields, ";", 0);
    }
    let lines = docs.iter().zip(&fields).map(|(doc, field)| format!("{doc}    {field},\n"));
    format!("{head}(\n{});\n", lines.collect::<String>())
}

fn member(member: &Member) -> String {
    let Member { doc, name, content } = member;
    let doc = rust::doc(doc, 4);
    match content {
        Content::Field(kind) => format!("{doc}    pub {name}: {},\n", kind::in_rust(kind)),
        Content::Topic(kind) => {
            format!("{doc}    #[topic]\n    pub {name}: {},\n", kind::in_rust(kind))
        }
        Content::Values(kinds) if kinds.is_empty() => format!("{doc}    {name},\n"),
        Content::Values(kinds) => {
            let kinds: Vec<_> = kinds.iter().map(kind::in_rust).collect();
            doc + &rust::list(name, &kinds, ",", 4)
        }
        Content::Number(value) => format!("{doc}    {name} = {value},\n"),
    }
}
