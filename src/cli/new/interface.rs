//! Reads a contract's interface from its spec (SEP-48), and refuses an interface that cannot be
//! written in Rust with `soroban-sdk`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use stellar_xdr::{
    ScSpecEntry, ScSpecEventDataFormat, ScSpecEventParamLocationV0, ScSpecEventParamV0,
    ScSpecEventV0, ScSpecFunctionV0, ScSpecTypeDef, ScSpecUdtUnionCaseV0,
};

use super::error::Unwritable;
use super::{kind, rust};

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
    /// Names of types whose values can be neither compared nor printed with `{:?}`.
    pub unprintable: BTreeSet<String>,
    /// Position of each type in `definitions`, by name; events are left out. Interfaces are a
    /// stranger's, so the time to read one grows with its size only.
    pub(super) types: BTreeMap<String, usize>,
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
    pub returns: Option<ScSpecTypeDef>,
}

/// A parameter of a function, or a column of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Name of the field.
    pub name: String,
    /// Type of the field.
    pub kind: ScSpecTypeDef,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, kind::in_rust(&self.kind))
    }
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
    /// Its name in the spec, if another one has kept that: libraries that a contract is made of may
    /// have types of the same name, and an event may have several forms.
    pub original: Option<String>,
    /// What is defined.
    pub form: Form,
    /// Fields, variants or cases.
    pub members: Vec<Member>,
}

/// What a definition defines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// A struct with named fields.
    Struct,
    /// A struct whose fields are numbered.
    Tuple,
    /// An enum whose variants may hold values.
    Union,
    /// An enum of numbers.
    Enum,
    /// The contract's error codes.
    Errors,
    /// An event.
    Event {
        /// Fixed topics at the beginning.
        topics: Vec<String>,
        /// Format of the data, as named by the SDK: `single-value`, `vec` or `map`.
        format: &'static str,
    },
}

/// A part of a definition that has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Documentation from the spec.
    pub doc: String,
    /// Name of the member.
    pub name: String,
    /// What has this name.
    pub content: Content,
}

/// What a member of a definition is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A field of this type.
    Field(ScSpecTypeDef),
    /// A field of an event that is a topic.
    Topic(ScSpecTypeDef),
    /// A variant of a union, with the types of its values.
    Values(Vec<ScSpecTypeDef>),
    /// A case of an enum.
    Number(u32),
}

impl Interface {
    /// Reads the interface from the entries of a module's spec.
    ///
    /// # Errors
    /// When the interface cannot be written in Rust with the SDK.
    pub fn of(spec: &[ScSpecEntry]) -> Result<Self, Unwritable> {
        let mut interface = Self::default();
        let (mut names, mut functions) = (Names::of(spec), BTreeSet::new());
        // The spec repeats a type that several libraries import.
        let mut seen = BTreeSet::new();
        for entry in spec.iter().filter(|entry| seen.insert(*entry)) {
            let original = name_of(entry);
            if let ScSpecEntry::FunctionV0(spec) = entry {
                if functions.insert(original.clone()) {
                    interface.functions.push(function(spec, original)?);
                }
                continue;
            }
            let name = names.next(&original, matches!(entry, ScSpecEntry::EventV0(_)));
            let original = Some(original).filter(|original| *original != name);
            interface.definitions.extend(definition(entry, name, original)?);
        }
        if interface.functions.is_empty() {
            return Err(Unwritable::NoFunction);
        }
        let types = interface.definitions.iter().enumerate().filter(|(_, one)| !one.is_event());
        interface.types = types.map(|(at, one)| (one.name.clone(), at)).collect();
        interface.find_undefined();
        interface.reject_infinite_types()?;
        interface.find_limited();
        Ok(interface)
    }

    /// Returns the definition of a type; events are left out.
    pub fn definition(&self, name: &str) -> Option<&Definition> {
        self.types.get(name).map(|at| &self.definitions[*at])
    }

    /// Returns the names of the types and events in the project, which must not be used for
    /// anything else.
    pub fn type_names(&self) -> BTreeSet<String> {
        let defined = self.definitions.iter().map(|one| &one.name);
        defined.chain(&self.undefined).cloned().collect()
    }

