//! Whether a module may be a program, and what it says about itself. Reads the module and runs
//! nothing of it.

use std::collections::HashMap;
use std::fmt;

use sha2::{Digest, Sha256};
use stellar_xdr::{Limited, Limits, ReadXdr, ScEnvMetaEntry, ScSpecEntry};
use wasmparser::{
    BlockType, CompositeInnerType, DataKind, ExternalKind, Imports, Operator, Parser, Payload,
    TypeRef, ValType, Validator,
};

use super::interface::{EMIT, env_functions};
use super::limits::Bytes;
use super::settings::{FEATURES, MOST_TABLE_ELEMENTS, MOST_TABLES};
use super::targets::Targets;
use crate::domain::Hash32;

/// Bytes of one function's body. The network's limit for a whole contract is 128 KiB; the time that
/// compiling takes grows faster than a function does.
const MOST_FUNCTION_BYTES: usize = 128 << 10;
/// Local variables of one function.
const MOST_LOCALS: u64 = 4_096;
/// Functions of a module.
const MOST_FUNCTIONS: usize = 20_000;
/// Loops within one another.
const MOST_LOOPS: usize = 24;
/// What all loops of a module may cost together, see [`Loops`].
const MOST_LOOP_COST: usize = 400_000;
/// Parameters of a function. A contract's function has ten at most.
const MOST_PARAMETERS: usize = 32;
/// Results of a function, parameters and results of a block: every branch passes them on.
const MOST_RESULTS: usize = 4;
/// Values that all branches of a function pass on together.
const MOST_PASSED: usize = 2_000;
/// Nesting of a contract spec, as the network has it.
const SPEC_DEPTH: u32 = 500;
/// Names in a message.
const NAMED: usize = 10;

/// What every module of WebAssembly 1 begins with (its core specification, section 5.5.16).
const PREAMBLE: [u8; 8] = *b"\0asm\x01\0\0\0";

/// What a module has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckRules {
    /// Whether it has to import the function with which rows are emitted.
    pub must_emit: bool,
    /// Most bytes.
    pub size: usize,
    /// Most bytes of linear memory that it may ask for at its start.
    pub memory: usize,
}

impl Default for CheckRules {
    fn default() -> Self {
        Self { must_emit: true, size: 2 << 20, memory: 64 << 20 }
    }
}

/// What a module says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleFacts {
    /// SHA-256 of the module's bytes.
    pub sha256: Hash32,
    /// Exported functions, in the module's order.
    pub functions: Vec<String>,
    /// The contract's spec: sections `contractspecv0` (SEP-48).
    pub spec: Vec<ScSpecEntry>,
    /// The protocol that it was built for: section `contractenvmetav0`.
    pub protocol: Option<u32>,
    /// Whether it imports the function with which rows are emitted.
    pub emits: bool,
    /// Bytes of its data segments, in order.
    pub data: Vec<Vec<u8>>,
    /// To which targets it may emit.
    pub targets: Targets,
}

/// Why a module is not accepted, in one sentence for whoever sent it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Too many bytes.
    #[error("the module has {size} bytes; a program may have {}: build it with opt-level = \"z\" \
             and without debug information", Bytes(*most))]
    TooLarge {
        /// Its bytes.
        size: usize,
        /// As many as it may have.
        most: usize,
    },
    /// Something else than a module.
    #[error(
        "this is not a WebAssembly module: it begins with '{}' where a module has \
         '{}'; send the .wasm file as the compiler wrote it",
        .0,
        hex::encode(PREAMBLE)
    )]
    NoModule(String),
    /// A module that is damaged, or one that uses a proposal that programs may not use.
    #[error("this is no valid WebAssembly module for contracts: {0}")]
    Invalid(String),
    /// Imports that the environment does not have.
    #[error("the module imports functions that contracts do not have: {}", Names(.0))]
    UnknownImports(Vec<String>),
    /// Imports of the environment with other parameters.
    #[error("the module imports functions of the environment with other types than they have \
             (every parameter and the one result are i64): {}", Names(.0))]
    WrongImports(Vec<String>),
    /// It would run code when it is loaded.
    #[error("the module has a start function, which contracts may not have: remove it")]
    Start,
    /// No memory under the name that the environment looks for.
    #[error("the module exports no memory named 'memory': build it with soroban-sdk as a cdylib")]
    NoMemory,
    /// Nothing can be called.
    #[error("the module exports no function: is there a #[contractimpl] in it?")]
    NoFunction,
    /// It never emits a row.
    #[error(
        "the module emits nothing (it does not import x.9): derive Retroshade for a struct \
             and call emit on it"
    )]
    EmitsNothing,
    /// Too much at its start.
    #[error("the module asks for {what} at its start; a program may have {most}")]
    AsksForTooMuch {
        /// What it asks for.
        what: String,
        /// What it may have.
        most: String,
    },
    /// Code that would take long to compile.
    #[error("{0}: compiling that takes too long, so make it smaller or plainer")]
    TooComplex(String),
    /// Its spec cannot be read.
    #[error(
        "the module's section '{section}' cannot be read ({reason}): build it with a \
             soroban-sdk for protocol {} or older",
        crate::decode::MAX_PROTOCOL
    )]
    Section {
        /// Name of the section.
        section: &'static str,
        /// Why not.
        reason: String,
    },
}

