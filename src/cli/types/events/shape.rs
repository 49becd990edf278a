//! The JSON of decoded events, whatever the language: derived from what interfaces declare, as
//! `orrery_interfaces::Plain` writes it.

use std::collections::{BTreeMap, BTreeSet};

use orrery::domain::text;
use orrery::interfaces::{Definition, Interface, names};
use stellar_xdr::{
    ScSpecEventDataFormat, ScSpecEventParamLocationV0, ScSpecEventParamV0, ScSpecEventV0,
    ScSpecTypeDef,
};

use super::super::{pascal, unique_name};

/// The JSON of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// Any value.
    Anything,
    /// An error of a contract or of the network.
    Error,
    /// null.
    Null,
    /// true or false.
    Boolean,
    /// A number of 32 bits.
    Number,
    /// One of these numbers.
    Numbers(Vec<u32>),
    /// Text: also a wider number, in decimal digits, and bytes, in hexadecimal ones.
    Text,
    /// Exactly this text.
    Word(String),
    /// An array of such values.
    List(Box<Shape>),
    /// An array with exactly these values.
    Tuple(Vec<Shape>),
    /// An object with arbitrary keys.
    Map(Box<Shape>),
    /// The value of one of these.
    Either(Vec<Shape>),
    /// The type with this name.
    Named(String),
}

/// A type with a name.
#[derive(Debug, PartialEq, Eq)]
pub struct Named {
    /// Its name, which is unique.
    pub name: String,
    /// What it is of, as the interface names it.
    pub of: String,
    /// What it is.
    pub form: Form,
}

/// What a type with a name is.
#[derive(Debug, PartialEq, Eq)]
pub enum Form {
    /// An object with these members.
    Record(Vec<Member>),
    /// Another name of this.
    Alias(Shape),
}

/// A member of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Name of the member.
    pub name: String,
    /// Its value.
    pub shape: Shape,
    /// Whether the object may lack it.
    pub may_lack: bool,
}

/// An event of which the parameters have a type.
#[derive(Debug)]
pub struct Event {
    /// Name of the event in answers.
    pub name: String,
    /// Name of its type.
    pub type_name: String,
    /// Name of the type of its parameters.
    pub params: String,
}

/// Names that every file of types has itself.
pub const ANYTHING: &str = "Anything";
pub const ERROR: &str = "ContractError";
pub const UNNAMED: &str = "UnnamedEvent";
pub const UNION: &str = "DecodedEvent";
const OWN: [&str; 4] = [ANYTHING, ERROR, UNNAMED, UNION];
/// Names that mean something else in one of the languages.
const RESERVED: [&str; 20] = [
    "Any",
    "Array",
    "Boolean",
    "Dict",
    "False",
    "List",
    "Literal",
    "Map",
    "None",
    "Number",
    "Object",
    "Optional",
    "Promise",
    "Record",
    "Set",
    "String",
    "Symbol",
    "True",
    "TypedDict",
    "Union",
];

/// The types of the events of one interface or more.
#[derive(Debug)]
pub struct Shapes {
    /// Types in the order in which they were found; each may name any other.
    pub named: Vec<Named>,
    /// Events, by interface and in the order of their declaration.
    pub events: Vec<Event>,
    taken: BTreeSet<String>,
}

impl Default for Shapes {
    fn default() -> Self {
        let taken = OWN.iter().chain(&RESERVED).map(|name| (*name).to_owned()).collect();
        Self { named: Vec::new(), events: Vec::new(), taken }
    }
}

impl Shapes {
    /// Adds the events of a contract that has these interfaces, or had them. What is the same in several of them is
    /// one type, and an event of several forms has one, too.
    pub fn add(&mut self, interfaces: &[&Interface]) {
        let mut forms: Vec<(&str, Vec<Vec<Member>>)> = Vec::new();
        let mut before: Vec<(&Interface, BTreeMap<Vec<u8>, String>)> = Vec::new();
        for &interface in interfaces {
            let known = before.iter().flat_map(|(other, names)| alike(interface, other, names));
            let mut defined = Defined { interface, names: known.collect(), shapes: self };
            for (event, name) in interface.events().zip(interface.event_names()) {
                let members = defined.members(event);
                match forms.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, all)) if all.contains(&members) => {}
                    Some((_, all)) => all.push(members),
                    None => forms.push((name, vec![members])),
                }
            }
            before.push((interface, defined.names));
        }
        for (name, forms) in forms {
            let type_name = unique_name(&format!("{}Event", pascal(name)), &mut self.taken);
            let params = unique_name(&format!("{}Params", pascal(name)), &mut self.taken);
            let form = Form::Record(joined(&forms));
            self.named.push(Named { name: params.clone(), of: name.to_owned(), form });
            self.events.push(Event { name: name.to_owned(), type_name, params });
        }
    }
}

