//! Generates the source of a contract's types and events.

use std::collections::BTreeSet;

use super::imports::Imports;
use super::interface::{Body, Case, Definition, Field, Interface, Variant};
use super::kind::Kind;
use super::rust;

const HEAD: &str = "\
//! The types and events of the contract, as its module tells of them. Entries of its storage and arguments of
//! its functions are read and written with these names and types, so leave them as they are.
";

/// Returns the content of `src/interface.rs`; `None` for an interface that needs no types of its
/// own.
pub fn source(interface: &Interface) -> Option<String> {
    if interface.definitions.is_empty() && interface.undefined.is_empty() {
        return None;
    }
    let mut imports = Imports::default();
    let kinds = interface.definitions.iter().flat_map(Definition::kinds);
    kinds.for_each(|kind| imports.add(kind, interface));
    imports.sdk.extend(interface.definitions.iter().map(|one| macro_of(&one.body).to_owned()));
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
        source.push_str(&define(one, interface.incomparable.contains(&one.name)));
    }
    Some(source)
}

fn macro_of(body: &Body) -> &'static str {
    match body {
        Body::Event { .. } => "contractevent",
        Body::Errors(_) => "contracterror",
        Body::Struct(_) | Body::Tuple(_) | Body::Union(_) | Body::Enum(_) => "contracttype",
    }
}

fn define(definition: &Definition, incomparable: bool) -> String {
    let Definition { doc, lib, name, body } = definition;
    let mut arguments = Vec::new();
    if !lib.is_empty() {
        arguments.push(format!("lib = {lib:?}"));
    }
    if let Body::Event { topics, format, .. } = body {
        arguments.push(format!("topics = {topics:?}"));
        if *format != "map" {
            arguments.push(format!("data_format = {format:?}"));
        }
    }
    let arguments =
        if arguments.is_empty() { String::new() } else { format!("({})", arguments.join(", ")) };
    let derives = match (body, incomparable) {
        (Body::Enum(_) | Body::Errors(_), _) => "Clone, Copy, Debug, PartialEq, Eq",
        (_, true) => "Clone, Debug",
        (_, false) => "Clone, Debug, PartialEq, Eq",
    };
    let head =
        format!("{}#[{}{arguments}]\n#[derive({derives})]\n", rust::doc(doc, 0), macro_of(body));
    head + &match body {
        Body::Struct(fields) if fields.is_empty() => format!("pub struct {name} {{}}\n"),
        Body::Struct(fields) => {
            let fields: String = fields.iter().map(|field| self::field(field, false)).collect();
            format!("pub struct {name} {{\n{fields}}}\n")
        }
        Body::Tuple(fields) => tuple(name, fields),
        Body::Union(variants) => {
            let variants: String = variants.iter().map(variant).collect();
            format!("pub enum {name} {{\n{variants}}}\n")
        }
        Body::Enum(cases) | Body::Errors(cases) => {
            let cases: String = cases.iter().map(case).collect();
            format!("#[repr(u32)]\npub enum {name} {{\n{cases}}}\n")
        }
        Body::Event { fields, .. } if fields.is_empty() => format!("pub struct {name} {{}}\n"),
        Body::Event { fields, .. } => {
            let fields = fields.iter().map(|(field, is_topic)| self::field(field, *is_topic));
            format!("pub struct {name} {{\n{}}}\n", fields.collect::<String>())
        }
    }
}

fn field(field: &Field, is_topic: bool) -> String {
    let topic = if is_topic { "    #[topic]\n" } else { "" };
    format!("{}{topic}    pub {}: {},\n", rust::doc(&field.doc, 4), field.name, field.kind)
}

fn tuple(name: &str, fields: &[Field]) -> String {
    let head = format!("pub struct {name}");
    if fields.iter().all(|field| field.doc.is_empty()) {
        let fields: Vec<_> = fields.iter().map(|field| format!("pub {}", field.kind)).collect();
        return rust::list(&head, &fields, ";", 0);
    }
    let field = |field: &Field| format!("{}    pub {},\n", rust::doc(&field.doc, 4), field.kind);
    format!("{head}(\n{});\n", fields.iter().map(field).collect::<String>())
}

fn variant(variant: &Variant) -> String {
    let Variant { doc, name, values } = variant;
    let doc = rust::doc(doc, 4);
    if values.is_empty() {
        format!("{doc}    {name},\n")
    } else {
        let values: Vec<_> = values.iter().map(Kind::to_string).collect();
        doc + &rust::list(name, &values, ",", 4)
    }
}

fn case(case: &Case) -> String {
    format!("{}    {} = {},\n", rust::doc(&case.doc, 4), case.name, case.value)
}

/// Returns the type names in the sources of an interface, which must not be used for anything else.
pub fn names(interface: &Interface) -> BTreeSet<String> {
    let defined = interface.definitions.iter().map(|one| one.name.clone());
    defined.chain(interface.undefined.iter().cloned()).collect()
}
