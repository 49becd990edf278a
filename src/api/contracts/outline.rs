//! An interface as JSON: functions, events and types, in the order of their declaration.

use serde::Serialize;
use serde_json::value::RawValue;
use stellar_xdr::{
    ScSpecEntry, ScSpecEventParamLocationV0, ScSpecEventV0, ScSpecFunctionV0, ScSpecUdtUnionCaseV0,
    StringM,
};

use super::super::ApiError;
use super::super::bounded::Bounded;
use orrery_interfaces::{spelled, spelled_tuple};
use orrery_ledger::domain::text;

/// Largest answer, in bytes of JSON. Interfaces of the public network have some tens of kilobytes, and
/// one of the largest size that is read, 128 KiB, at most six times as much as JSON.
const MOST_BYTES: usize = 1 << 20;

/// The lists of an answer.
#[derive(Serialize)]
pub(super) struct Outline {
    functions: Vec<Box<RawValue>>,
    events: Vec<Box<RawValue>>,
    types: Vec<Box<RawValue>>,
    /// Whether the answer has only a part of the interface, because it would be too large.
    truncated: bool,
}

#[derive(Serialize)]
struct Function {
    name: String,
    doc: String,
    inputs: Vec<Input>,
    outputs: Vec<String>,
}

#[derive(Serialize)]
struct Input {
    name: String,
    r#type: String,
}

#[derive(Serialize)]
struct Event {
    name: String,
    doc: String,
    prefix: Vec<String>,
    params: Vec<Param>,
}

#[derive(Serialize)]
struct Param {
    name: String,
    r#type: String,
    r#in: &'static str,
}

#[derive(Serialize)]
struct Type {
    kind: &'static str,
    name: String,
    doc: String,
    members: Vec<Member>,
}

#[derive(Serialize)]
struct Member {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<u32>,
}

impl Outline {
    /// Writes the entries of an interface.
    ///
    /// # Errors
    /// [`ApiError::Encoding`] when an entry cannot be written.
    pub(super) fn of(entries: &[ScSpecEntry]) -> Result<Self, ApiError> {
        let mut bounded = Bounded::new(usize::MAX, MOST_BYTES);
        Ok(Self {
            functions: bounded.take(entries.iter().filter_map(function))?,
            events: bounded.take(entries.iter().filter_map(event))?,
            types: bounded.take(entries.iter().filter_map(defined))?,
            truncated: bounded.is_cut,
        })
    }
}

fn name<const MOST: u32>(name: &StringM<MOST>) -> String {
    text(name.as_slice())
}

fn function(entry: &ScSpecEntry) -> Option<Function> {
    let ScSpecEntry::FunctionV0(ScSpecFunctionV0 { doc, name: of, inputs, outputs }) = entry else {
        return None;
    };
    let input = inputs.iter().map(|it| Input { name: name(&it.name), r#type: spelled(&it.type_) });
    Some(Function {
        name: name(&of.0),
        doc: name(doc),
        inputs: input.collect(),
        outputs: outputs.iter().map(spelled).collect(),
    })
}

fn event(entry: &ScSpecEntry) -> Option<Event> {
    let ScSpecEntry::EventV0(ScSpecEventV0 { doc, name: of, prefix_topics, params, .. }) = entry
    else {
        return None;
    };
    let params = params.iter().map(|param| Param {
        name: name(&param.name),
        r#type: spelled(&param.type_),
        r#in: match param.location {
            ScSpecEventParamLocationV0::TopicList => "topic",
            ScSpecEventParamLocationV0::Data => "data",
        },
    });
    Some(Event {
        name: name(of),
        doc: name(doc),
        prefix: prefix_topics.iter().map(|topic| name(&topic.0)).collect(),
        params: params.collect(),
    })
}

fn defined(entry: &ScSpecEntry) -> Option<Type> {
    let valued = |name, value| Member { name, r#type: None, value: Some(value) };
    let (kind, of, doc, members) = match entry {
        ScSpecEntry::UdtStructV0(it) => {
            let typed = it.fields.iter().map(|field| Member {
                name: name(&field.name),
                r#type: Some(spelled(&field.type_)),
                value: None,
            });
            ("struct", &it.name, &it.doc, typed.collect())
        }
        ScSpecEntry::UdtUnionV0(it) => {
            ("union", &it.name, &it.doc, it.cases.iter().map(case).collect())
        }
        ScSpecEntry::UdtEnumV0(it) => {
            let cases = it.cases.iter().map(|case| valued(name(&case.name), case.value));
            ("enum", &it.name, &it.doc, cases.collect())
        }
        ScSpecEntry::UdtErrorEnumV0(it) => {
            let cases = it.cases.iter().map(|case| valued(name(&case.name), case.value));
            ("error", &it.name, &it.doc, cases.collect())
        }
        ScSpecEntry::FunctionV0(_) | ScSpecEntry::EventV0(_) => return None,
    };
    Some(Type { kind, name: name(of), doc: name(doc), members })
}

/// Returns a case of a union: one value has its type, several the type of a tuple.
fn case(case: &ScSpecUdtUnionCaseV0) -> Member {
    match case {
        ScSpecUdtUnionCaseV0::VoidV0(case) => {
            Member { name: name(&case.name), r#type: None, value: None }
        }
        ScSpecUdtUnionCaseV0::TupleV0(case) => {
            let spelled = match case.type_.as_slice() {
                [one] => spelled(one),
                several => spelled_tuple(several),
            };
            Member { name: name(&case.name), r#type: Some(spelled), value: None }
        }
    }
}

#[cfg(test)]
mod tests {
    use stellar_xdr::{ScSpecUdtErrorEnumCaseV0, ScSpecUdtErrorEnumV0};

    use super::*;

    #[test]
    fn an_interface_is_cut_at_the_largest_answer() {
        let case = ScSpecUdtErrorEnumCaseV0 {
            doc: StringM::default(),
            name: "\u{1}".repeat(60).try_into().unwrap(),
            value: 1,
        };
        let errors = ScSpecUdtErrorEnumV0 {
            doc: StringM::default(),
            lib: StringM::default(),
            name: "Error".try_into().unwrap(),
            cases: vec![case; 1_000].try_into().unwrap(),
        };
        let one = ScSpecEntry::UdtErrorEnumV0(errors);
        let whole = Outline::of(&[one.clone(), one.clone()]).unwrap();
        assert_eq!((whole.types.len(), whole.truncated), (2, false));
        let cut = Outline::of(&vec![one; 5]).unwrap();
        assert_eq!((cut.types.len(), cut.truncated), (2, true));
        assert!(serde_json::to_vec(&cut).unwrap().len() < MOST_BYTES);
    }
}
