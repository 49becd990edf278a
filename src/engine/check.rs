//! Checks whether a module may be a program, and extracts what the module declares about itself.
//! Parses the module without executing any of it.

use std::collections::HashMap;

use orrery_ledger::decode::MAX_PROTOCOL;
use orrery_ledger::domain::{DEEPEST_VALUE, Hash32, excerpt, shortened};
use orrery_settings::Programs;
use sha2::{Digest, Sha256};
use stellar_xdr::{Limited, Limits, ReadXdr, ScEnvMetaEntry, ScSpecEntry};
use wasmparser::{
    CompositeInnerType, DataKind, ExportSectionReader, ExternalKind, ImportSectionReader, Imports,
    Parser, Payload, TypeRef, ValType, Validator,
};

use super::cost::Cost;
use super::interface::{EMIT, env_functions};
use super::limits::Bytes;
use super::refused::{PREAMBLE, Refused, listed};
use super::settings::{FEATURES, MAX_TABLE_ELEMENTS, MAX_TABLES};
use super::targets::Targets;

/// Name of the section with a contract's spec (SEP-48).
const SPEC: &str = "contractspecv0";
/// Maximum of the number of structs in the spec times the bytes of data: the name of each struct is
/// searched for in all data.
const MAX_NAME_SEARCH_COST: usize = 200_000_000;
/// Maximum number of characters quoted from the validator's message.
const LONGEST_REASON: usize = 200;

/// Requirements on a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckRules {
    /// Whether the module has to import the function that emits rows.
    pub must_emit: bool,
    /// Maximum size in bytes.
    pub size: usize,
    /// Maximum initial linear memory in bytes.
    pub memory: usize,
}

impl From<&Programs> for CheckRules {
    fn from(settings: &Programs) -> Self {
        Self { must_emit: true, size: 2 << 20, memory: settings.memory_mib.bytes() as usize }
    }
}

impl Default for CheckRules {
    fn default() -> Self {
        Self::from(&Programs::default())
    }
}

/// What a module declares about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleFacts {
    /// SHA-256 of the module.
    pub sha256: Hash32,
    /// Names of the exported functions, in the module's order.
    pub functions: Vec<String>,
    /// The contract's spec, from sections `contractspecv0` (SEP-48).
    pub spec: Vec<ScSpecEntry>,
    /// Protocol version that the module was built for, from section `contractenvmetav0`; `None`
    /// without that section.
    pub protocol: Option<u32>,
    /// Whether the module imports the function that emits rows.
    pub emits: bool,
    /// Contents of its data segments, in order.
    pub data: Vec<Vec<u8>>,
    /// Targets to which the module may emit.
    pub targets: Targets,
}

/// Checks a module and returns what it declares about itself.
pub(super) fn check(code: &[u8], rules: &CheckRules) -> Result<ModuleFacts, Refused> {
    if code.len() > rules.size {
        return Err(Refused(format!(
            "the module has {} bytes; a program may have {}: build it with opt-level = \"z\" and \
             without debug information",
            code.len(),
            Bytes(rules.size)
        )));
    }
    begins_as_module(code)?;
    Validator::new_with_features(FEATURES).validate_all(code).map_err(|error| invalid(&error))?;
    let mut reader = Reader::default();
    for payload in Parser::new(0).parse_all(code) {
        let payload = payload.map_err(|error| invalid(&error))?;
        reader.read(payload, rules).map_err(|failure| match failure {
            Failure::Wasm(error) => invalid(&error),
            Failure::Refused(refused) => refused,
        })?;
    }
    let targets = Targets::of(code).map_err(|error| invalid(&error))?;
    reader.facts(Hash32(Sha256::digest(code).into()), targets, rules)
}

/// Fails unless `code` begins with the preamble of a module.
fn begins_as_module(code: &[u8]) -> Result<(), Refused> {
    if code.starts_with(&PREAMBLE) {
        Ok(())
    } else {
        let found = hex::encode(&code[..code.len().min(PREAMBLE.len())]);
        let module = hex::encode(PREAMBLE);
        Err(Refused(format!(
            "this is not a WebAssembly module: it begins with '{found}' where a module has \
             '{module}'; send the .wasm file as the compiler wrote it"
        )))
    }
}