    /// Returns the names of types that the SDK does not support in a native test.
    pub fn not_native(&self) -> Vec<&str> {
        let types = self.definitions.iter().filter(|one| !one.is_event());
        let not_native = types.filter(|one| one.kinds().any(|kind| !self.is_native(kind)));
        not_native.map(|one| one.name.as_str()).collect()
    }

    /// Whether the Rust type is `Copy`, so that using a value twice needs no clone.
    pub fn is_copy(&self, kind: &ScSpecTypeDef) -> bool {
        match kind {
            ScSpecTypeDef::Val | ScSpecTypeDef::Error => true,
            other => match kind::named(other) {
                Some(name) => match self.definition(&name) {
                    Some(definition) => matches!(definition.form, Form::Enum | Form::Errors),
                    None => self.undefined.contains(&name),
                },
                None => kind::is_plain(other),
            },
        }
    }

    /// Whether the SDK supports the type in a native test. It supports neither a `Val` outside
    /// lists and maps nor errors of the contract.
    pub fn is_native(&self, kind: &ScSpecTypeDef) -> bool {
        let is_error =
            |name: &str| self.definition(name).is_some_and(|one| one.form == Form::Errors);
        kind::parts(kind).into_iter().all(|(part, listed)| match part {
            ScSpecTypeDef::Val => listed,
            ScSpecTypeDef::Error => !is_error(rust::ERROR),
            other => kind::named(other)
                .is_none_or(|name| !is_error(&name) && (listed || !self.undefined.contains(&name))),
        })
    }

    fn find_undefined(&mut self) {
        let of_functions = self.functions.iter().flat_map(Function::kinds);
        let kinds = of_functions.chain(self.definitions.iter().flat_map(Definition::kinds));
        let named = kinds.flat_map(kind::parts).filter_map(|(part, _)| kind::named(part));
        let is_unknown =
            |name: &String| self.definition(name).is_none() && rust::sdk_path(name).is_none();
        self.undefined = named.filter(is_unknown).collect();
    }
}

impl Function {
    /// Returns the types of the parameters and of the result.
    pub fn kinds(&self) -> impl Iterator<Item = &ScSpecTypeDef> {
        self.parameters.iter().map(|one| &one.kind).chain(&self.returns)
    }
}

impl Definition {
    /// Returns the types of all fields, or of the values of all variants.
    pub fn kinds(&self) -> impl Iterator<Item = &ScSpecTypeDef> {
        self.members.iter().flat_map(|one| one.content.kinds())
    }

    /// Refuses what the SDK does not support.
    fn check(&self) -> Result<(), Unwritable> {
        let refused = |what, name: &str| Err(Unwritable::Name { what, name: name.to_owned() });
        for Member { name, content, .. } in &self.members {
            let what = match content {
                Content::Field(_) | Content::Topic(_) => "a field",
                Content::Values(_) => "a variant",
                Content::Number(_) => "a case",
            };
            if self.form != Form::Tuple && !rust::is_name(name) {
                return refused(what, name);
            }
            content.kinds().iter().try_for_each(kind::check)?;
        }
        if let Form::Event { topics, format } = &self.form {
            let fields = self.members.iter();
            let data = fields.filter(|one| matches!(one.content, Content::Field(_))).count();
            if *format == "single-value" && data > 1 {
                let what = format!("an event of {data} values with the data format single-value");
                return Err(Unwritable::Misplaced(what));
            }
            if let Some(topic) = topics.iter().find(|topic| !rust::is_word(topic)) {
                return refused("a topic", topic);
            }
        }
        let (name, longest) =
            (&self.name, if self.is_event() { LONGEST_EVENT } else { LONGEST_TYPE });
        if self.members.is_empty() && matches!(self.form, Form::Union | Form::Enum | Form::Errors) {
            return Err(Unwritable::NoValue(name.clone()));
        }
        let is_reserved = name == rust::ERROR && self.form != Form::Errors;
        if is_reserved || !rust::is_type(name) || name.len() > longest {
            return refused("a type", name);
        }
        Ok(())
    }

    fn is_event(&self) -> bool {
        matches!(self.form, Form::Event { .. })
    }
}

impl Content {
    /// Returns the types of the member's values.
    pub fn kinds(&self) -> &[ScSpecTypeDef] {
        match self {
            Self::Field(kind) | Self::Topic(kind) => std::slice::from_ref(kind),
            Self::Values(kinds) => kinds,
            Self::Number(_) => &[],
        }
    }
}

