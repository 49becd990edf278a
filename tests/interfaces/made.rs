//! Builds modules that hold interfaces, and puts events together again.

use orrery_interfaces::Matched;
pub use orrery_testkit::specs::*;
use stellar_xdr::{
    Limits, ScMap, ScMapEntry, ScSpecEntry, ScSpecEventParamLocationV0, ScVal, ScVec, WriteXdr,
};

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
    all.extend(params.iter().filter(is_topic).map(|it| it.value.clone()));
    all.extend_from_slice(matched.rest.topics);
    let data: Vec<_> = params.iter().filter(|it| !is_topic(it)).collect();
    let entry = |name: &[u8], val: &ScVal| ScMapEntry {
        key: ScVal::Symbol(stellar_xdr::ScSymbol(name.try_into().unwrap())),
        val: val.clone(),
    };
    let has_keys = !matched.rest.keys.is_empty();
    let data = match declared.data_format {
        SingleValue if has_keys => {
            let amount = entry(b"amount", data[0].value);
            sorted(matched.rest.keys.iter().copied().cloned().chain([amount]).collect())
        }
        SingleValue => data.first().map_or(ScVal::Void, |it| it.value.clone()),
        Vector => {
            let declared = data.iter().map(|it| it.value.clone());
            let items: Vec<_> = declared.chain(matched.rest.items.iter().cloned()).collect();
            ScVal::Vec(Some(ScVec(items.try_into().unwrap())))
        }
        Map => {
            let present = data.iter().map(|it| (it.declared, it.value));
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