fn invalid(error: &wasmparser::Error) -> Refused {
    // The message may quote names from the module, which may be long.
    Refused::invalid(&shortened(&error.to_string(), LONGEST_REASON))
}

enum Failure {
    Wasm(wasmparser::Error),
    Refused(Refused),
}

impl From<wasmparser::Error> for Failure {
    fn from(error: wasmparser::Error) -> Self {
        Self::Wasm(error)
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

/// What has been read of a module so far.
#[derive(Default)]
struct Reader {
    /// Number of parameters of each function type, by type index; `None` if a parameter or the
    /// result is not an i64.
    types: Vec<Option<usize>>,
    cost: Cost,
    unknown: Vec<String>,
    wrong: Vec<String>,
    emits: bool,
    start: bool,
    memory: bool,
    functions: Vec<String>,
    data: Vec<Vec<u8>>,
    spec: Vec<u8>,
    env_meta: Vec<u8>,
}

impl Reader {
    fn read_imports(&mut self, imports: ImportSectionReader<'_>) -> Result<(), Failure> {
        let known: HashMap<_, _> = env_functions()
            .into_iter()
            .filter(|function| function.available)
            .map(|function| ((function.module, function.import), function.parameters))
            .chain([(EMIT, 2)])
            .collect();
        for import in imports {
            let Imports::Single(_, import) = import? else {
                return Err(Refused::invalid("it uses compact imports").into());
            };
            self.cost.add_import()?;
            self.import(&import, &known);
        }
        Ok(())
    }

    fn read_exports(&mut self, exports: ExportSectionReader<'_>) -> Result<(), Failure> {
        for export in exports {
            let export = export?;
            match export.kind {
                ExternalKind::Func => self.functions.push(export.name.to_owned()),
                ExternalKind::Memory if export.name == "memory" => self.memory = true,
                _ => {}
            }
        }
        Ok(())
    }

    fn read(&mut self, payload: Payload<'_>, rules: &CheckRules) -> Result<(), Failure> {
        match payload {
            Payload::TypeSection(types) => {
                for group in types {
                    for ty in group?.into_types() {
                        self.add_type(&ty.composite_type.inner)?;
                    }
                }
            }
            Payload::ImportSection(imports) => self.read_imports(imports)?,
            Payload::MemorySection(memories) => {
                for memory in memories {
                    check_initial_size("memory", memory?.initial, 64 << 10, rules.memory)?;
                }
            }
            Payload::TableSection(tables) => {
                for (count, table) in tables.into_iter().enumerate() {
                    check_initial_size("a table", table?.ty.initial, 1, MAX_TABLE_ELEMENTS)?;
                    if count >= MAX_TABLES as usize {
                        return Err(too_much("a third table", "two"));
                    }
                }
            }
            Payload::StartSection { .. } => self.start = true,
            Payload::ExportSection(exports) => self.read_exports(exports)?,
            Payload::FunctionSection(functions) => {
                for ty in functions {
                    self.cost.add_function(ty?);
                }
            }
            Payload::CodeSectionEntry(body) => self.cost.add_body(&body)??,
            Payload::DataSection(segments) => {
                for segment in segments {
                    let segment = segment?;
                    if matches!(segment.kind, DataKind::Active { .. } | DataKind::Passive) {
                        self.data.push(segment.data.to_vec());
                    }
                }
            }
            Payload::CustomSection(section) => match section.name() {
                SPEC => self.spec.extend_from_slice(section.data()),
                "contractenvmetav0" => self.env_meta.extend_from_slice(section.data()),
                _ => {}
            },
            _ => {}
        }
        Ok(())
    }

    fn import<'a>(
        &mut self,
        import: &wasmparser::Import<'a>,
        known: &HashMap<(&'a str, &'a str), usize>,
    ) {
        let name = format!("{}.{}", import.module, import.name);
        let parameters = known.get(&(import.module, import.name)).copied();
        let ty = match import.ty {
            TypeRef::Func(index) => self.types.get(index as usize).copied().flatten(),
            _ => None,
        };
        match parameters {
            None => self.unknown.push(excerpt(&name)),
            Some(parameters) if ty != Some(parameters) => self.wrong.push(name),
            Some(_) => self.emits |= (import.module, import.name) == EMIT,
        }
    }

    fn add_type(&mut self, ty: &CompositeInnerType) -> Result<(), Failure> {
        let (mut params, mut results) = (0, 0);
        if let CompositeInnerType::Func(function) = ty {
            (params, results) = (function.params().len(), function.results().len());
        }
        self.cost.add_type(params, results)?;
        self.types.push(words(ty));
        Ok(())
    }

    fn check_declarations(&self, rules: &CheckRules) -> Result<(), String> {
        let sentence = if !self.unknown.is_empty() {
            let names = listed(&self.unknown);
            return Err(format!(
                "the module imports functions that contracts do not have: {names}"
            ));
        } else if !self.wrong.is_empty() {
            let names = listed(&self.wrong);
            return Err(format!(
                "the module imports functions of the environment with other types than they have \
                 (every parameter and the one result are i64): {names}"
            ));
        } else if self.start {
            "the module has a start function, which contracts may not have: remove it"
        } else if !self.memory {
            "the module exports no memory named 'memory': build it with soroban-sdk as a cdylib"
        } else if self.functions.is_empty() {
            "the module exports no function: is there a #[contractimpl] in it?"
        } else if rules.must_emit && !self.emits {
            "the module emits nothing (it does not import x.9): derive Retroshade for a struct and \
             call emit on it"
        } else {
            return Ok(());
        };
        Err(sentence.to_owned())
    }

    fn facts(
        self,
        sha256: Hash32,
        targets: Targets,
        rules: &CheckRules,
    ) -> Result<ModuleFacts, Refused> {
        self.check_declarations(rules).map_err(Refused)?;
        let env_meta: Vec<ScEnvMetaEntry> = entries(&self.env_meta, "contractenvmetav0")?;
        let protocol = env_meta.first().map(|entry| {
            let ScEnvMetaEntry::ScEnvMetaKindInterfaceVersion(version) = entry;
            version.protocol
        });
        let spec: Vec<ScSpecEntry> = entries(&self.spec, SPEC)?;
        let is_struct = |entry: &&ScSpecEntry| matches!(entry, ScSpecEntry::UdtStructV0(_));
        let structs = spec.iter().filter(is_struct).count();
        let bytes: usize = self.data.iter().map(Vec::len).sum();
        if structs.saturating_mul(bytes) > MAX_NAME_SEARCH_COST {
            let what = format!("the module has {structs} structs and {bytes} bytes of data");
            return Err(Refused::too_complex(&what));
        }
        Ok(ModuleFacts {
            sha256,
            functions: self.functions,
            spec,
            protocol,
            emits: self.emits,
            data: self.data,
            targets,
        })
    }
}

/// Returns the number of parameters of a function type whose parameters and single result are i64;
/// `None` for other types.
fn words(ty: &CompositeInnerType) -> Option<usize> {
    let CompositeInnerType::Func(function) = ty else { return None };
    let is_word = |ty: &ValType| *ty == ValType::I64;
    let words = function.params().iter().all(is_word)
        && matches!(function.results(), [result] if is_word(result));
    words.then_some(function.params().len())
}

fn check_initial_size(what: &str, units: u64, size: u64, most: usize) -> Result<(), Failure> {
    let asked = units.saturating_mul(size);
    if asked <= most as u64 {
        return Ok(());
    }
    Err(too_much(&format!("{asked} bytes or elements of {what}"), &most.to_string()))
}

fn too_much(what: &str, most: &str) -> Failure {
    Failure::Refused(Refused(format!(
        "the module asks for {what} at its start; a program may have {most}"
    )))
}

/// Parses the XDR values that a section contains one after the other.
fn entries<T: ReadXdr>(bytes: &[u8], section: &str) -> Result<Vec<T>, Refused> {
    let limits = Limits { depth: DEEPEST_VALUE, len: bytes.len() };
    T::read_xdr_iter(&mut Limited::new(std::io::Cursor::new(bytes), limits))
        .collect::<Result<_, _>>()
        .map_err(|error| {
            Refused(format!(
                "the module's section '{section}' cannot be read ({error}): build it with a \
                 soroban-sdk for protocol {MAX_PROTOCOL} or older"
            ))
        })
}

/// Returns the content of a module's `contractspecv0` sections (SEP-48) in their order, whether or not
/// the module could be a program; empty when it has none. Does not execute the module.
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
