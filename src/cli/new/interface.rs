//! Reads a contract's interface from its spec (SEP-48), and refuses an interface that cannot be
//! written in Rust with `soroban-sdk`.

use std::collections::{BTreeMap, BTreeSet};

use stellar_xdr::{
    ScSpecEntry, ScSpecEventDataFormat, ScSpecEventParamLocationV0, ScSpecEventV0,
    ScSpecFunctionV0, ScSpecUdtStructFieldV0, ScSpecUdtStructV0, ScSpecUdtUnionCaseV0, ScSymbol,
    StringM,
};

use super::error::Unwritable;
use super::kind::Kind;
use super::rust;

/// Maximum length of the name of a type, and of an event, in bytes.
const LONGEST_TYPE: usize = 60;
const LONGEST_EVENT: usize = 32;

/// Functions of a contract, and the types and events that it defines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interface {
    /// Functions, in the order of the spec.
    pub functions: Vec<Function>,
    /// Types and events, in the order of the spec.
    pub definitions: Vec<Definition>,
    /// Names of types that the spec uses, but neither the spec nor the SDK defines.
    pub undefined: BTreeSet<String>,
    /// Names of types whose values cannot be compared with `==`.
    pub incomparable: BTreeSet<String>,
}

/// A function of a contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Documentation from the spec.
    pub doc: String,
    /// Name of the function.
    pub name: String,
    /// Parameters, with unique names.
    pub parameters: Vec<Field>,
    /// Return type; `None` when the spec gives none.
    pub returns: Option<Kind>,
}

/// A parameter of a function, or a field of a struct or an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Documentation from the spec.
    pub doc: String,
    /// Name of the field.
    pub name: String,
    /// Type of the field.
    pub kind: Kind,
}

/// A type or an event that the contract defines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// Documentation from the spec.
    pub doc: String,
    /// Name of the library that the spec gives as its origin; usually empty.
    pub lib: String,
    /// Name of the type or event.
    pub name: String,
    /// Content of the definition.
    pub body: Body,
}

/// Content of a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// A struct with named fields.
    Struct(Vec<Field>),
    /// A struct whose fields are numbered.
    Tuple(Vec<Field>),
    /// An enum whose variants may hold values.
    Union(Vec<Variant>),
    /// An enum of numbers.
    Enum(Vec<Case>),
    /// The contract's error codes.
    Errors(Vec<Case>),
    /// An event.
    Event {
        /// Fixed topics at the beginning.
        topics: Vec<String>,
        /// Format of the data, as named by the SDK: `single-value`, `vec` or `map`.
        format: &'static str,
        /// Fields, each with whether it is a topic.
        fields: Vec<(Field, bool)>,
    },
}

/// A variant of a union.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variant {
    /// Documentation from the spec.
    pub doc: String,
    /// Name of the variant.
    pub name: String,
    /// Types of the variant's values; empty when it has none.
    pub values: Vec<Kind>,
}

/// A named number of an enum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// Documentation from the spec.
    pub doc: String,
    /// Name of the number.
    pub name: String,
    /// The number itself.
    pub value: u32,
}

impl Interface {
    /// Reads the interface from the entries of a module's spec.
    ///
    /// # Errors
    /// When the interface cannot be written in Rust with the SDK.
    pub fn of(spec: &[ScSpecEntry]) -> Result<Self, Unwritable> {
        let mut interface = Self::default();
        // The spec repeats a type that several libraries import.
        let mut seen: BTreeMap<(bool, String), &ScSpecEntry> = BTreeMap::new();
        for entry in spec {
            let (name, is_function) = name_of(entry);
            match seen.insert((is_function, name.clone()), entry) {
                None => {}
                Some(before) if before == entry => continue,
                Some(_) => return Err(Unwritable::Twice(name)),
            }
            match entry {
                ScSpecEntry::FunctionV0(spec) => interface.functions.push(function(spec, name)?),
                other => interface.definitions.extend(definition(other, name)?),
            }
        }
        if interface.functions.is_empty() {
            return Err(Unwritable::NoFunction);
        }
        interface.find_undefined();
        interface.reject_infinite_types()?;
        interface.find_incomparable();
        Ok(interface)
    }

