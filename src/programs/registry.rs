//! Which programs there are. Knows how they are deployed, changed and deleted, and that a change is on
//! disk before anybody is told of it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};

use super::engine::{Engine, Module};
use super::manifest::{Manifest, Progress};
use super::{ProgramError, Settings, names};
use crate::domain::{ContractId, Hash32, Owner, ProgramId};
use crate::store::{ProgramChanges, Store, StoreError};
use crate::tables::schema::ProgramSchema;

/// The row of progress that belongs to no program holds the last number that was given out.
const LAST_ID_ROW: ProgramId = ProgramId(0);

/// A program that is asked for.
#[derive(Debug, Clone)]
pub struct Deploy {
    /// The module.
    pub code: Vec<u8>,
    /// Name of the project.
    pub project_name: String,
    /// Contracts whose transactions it is run on.
    pub contracts: Vec<ContractId>,
    /// Whether everyone may read its tables.
    pub public: bool,
}

/// A program in memory.
pub struct Entry {
    /// Its number.
    pub id: ProgramId,
    /// What it runs, once it has been made ready: see `Registry::make_ready`.
    pub module: OnceLock<Module>,
    /// What changes. Whoever changes it holds this until the change is on disk.
    pub cell: Mutex<Cell>,
}

/// The part of a program that changes.
pub struct Cell {
    /// What it is.
    pub manifest: Manifest,
    /// How far it has got. Between writes it may be ahead of the disk by ledgers without runs.
    pub progress: Progress,
    /// Ledgers without runs since progress was last written.
    pub unwritten: usize,
    /// It is gone from the store; nothing may be written for it any more.
    pub deleted: bool,
}

/// All programs.
pub struct Registry {
    store: Arc<Store>,
    engine: Engine,
    settings: Settings,
    entries: RwLock<BTreeMap<ProgramId, Arc<Entry>>>,
    /// Held while names and numbers are given out.
    deploying: Mutex<()>,
}

impl Registry {
    /// Reads what is stored. Modules are made ready when they are needed.
    pub(super) fn open(
        store: Arc<Store>,
        engine: Engine,
        settings: Settings,
    ) -> Result<Self, ProgramError> {
        let mut entries = BTreeMap::new();
        for (id, manifest) in store.programs()? {
            let manifest: Manifest = serde_json::from_slice(&manifest)
                .map_err(|_| ProgramError::Damaged("the manifest of a program"))?;
            let progress = store.program_progress(id)?;
            let progress = progress.and_then(|row| serde_json::from_slice(&row).ok());
            let progress = progress.ok_or(ProgramError::Damaged("the progress of a program"))?;
            let cell = Mutex::new(Cell { manifest, progress, unwritten: 0, deleted: false });
            entries.insert(id, Arc::new(Entry { id, module: OnceLock::new(), cell }));
        }
        let modules = entries.values().map(|entry| Hash32(entry.cell.lock().manifest.module));
        if let Err(error) = engine.forget_others(&modules.collect()) {
            tracing::warn!("compiled modules that no program needs are left behind: {error}");
        }
        store.queue_for_programs(!entries.is_empty());
        Ok(Self {
            store,
            engine,
            settings,
            entries: RwLock::new(entries),
            deploying: Mutex::default(),
        })
    }

    /// A program by number.
    pub(super) fn get(&self, id: ProgramId) -> Option<Arc<Entry>> {
        self.entries.read().get(&id).cloned()
    }

    /// All programs, by number.
    pub(super) fn all(&self) -> Vec<Arc<Entry>> {
        self.entries.read().values().cloned().collect()
    }

    /// A program of an owner.
    pub(super) fn owned(&self, id: ProgramId, owner: &Owner) -> Result<Arc<Entry>, ProgramError> {
        let entry = self.get(id).ok_or(ProgramError::Unknown(id))?;
        if entry.cell.lock().manifest.owner != *owner {
            return Err(ProgramError::NotYours(id));
        }
        Ok(entry)
    }

    /// The manifests that an owner may read: its own, and with `public` everybody's public ones.
    pub(super) fn manifests(&self, owner: &Owner, public: bool) -> Vec<Manifest> {
        let wanted = |manifest: &Manifest| match public {
            true => manifest.is_readable_by(owner),
            false => manifest.owner == *owner,
        };
        let all = self.all();
        let cells = all.iter().map(|entry| entry.cell.lock());
        let wanted = cells.filter(|cell| wanted(&cell.manifest));
        wanted.map(|cell| cell.manifest.clone()).collect()
    }

