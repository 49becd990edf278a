//! The codes that the event names which the host emits when a contract changes its executable.

use stellar_xdr::{Limits, ReadXdr, ScVal};

use orrery_ledger::domain::Hash32;

/// First topic of the event, and the variant of an executable that is a module (`ContractExecutable` of the host's
/// `common_types.rs`: a vector with the name of the variant and the hash).
const UPDATE: &[u8] = b"executable_update";
const WASM: &[u8] = b"Wasm";
/// Beginning of the XDR of the first topic.
const UPDATE_XDR: &[u8] = b"\0\0\0\x0f\0\0\0\x11executable_update";
/// Limits of a topic, which has some hundred bytes.
const LIMITS: Limits = Limits { depth: 20, len: 4096 };

/// Whether a system event with these topics, each XDR, tells that its contract has changed its executable.
pub fn is_update<'a>(mut topics: impl Iterator<Item = &'a [u8]>) -> bool {
    topics.next().is_some_and(|topic| topic.starts_with(UPDATE_XDR))
}

/// Returns the hashes of the modules that a system event with these topics, each XDR, names: the one before the
/// change, and the one after it. None for other events, and for executables that are no modules.
pub fn updated_codes<'a>(
    mut topics: impl Iterator<Item = &'a [u8]>,
) -> impl Iterator<Item = Hash32> {
    let first = topics.next().and_then(|xdr| ScVal::from_xdr(xdr, LIMITS).ok());
    let is_update = matches!(&first, Some(ScVal::Symbol(name)) if name.as_slice() == UPDATE);
    let named: Vec<Hash32> =
        if is_update { topics.take(2).filter_map(code).collect() } else { Vec::new() };
    named.into_iter()
}

fn code(topic: &[u8]) -> Option<Hash32> {
    let ScVal::Vec(Some(parts)) = ScVal::from_xdr(topic, LIMITS).ok()? else { return None };
    let [ScVal::Symbol(kind), ScVal::Bytes(hash)] = parts.as_slice() else { return None };
    let hash = hash.as_slice().try_into().ok().map(Hash32)?;
    (kind.as_slice() == WASM).then_some(hash)
}