    /// Returns the definition of a type; events are left out.
    pub fn definition(&self, name: &str) -> Option<&Definition> {
        let is_event = |one: &Definition| matches!(one.body, Body::Event { .. });
        self.definitions.iter().find(|one| one.name == name && !is_event(one))
    }

    /// Returns the names of types that the SDK does not support in a native test.
    pub fn not_native(&self) -> Vec<&str> {
        let is_event = |one: &Definition| matches!(one.body, Body::Event { .. });
        let types = self.definitions.iter().filter(|one| !is_event(one));
        let not_native = types.filter(|one| one.kinds().iter().any(|kind| !self.is_native(kind)));
        not_native.map(|one| one.name.as_str()).collect()
    }

    /// Whether the Rust type is `Copy`, so that using a value twice needs no clone.
    pub fn is_copy(&self, kind: &Kind) -> bool {
        match kind {
            Kind::Plain(_) | Kind::Sdk("Val" | rust::ERROR) => true,
            Kind::Named(name) => match self.definition(name) {
                Some(definition) => matches!(definition.body, Body::Enum(_) | Body::Errors(_)),
                None => self.undefined.contains(name),
            },
            _ => false,
        }
    }

    /// Whether the SDK supports the type in a native test. It supports neither a `Val` outside
    /// lists and maps nor errors of the contract.
    pub fn is_native(&self, kind: &Kind) -> bool {
        let is_error = |name: &str| {
            self.definition(name).is_some_and(|one| matches!(one.body, Body::Errors(_)))
        };
        let mut left = vec![(kind, false)];
        while let Some((part, listed)) = left.pop() {
            match part {
                Kind::Sdk("Val") if !listed => return false,
                Kind::Sdk(name) if is_error(name) => return false,
                Kind::Named(name) if is_error(name) => return false,
                Kind::Named(name) if self.undefined.contains(name) && !listed => return false,
                Kind::Option(one) => left.push((one, listed)),
                Kind::Tuple(all) => left.extend(all.iter().map(|one| (one, listed))),
                Kind::Vec(one) => left.push((one, true)),
                Kind::Map(one, other) => left.extend([(&**one, true), (&**other, true)]),
                _ => {}
            }
        }
        true
    }

    fn find_undefined(&mut self) {
        let of_functions = self.functions.iter().flat_map(Function::kinds);
        let kinds = of_functions.chain(self.definitions.iter().flat_map(Definition::kinds));
        let named = kinds.flat_map(Kind::parts).filter_map(|part| match part {
            Kind::Named(name) => Some(name),
            _ => None,
        });
        let is_unknown =
            |name: &&String| self.definition(name).is_none() && rust::sdk_path(name).is_none();
        self.undefined = named.filter(is_unknown).cloned().collect();
    }

    /// Refuses a type that contains itself other than through a list or a map: its values would be
    /// infinite.
    fn reject_infinite_types(&self) -> Result<(), Unwritable> {
        // Types that are known to be finite. When a pass adds none, the remaining types are
        // infinite.
        let mut finite: BTreeSet<&str> = BTreeSet::new();
        loop {
            let ends = |one: &&Definition| {
                let embedded = one.kinds().into_iter().flat_map(Kind::embedded_named_types);
                let mut embedded = embedded.filter(|name| self.definition(name).is_some());
                !finite.contains(one.name.as_str()) && embedded.all(|name| finite.contains(name))
            };
            let new: Vec<&str> =
                self.definitions.iter().filter(ends).map(|one| one.name.as_str()).collect();
            if new.is_empty() {
                break;
            }
            finite.extend(new);
        }
        match self.definitions.iter().find(|one| !finite.contains(one.name.as_str())) {
            Some(infinite) => Err(Unwritable::NoValue(infinite.name.clone())),
            None => Ok(()),
        }
    }

