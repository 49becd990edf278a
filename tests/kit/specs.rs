//! Builds entries of interfaces.

use stellar_xdr::{
    ScSpecEntry, ScSpecEventDataFormat, ScSpecEventParamLocationV0, ScSpecEventParamV0,
    ScSpecEventV0, ScSpecTypeBytesN, ScSpecTypeDef, ScSpecTypeMap, ScSpecTypeOption,
    ScSpecTypeResult, ScSpecTypeTuple, ScSpecTypeUdt, ScSpecTypeVec, ScSpecUdtEnumCaseV0,
    ScSpecUdtEnumV0, ScSpecUdtErrorEnumCaseV0, ScSpecUdtErrorEnumV0, ScSpecUdtStructFieldV0,
    ScSpecUdtStructV0, ScSpecUdtUnionCaseTupleV0, ScSpecUdtUnionCaseV0, ScSpecUdtUnionCaseVoidV0,
    ScSpecUdtUnionV0, StringM,
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
