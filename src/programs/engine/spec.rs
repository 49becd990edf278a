//! The interface that a contract's module tells of itself, whether or not the module could be a program. Runs
//! nothing of it.

use stellar_xdr::ScSpecEntry;
use wasmparser::{Parser, Payload};

use super::check::{Refused, SPEC, begins_as_module, entries, invalid};

/// What stands in the sections `contractspecv0` of a module (SEP-48), in its order; nothing when it has none.
///
/// # Errors
/// When it is no module, or the section is not understood.
pub fn contract_spec(code: &[u8]) -> Result<Vec<ScSpecEntry>, Refused> {
    begins_as_module(code)?;
    let mut spec = Vec::new();
    for payload in Parser::new(0).parse_all(code) {
        if let Payload::CustomSection(section) = payload.map_err(|error| invalid(&error))?
            && section.name() == SPEC
        {
            spec.extend_from_slice(section.data());
        }
    }
    entries(&spec, SPEC)
}