    /// The numbers of the programs whose tables an owner may read.
    pub(super) fn readable(&self, owner: &Owner) -> Vec<ProgramId> {
        let readable = |entry: &&Arc<Entry>| entry.cell.lock().manifest.is_readable_by(owner);
        self.all().iter().filter(readable).map(|entry| entry.id).collect()
    }

    /// Bytes of the rows of all of an owner's programs.
    pub(super) fn row_bytes(&self, owner: &Owner) -> u64 {
        let bytes = |entry: &Arc<Entry>| {
            let cell = entry.cell.lock();
            if cell.manifest.owner == *owner { cell.progress.row_bytes } else { 0 }
        };
        self.all().iter().map(bytes).sum()
    }

    /// Checks a module, makes it ready to run, and registers it.
    pub(super) fn deploy(
        &self,
        owner: &Owner,
        deploy: Deploy,
        now: u64,
    ) -> Result<Manifest, ProgramError> {
        names::check_project(&deploy.project_name)?;
        let contracts = names::distinct(deploy.contracts)?;
        self.check_name_is_free(&deploy.project_name)?;
        let facts = self
            .engine
            .check(&deploy.code, &self.settings.check_rules())
            .map_err(|refused| ProgramError::Module(refused.to_string()))?;
        let schema = ProgramSchema::from_spec(
            &facts.spec,
            |target| facts.targets.has(target),
            self.settings.schema_limits(),
        )
        .map_err(|error| ProgramError::Module(error.to_string()))?;
        let module = self.engine.load(&deploy.code)?;
        let _one_at_a_time = self.deploying.lock();
        self.check_name_is_free(&deploy.project_name)?;
        let id = self.next_id()?;
        let manifest = Manifest {
            id,
            owner: owner.clone(),
            project_name: deploy.project_name,
            contracts,
            module: *facts.sha256.as_bytes(),
            public: deploy.public,
            running: true,
            stopped_because: None,
            deployed_at: now,
            schema,
        };
        // Ledgers that come from here on are for this program.
        self.store.queue_for_programs(true);
        let progress = Progress { queue: self.store.queue_position(), ..Progress::default() };
        self.store.change_programs(|changes| {
            changes.put_module(facts.sha256.as_bytes(), &deploy.code)?;
            put_manifest(changes, &manifest)?;
            put_progress(changes, id, &progress)?;
            changes.put_progress(LAST_ID_ROW, &id.0.to_be_bytes())
        })?;
        let cell =
            Mutex::new(Cell { manifest: manifest.clone(), progress, unwritten: 0, deleted: false });
        let entry = Arc::new(Entry { id, module: OnceLock::from(module.clone()), cell });
        self.entries.write().insert(id, entry);
        // While nothing can be deleted, so that no file is left of a program that is gone.
        self.engine.keep(&module);
        Ok(manifest)
    }

