//! Keys as users write them, and their hashes.

use orrery::contract_data::{Durability, hash_of_data_key};
use orrery::domain::{ContractId, ENTERED_VALUE, Hash32, excerpt, scval_from_text};
use stellar_xdr::{ReadXdr, ScVal, ScVec};

/// What names a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// The hash of its XDR `LedgerKey`.
    Hash(Hash32),
    /// The key.
    Key(ScVal),
}

/// How answers show the key of the instance.
pub const INSTANCE: &str = "instance";

/// Reads a key.
///
/// # Errors
/// What is wrong with the text, and which forms there are.
pub fn read(text: &str) -> Result<ScVal, String> {
    if text == INSTANCE {
        return Ok(ScVal::LedgerKeyContractInstance);
    }
    let xdr = scval_from_text(text).map_err(|error| error.to_string())?;
    ScVal::from_xdr(xdr, ENTERED_VALUE).map_err(|error| format!("cannot be read: {error}"))
}

/// Reads the hash of a key, or a key.
///
/// # Errors
/// As [`read`].
pub fn named(text: &str) -> Result<Named, String> {
    let is_hex = !text.is_empty() && text.bytes().all(|it| it.is_ascii_hexdigit());
    if is_hex && text.len() == 2 * Hash32::LEN {
        return text.parse().map(Named::Hash).map_err(|_| format!("is '{}'", excerpt(text)));
    }
    // No symbol is as long, and no address or XDR looks like it.
    if is_hex && text.len() > 32 {
        return Err(format!(
            "is '{}', which has {} digits: the hash of a key has {}",
            excerpt(text),
            text.len(),
            2 * Hash32::LEN
        ));
    }
    read(text).map(Named::Key)
}

/// Returns the vector of a symbol alone, which is how a case without values of a contract's union is stored.
pub fn vector_of(key: &ScVal) -> Option<ScVal> {
    let ScVal::Symbol(_) = key else { return None };
    Some(ScVal::Vec(Some(ScVec(vec![key.clone()].try_into().ok()?))))
}

/// Returns the hash of the key of a contract's instance, and those of this key in both durabilities.
pub fn hashes(contract: &ContractId, key: &ScVal) -> Option<(Hash32, [Hash32; 2])> {
    let of = |key: &ScVal, durability| hash_of_data_key(contract, key.clone(), durability);
    let instance = of(&ScVal::LedgerKeyContractInstance, Durability::Persistent)?;
    Some((instance, [of(key, Durability::Persistent)?, of(key, Durability::Temporary)?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_hashes_or_values() {
        let hash = "02934E134ba271dba1b36ba72015eef0099db8a3671136ace01a0e7c2d419ed5";
        assert_eq!(named(hash), Ok(Named::Hash(hash.parse().unwrap())));
        let short = named(&hash[1..]).unwrap_err();
        assert!(short.contains("has 63 digits: the hash of a key has 64"), "{short}");
        assert_eq!(named("instance"), Ok(Named::Key(ScVal::LedgerKeyContractInstance)));
        let symbol = |text: &str| ScVal::Symbol(text.try_into().unwrap());
        assert_eq!(named("symbol:instance"), Ok(Named::Key(symbol("instance"))));
        assert_eq!(named("Admin"), Ok(Named::Key(symbol("Admin"))));
        assert_eq!(named("u32:9"), Ok(Named::Key(ScVal::U32(9))));
        assert_eq!(named("cafe"), Ok(Named::Key(symbol("cafe"))), "a short word is a symbol");
        let refused = named("a b").unwrap_err();
        assert!(refused.contains("give type:value"), "{refused}");
        assert_eq!(vector_of(&ScVal::U32(9)), None);
        assert!(
            matches!(vector_of(&symbol("Admin")), Some(ScVal::Vec(Some(all))) if all.len() == 1)
        );
    }
}
