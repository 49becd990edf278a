//! Contract interfaces that none of the test modules has, and modules that consist of an interface
//! alone.

use stellar_xdr::{
    Limits, ScSpecEntry, ScSpecEventDataFormat, ScSpecEventParamLocationV0, ScSpecEventParamV0,
    ScSpecEventV0, ScSpecFunctionInputV0, ScSpecFunctionV0, ScSpecTypeDef, ScSpecTypeMap,
    ScSpecTypeOption, ScSpecTypeResult, ScSpecTypeTuple, ScSpecTypeUdt, ScSpecTypeVec,
    ScSpecUdtErrorEnumCaseV0, ScSpecUdtErrorEnumV0, ScSpecUdtStructFieldV0, ScSpecUdtStructV0,
    WriteXdr,
};

/// Builds a module that has nothing but a `contractspecv0` section.
pub fn module(entries: &[ScSpecEntry]) -> Vec<u8> {
    let spec: Vec<u8> =
        entries.iter().flat_map(|entry| entry.to_xdr(Limits::none()).unwrap()).collect();
    let escaped: String = spec.iter().map(|byte| format!("\\{byte:02x}")).collect();
    wat::parse_str(format!("(module (@custom \"contractspecv0\" \"{escaped}\"))")).unwrap()
}

pub fn function(
    name: &str,
    inputs: &[(&str, ScSpecTypeDef)],
    output: &[ScSpecTypeDef],
) -> ScSpecEntry {
    let input = |(name, type_): &(&str, ScSpecTypeDef)| ScSpecFunctionInputV0 {
        doc: "".try_into().unwrap(),
        name: (*name).try_into().unwrap(),
        type_: type_.clone(),
    };
    ScSpecEntry::FunctionV0(ScSpecFunctionV0 {
        doc: "".try_into().unwrap(),
        name: name.try_into().unwrap(),
        inputs: inputs.iter().map(input).collect::<Vec<_>>().try_into().unwrap(),
        outputs: output.to_vec().try_into().unwrap(),
    })
}

pub fn structure(name: &str, fields: &[(&str, ScSpecTypeDef)]) -> ScSpecEntry {
    let field = |(name, type_): &(&str, ScSpecTypeDef)| ScSpecUdtStructFieldV0 {
        doc: "".try_into().unwrap(),
        name: (*name).try_into().unwrap(),
        type_: type_.clone(),
    };
    ScSpecEntry::UdtStructV0(ScSpecUdtStructV0 {
        doc: "".try_into().unwrap(),
        lib: "".try_into().unwrap(),
        name: name.try_into().unwrap(),
        fields: fields.iter().map(field).collect::<Vec<_>>().try_into().unwrap(),
    })
}

pub fn named(name: &str) -> ScSpecTypeDef {
    ScSpecTypeDef::Udt(ScSpecTypeUdt { name: name.try_into().unwrap() })
}

pub fn list(of: ScSpecTypeDef) -> ScSpecTypeDef {
    ScSpecTypeDef::Vec(Box::new(ScSpecTypeVec { element_type: Box::new(of) }))
}

/// An event with `u32` fields as a map.
pub fn event(name: &str, topics: &[&str], fields: &[&str]) -> ScSpecEntry {
    let topics = topics.iter().map(|topic| stellar_xdr::ScSymbol((*topic).try_into().unwrap()));
    let param = |name: &&str| ScSpecEventParamV0 {
        doc: "".try_into().unwrap(),
        name: (*name).try_into().unwrap(),
        type_: ScSpecTypeDef::U32,
        location: ScSpecEventParamLocationV0::Data,
    };
    ScSpecEntry::EventV0(ScSpecEventV0 {
        doc: "".try_into().unwrap(),
        lib: "".try_into().unwrap(),
        name: name.try_into().unwrap(),
        prefix_topics: topics.collect::<Vec<_>>().try_into().unwrap(),
        params: fields.iter().map(param).collect::<Vec<_>>().try_into().unwrap(),
        data_format: ScSpecEventDataFormat::Map,
    })
}