/// The first names of a list.
struct Names<'a>(&'a [String]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(NAMED)];
        f.write_str(&shown.join(", "))?;
        match self.0.len() - shown.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Checks a module.
pub(super) fn check(code: &[u8], rules: &CheckRules) -> Result<ModuleFacts, Refused> {
    if code.len() > rules.size {
        return Err(Refused::TooLarge { size: code.len(), most: rules.size });
    }
    if !code.starts_with(&PREAMBLE) {
        return Err(Refused::NoModule(hex::encode(&code[..code.len().min(PREAMBLE.len())])));
    }
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

fn invalid(error: &wasmparser::Error) -> Refused {
    Refused::Invalid(error.to_string())
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

/// What was found so far.
#[derive(Default)]
struct Reader {
    /// Parameters of function types that are made of words, by index.
    types: Vec<Option<usize>>,
    /// Numbers of parameters and results of function types, by index.
    widths: Vec<(usize, usize)>,
    loop_cost: usize,
    unknown: Vec<String>,
    wrong: Vec<String>,
    emits: bool,
    start: bool,
    memory: bool,
    functions: Vec<String>,
    bodies: usize,
    data: Vec<Vec<u8>>,
    spec: Vec<u8>,
    env_meta: Vec<u8>,
}

impl Reader {
    fn read(&mut self, payload: Payload<'_>, rules: &CheckRules) -> Result<(), Failure> {
        match payload {
            Payload::TypeSection(types) => {
                for group in types {
                    for ty in group?.into_types() {
                        self.add_type(&ty.composite_type.inner)?;
                    }
                }
            }
            Payload::ImportSection(imports) => {
                let known: HashMap<_, _> = env_functions()
                    .into_iter()
                    .filter(|function| function.available)
                    .map(|function| ((function.module, function.import), function.parameters))
                    .chain([(EMIT, 2)])
                    .collect();
                for import in imports {
                    let Imports::Single(_, import) = import? else {
                        return Err(Failure::Refused(Refused::Invalid(
                            "it uses compact imports".to_owned(),
                        )));
                    };
                    self.import(&import, &known);
                }
            }
            Payload::MemorySection(memories) => {
                for memory in memories {
                    at_its_start("memory", memory?.initial, 64 << 10, rules.memory)?;
                }
            }
            Payload::TableSection(tables) => {
                for (count, table) in tables.into_iter().enumerate() {
                    at_its_start("a table", table?.ty.initial, 1, MOST_TABLE_ELEMENTS)?;
                    if count >= MOST_TABLES as usize {
                        return Err(too_much("a third table", "two"));
                    }
                }
            }
            Payload::StartSection { .. } => self.start = true,
            Payload::ExportSection(exports) => {
                for export in exports {
                    let export = export?;
                    match export.kind {
                        ExternalKind::Func => self.functions.push(export.name.to_owned()),
                        ExternalKind::Memory if export.name == "memory" => self.memory = true,
                        _ => {}
                    }
                }
            }
            Payload::CodeSectionEntry(body) => self.body(&body)?,
            Payload::DataSection(segments) => {
                for segment in segments {
                    let segment = segment?;
                    if matches!(segment.kind, DataKind::Active { .. } | DataKind::Passive) {
                        self.data.push(segment.data.to_vec());
                    }
                }
            }
            Payload::CustomSection(section) => match section.name() {
                "contractspecv0" => self.spec.extend_from_slice(section.data()),
                "contractenvmetav0" => self.env_meta.extend_from_slice(section.data()),
                _ => {}
            },
            _ => {}
        }
        Ok(())
    }

    fn import(
        &mut self,
        import: &wasmparser::Import<'_>,
        known: &HashMap<(&'static str, &'static str), usize>,
    ) {
        let name = format!("{}.{}", import.module, import.name);
        let parameters = known.iter().find_map(|((module, import_name), parameters)| {
            (*module == import.module && *import_name == import.name).then_some(*parameters)
        });
        let ty = match import.ty {
            TypeRef::Func(index) => self.types.get(index as usize).copied().flatten(),
            _ => None,
        };
        match parameters {
            None => self.unknown.push(crate::domain::excerpt(&name)),
            Some(parameters) if ty != Some(parameters) => self.wrong.push(name),
            Some(_) => self.emits |= (import.module, import.name) == EMIT,
        }
    }

    fn body(&mut self, body: &wasmparser::FunctionBody<'_>) -> Result<(), Failure> {
        let refuse = |what: String, most: usize| Err(too_complex(what, most));
        let index = self.bodies;
        self.bodies += 1;
        if self.bodies > MOST_FUNCTIONS {
            return refuse("the module has too many functions".to_owned(), MOST_FUNCTIONS);
        }
        let bytes = body.range().len();
        if bytes > MOST_FUNCTION_BYTES {
            let what = format!("function {index} of the module has {bytes} bytes");
            return refuse(what, MOST_FUNCTION_BYTES);
        }
        let mut locals = 0_u64;
        for declared in body.get_locals_reader()? {
            locals += u64::from(declared?.0);
        }
        if locals > MOST_LOCALS {
            let what = format!("function {index} of the module has {locals} local variables");
            return refuse(what, MOST_LOCALS as usize);
        }
        let loops = Loops::of(body, &self.widths)?;
        if loops.deepest > MOST_LOOPS {
            let deepest = loops.deepest;
            let what =
                format!("function {index} of the module has {deepest} loops within one another");
            return refuse(what, MOST_LOOPS);
        }
        if loops.widest > MOST_RESULTS {
            let widest = loops.widest;
            let what = format!("function {index} of the module has a block over {widest} values");
            return refuse(what, MOST_RESULTS);
        }
        if loops.passed > MOST_PASSED {
            let passed = loops.passed;
            let what =
                format!("branches of function {index} of the module pass {passed} values on");
            return refuse(what, MOST_PASSED);
        }
        self.loop_cost += loops.cost(locals as usize);
        if self.loop_cost > MOST_LOOP_COST {
            let what = "the module has too many loops within one another, over too many variables";
            return Err(Failure::Refused(Refused::TooComplex(what.to_owned())));
        }
        Ok(())
    }

    fn add_type(&mut self, ty: &CompositeInnerType) -> Result<(), Failure> {
        let (mut params, mut results) = (0, 0);
        if let CompositeInnerType::Func(function) = ty {
            (params, results) = (function.params().len(), function.results().len());
        }
        if params > MOST_PARAMETERS {
            let what = format!("the module has a function of {params} parameters");
            return Err(too_complex(what, MOST_PARAMETERS));
        }
        if results > MOST_RESULTS {
            let what = format!("the module has a function of {results} results");
            return Err(too_complex(what, MOST_RESULTS));
        }
        self.types.push(words(ty));
        self.widths.push((params, results));
        Ok(())
    }

    fn facts(
        self,
        sha256: Hash32,
        targets: Targets,
        rules: &CheckRules,
    ) -> Result<ModuleFacts, Refused> {
        if !self.unknown.is_empty() {
            return Err(Refused::UnknownImports(self.unknown));
        }
        if !self.wrong.is_empty() {
            return Err(Refused::WrongImports(self.wrong));
        }
        if self.start {
            return Err(Refused::Start);
        }
        if !self.memory {
            return Err(Refused::NoMemory);
        }
        if self.functions.is_empty() {
            return Err(Refused::NoFunction);
        }
        if rules.must_emit && !self.emits {
            return Err(Refused::EmitsNothing);
        }
        let env_meta: Vec<ScEnvMetaEntry> = entries(&self.env_meta, "contractenvmetav0")?;
        let protocol = env_meta.first().map(|entry| {
            let ScEnvMetaEntry::ScEnvMetaKindInterfaceVersion(version) = entry;
            version.protocol
        });
        Ok(ModuleFacts {
            sha256,
            functions: self.functions,
            spec: entries(&self.spec, "contractspecv0")?,
            protocol,
            emits: self.emits,
            data: self.data,
            targets,
        })
    }
}

/// Loops and branches of a body, as far as they make compiling slow: every loop looks at every
/// variable, and a loop in a loop does so once more; every branch passes values on.
#[derive(Default)]
struct Loops {
    deepest: usize,
    /// Sum of the depths, and of their squares.
    depths: usize,
    squares: usize,
    /// Most parameters and results of a block.
    widest: usize,
    /// Values that branches pass on.
    passed: usize,
}

/// A block that is open.
struct Open {
    is_loop: bool,
    /// Values that a branch to it passes on.
    passed: usize,
}

impl Loops {
    fn of(
        body: &wasmparser::FunctionBody<'_>,
        widths: &[(usize, usize)],
    ) -> wasmparser::Result<Self> {
        let (mut found, mut open, mut depth) = (Self::default(), Vec::new(), 0);
        for operator in body.get_operators_reader()? {
            match operator? {
                Operator::Loop { blockty } => {
                    open.push(found.open(blockty, true, widths));
                    depth += 1;
                    found.deepest = found.deepest.max(depth);
                    found.depths += depth;
                    found.squares += depth * depth;
                }
                Operator::Block { blockty } | Operator::If { blockty } => {
                    open.push(found.open(blockty, false, widths));
                }
                Operator::End => {
                    depth -= usize::from(open.pop().is_some_and(|block| block.is_loop))
                }
                Operator::Br { relative_depth } | Operator::BrIf { relative_depth } => {
                    found.branch(&open, relative_depth);
                }
                Operator::BrTable { targets } => {
                    found.branch(&open, targets.default());
                    for target in targets.targets() {
                        found.branch(&open, target?);
                    }
                }
                _ => {}
            }
        }
        Ok(found)
    }

    fn open(&mut self, ty: BlockType, is_loop: bool, widths: &[(usize, usize)]) -> Open {
        let (params, results) = match ty {
            BlockType::Empty => (0, 0),
            BlockType::Type(_) => (0, 1),
            BlockType::FuncType(ty) => widths.get(ty as usize).copied().unwrap_or_default(),
        };
        self.widest = self.widest.max(params + results);
        Open { is_loop, passed: if is_loop { params } else { results } }
    }

    /// A branch out of so many blocks; out of all of them it ends the function.
    fn branch(&mut self, open: &[Open], out_of: u32) {
        let block = open.len().checked_sub(1 + out_of as usize).and_then(|at| open.get(at));
        self.passed += block.map_or(0, |block| block.passed);
    }

    fn cost(&self, locals: usize) -> usize {
        self.squares + self.depths * locals / 8
    }
}

/// Parameters of a function over words with a word as its result.
fn words(ty: &CompositeInnerType) -> Option<usize> {
    let CompositeInnerType::Func(function) = ty else { return None };
    let is_word = |ty: &ValType| *ty == ValType::I64;
    let words = function.params().iter().all(is_word)
        && matches!(function.results(), [result] if is_word(result));
    words.then_some(function.params().len())
}

fn at_its_start(what: &str, units: u64, size: u64, most: usize) -> Result<(), Failure> {
    let asked = units.saturating_mul(size);
    if asked <= most as u64 {
        return Ok(());
    }
    Err(too_much(&format!("{asked} bytes or elements of {what}"), &most.to_string()))
}

fn too_complex(what: String, most: usize) -> Failure {
    Failure::Refused(Refused::TooComplex(format!("{what} ({most} are allowed)")))
}

fn too_much(what: &str, most: &str) -> Failure {
    Failure::Refused(Refused::AsksForTooMuch { what: what.to_owned(), most: most.to_owned() })
}

/// The XDR values that stand one after the other in a section.
fn entries<T: ReadXdr>(bytes: &[u8], section: &'static str) -> Result<Vec<T>, Refused> {
    let limits = Limits { depth: SPEC_DEPTH, len: bytes.len() };
    T::read_xdr_iter(&mut Limited::new(std::io::Cursor::new(bytes), limits))
        .collect::<Result<_, _>>()
        .map_err(|error| Refused::Section { section, reason: error.to_string() })
}