    /// Makes a program's module ready to run, unless it is. One that cannot be run is no reason to hold up
    /// others: its program is stopped, and says why, as this does.
    pub(super) fn make_ready(&self, entry: &Entry) -> Result<Option<String>, ProgramError> {
        if entry.module.get().is_some() {
            return Ok(None);
        }
        let sha256 = entry.cell.lock().manifest.module;
        let because = match self.store.module(&sha256)? {
            None => "its module is not in the store: deploy it anew".to_owned(),
            Some(code) => match self.engine.load_and_keep(&code) {
                Ok(module) => {
                    // Two threads may have come at once; the modules are the same.
                    let _ = entry.module.set(module);
                    return Ok(None);
                }
                Err(error) if error.is_about_the_module() => {
                    // The checks of today may say it better.
                    let refused = self.engine.check(&code, &self.settings.check_rules());
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

    /// Stops a program until its owner resumes it.
    fn stop(&self, entry: &Entry, because: &str) -> Result<(), ProgramError> {
        let mut cell = entry.cell.lock();
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

    /// Registers further contracts, or none when one is registered already.
    pub(super) fn append(
        &self,
        owner: &Owner,
        id: ProgramId,
        contracts: Vec<ContractId>,
    ) -> Result<Manifest, ProgramError> {
        let contracts = names::distinct(contracts)?;
        let entry = self.owned(id, owner)?;
        let mut cell = entry.cell.lock();
        if let Some(known) = contracts.iter().find(|id| cell.manifest.contracts.contains(id)) {
            return Err(ProgramError::Registered(*known));
        }
        names::check_count(cell.manifest.contracts.len() + contracts.len())?;
        self.change_manifest(&mut cell, |manifest| manifest.contracts.extend(contracts))
    }

    /// Says whether a program is run on new ledgers.
    pub(super) fn set_running(
        &self,
        owner: &Owner,
        id: ProgramId,
        running: bool,
    ) -> Result<Manifest, ProgramError> {
        let entry = self.owned(id, owner)?;
        let mut cell = entry.cell.lock();
        if running {
            cell.progress.errors_in_a_row = 0;
        }
        self.change_manifest(&mut cell, |manifest| {
            manifest.running = running;
            manifest.stopped_because = None;
        })
    }

    /// Removes a program with all its rows and records.
    pub(super) fn delete(&self, owner: &Owner, id: ProgramId) -> Result<Manifest, ProgramError> {
        // No program may be given the same module meanwhile.
        let _one_at_a_time = self.deploying.lock();
        let entry = self.owned(id, owner)?;
        let mut cell = entry.cell.lock();
        if cell.deleted {
            return Err(ProgramError::Unknown(id));
        }
        let module = cell.manifest.module;
        let others = self.all();
        let mut others = others.iter().filter(|other| other.id != id);
        let shared = others.any(|other| other.cell.lock().manifest.module == module);
        self.store.change_programs(|changes| {
            changes.delete_program(id)?;
            if shared { Ok(()) } else { changes.delete_module(&module) }
        })?;
        cell.deleted = true;
        if !shared && let Err(error) = self.engine.forget(Hash32(module)) {
            tracing::warn!(program = %id, "its compiled module is left behind: {error}");
        }
        let mut entries = self.entries.write();
        entries.remove(&id);
        if entries.is_empty() {
            self.store.queue_for_programs(false);
        }
        Ok(cell.manifest.clone())
    }

    fn change_manifest(
        &self,
        cell: &mut Cell,
        change: impl FnOnce(&mut Manifest),
    ) -> Result<Manifest, ProgramError> {
        if cell.deleted {
            return Err(ProgramError::Unknown(cell.manifest.id));
        }
        let mut manifest = cell.manifest.clone();
        change(&mut manifest);
        self.store.change_programs(|changes| {
            put_manifest(changes, &manifest)?;
            put_progress(changes, manifest.id, &cell.progress)
        })?;
        cell.manifest = manifest.clone();
        Ok(manifest)
    }

    fn check_name_is_free(&self, name: &str) -> Result<(), ProgramError> {
        let all = self.all();
        // Views are called by projects, and SQL takes no notice of case.
        let is_taken =
            |entry: &Arc<Entry>| entry.cell.lock().manifest.project_name.eq_ignore_ascii_case(name);
        match all.iter().any(is_taken) {
            true => Err(ProgramError::ProjectExists(name.to_owned())),
            false => Ok(()),
        }
    }

    fn next_id(&self) -> Result<ProgramId, ProgramError> {
        const DAMAGED: ProgramError = ProgramError::Damaged("the number of the last program");
        let last = match self.store.program_progress(LAST_ID_ROW)? {
            Some(row) => u32::from_be_bytes(row.as_slice().try_into().map_err(|_| DAMAGED)?),
            None => 0,
        };
        last.checked_add(1).map(ProgramId).ok_or(DAMAGED)
    }
}

/// Puts a manifest in its stored form.
pub(super) fn put_manifest(
    changes: &mut ProgramChanges<'_>,
    manifest: &Manifest,
) -> Result<(), StoreError> {
    let json = serde_json::to_vec(manifest).expect("numbers and texts serialize");
    changes.put_program(manifest.id, &json)
}

/// Puts progress in its stored form.
pub(super) fn put_progress(
    changes: &mut ProgramChanges<'_>,
    id: ProgramId,
    progress: &Progress,
) -> Result<(), StoreError> {
    let json = serde_json::to_vec(progress).expect("numbers serialize");
    changes.put_progress(id, &json)
}
