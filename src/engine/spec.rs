//! Reads the interface that a contract's module declares, whether or not the module could be a
//! program. Does not execute the module.

use stellar_xdr::ScSpecEntry;
use wasmparser::{Parser, Payload};

use super::check::{SPEC, begins_as_module, entries, invalid};
use super::refused::Refused;

/// Returns the content of the module's `contractspecv0` sections (SEP-48) in their order; empty
/// when it has none.
///
/// # Errors
/// When the code is not a module, or the section cannot be decoded.
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
