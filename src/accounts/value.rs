//! Accessors for contract values. Each returns `None` unless the value has exactly the expected
//! type.

use orrery_ledger::domain::DEEPEST_VALUE;
use stellar_xdr::{
    Limits, ReadXdr, ScAddress, ScBytes, ScMapEntry, ScSymbol, ScVal, ScVec, WriteXdr,
};

/// Limits of a value: more bytes than the events of one transaction may have, and so few that a row has
/// room for several.
const LIMITS: Limits = Limits { depth: DEEPEST_VALUE, len: 1 << 20 };

/// Limits of a row that contains such values: some levels deeper, and several of them.
const ROW_LIMITS: Limits = Limits { depth: 600, len: 4 << 20 };

/// Maximum number of bytes of a symbol's XDR: its type, its length, and 32 characters.
const LONGEST_SYMBOL: usize = 4 + 4 + 32;

/// Decodes a value; `None` when the XDR is malformed.
pub(super) fn parse(xdr: &[u8]) -> Option<ScVal> {
    ScVal::from_xdr(xdr, LIMITS).ok()
}

/// Decodes a row that consists of values; `None` when it is malformed.
pub(super) fn parse_row(xdr: &[u8]) -> Option<ScVal> {
    ScVal::from_xdr(xdr, ROW_LIMITS).ok()
}

/// Returns the symbol with this XDR; `None` when it is another value. Does not allocate.
pub(super) fn symbol_of(xdr: &[u8]) -> Option<&[u8]> {
    const SYMBOL: [u8; 4] = [0, 0, 0, 15];
    let rest = xdr.strip_prefix(&SYMBOL).filter(|_| xdr.len() <= LONGEST_SYMBOL)?;
    let (length, text) = rest.split_first_chunk::<4>()?;
    text.get(..usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

pub(super) fn symbol(value: &ScVal) -> Option<&[u8]> {
    match value {
        ScVal::Symbol(symbol) => Some(symbol.as_slice()),
        _ => None,
    }
}

pub(super) fn list(value: &ScVal) -> Option<&[ScVal]> {
    match value {
        ScVal::Vec(Some(list)) => Some(list.as_slice()),
        _ => None,
    }
}

pub(super) fn map(value: &ScVal) -> Option<&[ScMapEntry]> {
    match value {
        ScVal::Map(Some(map)) => Some(map.as_slice()),
        _ => None,
    }
}

/// Returns the value of a map under a symbol key.
pub(super) fn field<'a>(map: &'a [ScMapEntry], name: &str) -> Option<&'a ScVal> {
    let entry = map.iter().find(|entry| symbol(&entry.key) == Some(name.as_bytes()))?;
    Some(&entry.val)
}

pub(super) fn address(value: &ScVal) -> Option<&ScAddress> {
    match value {
        ScVal::Address(address) => Some(address),
        _ => None,
    }
}

pub(super) fn bytes(value: &ScVal) -> Option<&[u8]> {
    match value {
        ScVal::Bytes(bytes) => Some(bytes.as_slice()),
        _ => None,
    }
}

pub(super) fn number(value: &ScVal) -> Option<u32> {
    match value {
        ScVal::U32(number) => Some(*number),
        _ => None,
    }
}

/// Returns a symbol. The text must be one of this module's users, of at most 32 characters.
pub(super) fn of_symbol(text: &'static str) -> ScVal {
    ScVal::Symbol(ScSymbol(text.try_into().unwrap_or_default()))
}

/// Returns bytes as a value.
pub(super) fn of_bytes(bytes: &[u8]) -> ScVal {
    // Only lengths beyond 32 bits fail.
    ScVal::Bytes(ScBytes(bytes.try_into().unwrap_or_default()))
}

/// Returns a list as a value.
pub(super) fn of_list(values: impl IntoIterator<Item = ScVal>) -> ScVal {
    // Only lengths beyond 32 bits fail.
    let values: Vec<ScVal> = values.into_iter().collect();
    ScVal::Vec(Some(ScVec(values.try_into().unwrap_or_default())))
}

/// Encodes a value that was decoded here, or an address, as XDR.
pub(super) fn xdr(value: &impl WriteXdr) -> Vec<u8> {
    // Encoding to memory cannot fail: the value was decoded within limits and is encoded without.
    value.to_xdr(Limits::none()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_parsed_from_xdr() {
        let symbol = |text: &str| xdr(&ScVal::Symbol(text.try_into().unwrap()));
        for text in ["", "a", "sw_v1", "signer_added", "context_rule_meta_updated"] {
            assert_eq!(symbol_of(&symbol(text)), Some(text.as_bytes()), "{text}");
        }
        let string = xdr(&ScVal::String(stellar_xdr::ScString("add".try_into().unwrap())));
        for other in [&[][..], &[0, 0, 0, 15], &[0, 0, 0, 15, 0, 0, 0, 9, 1], &string] {
            assert_eq!(symbol_of(other), None, "{other:?}");
        }
    }
}