/// The names of an interface. The first type of a name keeps it, because types are referred to by name
/// and everything else that reads interfaces takes the first, too; without a type, the first event.
struct Names {
    /// Names that are not given yet, each with whether an event may have it.
    free: BTreeMap<String, bool>,
    /// All names of types and events in the spec, and those that were made.
    taken: BTreeSet<String>,
    /// The last number in a name that was made, by the name in the spec.
    numbers: BTreeMap<String, u32>,
}

impl Names {
    fn of(spec: &[ScSpecEntry]) -> Self {
        let mut free = BTreeMap::new();
        for entry in spec.iter().filter(|entry| !matches!(entry, ScSpecEntry::FunctionV0(_))) {
            let for_event = free.entry(name_of(entry)).or_insert(true);
            *for_event &= matches!(entry, ScSpecEntry::EventV0(_));
        }
        Self { taken: free.keys().cloned().collect(), free, numbers: BTreeMap::new() }
    }

    /// Returns the name of the next type or event with this name in the spec: with a number that makes
    /// it another one, unless it keeps its name.
    fn next(&mut self, original: &str, is_event: bool) -> String {
        if self.free.get(original).is_some_and(|for_event| *for_event || !is_event) {
            self.free.remove(original);
            return original.to_owned();
        }
        let number = self.numbers.entry(original.to_owned()).or_insert(1);
        loop {
            *number += 1;
            let name = format!("{original}{number}");
            if self.taken.insert(name.clone()) {
                return name;
            }
        }
    }
}