    /// Finds the types that contain a `Val`, which may hold any value, at any depth.
    fn find_incomparable(&mut self) {
        let mut found = self.undefined.clone();
        loop {
            let holds = |part: &Kind| match part {
                Kind::Sdk("Val") => true,
                Kind::Named(name) => found.contains(name),
                _ => false,
            };
            let new: Vec<String> = self
                .definitions
                .iter()
                .filter(|one| !found.contains(&one.name))
                .filter(|one| one.kinds().into_iter().flat_map(Kind::parts).any(holds))
                .map(|one| one.name.clone())
                .collect();
            if new.is_empty() {
                break;
            }
            found.extend(new);
        }
        self.incomparable = found;
    }
}

impl Function {
    /// Returns the types of the parameters and of the result.
    pub fn kinds(&self) -> Vec<&Kind> {
        self.parameters.iter().map(|one| &one.kind).chain(&self.returns).collect()
    }
}

impl Definition {
    /// Returns the types of all fields, or of the values of all variants.
    pub fn kinds(&self) -> Vec<&Kind> {
        match &self.body {
            Body::Struct(fields) | Body::Tuple(fields) => {
                fields.iter().map(|field| &field.kind).collect()
            }
            Body::Union(variants) => variants.iter().flat_map(|variant| &variant.values).collect(),
            Body::Event { fields, .. } => fields.iter().map(|(field, _)| &field.kind).collect(),
            Body::Enum(_) | Body::Errors(_) => Vec::new(),
        }
    }
}

/// Returns the name of an entry, and whether the entry is a function.
fn name_of(entry: &ScSpecEntry) -> (String, bool) {
    match entry {
        ScSpecEntry::FunctionV0(one) => (one.name.0.to_utf8_string_lossy(), true),
        ScSpecEntry::UdtStructV0(one) => (one.name.to_utf8_string_lossy(), false),
        ScSpecEntry::UdtUnionV0(one) => (one.name.to_utf8_string_lossy(), false),
        ScSpecEntry::UdtEnumV0(one) => (one.name.to_utf8_string_lossy(), false),
        ScSpecEntry::UdtErrorEnumV0(one) => (one.name.to_utf8_string_lossy(), false),
        ScSpecEntry::EventV0(one) => (one.name.to_utf8_string_lossy(), false),
    }
}

fn function(spec: &ScSpecFunctionV0, name: String) -> Result<Function, Unwritable> {
    if !rust::is_function(&name) {
        return Err(Unwritable::Name { what: "a function", name });
    }
    // Arguments are passed by position, so parameters may be renamed.
    let mut taken = BTreeSet::from(["env".to_owned()]);
    let parameters = spec.inputs.iter().enumerate().map(|(number, input)| {
        let name = input.name.to_utf8_string_lossy();
        let usable = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && !name.starts_with(|first: char| first.is_ascii_digit())
            && name.bytes().any(|byte| byte.is_ascii_alphanumeric());
        let name = if usable { name } else { format!("argument_{}", number + 1) };
        let name = rust::unique_name(&name, &mut taken);
        Ok(Field { doc: input.doc.to_utf8_string_lossy(), name, kind: Kind::of(&input.type_)? })
    });
    Ok(Function {
        doc: spec.doc.to_utf8_string_lossy(),
        parameters: parameters.collect::<Result<_, _>>()?,
        returns: spec.outputs.first().map(Kind::returned).transpose()?,
        name,
    })
}

fn definition(entry: &ScSpecEntry, name: String) -> Result<Option<Definition>, Unwritable> {
    let (doc, lib, body) = match entry {
        ScSpecEntry::FunctionV0(_) => return Ok(None),
        ScSpecEntry::UdtStructV0(one) => (&one.doc, &one.lib, structure(one)?),
        ScSpecEntry::UdtUnionV0(one) => {
            let variants = one.cases.iter().map(variant).collect::<Result<Vec<_>, _>>()?;
            (&one.doc, &one.lib, Body::Union(variants))
        }
        ScSpecEntry::UdtEnumV0(one) => {
            let cases = one.cases.iter().map(|it| case(&it.doc, &it.name, it.value));
            (&one.doc, &one.lib, Body::Enum(cases.collect::<Result<_, _>>()?))
        }
        ScSpecEntry::UdtErrorEnumV0(one) => {
            let cases = one.cases.iter().map(|it| case(&it.doc, &it.name, it.value));
            (&one.doc, &one.lib, Body::Errors(cases.collect::<Result<_, _>>()?))
        }
        ScSpecEntry::EventV0(one) => (&one.doc, &one.lib, event(one)?),
    };
    let nothing = match &body {
        Body::Union(variants) => variants.is_empty(),
        Body::Enum(cases) | Body::Errors(cases) => cases.is_empty(),
        Body::Struct(_) | Body::Tuple(_) | Body::Event { .. } => false,
    };
    if nothing {
        return Err(Unwritable::NoValue(name));
    }
    let is_error = matches!(body, Body::Errors(_));
    let longest = if matches!(body, Body::Event { .. }) { LONGEST_EVENT } else { LONGEST_TYPE };
    if !rust::is_type(&name) || name.len() > longest || (name == rust::ERROR && !is_error) {
        return Err(Unwritable::Name { what: "a type", name });
    }
    let (doc, lib) = (doc.to_utf8_string_lossy(), lib.to_utf8_string_lossy());
    Ok(Some(Definition { doc, lib, name, body }))
}

