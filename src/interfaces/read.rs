//! Reads the entries of an interface from a module, or from JSON as the network's command line
//! prints it, within limits on size, number and depth. Does not execute the module.

use stellar_xdr::{Limited, Limits, ReadXdr, ScSpecEntry, ScSpecTypeDef, ScSpecUdtUnionCaseV0};
use wasmparser::{Encoding, Parser, Payload};

use orrery_ledger::domain::shortened;

/// Name of the sections that hold an interface (SEP-48).
const SECTION: &str = "contractspecv0";
/// Largest interface of a contract's code, in bytes of its sections: the network's limit on code.
const LARGEST_ON_CHAIN: usize = 128 << 10;
/// Largest file that a user may supply, in bytes.
const LARGEST_SUPPLIED: usize = 2 << 20;
/// Maximum number of events of one interface.
pub const MOST_EVENTS: usize = 1_000;
/// Maximum number of structs, unions and enums of one interface.
pub const MOST_TYPES: usize = 10_000;
/// Maximum number of parameters of one event. More than the network lets an event hold.
pub const MOST_PARAMETERS: usize = 1_000;
/// Maximum number of bytes of memory of an interface: more than any of an allowed size needs whose
/// parameters have different names.
pub(crate) const MOST_BYTES: usize = 32 << 20;
/// Maximum number of types inside each other.
const DEEPEST_TYPE: usize = 100;
/// Maximum depth of the XDR of an entry. A type inside a type takes four levels, and an entry around
/// it a few.
const DEEPEST_XDR: u32 = 4 * DEEPEST_TYPE as u32 + 20;
/// Maximum length of a reason from a library, in characters: it may quote the input.
const LONGEST_REASON: usize = 200;

/// Where an interface comes from, which decides how large it may be.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The code of a contract in the ledger.
    Chain,
    /// A file from a user.
    Supplied,
}

/// Reason why there is no interface.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The input has too many bytes.
    #[error("the interface has {size} bytes, more than the {limit} that are read")]
    TooLarge {
        /// Number of bytes.
        size: usize,
        /// Maximum number of bytes.
        limit: usize,
    },
    /// The code is not a WebAssembly module, or is cut.
    #[error("the code cannot be read as a WebAssembly module: {0}")]
    Module(String),
    /// The module has no section that holds an interface.
    #[error("the code has no section {SECTION}, in which a contract declares its interface")]
    NoSection,
    /// The sections hold something else than entries, or are cut.
    #[error("the section {SECTION} cannot be decoded: {0}")]
    Section(String),
    /// The JSON is not an array of entries.
    #[error(
        "the JSON is not an interface: {0}; give the array of entries that the network's command \
         line prints"
    )]
    Json(String),
    /// There are more events than are read.
    #[error("the interface declares {0} events, more than the {MOST_EVENTS} that are read")]
    TooManyEvents(usize),
    /// There are more types than are read.
    #[error("the interface defines {0} types, more than the {MOST_TYPES} that are read")]
    TooManyTypes(usize),
    /// An event has more parameters than are read.
    #[error("an event has {0} parameters, more than the {MOST_PARAMETERS} that are read")]
    TooManyParameters(usize),
    /// The interface would take too much memory.
    #[error(
        "the interface would take more than {} MiB of memory: its events have many parameters of one \
         name",
        MOST_BYTES >> 20
    )]
    TooMuchMemory,
    /// Types are nested too deeply.
    #[error("a type of the interface is nested more than {DEEPEST_TYPE} levels deep")]
    TooDeep,
}

/// Reads the entries of all sections of a module, joined in their order.
pub(crate) fn module(code: &[u8], origin: Origin) -> Result<Vec<ScSpecEntry>, ReadError> {
    if origin == Origin::Supplied {
        at_most(code.len(), LARGEST_SUPPLIED)?;
    }
    entries(&joined_sections(code, origin)?)
}

/// Reads the entries in a file that a user supplied: a module, or JSON.
pub(crate) fn file(content: &[u8]) -> Result<Vec<ScSpecEntry>, ReadError> {
    if content.starts_with(b"\0asm") { module(content, Origin::Supplied) } else { json(content) }
}

/// Returns the sections that hold the interface of a module of the ledger, joined in their order, for
/// [`super::Interface::from_sections`].
///
/// # Errors
/// [`ReadError`] when the code is cut or no module, or has no interface or one that is too large.
pub fn sections(code: &[u8]) -> Result<Vec<u8>, ReadError> {
    joined_sections(code, Origin::Chain)
}

