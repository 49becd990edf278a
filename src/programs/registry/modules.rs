//! Loads the modules of programs that are about to run, and stops programs whose module cannot be run
//! any more.

use parking_lot::MutexGuard;

use super::{Entry, Registry};
use crate::engine::CheckRules;
use crate::{ProgramError, storage};

impl Registry {
    /// Loads a program's module, unless it is loaded. If the module can no longer be run, stops the
    /// program, so that others are not delayed, and returns the reason.
    pub(crate) fn load_module(&self, entry: &Entry) -> Result<Option<String>, ProgramError> {
        if entry.module.get().is_some() || entry.snapshot().manifest.events.is_some() {
            return Ok(None);
        }
        let sha256 = entry.snapshot().manifest.module;
        let because = match self.store.shared_row(&storage::module(&sha256))? {
            None => "its module is not in the store: deploy the program again".to_owned(),
            Some(code) => match self.engine.load_and_cache(&code, || self.block_deletion(entry)) {
                Ok(module) => {
                    // Two threads may load concurrently; the modules are identical.
                    let _ = entry.module.set(module);
                    return Ok(None);
                }
                Err(error) if error.is_about_the_module() => {
                    // The current checks may give a clearer reason.
                    let refused = self.engine.check(&code, &CheckRules::from(&self.settings));
                    let why =
                        refused.map_or_else(|refused| refused.to_string(), |_| error.to_string());
                    format!("its module can no longer be run: {why}")
                }
                Err(error) => return Err(error.into()),
            },
        };
        self.stop(entry, &because)?;
        Ok(Some(because))
    }

    /// Returns a guard that prevents programs from being deleted; `None` when this program is
    /// already deleted.
    fn block_deletion(&self, entry: &Entry) -> Option<MutexGuard<'_, ()>> {
        let deploying = self.deploying.lock();
        let is_deleted = entry.lock().deleted;
        (!is_deleted).then_some(deploying)
    }

    /// Stops a program until its owner resumes it.
    fn stop(&self, entry: &Entry, because: &str) -> Result<(), ProgramError> {
        let mut cell = entry.lock();
        if cell.deleted || !cell.manifest.running {
            return Ok(());
        }
        tracing::warn!(program = %entry.id, because, "a program is no longer run");
        self.change_manifest(&mut cell, |manifest| {
            manifest.running = false;
            manifest.stopped_because = Some(because.to_owned());
        })?;
        Ok(())
    }
}
