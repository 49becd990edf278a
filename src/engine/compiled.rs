//! Caches compiled modules on disk.
//!
//! A file holds the code for one module, one version of wasmtime, one configuration and one kind of
//! processor. The code is going to be executed, so the file begins with a message authentication
//! code under a secret key (HMAC-SHA-256, RFC 2104) over all of that and the rest of the file. A
//! file that is damaged, was made by another version or was put there by another program is
//! detected and replaced.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, Permissions};
use std::hash::{Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use hmac::{Hmac, Mac};
use orrery_ledger::domain::Hash32;
use orrery_runtime::durable::write_atomically;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::error::EngineError;
use super::load;
use super::settings::{self, CacheSettings, EngineSettings};

/// Magic number at the start of a file.
const MAGIC: &[u8; 8] = b"ORRPROG2";
/// Size in bytes of the authentication code that follows the magic number.
const TAG: usize = 32;
const HEADER: usize = MAGIC.len() + TAG;
/// Suffix of file names.
const SUFFIX: &str = ".compiled";

/// Cache of compiled modules in a directory; without a directory it keeps nothing.
pub(super) struct CompiledModules {
    cache: Option<CacheSettings>,
    /// Held while a file is written, because two programs may have the same module.
    writing: Mutex<()>,
    /// Hash of everything besides the module on which compiled code depends.
    engine: [u8; 32],
}

impl CompiledModules {
    pub(super) fn new(settings: &EngineSettings) -> Result<Self, EngineError> {
        if let Some(CacheSettings { directory, .. }) = &settings.cache {
            prepare(directory).map_err(|error| cache_error(directory, error))?;
        }
        // The compatibility hash is taken from an engine with a compiler, because only that one has
        // the compiler's settings.
        let compiling = settings::compiling(settings.instance_memory);
        let compiling = wasmtime::Engine::new(&compiling)
            .map_err(|error| EngineError::Wasmtime(format!("{error:#}")))?;
        let mut hasher = Sha256Hasher(Sha256::new());
        compiling.precompile_compatibility_hash().hash(&mut hasher);
        let engine = hasher.0.finalize().into();
        Ok(Self { cache: settings.cache.clone(), writing: Mutex::default(), engine })
    }

    /// Returns the compiled code of a module, if there is a valid file for it.
    pub(super) fn get(
        &self,
        engine: &wasmtime::Engine,
        sha256: Hash32,
    ) -> Option<wasmtime::Module> {
        let cache = self.cache.as_ref()?;
        let path = path(cache, sha256);
        let file = match fs::read(&path) {
            Ok(file) => file,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!("cannot read {}: {error}; it is compiled again", path.display());
                }
                return None;
            }
        };
        let Some(code) = self.trusted(cache, &file, sha256) else {
            let path = path.display();
            tracing::warn!("{path} is damaged, foreign or of another version: compiled again");
            return None;
        };
        load::compiled_module(engine, code)
            .inspect_err(|error| {
                tracing::warn!("{}: {error:#}; the module is compiled again", path.display());
            })
            .ok()
    }

    /// Writes the file of a module.
    pub(super) fn write(
        &self,
        module: &wasmtime::Module,
        sha256: Hash32,
    ) -> Result<(), EngineError> {
        let Some(cache) = &self.cache else { return Ok(()) };
        let code = module.serialize().map_err(|error| EngineError::Wasmtime(error.to_string()))?;
        let tag = self.tag(cache, &code, sha256).finalize().into_bytes();
        let path = path(cache, sha256);
        let _writing = self.writing.lock();
        let written = write_atomically(&path, |file| {
            file.write_all(MAGIC)?;
            file.write_all(&tag)?;
            file.write_all(&code)
        });
        written.map_err(|error| cache_error(&path, error))
    }

    /// Removes the file of a module, if there is one.
    pub(super) fn remove(&self, sha256: Hash32) -> Result<(), EngineError> {
        let Some(cache) = &self.cache else { return Ok(()) };
        remove(&path(cache, sha256))
    }

    /// Removes all files except those of `modules`.
    pub(super) fn remove_others(&self, modules: &BTreeSet<Hash32>) -> Result<(), EngineError> {
        let Some(CacheSettings { directory, .. }) = &self.cache else { return Ok(()) };
        let failed = |error| cache_error(directory, error);
        let wanted: BTreeSet<String> = modules.iter().map(file_name).collect();
        for file in fs::read_dir(directory).map_err(failed)? {
            let file = file.map_err(failed)?;
            let is_wanted = file.file_name().to_str().is_some_and(|name| wanted.contains(name));
            if !is_wanted && file.file_type().map_err(failed)?.is_file() {
                remove(&file.path())?;
            }
        }
        Ok(())
    }

    /// Returns the authentication code over the identity of a file and its content.
    fn tag(&self, cache: &CacheSettings, code: &[u8], sha256: Hash32) -> Hmac<Sha256> {
        let mac = Hmac::<Sha256>::new_from_slice(&cache.key);
        let mut mac = mac.expect("a key may have any length (RFC 2104, section 2)");
        for part in [MAGIC.as_slice(), &self.engine, &sha256.0, code] {
            mac.update(part);
        }
        mac
    }

    /// Returns the compiled code in a file, if the file is authentic, complete and for this engine.
    fn trusted<'a>(
        &self,
        cache: &CacheSettings,
        file: &'a [u8],
        sha256: Hash32,
    ) -> Option<&'a [u8]> {
        let (header, code) = file.split_at_checked(HEADER)?;
        let tag = header.strip_prefix(MAGIC)?;
        self.tag(cache, code, sha256).verify_slice(tag).ok()?;
        Some(code)
    }
}

/// Creates the directory if necessary, and restricts it to its owner.
fn prepare(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    fs::set_permissions(directory, Permissions::from_mode(0o700))
}

fn file_name(sha256: &Hash32) -> String {
    format!("{sha256}{SUFFIX}")
}

fn path(cache: &CacheSettings, sha256: Hash32) -> PathBuf {
    cache.directory.join(file_name(&sha256))
}

fn remove(path: &Path) -> Result<(), EngineError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(cache_error(path, error)),
        _ => Ok(()),
    }
}

fn cache_error(path: &Path, source: io::Error) -> EngineError {
    EngineError::Cache { path: path.to_owned(), source }
}

/// A [`Hasher`] whose result is the same in every process.
struct Sha256Hasher(Sha256);

impl Hasher for Sha256Hasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        0
    }
}