/// Returns the name of an entry.
fn name_of(entry: &ScSpecEntry) -> String {
    match entry {
        ScSpecEntry::FunctionV0(one) => lossy(&one.name),
        ScSpecEntry::UdtStructV0(one) => lossy(&one.name),
        ScSpecEntry::UdtUnionV0(one) => lossy(&one.name),
        ScSpecEntry::UdtEnumV0(one) => lossy(&one.name),
        ScSpecEntry::UdtErrorEnumV0(one) => lossy(&one.name),
        ScSpecEntry::EventV0(one) => lossy(&one.name),
    }
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

fn function(spec: &ScSpecFunctionV0, name: String) -> Result<Function, Unwritable> {
    if !rust::is_function(&name) {
        return Err(Unwritable::Name { what: "a function", name });
    }
    // Arguments are passed by position, so parameters may be renamed.
    let mut taken = BTreeSet::from(["env".to_owned()]);
    let parameters = spec.inputs.iter().enumerate().map(|(number, input)| {
        let name = lossy(&input.name);
        let usable = rust::is_word(&name)
            && !name.starts_with(|first: char| first.is_ascii_digit())
            && name.bytes().any(|byte| byte.is_ascii_alphanumeric());
        let name = if usable { name } else { format!("argument_{}", number + 1) };
        let name = rust::unique_name(&name, &mut taken);
        kind::check(&input.type_)?;
        Ok(Field { name, kind: input.type_.clone() })
    });
    let parameters = parameters.collect::<Result<_, _>>()?;
    let returns = spec.outputs.first().cloned();
    returns.iter().try_for_each(kind::check_returned)?;
    Ok(Function { doc: lossy(&spec.doc), name, parameters, returns })
}

fn definition(
    entry: &ScSpecEntry,
    name: String,
    original: Option<String>,
) -> Result<Option<Definition>, Unwritable> {
    let (doc, lib, form, members) = match entry {
        ScSpecEntry::FunctionV0(_) => return Ok(None),
        ScSpecEntry::UdtStructV0(one) => {
            let fields = one.fields.iter();
            let fields =
                fields.map(|it| member(&it.doc, &it.name, Content::Field(it.type_.clone())));
            let fields: Vec<_> = fields.collect();
            let is_numbered = |(number, field): (usize, &Member)| field.name == number.to_string();
            let is_tuple = !fields.is_empty() && fields.iter().enumerate().all(is_numbered);
            (&one.doc, &one.lib, if is_tuple { Form::Tuple } else { Form::Struct }, fields)
        }
        ScSpecEntry::UdtUnionV0(one) => {
            (&one.doc, &one.lib, Form::Union, one.cases.iter().map(variant).collect())
        }
        ScSpecEntry::UdtEnumV0(one) => {
            let cases = one.cases.iter();
            let cases = cases.map(|it| member(&it.doc, &it.name, Content::Number(it.value)));
            (&one.doc, &one.lib, Form::Enum, cases.collect())
        }
        ScSpecEntry::UdtErrorEnumV0(one) => {
            let cases = one.cases.iter();
            let cases = cases.map(|it| member(&it.doc, &it.name, Content::Number(it.value)));
            (&one.doc, &one.lib, Form::Errors, cases.collect())
        }
        ScSpecEntry::EventV0(one) => {
            let (form, members) = event(one);
            (&one.doc, &one.lib, form, members)
        }
    };
    let (doc, lib) = (lossy(doc), lossy(lib));
    let definition = Definition { doc, lib, name, original, form, members };
    definition.check()?;
    Ok(Some(definition))
}

fn member(doc: &[u8], name: &[u8], content: Content) -> Member {
    Member { doc: lossy(doc), name: lossy(name), content }
}

fn variant(spec: &ScSpecUdtUnionCaseV0) -> Member {
    let (doc, name, kinds) = match spec {
        ScSpecUdtUnionCaseV0::VoidV0(it) => (&it.doc, &it.name, Vec::new()),
        ScSpecUdtUnionCaseV0::TupleV0(it) => (&it.doc, &it.name, it.type_.to_vec()),
    };
    member(doc, name, Content::Values(kinds))
}

fn event(spec: &ScSpecEventV0) -> (Form, Vec<Member>) {
    let format = match spec.data_format {
        ScSpecEventDataFormat::SingleValue => "single-value",
        ScSpecEventDataFormat::Vec => "vec",
        ScSpecEventDataFormat::Map => "map",
    };
    let topics = spec.prefix_topics.iter().map(|topic| lossy(topic)).collect();
    let field = |it: &ScSpecEventParamV0| {
        let content = match it.location {
            ScSpecEventParamLocationV0::TopicList => Content::Topic,
            ScSpecEventParamLocationV0::Data => Content::Field,
        };
        member(&it.doc, &it.name, content(it.type_.clone()))
    };
    (Form::Event { topics, format }, spec.params.iter().map(field).collect())
}

#[cfg(test)]
mod tests {
    use stellar_xdr::{
        ScSpecTypeUdt, ScSpecUdtStructFieldV0, ScSpecUdtStructV0, ScSymbol, StringM, VecM,
    };

    use super::*;

    fn text<const LONGEST: u32>(text: &str) -> StringM<LONGEST> {
        text.try_into().unwrap()
    }

    fn entry(name: &str, field: ScSpecTypeDef) -> ScSpecEntry {
        let field = ScSpecUdtStructFieldV0 { doc: text(""), name: text("next"), type_: field };
        let (doc, lib) = (text(""), text(""));
        let fields = vec![field].try_into().unwrap();
        ScSpecEntry::UdtStructV0(ScSpecUdtStructV0 { doc, lib, name: text(name), fields })
    }

    /// Types of which each contains the next one, and the last of them `end`.
    fn chain(length: usize, end: ScSpecTypeDef) -> Result<Interface, Unwritable> {
        let named = |at: usize| ScSpecTypeDef::Udt(ScSpecTypeUdt { name: text(&format!("T{at}")) });
        let mut spec: Vec<_> =
            (1..length).map(|at| entry(&format!("T{at}"), named(at + 1))).collect();
        spec.push(entry(&format!("T{length}"), end));
        spec.push(ScSpecEntry::FunctionV0(ScSpecFunctionV0 {
            doc: text(""),
            name: ScSymbol(text("call")),
            inputs: VecM::default(),
            outputs: VecM::default(),
        }));
        Interface::of(&spec)
    }

    #[test]
    fn a_large_interface_takes_time_in_proportion_to_its_size() {
        const TYPES: usize = 10_000;
        // With a walk over all types for each type, this does not end in a day.
        let interface = chain(TYPES, ScSpecTypeDef::U32).unwrap();
        assert!(interface.incomparable.is_empty());
        let interface = chain(TYPES, ScSpecTypeDef::Val).unwrap();
        assert_eq!(interface.incomparable.len(), TYPES);
        let first = ScSpecTypeDef::Udt(ScSpecTypeUdt { name: text("T1") });
        assert!(matches!(chain(TYPES, first), Err(Unwritable::NoValue(_))));
    }
}