fn joined_sections(code: &[u8], origin: Origin) -> Result<Vec<u8>, ReadError> {
    let unreadable =
        |error: wasmparser::Error| ReadError::Module(shortened(&error.to_string(), LONGEST_REASON));
    let (mut joined, mut found) = (Vec::new(), false);
    for payload in Parser::new(0).parse_all(code) {
        match payload.map_err(unreadable)? {
            Payload::Version { encoding: Encoding::Component, .. } => {
                return Err(ReadError::Module("it is a component".to_owned()));
            }
            Payload::CustomSection(section) if section.name() == SECTION => {
                found = true;
                if origin == Origin::Chain {
                    at_most(joined.len() + section.data().len(), LARGEST_ON_CHAIN)?;
                }
                joined.extend_from_slice(section.data());
            }
            _ => {}
        }
    }
    if found { Ok(joined) } else { Err(ReadError::NoSection) }
}

/// Decodes the entries in joined sections.
pub(crate) fn entries(sections: &[u8]) -> Result<Vec<ScSpecEntry>, ReadError> {
    let limits = Limits { depth: DEEPEST_XDR, len: sections.len() };
    let mut reader = Limited::new(sections, limits);
    let entries = ScSpecEntry::read_xdr_iter(&mut reader).collect::<Result<Vec<_>, _>>();
    entries.map_err(|error| match error {
        stellar_xdr::Error::DepthLimitExceeded => ReadError::TooDeep,
        error => ReadError::Section(shortened(&error.to_string(), LONGEST_REASON)),
    })
}

/// Returns the entries in the joined sections of a module ([`sections`]), in the order of their
/// declaration.
///
/// # Errors
/// [`ReadError`] when the sections are cut, or exceed a limit.
pub fn entries_of(sections: &[u8]) -> Result<Vec<ScSpecEntry>, ReadError> {
    let entries = entries(sections)?;
    check(&entries).map(|()| entries)
}

/// Reads entries from JSON.
pub(crate) fn json(text: &[u8]) -> Result<Vec<ScSpecEntry>, ReadError> {
    at_most(text.len(), LARGEST_SUPPLIED)?;
    serde_json::from_slice(text)
        .map_err(|error| ReadError::Json(shortened(&error.to_string(), LONGEST_REASON)))
}

fn at_most(size: usize, limit: usize) -> Result<(), ReadError> {
    if size > limit { Err(ReadError::TooLarge { size, limit }) } else { Ok(()) }
}

/// Checks the limits that hold whatever the entries were read from.
pub(crate) fn check(entries: &[ScSpecEntry]) -> Result<(), ReadError> {
    let (mut events, mut types) = (0, 0);
    for entry in entries {
        match entry {
            ScSpecEntry::EventV0(event) if event.params.len() > MOST_PARAMETERS => {
                return Err(ReadError::TooManyParameters(event.params.len()));
            }
            ScSpecEntry::EventV0(_) => events += 1,
            ScSpecEntry::FunctionV0(_) => {}
            _ => types += 1,
        }
    }
    if events > MOST_EVENTS {
        return Err(ReadError::TooManyEvents(events));
    }
    if types > MOST_TYPES {
        return Err(ReadError::TooManyTypes(types));
    }
    let is_shallow = |entry| types_of(entry).into_iter().all(|kind| fits_depth(kind, DEEPEST_TYPE));
    if entries.iter().all(is_shallow) { Ok(()) } else { Err(ReadError::TooDeep) }
}

/// Returns the types that stand in an entry.
fn types_of(entry: &ScSpecEntry) -> Vec<&ScSpecTypeDef> {
    match entry {
        ScSpecEntry::FunctionV0(function) => {
            let inputs = function.inputs.iter().map(|input| &input.type_);
            inputs.chain(function.outputs.iter()).collect()
        }
        ScSpecEntry::UdtStructV0(definition) => {
            definition.fields.iter().map(|field| &field.type_).collect()
        }
        ScSpecEntry::UdtUnionV0(definition) => {
            let types = definition.cases.iter().flat_map(|case| match case {
                ScSpecUdtUnionCaseV0::VoidV0(_) => &[],
                ScSpecUdtUnionCaseV0::TupleV0(case) => case.type_.as_slice(),
            });
            types.collect()
        }
        ScSpecEntry::EventV0(event) => event.params.iter().map(|param| &param.type_).collect(),
        ScSpecEntry::UdtEnumV0(_) | ScSpecEntry::UdtErrorEnumV0(_) => Vec::new(),
    }
}

/// Whether at most `depth` types stand inside each other.
fn fits_depth(kind: &ScSpecTypeDef, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    match kind {
        ScSpecTypeDef::Option(of) => fits_depth(&of.value_type, depth),
        ScSpecTypeDef::Vec(of) => fits_depth(&of.element_type, depth),
        ScSpecTypeDef::Result(of) => {
            fits_depth(&of.ok_type, depth) && fits_depth(&of.error_type, depth)
        }
        ScSpecTypeDef::Map(of) => {
            fits_depth(&of.key_type, depth) && fits_depth(&of.value_type, depth)
        }
        ScSpecTypeDef::Tuple(of) => of.value_types.iter().all(|kind| fits_depth(kind, depth)),
        _ => true,
    }
}
