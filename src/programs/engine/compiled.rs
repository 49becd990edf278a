//! Compiles modules, and keeps what was compiled on disk.
//!
//! A file holds the code for one module, one version of wasmtime, one configuration and one kind of
//! processor. It begins with a hash of all that and a hash of the rest, so that a file that is
//! damaged or was made by another version is noticed, and replaced.

use std::hash::{Hash, Hasher};
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;
use std::{fs, thread};

use sha2::{Digest, Sha256};

use super::EngineError;
use super::run::panic_text;
use crate::domain::Hash32;
use crate::memory;

/// Longest time that compiling one module may take.
const COMPILE_TIME: Duration = Duration::from_secs(90);

/// Stack of a thread that compiles, in bytes: the compiler's own, deep for deeply nested code.
const COMPILE_STACK: usize = 32 << 20;

/// First bytes of a file.
const MAGIC: &[u8; 8] = b"ORRPROG1";
const HASH: usize = 32;
const HEADER: usize = MAGIC.len() + 2 * HASH;

/// Compiled modules in a directory.
pub(super) struct CompiledModules {
    directory: Option<PathBuf>,
    /// Hash of everything besides the module that compiled code depends on.
    engine: [u8; HASH],
}

impl CompiledModules {
    pub(super) fn new(
        directory: Option<PathBuf>,
        engine: &wasmtime::Engine,
    ) -> Result<Self, EngineError> {
        if let Some(directory) = &directory {
            fs::create_dir_all(directory).map_err(|error| cache_error(directory, error))?;
        }
        let mut hasher = Sha256Hasher(Sha256::new());
        engine.precompile_compatibility_hash().hash(&mut hasher);
        Ok(Self { directory, engine: hasher.0.finalize().into() })
    }

    /// Compiled code for a module, from its file when there is a good one.
    pub(super) fn get(
        &self,
        engine: &wasmtime::Engine,
        code: &[u8],
        sha256: Hash32,
    ) -> Result<wasmtime::Module, EngineError> {
        let Some(path) = self.path(sha256) else { return compile(engine, code) };
        match fs::read(&path) {
            Ok(file) => match self
                .trusted(&file, sha256)
                .map(|code| memory::compiled_module(engine, code))
            {
                Some(Ok(module)) => return Ok(module),
                Some(Err(error)) => {
                    tracing::warn!("{}: {error:#}; the module is compiled anew", path.display());
                }
                None => {
                    let path = path.display();
                    tracing::info!("{path} is damaged or of another version; compiled anew");
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!("cannot read {}: {error}; compiled anew", path.display());
            }
        }
        let module = compile(engine, code)?;
        self.keep(&path, &module, sha256)?;
        Ok(module)
    }

    /// Removes the file of a module, if there is one.
    pub(super) fn remove(&self, sha256: Hash32) -> Result<(), EngineError> {
        let Some(path) = self.path(sha256) else { return Ok(()) };
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(cache_error(&path, error)),
            _ => Ok(()),
        }
    }

    fn path(&self, sha256: Hash32) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join(format!("{sha256}.compiled")))
    }

    /// What the first hash of a file has to be.
    fn fingerprint(&self, sha256: Hash32) -> [u8; HASH] {
        Sha256::new().chain_update(self.engine).chain_update(sha256.0).finalize().into()
    }

    /// The compiled code in a file, when it is ours, whole and for this engine.
    fn trusted<'a>(&self, file: &'a [u8], sha256: Hash32) -> Option<&'a [u8]> {
        let (header, code) = file.split_at_checked(HEADER)?;
        let (magic, hashes) = header.split_at(MAGIC.len());
        let (engine, content) = hashes.split_at(HASH);
        let good = magic == MAGIC
            && engine == self.fingerprint(sha256)
            && content == <[u8; HASH]>::from(Sha256::digest(code));
        good.then_some(code)
    }

    fn keep(
        &self,
        path: &Path,
        module: &wasmtime::Module,
        sha256: Hash32,
    ) -> Result<(), EngineError> {
        let code = module.serialize().map_err(|error| EngineError::Wasmtime(error.to_string()))?;
        let write = || -> io::Result<()> {
            let directory = path.parent().unwrap_or(Path::new("."));
            let mut file = tempfile::NamedTempFile::new_in(directory)?;
            file.write_all(MAGIC)?;
            file.write_all(&self.fingerprint(sha256))?;
            file.write_all(&Sha256::digest(&code))?;
            file.write_all(&code)?;
            file.persist(path)?;
            Ok(())
        };
        write().map_err(|error| cache_error(path, error))
    }
}

fn cache_error(path: &Path, source: io::Error) -> EngineError {
    EngineError::Cache { path: path.to_owned(), source }
}

/// Compiles on a thread of its own, and stops waiting when it takes too long. The thread cannot be
/// stopped; the checks of a module at deploy are there so that none takes that long.
fn compile(engine: &wasmtime::Engine, code: &[u8]) -> Result<wasmtime::Module, EngineError> {
    let (done, result) = sync_channel(1);
    let (engine, code) = (engine.clone(), code.to_vec());
    thread::Builder::new()
        .name("program-compile".to_owned())
        .stack_size(COMPILE_STACK)
        .spawn(move || {
            let compiled = catch_unwind(AssertUnwindSafe(|| wasmtime::Module::new(&engine, &code)));
            // Nobody waits when it took too long.
            let _ = done.send(compiled.map_err(|panic| panic_text(&*panic)));
        })
        .map_err(EngineError::Thread)?;
    match result.recv_timeout(COMPILE_TIME) {
        Ok(Ok(Ok(module))) => Ok(module),
        Ok(Ok(Err(error))) => Err(EngineError::Compile(format!("{error:#}"))),
        Ok(Err(panic)) => Err(EngineError::Compile(panic)),
        Err(RecvTimeoutError::Timeout) => Err(EngineError::CompileTime(COMPILE_TIME.as_secs())),
        Err(RecvTimeoutError::Disconnected) => {
            Err(EngineError::Compile("the compiler's thread is gone".to_owned()))
        }
    }
}

/// A hash of what implements [`Hash`] that is the same in every process.
struct Sha256Hasher(Sha256);

impl Hasher for Sha256Hasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests;