/// Returns those of the types with a name of `other` that are the same in `interface`, with all that they refer to.
fn alike(
    interface: &Interface,
    other: &Interface,
    names: &BTreeMap<Vec<u8>, String>,
) -> BTreeMap<Vec<u8>, String> {
    let is_same = |name: &[u8]| interface.definition(name) == other.definition(name);
    let mut alike = names.clone();
    alike.retain(|name, _| is_same(name));
    loop {
        let before = alike.len();
        let known = alike.clone();
        alike.retain(|name, _| {
            // Errors and what is not defined have no type with a name.
            let is_known = |name: &[u8]| match names.contains_key(name) {
                true => known.contains_key(name),
                false => is_same(name),
            };
            referred(interface.definition(name)).into_iter().all(is_known)
        });
        if alike.len() == before {
            return alike;
        }
    }
}

/// Returns the names of the types to which a definition refers.
fn referred(definition: Option<&Definition>) -> Vec<&[u8]> {
    let mut open: Vec<&ScSpecTypeDef> = match definition {
        Some(Definition::Struct(fields)) => fields.iter().map(|(_, kind)| kind).collect(),
        Some(Definition::Tuple(kinds)) => kinds.iter().collect(),
        Some(Definition::Union(union)) => union.iter().flat_map(|(_, kinds)| kinds).collect(),
        Some(Definition::Enum(_) | Definition::Errors(_)) | None => Vec::new(),
    };
    let mut names = Vec::new();
    while let Some(kind) = open.pop() {
        match kind {
            ScSpecTypeDef::Option(of) => open.push(&of.value_type),
            ScSpecTypeDef::Result(of) => open.extend([&*of.ok_type, &*of.error_type]),
            ScSpecTypeDef::Vec(of) => open.push(&of.element_type),
            ScSpecTypeDef::Map(of) => open.extend([&*of.key_type, &*of.value_type]),
            ScSpecTypeDef::Tuple(of) => open.extend(of.value_types.iter()),
            ScSpecTypeDef::Udt(named) => names.push(named.name.as_slice()),
            _ => {}
        }
    }
    names
}

/// Returns the members of an event that has one of these forms.
fn joined(forms: &[Vec<Member>]) -> Vec<Member> {
    let mut all: Vec<Member> = Vec::new();
    for member in forms.iter().flatten() {
        let Some(known) = all.iter_mut().find(|it| it.name == member.name) else {
            let has = |form: &Vec<Member>| form.iter().any(|it| it.name == member.name);
            let may_lack = member.may_lack || !forms.iter().all(has);
            all.push(Member { may_lack, ..member.clone() });
            continue;
        };
        known.may_lack |= member.may_lack;
        known.shape = either([known.shape.clone(), member.shape.clone()]);
    }
    all
}

/// Returns the shape of a value of one of these, each once.
fn either(shapes: impl IntoIterator<Item = Shape>) -> Shape {
    let mut all = Vec::new();
    for shape in shapes {
        let parts = match shape {
            Shape::Either(parts) => parts,
            one => vec![one],
        };
        for part in parts {
            if !all.contains(&part) {
                all.push(part);
            }
        }
    }
    match all.as_slice() {
        // Nothing may be added to what is anything.
        _ if all.contains(&Shape::Anything) => Shape::Anything,
        [one] => one.clone(),
        _ => Shape::Either(all),
    }
}

/// The types of one interface, of which those that its events need get a name.
struct Defined<'a> {
    interface: &'a Interface,
    names: BTreeMap<Vec<u8>, String>,
    shapes: &'a mut Shapes,
}

