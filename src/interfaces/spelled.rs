//! Types of an interface as text, spelled as a contract in Rust names them.

use orrery_ledger::domain::text;
use stellar_xdr::ScSpecTypeDef;

/// Returns the text of a type (SEP-48), such as `Map<Symbol,i128>`, with the names of soroban-sdk and
/// without blanks. A type that the interface defines has its name. The depth of the type must have been
/// checked, as it is for every interface.
pub fn spelled(kind: &ScSpecTypeDef) -> String {
    let mut out = String::new();
    spell(kind, &mut out);
    out
}

/// Returns the text of several types as that of a tuple.
pub fn spelled_tuple(kinds: &[ScSpecTypeDef]) -> String {
    let mut out = String::new();
    tuple(kinds, &mut out);
    out
}

fn spell(kind: &ScSpecTypeDef, out: &mut String) {
    match kind {
        ScSpecTypeDef::Option(of) => generic("Option", &[&of.value_type], out),
        ScSpecTypeDef::Result(of) => generic("Result", &[&of.ok_type, &of.error_type], out),
        ScSpecTypeDef::Vec(of) => generic("Vec", &[&of.element_type], out),
        ScSpecTypeDef::Map(of) => generic("Map", &[&of.key_type, &of.value_type], out),
        ScSpecTypeDef::Tuple(of) => tuple(of.value_types.as_slice(), out),
        ScSpecTypeDef::BytesN(of) => out.push_str(&format!("BytesN<{}>", of.n)),
        ScSpecTypeDef::Udt(named) => out.push_str(&text(named.name.as_slice())),
        simple => out.push_str(name(simple)),
    }
}

/// Returns the name of a type without parts.
fn name(kind: &ScSpecTypeDef) -> &'static str {
    match kind {
        ScSpecTypeDef::Bool => "bool",
        ScSpecTypeDef::Void => "()",
        ScSpecTypeDef::Error => "Error",
        ScSpecTypeDef::U32 => "u32",
        ScSpecTypeDef::I32 => "i32",
        ScSpecTypeDef::U64 => "u64",
        ScSpecTypeDef::I64 => "i64",
        ScSpecTypeDef::Timepoint => "Timepoint",
        ScSpecTypeDef::Duration => "Duration",
        ScSpecTypeDef::U128 => "u128",
        ScSpecTypeDef::I128 => "i128",
        ScSpecTypeDef::U256 => "U256",
        ScSpecTypeDef::I256 => "I256",
        ScSpecTypeDef::Bytes => "Bytes",
        ScSpecTypeDef::String => "String",
        ScSpecTypeDef::Symbol => "Symbol",
        ScSpecTypeDef::Address => "Address",
        ScSpecTypeDef::MuxedAddress => "MuxedAddress",
        _ => "Val",
    }
}

fn generic(name: &str, of: &[&ScSpecTypeDef], out: &mut String) {
    out.push_str(name);
    out.push('<');
    for (at, kind) in of.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        spell(kind, out);
    }
    out.push('>');
}

fn tuple(kinds: &[ScSpecTypeDef], out: &mut String) {
    out.push('(');
    for (at, kind) in kinds.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        spell(kind, out);
    }
    // As in Rust, which reads `(A)` as `A`.
    if kinds.len() == 1 {
        out.push(',');
    }
    out.push(')');
}

#[cfg(test)]
mod tests {
    use stellar_xdr::{
        ScSpecTypeBytesN, ScSpecTypeMap, ScSpecTypeOption, ScSpecTypeResult, ScSpecTypeTuple,
        ScSpecTypeUdt, ScSpecTypeVec,
    };

    use super::*;

    #[test]
    fn types_are_spelled_as_in_rust() {
        use ScSpecTypeDef::{Address, BytesN, I128, Map, Option, Result, Symbol, Tuple, Udt, Vec};

        let of = |kind: &ScSpecTypeDef| Box::new(kind.clone());
        let udt = Udt(ScSpecTypeUdt { name: "Deal".try_into().unwrap() });
        let map = Map(Box::new(ScSpecTypeMap { key_type: of(&Symbol), value_type: of(&I128) }));
        let list = Vec(Box::new(ScSpecTypeVec { element_type: of(&map) }));
        let may = Option(Box::new(ScSpecTypeOption { value_type: of(&list) }));
        let result = ScSpecTypeResult { ok_type: of(&may), error_type: of(&udt) };
        let hash = BytesN(ScSpecTypeBytesN { n: 32 });
        let pair = |kinds: &[ScSpecTypeDef]| {
            Tuple(Box::new(ScSpecTypeTuple { value_types: kinds.to_vec().try_into().unwrap() }))
        };
        for (kind, expected) in [
            (Result(Box::new(result)), "Result<Option<Vec<Map<Symbol,i128>>>,Deal>"),
            (pair(&[Address, hash.clone()]), "(Address,BytesN<32>)"),
            (pair(&[hash]), "(BytesN<32>,)"),
            (pair(&[]), "()"),
            (ScSpecTypeDef::Void, "()"),
            (ScSpecTypeDef::Val, "Val"),
        ] {
            assert_eq!(spelled(&kind), expected);
        }
        assert_eq!(spelled_tuple(&[Address, Symbol]), "(Address,Symbol)");
    }
}
