//! Values of contracts.

use stellar_xdr::{Int128Parts, ScBytes, ScMap, ScMapEntry, ScString, ScVal, ScVec, UInt128Parts};

pub fn symbol(text: &str) -> ScVal {
    ScVal::Symbol(text.try_into().unwrap())
}

pub fn string(text: impl AsRef<[u8]>) -> ScVal {
    ScVal::String(ScString(text.as_ref().try_into().unwrap()))
}

pub fn bytes(bytes: &[u8]) -> ScVal {
    ScVal::Bytes(ScBytes(bytes.try_into().unwrap()))
}

pub fn i128(number: i128) -> ScVal {
    ScVal::I128(Int128Parts { hi: (number >> 64) as i64, lo: number as u64 })
}

pub fn u128(number: u128) -> ScVal {
    ScVal::U128(UInt128Parts { hi: (number >> 64) as u64, lo: number as u64 })
}

pub fn list(values: impl IntoIterator<Item = ScVal>) -> ScVal {
    ScVal::Vec(Some(ScVec(values.into_iter().collect::<Vec<_>>().try_into().unwrap())))
}

/// A map with keys of any type, sorted as the network requires.
pub fn map(entries: impl IntoIterator<Item = (ScVal, ScVal)>) -> ScVal {
    let entries = entries.into_iter().map(|(key, val)| ScMapEntry { key, val });
    let mut entries: Vec<_> = entries.collect();
    entries.sort();
    ScVal::Map(Some(ScMap(entries.try_into().unwrap())))
}

/// A struct with named fields: a map from symbols to values.
pub fn fields<'a>(fields: impl IntoIterator<Item = (&'a str, ScVal)>) -> ScVal {
    map(fields.into_iter().map(|(name, value)| (symbol(name), value)))
}
