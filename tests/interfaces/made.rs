//! Builds entries of interfaces, modules that hold them, and events.

use orrery_interfaces::Matched;
use stellar_xdr::{
    Limits, ScMap, ScMapEntry, ScSpecEntry, ScSpecEventDataFormat, ScSpecEventParamLocationV0,
    ScSpecEventParamV0, ScSpecEventV0, ScSpecTypeBytesN, ScSpecTypeDef, ScSpecTypeMap,
    ScSpecTypeOption, ScSpecTypeResult, ScSpecTypeTuple, ScSpecTypeUdt, ScSpecTypeVec,
    ScSpecUdtEnumCaseV0, ScSpecUdtEnumV0, ScSpecUdtErrorEnumCaseV0, ScSpecUdtErrorEnumV0,
    ScSpecUdtStructFieldV0, ScSpecUdtStructV0, ScSpecUdtUnionCaseTupleV0, ScSpecUdtUnionCaseV0,
    ScSpecUdtUnionCaseVoidV0, ScSpecUdtUnionV0, ScVal, ScVec, StringM, WriteXdr,
};

pub type Type = ScSpecTypeDef;
pub use ScSpecEventDataFormat::{Map, SingleValue, Vec as Vector};

fn text<const N: u32>(text: &str) -> StringM<N> {
    text.try_into().unwrap()
}

pub fn option(of: Type) -> Type {
    Type::Option(Box::new(ScSpecTypeOption { value_type: Box::new(of) }))
}

pub fn vec(of: Type) -> Type {
    Type::Vec(Box::new(ScSpecTypeVec { element_type: Box::new(of) }))
}

pub fn map(key: Type, value: Type) -> Type {
    let (key_type, value_type) = (Box::new(key), Box::new(value));
    Type::Map(Box::new(ScSpecTypeMap { key_type, value_type }))
}

pub fn result(ok: Type, error: Type) -> Type {
    let (ok_type, error_type) = (Box::new(ok), Box::new(error));
    Type::Result(Box::new(ScSpecTypeResult { ok_type, error_type }))
}

pub fn tuple(of: Vec<Type>) -> Type {
    Type::Tuple(Box::new(ScSpecTypeTuple { value_types: of.try_into().unwrap() }))
}

pub fn bytes_n(n: u32) -> Type {
    Type::BytesN(ScSpecTypeBytesN { n })
}

pub fn udt(name: &str) -> Type {
    Type::Udt(ScSpecTypeUdt { name: text(name) })
}

pub fn structure(name: &str, fields: &[(String, Type)]) -> ScSpecEntry {
    let field = |(name, type_): &(String, Type)| ScSpecUdtStructFieldV0 {
        doc: text(""),
        name: text(name),
        type_: type_.clone(),
    };
    let fields: Vec<_> = fields.iter().map(field).collect();
    ScSpecEntry::UdtStructV0(ScSpecUdtStructV0 {
        doc: text(""),
        lib: text(""),
        name: text(name),
        fields: fields.try_into().unwrap(),
    })
}

pub fn union(name: &str, cases: &[(String, Option<Vec<Type>>)]) -> ScSpecEntry {
    let case = |(name, types): &(String, Option<Vec<Type>>)| match types {
        None => ScSpecUdtUnionCaseV0::VoidV0(ScSpecUdtUnionCaseVoidV0 {
            doc: text(""),
            name: text(name),
        }),
        Some(types) => ScSpecUdtUnionCaseV0::TupleV0(ScSpecUdtUnionCaseTupleV0 {
            doc: text(""),
            name: text(name),
            type_: types.clone().try_into().unwrap(),
        }),
    };
    let cases: Vec<_> = cases.iter().map(case).collect();
    ScSpecEntry::UdtUnionV0(ScSpecUdtUnionV0 {
        doc: text(""),
        lib: text(""),
        name: text(name),
        cases: cases.try_into().unwrap(),
    })
}

pub fn numbers(name: &str, values: &[u32]) -> ScSpecEntry {
    let case = |value: &u32| ScSpecUdtEnumCaseV0 {
        doc: text(""),
        name: text(&format!("N{value}")),
        value: *value,
    };
    ScSpecEntry::UdtEnumV0(ScSpecUdtEnumV0 {
        doc: text(""),
        lib: text(""),
        name: text(name),
        cases: values.iter().map(case).collect::<Vec<_>>().try_into().unwrap(),
    })
}