fn structure(spec: &ScSpecUdtStructV0) -> Result<Body, Unwritable> {
    let numbered = spec
        .fields
        .iter()
        .enumerate()
        .all(|(number, field)| field.name.to_utf8_string_lossy() == number.to_string());
    let field = |field: &ScSpecUdtStructFieldV0| {
        let name = field.name.to_utf8_string_lossy();
        let name = if numbered { name } else { named("a field", name)? };
        Ok(Field { doc: field.doc.to_utf8_string_lossy(), name, kind: Kind::of(&field.type_)? })
    };
    let fields = spec.fields.iter().map(field).collect::<Result<Vec<_>, _>>()?;
    Ok(if numbered && !fields.is_empty() { Body::Tuple(fields) } else { Body::Struct(fields) })
}

fn variant(spec: &ScSpecUdtUnionCaseV0) -> Result<Variant, Unwritable> {
    let (doc, name, values) = match spec {
        ScSpecUdtUnionCaseV0::VoidV0(one) => (&one.doc, &one.name, Vec::new()),
        ScSpecUdtUnionCaseV0::TupleV0(one) => {
            (&one.doc, &one.name, one.type_.iter().map(Kind::of).collect::<Result<_, _>>()?)
        }
    };
    let name = named("a variant", name.to_utf8_string_lossy())?;
    Ok(Variant { doc: doc.to_utf8_string_lossy(), name, values })
}

fn case(doc: &StringM<1024>, name: &StringM<60>, value: u32) -> Result<Case, Unwritable> {
    let name = named("a case", name.to_utf8_string_lossy())?;
    Ok(Case { doc: doc.to_utf8_string_lossy(), name, value })
}

fn event(spec: &ScSpecEventV0) -> Result<Body, Unwritable> {
    let format = match spec.data_format {
        ScSpecEventDataFormat::SingleValue => "single-value",
        ScSpecEventDataFormat::Vec => "vec",
        ScSpecEventDataFormat::Map => "map",
    };
    let mut fields = Vec::new();
    for param in spec.params.iter() {
        let name = named("a field", param.name.to_utf8_string_lossy())?;
        let is_topic = param.location == ScSpecEventParamLocationV0::TopicList;
        let doc = param.doc.to_utf8_string_lossy();
        fields.push((Field { doc, name, kind: Kind::of(&param.type_)? }, is_topic));
    }
    let data = fields.iter().filter(|(_, is_topic)| !is_topic).count();
    if format == "single-value" && data > 1 {
        let what = format!("an event of {data} values with the data format single-value");
        return Err(Unwritable::Misplaced(what));
    }
    let topic = |topic: &ScSymbol| {
        let name = topic.0.to_utf8_string_lossy();
        let usable = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.bytes().all(usable) {
            Ok(name)
        } else {
            Err(Unwritable::Name { what: "a topic", name })
        }
    };
    let topics = spec.prefix_topics.iter().map(topic).collect::<Result<_, _>>()?;
    Ok(Body::Event { topics, format, fields })
}

fn named(what: &'static str, name: String) -> Result<String, Unwritable> {
    if rust::is_name(&name) { Ok(name) } else { Err(Unwritable::Name { what, name }) }
}
