//! The modules of factory and pools: assembled code, with the interface that it declares (SEP-48) as a
//! custom section behind it.

use stellar_xdr::{
    Limits, ScSpecEntry, ScSpecEventDataFormat, ScSpecEventParamLocationV0, ScSpecEventParamV0,
    ScSpecEventV0, ScSpecFunctionInputV0, ScSpecFunctionV0, ScSpecTypeBytesN, ScSpecTypeDef,
    ScSpecTypeVec, ScSymbol, StringM, WriteXdr,
};

use super::super::error::Result;

/// Assembled from `factory.wat`.
const FACTORY: &[u8] = include_bytes!("factory.wasm");
/// Assembled from `pool.wat`.
const POOL: &[u8] = include_bytes!("pool.wasm");

/// Name of the section with the interface.
const SECTION: &[u8] = b"contractspecv0";

/// Returns the module of the factory.
pub(super) fn factory_code() -> Result<Vec<u8>> {
    let pool = parameter("pool", ScSpecTypeDef::Address, ScSpecEventParamLocationV0::Data)?;
    let name = parameter("name", ScSpecTypeDef::Symbol, ScSpecEventParamLocationV0::TopicList)?;
    let created = event("pool_created", vec![name, pool], ScSpecEventDataFormat::SingleValue)?;
    let bytes = ScSpecTypeDef::BytesN(ScSpecTypeBytesN { n: 32 });
    let topics = input("topics", vec_of(ScSpecTypeDef::Val))?;
    let inputs = vec![topics, input("code", bytes.clone())?, input("salt", bytes)?];
    with_interface(FACTORY, &[created, function("open", inputs, Some(ScSpecTypeDef::Address))?])
}

/// Returns a version of the module of pools: the second one declares the fee of a swap.
pub(super) fn pool_code(version: u32) -> Result<Vec<u8>> {
    let data = ScSpecEventParamLocationV0::Data;
    let amount = |name| parameter(name, ScSpecTypeDef::I128, data);
    let trader =
        parameter("trader", ScSpecTypeDef::Address, ScSpecEventParamLocationV0::TopicList)?;
    let mut parameters = vec![trader, amount("sold")?, amount("bought")?];
    if version > 1 {
        parameters.push(amount("fee")?);
    }
    let topics = input("topics", vec_of(ScSpecTypeDef::Val))?;
    let value = |name| input(name, ScSpecTypeDef::Val);
    let put = vec![value("key")?, value("value")?, input("durability", ScSpecTypeDef::U32)?];
    let hash = input("code", ScSpecTypeDef::BytesN(ScSpecTypeBytesN { n: 32 }))?;
    let entries = [
        event("swap", parameters, ScSpecEventDataFormat::Map)?,
        function("swap", vec![topics, value("amounts")?], None)?,
        function("put", put, None)?,
        function("upgrade", vec![hash], None)?,
        function("fail", Vec::new(), None)?,
    ];
    with_interface(POOL, &entries)
}

fn vec_of(element: ScSpecTypeDef) -> ScSpecTypeDef {
    ScSpecTypeDef::Vec(Box::new(ScSpecTypeVec { element_type: Box::new(element) }))
}

fn parameter(
    name: &str,
    type_: ScSpecTypeDef,
    location: ScSpecEventParamLocationV0,
) -> Result<ScSpecEventParamV0> {
    Ok(ScSpecEventParamV0 { doc: StringM::default(), name: name.try_into()?, type_, location })
}

fn event(
    name: &str,
    params: Vec<ScSpecEventParamV0>,
    data_format: ScSpecEventDataFormat,
) -> Result<ScSpecEntry> {
    let symbol = ScSymbol(name.try_into()?);
    Ok(ScSpecEntry::EventV0(ScSpecEventV0 {
        doc: StringM::default(),
        lib: StringM::default(),
        name: name.try_into()?,
        prefix_topics: vec![symbol].try_into()?,
        params: params.try_into()?,
        data_format,
    }))
}

fn input(name: &str, type_: ScSpecTypeDef) -> Result<ScSpecFunctionInputV0> {
    Ok(ScSpecFunctionInputV0 { doc: StringM::default(), name: name.try_into()?, type_ })
}

fn function(
    name: &str,
    inputs: Vec<ScSpecFunctionInputV0>,
    output: Option<ScSpecTypeDef>,
) -> Result<ScSpecEntry> {
    Ok(ScSpecEntry::FunctionV0(ScSpecFunctionV0 {
        doc: StringM::default(),
        name: ScSymbol(name.try_into()?),
        inputs: inputs.try_into()?,
        outputs: output.into_iter().collect::<Vec<_>>().try_into()?,
    }))
}

/// Adds a custom section with an interface to a module (WebAssembly specification, "Binary Format").
fn with_interface(code: &[u8], entries: &[ScSpecEntry]) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    put_length(SECTION.len(), &mut content);
    content.extend_from_slice(SECTION);
    for entry in entries {
        content.extend_from_slice(&entry.to_xdr(Limits::none())?);
    }
    let mut module = code.to_vec();
    module.push(0);
    put_length(content.len(), &mut module);
    module.extend_from_slice(&content);
    Ok(module)
}

/// Appends a length in LEB128.
fn put_length(mut length: usize, to: &mut Vec<u8>) {
    loop {
        let low = (length & 0x7f) as u8;
        length >>= 7;
        if length == 0 {
            return to.push(low);
        }
        to.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modules_equal_their_assembled_texts() {
        assert_eq!(wat::parse_str(include_str!("factory.wat")).unwrap(), FACTORY);
        assert_eq!(wat::parse_str(include_str!("pool.wat")).unwrap(), POOL);
    }
}