/// Entries that the test modules lack: names that clash with Rust's, undefined types, an error enum
/// named `Error`, every form of event, and doc comments with a comment delimiter, quotes, a
/// backslash and a bidirectional control character.
pub fn edges() -> Vec<ScSpecEntry> {
    let event = |name: &str, topics: &[&str], data_format, params: &[(&str, bool)]| {
        let topics = topics.iter().map(|topic| stellar_xdr::ScSymbol((*topic).try_into().unwrap()));
        let param = |(name, is_topic): &(&str, bool)| ScSpecEventParamV0 {
            doc: "".try_into().unwrap(),
            name: (*name).try_into().unwrap(),
            type_: ScSpecTypeDef::I128,
            location: match is_topic {
                true => ScSpecEventParamLocationV0::TopicList,
                false => ScSpecEventParamLocationV0::Data,
            },
        };
        ScSpecEntry::EventV0(ScSpecEventV0 {
            doc: "".try_into().unwrap(),
            lib: "".try_into().unwrap(),
            name: name.try_into().unwrap(),
            prefix_topics: topics.collect::<Vec<_>>().try_into().unwrap(),
            params: params.iter().map(param).collect::<Vec<_>>().try_into().unwrap(),
            data_format,
        })
    };
    let case = ScSpecUdtErrorEnumCaseV0 {
        doc: "Not now.".try_into().unwrap(),
        name: "Late".try_into().unwrap(),
        value: 4_000_000_001,
    };
    let error = ScSpecEntry::UdtErrorEnumV0(ScSpecUdtErrorEnumV0 {
        doc: "One */ \"two\"\n\n\\ three \u{202e}four".try_into().unwrap(),
        lib: "other".try_into().unwrap(),
        name: "Error".try_into().unwrap(),
        cases: vec![case].try_into().unwrap(),
    });
    let u64 = ScSpecTypeDef::U64;
    let option =
        |of| ScSpecTypeDef::Option(Box::new(ScSpecTypeOption { value_type: Box::new(of) }));
    let tuple = |of: Vec<ScSpecTypeDef>| {
        ScSpecTypeDef::Tuple(Box::new(ScSpecTypeTuple { value_types: of.try_into().unwrap() }))
    };
    let result = |ok: ScSpecTypeDef| {
        let (ok_type, error_type) = (Box::new(ok), Box::new(ScSpecTypeDef::Error));
        ScSpecTypeDef::Result(Box::new(ScSpecTypeResult { ok_type, error_type }))
    };
    let map = |key, value| {
        let (key_type, value_type) = (Box::new(key), Box::new(value));
        ScSpecTypeDef::Map(Box::new(ScSpecTypeMap { key_type, value_type }))
    };
    vec![
        function(
            "__constructor",
            &[("owner", ScSpecTypeDef::Address), ("start", u64.clone())],
            &[],
        ),
        function(
            "__check_auth",
            &[
                ("payload", ScSpecTypeDef::BytesN(stellar_xdr::ScSpecTypeBytesN { n: 32 })),
                ("signature", ScSpecTypeDef::Val),
                ("contexts", list(named("Context"))),
            ],
            &[result(ScSpecTypeDef::Void)],
        ),
        function(
            "a_function_of_a_very_long_name__",
            &[
                ("client", ScSpecTypeDef::MuxedAddress),
                ("amount", ScSpecTypeDef::I128),
                ("Amount", ScSpecTypeDef::I128),
                ("contract_id", option(named("Unknown"))),
                ("holder", named("Holder")),
                ("reason", ScSpecTypeDef::Error),
                ("one", tuple(vec![u64.clone()])),
            ],
            &[result(named("Holder"))],
        ),
        function("nothing", &[], &[ScSpecTypeDef::Void]),
        structure(
            "Holder",
            &[
                ("all", map(ScSpecTypeDef::Symbol, list(named("Holder")))),
                ("anything", named("Unknown")),
                ("reason", ScSpecTypeDef::Error),
            ],
        ),
        structure("Empty", &[]),
        error,
        event(
            "Moved",
            &["moved", "more"],
            ScSpecEventDataFormat::Map,
            &[("b", false), ("a", true)],
        ),
        event("Single", &[], ScSpecEventDataFormat::SingleValue, &[("a", true), ("b", false)]),
        event("Listed", &["listed"], ScSpecEventDataFormat::Vec, &[("a", false), ("b", false)]),
        event("Silent", &["silent"], ScSpecEventDataFormat::Map, &[]),
    ]
}