pub fn errors(name: &str, values: &[u32]) -> ScSpecEntry {
    let case = |value: &u32| ScSpecUdtErrorEnumCaseV0 {
        doc: text(""),
        name: text(&format!("E{value}")),
        value: *value,
    };
    ScSpecEntry::UdtErrorEnumV0(ScSpecUdtErrorEnumV0 {
        doc: text(""),
        lib: text(""),
        name: text(name),
        cases: values.iter().map(case).collect::<Vec<_>>().try_into().unwrap(),
    })
}

/// A declared event: names and types of the parameters in the topics and in the data.
pub fn event(
    name: &str,
    prefix: &[&str],
    topics: &[(&str, Type)],
    format: ScSpecEventDataFormat,
    data: &[(&str, Type)],
) -> ScSpecEntry {
    let params = |params: &[(&str, Type)], location: ScSpecEventParamLocationV0| {
        let param = |(name, type_): &(&str, Type)| ScSpecEventParamV0 {
            doc: text(""),
            name: text(name),
            type_: type_.clone(),
            location,
        };
        params.iter().map(param).collect::<Vec<_>>()
    };
    let params = [
        params(topics, ScSpecEventParamLocationV0::TopicList),
        params(data, ScSpecEventParamLocationV0::Data),
    ];
    let prefix: Vec<_> = prefix.iter().map(|topic| (*topic).try_into().unwrap()).collect();
    ScSpecEntry::EventV0(ScSpecEventV0 {
        doc: text(""),
        lib: text(""),
        name: text(name),
        prefix_topics: prefix.try_into().unwrap(),
        params: params.concat().try_into().unwrap(),
        data_format: format,
    })
}

/// The XDR of entries, one after the other.
pub fn xdr(entries: &[ScSpecEntry]) -> Vec<u8> {
    entries.iter().flat_map(|entry| entry.to_xdr(Limits::none()).unwrap()).collect()
}

/// A module with these custom sections `contractspecv0`.
pub fn module(sections: &[&[u8]]) -> Vec<u8> {
    let mut code = b"\0asm\x01\0\0\0".to_vec();
    for section in sections {
        custom_section(&mut code, b"contractspecv0", section);
    }
    code
}

/// Appends a custom section.
pub fn custom_section(code: &mut Vec<u8>, name: &[u8], content: &[u8]) {
    code.push(0);
    leb128(code, 1 + name.len() + content.len());
    code.push(name.len() as u8);
    code.extend_from_slice(name);
    code.extend_from_slice(content);
}

fn leb128(code: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        code.push(number as u8 | 0x80);
        number >>= 7;
    }
    code.push(number as u8);
}

/// Puts an event together again from its declared and its other parts. The prefix is taken from
/// the event, which may have strings in place of symbols.
pub fn reconstructed(matched: &Matched<'_>, topics: &[ScVal]) -> (Vec<ScVal>, ScVal) {
    let declared = matched.declared;
    let is_topic = |at: &&orrery_interfaces::Parameter<'_>| {
        at.declared.location == ScSpecEventParamLocationV0::TopicList
    };
    let params = &matched.parameters;
    let mut all = topics[..declared.prefix_topics.len()].to_vec();
    all.extend(params.iter().filter(is_topic).map(|it| it.value.unwrap().clone()));
    all.extend_from_slice(matched.rest.topics);
    let data: Vec<_> = params.iter().filter(|it| !is_topic(it)).collect();
    let entry = |name: &[u8], val: &ScVal| ScMapEntry {
        key: ScVal::Symbol(stellar_xdr::ScSymbol(name.try_into().unwrap())),
        val: val.clone(),
    };
    let has_keys = !matched.rest.keys.is_empty();
    let data = match declared.data_format {
        SingleValue if has_keys => {
            let amount = entry(b"amount", data[0].value.unwrap());
            sorted(matched.rest.keys.iter().copied().cloned().chain([amount]).collect())
        }
        SingleValue => data.first().map_or(ScVal::Void, |it| it.value.unwrap().clone()),
        Vector => {
            let declared = data.iter().map(|it| it.value.unwrap().clone());
            let items: Vec<_> = declared.chain(matched.rest.items.iter().cloned()).collect();
            ScVal::Vec(Some(ScVec(items.try_into().unwrap())))
        }
        Map => {
            let present = data.iter().filter_map(|it| Some((it.declared, it.value?)));
            let present = present.map(|(it, value)| entry(it.name.as_slice(), value));
            sorted(present.chain(matched.rest.keys.iter().copied().cloned()).collect())
        }
    };
    (all, data)
}

fn sorted(mut entries: Vec<ScMapEntry>) -> ScVal {
    entries.sort();
    ScVal::Map(Some(ScMap(entries.try_into().unwrap())))
}