impl Defined<'_> {
    /// Returns the parameters of an event.
    fn members(&mut self, event: &ScSpecEventV0) -> Vec<Member> {
        let names = names::parameters(event.params.iter().map(|it| it.name.as_slice()));
        let member = |(param, name): (&ScSpecEventParamV0, String)| {
            let is_key = event.data_format == ScSpecEventDataFormat::Map
                && param.location == ScSpecEventParamLocationV0::Data;
            let may_lack = is_key && matches!(param.type_, ScSpecTypeDef::Option(_));
            Member { name, shape: self.shape(&param.type_), may_lack }
        };
        event.params.iter().zip(names).map(member).collect()
    }

    fn shape(&mut self, kind: &ScSpecTypeDef) -> Shape {
        match kind {
            ScSpecTypeDef::Bool => Shape::Boolean,
            ScSpecTypeDef::Void => Shape::Null,
            ScSpecTypeDef::Error => Shape::Error,
            ScSpecTypeDef::U32 | ScSpecTypeDef::I32 => Shape::Number,
            ScSpecTypeDef::Option(of) => either([self.shape(&of.value_type), Shape::Null]),
            ScSpecTypeDef::Result(of) => either([self.shape(&of.ok_type), Shape::Error]),
            ScSpecTypeDef::Vec(of) => Shape::List(Box::new(self.shape(&of.element_type))),
            ScSpecTypeDef::Map(of) => {
                let value = self.shape(&of.value_type);
                match *of.key_type {
                    ScSpecTypeDef::Symbol | ScSpecTypeDef::String => Shape::Map(Box::new(value)),
                    _ => Shape::List(Box::new(Shape::Tuple(vec![self.shape(&of.key_type), value]))),
                }
            }
            ScSpecTypeDef::Tuple(of) => {
                Shape::Tuple(of.value_types.iter().map(|kind| self.shape(kind)).collect())
            }
            ScSpecTypeDef::Udt(named) => self.defined(named.name.as_slice()),
            ScSpecTypeDef::Val => Shape::Anything,
            _ => Shape::Text,
        }
    }

    /// Returns a type that the interface defines. It gets a name before its parts are looked at: it may
    /// hold itself.
    fn defined(&mut self, name: &[u8]) -> Shape {
        let interface = self.interface;
        let Some(definition) = interface.definition(name) else { return Shape::Anything };
        if let Some(known) = self.names.get(name) {
            return Shape::Named(known.clone());
        }
        if matches!(definition, Definition::Errors(_)) {
            return Shape::Error;
        }
        let of = text(name);
        let own = unique_name(&pascal(&of), &mut self.shapes.taken);
        self.names.insert(name.to_vec(), own.clone());
        let form = match definition {
            Definition::Struct(fields) => Form::Record(
                fields.iter().map(|(name, kind)| self.member(text(name), kind)).collect(),
            ),
            Definition::Tuple(kinds) => {
                Form::Alias(Shape::Tuple(kinds.iter().map(|kind| self.shape(kind)).collect()))
            }
            Definition::Enum(values) => {
                let mut values: Vec<u32> = values.iter().copied().collect();
                values.sort_unstable();
                Form::Alias(Shape::Numbers(values))
            }
            Definition::Union(union) => {
                let mut cases: Vec<_> = union.iter().collect();
                cases.sort_unstable_by_key(|(case, _)| *case);
                let cases = cases.into_iter().map(|(case, kinds)| self.case(&own, case, kinds));
                Form::Alias(Shape::Either(cases.collect()))
            }
            Definition::Errors(_) => Form::Alias(Shape::Error),
        };
        self.shapes.named.push(Named { name: own.clone(), of, form });
        Shape::Named(own)
    }

    /// Returns a case of a union, which gets a type of its own.
    fn case(&mut self, union: &str, case: &[u8], kinds: &[ScSpecTypeDef]) -> Shape {
        let case = text(case);
        let name = unique_name(&format!("{union}{}", pascal(&case)), &mut self.shapes.taken);
        let values = Shape::Tuple(kinds.iter().map(|kind| self.shape(kind)).collect());
        let member = |name: &str, shape| Member { name: name.to_owned(), shape, may_lack: false };
        let members = vec![member("tag", Shape::Word(case.clone())), member("values", values)];
        let form = Form::Record(members);
        self.shapes.named.push(Named { name: name.clone(), of: case, form });
        Shape::Named(name)
    }

    fn member(&mut self, name: String, kind: &ScSpecTypeDef) -> Member {
        Member { name, shape: self.shape(kind), may_lack: false }
    }
}

#[cfg(test)]
mod tests {
    use orrery_testkit::specs::{Map, Type, event, structure, udt};
    use stellar_xdr::{Limits, WriteXdr};

    use super::*;

    /// The interface of a contract whose type `Point` has a member of this type.
    fn drawing(of_point: Type) -> Interface {
        let member = |name: &str, kind| [(name.to_owned(), kind)];
        let entries = [
            structure("Point", &member("x", of_point)),
            structure("Line", &member("from", udt("Point"))),
            structure("Mark", &member("of", Type::U32)),
            event("drawn", &["drawn"], &[], Map, &[("line", udt("Line")), ("mark", udt("Mark"))]),
        ];
        let sections = entries.iter().flat_map(|entry| entry.to_xdr(Limits::none()).unwrap());
        Interface::from_sections(&sections.collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn what_several_interfaces_of_a_contract_declare_alike_is_one_type() {
        let names = |interfaces: &[&Interface]| {
            let mut shapes = Shapes::default();
            shapes.add(interfaces);
            let events: Vec<_> = shapes.events.iter().map(|it| it.name.clone()).collect();
            assert_eq!(events, ["drawn"]);
            let mut names: Vec<_> = shapes.named.into_iter().map(|it| it.name).collect();
            names.sort_unstable();
            names
        };
        let (now, same, other) = (drawing(Type::U32), drawing(Type::U32), drawing(Type::Symbol));
        assert_eq!(names(&[&now, &same]), ["DrawnParams", "Line", "Mark", "Point"]);
        let both = ["DrawnParams", "Line", "Line2", "Mark", "Point", "Point2"];
        assert_eq!(names(&[&now, &other, &same]), both);
    }
}
