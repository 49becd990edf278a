//! Values as the XDR crate writes them in JSON (stellar-xdr, SEP-51): exact, and each with its type.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use orrery_ledger::decode::DEEPEST;
use serde::{Serialize, Serializer};
use serde_json::json;
use stellar_xdr::{Limits, ReadXdr, ScVal};

/// Decoding limits: the depth that stored values may have, and 16 MiB. Values that contracts emit
/// are less deep: the contract host writes events of up to 500 levels (`DEFAULT_XDR_RW_LIMITS` of
/// soroban-env-host).
const LIMITS: Limits = Limits { depth: DEEPEST, len: 16 << 20 };

/// Length in bytes up to which a value cannot be nested deeply: each level takes twelve bytes.
const MAX_SHALLOW_BYTES: usize = 1200;
/// Stack size for reading and writing longer values, in bytes.
const STACK: usize = 32 << 20;
/// Number of levels that fit any stack.
const SHALLOW: usize = 50;

/// The typed form of the XDR of an `ScVal`.
#[derive(Debug, Clone, Copy)]
pub struct TypedXdr<'a>(pub &'a [u8]);

impl Serialize for TypedXdr<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let write = || match ScVal::from_xdr(self.0, LIMITS) {
            Ok(value) => value.serialize(serializer),
            // Stored values have been walked as `ScVal` before. If the crate cannot decode one all
            // the same, the receiver gets its XDR.
            Err(error) => {
                tracing::warn!(
                    "a value of an event is sent as XDR, because it cannot be written as JSON: \
                     {error}"
                );
                json!({ "xdr": STANDARD.encode(self.0) }).serialize(serializer)
            }
        };
        match self.0.len() {
            ..=MAX_SHALLOW_BYTES => write(),
            _ => stacker::maybe_grow(STACK / 2, STACK, write),
        }
    }
}

/// The typed form of an `ScVal`.
#[derive(Debug, Clone, Copy)]
pub struct Typed<'a>(pub &'a ScVal);

impl Serialize for Typed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if is_shallow(self.0) {
            return self.0.serialize(serializer);
        }
        stacker::maybe_grow(STACK / 2, STACK, || self.0.serialize(serializer))
    }
}

fn is_shallow(value: &ScVal) -> bool {
    let mut open = vec![(value, 0)];
    while let Some((value, level)) = open.pop() {
        if level == SHALLOW {
            return false;
        }
        match value {
            ScVal::Vec(Some(items)) => open.extend(items.iter().map(|item| (item, level + 1))),
            ScVal::Map(Some(entries)) => {
                let parts = entries.iter().flat_map(|entry| [&entry.key, &entry.val]);
                open.extend(parts.map(|part| (part, level + 1)));
            }
            ScVal::ContractInstance(_) => return false,
            _ => {}
        }
    }
    true
}
