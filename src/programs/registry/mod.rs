//! Registry of programs: deploys, changes and deletes them, and loads their modules. A change is on disk
//! before it becomes visible.

mod loading;
mod members;
mod readable;
mod replacing;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard, RwLock};
use sha2::{Digest, Sha256};

pub(super) use readable::ReadableProgram;
pub(super) use replacing::TakeOver;
pub use state::{Cell, Entry, EntrySnapshot};

use super::engine::{CheckRules, Engine, Module};
use super::events::{EventProject, KnownInterface, MemberIndex, Selectors, SuppliedInterfaces};
use super::manifest::{Manifest, Progress, Replaced};
use super::storage::put_json;
use super::{ProgramError, names, storage};
use loading::{load_members, named_members};
use orrery_contract_data::CONSUMER;
use orrery_ledger::domain::{ContractId, Hash32, LedgerSeq, Owner, ProgramId};
use orrery_settings as settings;
use orrery_store::{KindChanges, Needs, Store, StoreError};
use orrery_tables::schema::{ProgramSchema, SchemaLimits};

/// Row of the progress family that belongs to no program and holds the last program id that was
/// assigned.
const LAST_ID_ROW: ProgramId = ProgramId(0);

/// Request to deploy a program.
#[derive(Debug, Clone)]
pub struct Deploy {
    /// Code of the module.
    pub code: Vec<u8>,
    /// Project name.
    pub project_name: String,
    /// Contracts whose transactions the program is to be run on. When there is none, a program that
    /// is to replace another gets those of the other.
    pub contracts: Vec<ContractId>,
    /// Whether other owners may subscribe to the tables. By default they may not, or as before when
    /// a program is replaced.
    pub public: Option<bool>,
    /// Whether the program is to replace the one that has the project name.
    pub replace: Replace,
    /// Whether the module may have none of the contracts' functions.
    pub allow_unfit: bool,
}

/// Request to watch the events of contracts.
#[derive(Debug, Clone)]
pub struct Watch {
    /// Project name.
    pub project_name: String,
    /// Contracts whose events become rows. When there is none, a project that is to replace another
    /// gets those of the other.
    pub contracts: Vec<ContractId>,
    /// What selects contracts beside those. Without any selector, a project that is to replace another gets
    /// those of the other.
    pub selectors: Selectors,
    /// Interface by which events are declared first: a module, or JSON.
    pub supplied: Option<Vec<u8>>,
    /// First ledger whose events become rows; all that are stored by default.
    pub from: Option<LedgerSeq>,
    /// Whether the changes of what the contracts hold become rows, too. By default they do not, or as
    /// before when a project is replaced.
    pub storage: Option<bool>,
    /// Whether other owners may subscribe to the tables. By default they may not, or as before when
    /// a program is replaced.
    pub public: Option<bool>,
    /// Whether the project is to replace the program that has the project name.
    pub replace: Replace,
}

/// Whether a new program is to replace the one that has its project name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Replace {
    /// It is not.
    #[default]
    No,
    /// It is, unless rows would be lost that the other one has.
    WithoutLoss,
    /// It is, also if rows are lost.
    AllowingLoss,
}

/// The part of a new program's manifest that depends on the other programs.
struct Plan {
    project_name: String,
    replaces: Option<Replaced>,
    contracts: Vec<ContractId>,
    public: bool,
}

/// A program that is to be registered.
struct New<'a> {
    plan: Plan,
    /// SHA-256 of the content; zeros without one.
    sha256: Hash32,
    /// Its module, or the supplied interface; empty without one.
    content: &'a [u8],
    schema: ProgramSchema,
    events: Option<EventProject>,
    /// UNIX seconds.
    now: u64,
}

/// All programs of a store.
pub struct Registry {
    store: Arc<Store>,
    engine: Engine,
    settings: settings::Programs,
    index: settings::Index,
    entries: RwLock<BTreeMap<ProgramId, Arc<Entry>>>,
    /// Interfaces that were supplied with projects of events.
    pub(super) supplied: Arc<SuppliedInterfaces>,
    /// The members of projects.
    pub(super) members: Arc<MemberIndex>,
    /// Size of all rows by owner, in bytes.
    owner_bytes: Mutex<BTreeMap<Owner, Arc<AtomicU64>>>,
    /// Serialises deploys, deletes and subscriptions, and the writing and removal of compiled
    /// modules.
    deploying: Mutex<()>,
}

impl Registry {
    /// Reads the stored programs. Modules are loaded when they are first needed.
    pub(super) fn open(
        store: Arc<Store>,
        engine: Engine,
        settings: settings::Programs,
        index: settings::Index,
    ) -> Result<Self, ProgramError> {
        let (mut entries, members) = (BTreeMap::new(), MemberIndex::default());
        let mut owner_bytes = BTreeMap::<Owner, Arc<AtomicU64>>::new();
        for (id, manifest) in storage::manifests(&store)? {
            let cell = Cell::load(&store, id, &manifest)?;
            load_members(&store, &cell.manifest, &members)?;
            let bytes = owner_bytes.entry(cell.manifest.owner.clone()).or_default();
            let replaces = cell.manifest.replaces.clone();
            let mut entry = Entry::new(id, OnceLock::new(), cell, Arc::clone(bytes));
            // A program has a greater id than the one that it is to replace.
            if let Some(replaced) = replaces.and_then(|it| entries.get(&it.program)) {
                entry = entry.replacing(replaced);
            }
            entries.insert(id, Arc::new(entry));
        }
        let modules = entries.values().map(|entry| entry.snapshot().manifest.module);
        if let Err(error) = engine.remove_cached_except(&modules.collect()) {
            tracing::warn!("unused compiled modules could not be deleted: {error}");
        }
        Ok(Self {
            store,
            engine,
            settings,
            index,
            entries: RwLock::new(entries),
            supplied: Arc::default(),
            members: Arc::new(members),
            owner_bytes: Mutex::new(owner_bytes),
            deploying: Mutex::default(),
        })
    }

    /// Checks whether an owner may deploy a program now, and returns what it would be. It may be without
    /// contracts if it `may_name_none`.
    fn plan(
        &self,
        owner: &Owner,
        deploy: &Deploy,
        may_name_none: bool,
    ) -> Result<Plan, ProgramError> {
        if deploy.replace != Replace::No {
            return self.plan_replacement(owner, deploy, may_name_none);
        }
        let project_name = deploy.project_name.clone();
        let contracts = match may_name_none {
            true => names::distinct_or_none(deploy.contracts.clone())?,
            false => names::distinct(deploy.contracts.clone())?,
        };
        if let Some(existing) = self.named(&project_name) {
            let is_own = existing.snapshot().manifest.owner == *owner;
            return Err(match is_own {
                true => ProgramError::OwnProject(project_name),
                false => ProgramError::ProjectExists(project_name),
            });
        }
        self.check_count(owner)?;
        self.check_indexed(&contracts)?;
        Ok(Plan { project_name, replaces: None, contracts, public: deploy.public.unwrap_or(false) })
    }

    /// Prevents programs from being added or removed until the guard is dropped.
    #[cfg(test)]
    pub(super) fn block_changes(
        &self,
    ) -> parking_lot::RwLockReadGuard<'_, BTreeMap<ProgramId, Arc<Entry>>> {
        self.entries.read()
    }

    /// Returns a program by its id.
    pub(super) fn get(&self, id: ProgramId) -> Option<Arc<Entry>> {
        self.entries.read().get(&id).cloned()
    }

    /// Returns all programs, sorted by id.
    pub(super) fn all(&self) -> Vec<Arc<Entry>> {
        self.entries.read().values().cloned().collect()
    }

    /// Returns the projects of events that have read events while the code of their contract was not
    /// known.
    pub(super) fn waiting_for_code(&self) -> BTreeSet<ProgramId> {
        let is_waiting = |entry: &Entry| {
            let manifest = entry.snapshot().manifest;
            manifest.events.as_ref().is_some_and(EventProject::may_know_more)
        };
        let entries = self.entries.read();
        entries.values().filter(|entry| is_waiting(entry)).map(|entry| entry.id).collect()
    }

    /// Returns the contracts that projects of events name.
    pub(super) fn watched_contracts(&self) -> BTreeSet<ContractId> {
        let manifests = self.snapshots().into_iter().map(|(_, snapshot)| snapshot.manifest);
        let projects = manifests.filter(|manifest| manifest.events.is_some());
        projects.flat_map(|manifest| manifest.contracts.clone()).collect()
    }

    /// Returns all programs with their states as of one moment, sorted by id: a project name is that
    /// of one program, also while a program takes the name of another.
    fn snapshots(&self) -> Vec<(Arc<Entry>, EntrySnapshot)> {
        let entries = self.entries.read();
        entries.values().map(|entry| (Arc::clone(entry), entry.snapshot())).collect()
    }

    /// Returns a program, if it belongs to the owner.
    pub(super) fn owned(&self, id: ProgramId, owner: &Owner) -> Result<Arc<Entry>, ProgramError> {
        let entry = self.get(id).ok_or(ProgramError::Unknown(id))?;
        if entry.snapshot().manifest.owner != *owner {
            return Err(ProgramError::NotYours(id));
        }
        Ok(entry)
    }

    /// Returns the manifests of an owner's programs, sorted by id.
    pub(super) fn manifests(&self, owner: &Owner) -> Vec<Manifest> {
        let manifests = self.snapshots().into_iter().map(|(_, snapshot)| snapshot.manifest);
        let own = manifests.filter(|manifest| manifest.owner == *owner);
        own.map(Arc::unwrap_or_clone).collect()
    }

    /// Checks a module, makes it ready to run, and registers the program. `is_fit` judges its functions
    /// for the contracts.
    pub(super) fn deploy(
        &self,
        owner: &Owner,
        deploy: Deploy,
        now: u64,
        is_fit: impl FnOnce(&[String], &[ContractId]) -> Result<(), ProgramError>,
    ) -> Result<Manifest, ProgramError> {
        self.check_name(owner, &deploy.project_name, deploy.replace)?;
        let plan = self.plan(owner, &deploy, false)?;
        let facts = self
            .engine
            .check(&deploy.code, &CheckRules::from(&self.settings))
            .map_err(|refused| ProgramError::Module(refused.to_string()))?;
        let schema = ProgramSchema::from_spec(
            &facts.spec,
            |target| facts.targets.may_emit_to(target),
            SchemaLimits::from(&self.settings),
        )
        .map_err(|error| ProgramError::Module(error.to_string()))?;
        if !deploy.allow_unfit {
            is_fit(&facts.functions, &plan.contracts)?;
        }
        let module = self.engine.load(&deploy.code)?;
        let _one_at_a_time = self.deploying.lock();
        let new = New {
            plan: self.plan(owner, &deploy, false)?,
            sha256: facts.sha256,
            content: &deploy.code,
            schema,
            events: None,
            now,
        };
        let manifest = self.register(owner, new, Some(module.clone()))?;
        // Still under the lock, so that a concurrent delete cannot leave the compiled file behind.
        self.engine.cache(&module);
        Ok(manifest)
    }

    /// Registers a project of events.
    pub(super) fn watch(
        &self,
        owner: &Owner,
        watch: Watch,
        now: u64,
    ) -> Result<Manifest, ProgramError> {
        let Watch { project_name, contracts, selectors, supplied, from, storage, public, replace } =
            watch;
        self.check_name(owner, &project_name, replace)?;
        let keeps = replace != Replace::No && contracts.is_empty() && selectors.is_empty();
        let selectors = if keeps { self.selectors(&project_name) } else { selectors.checked()? };
        self.check_members(owner, &selectors)?;
        let content = supplied.as_deref().unwrap_or_default();
        // Here and not when its first event is read: what it costs is the owner's.
        let interface = supplied.as_deref().map(KnownInterface::supplied).transpose()?;
        let has_storage =
            storage.unwrap_or_else(|| replace != Replace::No && self.has_storage(&project_name));
        if has_storage && self.store.consumer(CONSUMER).is_none() {
            return Err(ProgramError::StorageOff);
        }
        if has_storage && !selectors.all.is_empty() {
            let problem = "cannot be recorded of every contract: leave out 'storage' or 'all'";
            return Err(ProgramError::Value { name: "storage", problem: problem.to_owned() });
        }
        let may_name_none = !selectors.is_empty() && !keeps;
        let mut events = EventProject::new(supplied.is_some(), from, has_storage, selectors);
        if let Some(interface) = &interface {
            events.declare(interface);
        }
        let sha256 = if supplied.is_some() {
            Hash32(Sha256::digest(content).into())
        } else {
            Hash32::default()
        };
        let schema = events.schema();
        let code = Vec::new();
        let deploy = Deploy { code, project_name, contracts, public, replace, allow_unfit: true };
        let _one_at_a_time = self.deploying.lock();
        let plan = self.plan(owner, &deploy, may_name_none)?;
        let new = New { plan, sha256, content, schema, events: Some(events), now };
        let manifest = self.register(owner, new, None)?;
        if let Some(interface) = interface {
            let kept = self.supplied.keep(&self.store, (manifest.id, owner), Arc::new(interface));
            // The project is there; its interface is read again when it is needed.
            kept.unwrap_or_else(|error| tracing::debug!("an interface is not kept: {error}"));
        }
        Ok(manifest)
    }

    /// Whether a project records the changes of what its contracts hold.
    fn has_storage(&self, project: &str) -> bool {
        let entry = self.named(project);
        entry.is_some_and(|it| {
            it.snapshot().manifest.events.as_ref().is_some_and(|it| it.has_storage)
        })
    }

    /// Writes a new program, and adds it. Must be called under the lock of deploys.
    fn register(
        &self,
        owner: &Owner,
        new: New<'_>,
        module: Option<Module>,
    ) -> Result<Manifest, ProgramError> {
        let New { plan, sha256, content, schema, events, now } = new;
        let Plan { project_name, replaces, contracts, public } = plan;
        let id = self.next_id()?;
        let manifest = Manifest {
            id,
            owner: owner.clone(),
            project_name,
            replaces,
            contracts,
            module: sha256,
            public,
            running: true,
            stopped_because: None,
            deployed_at: now,
            schema,
            events,
        };
        // The program processes ledgers stored from now on.
        let place = self.store.last_place();
        let progress = Progress { place, deployed_at_place: Some(place), ..Progress::default() };
        let written = storage::change(&self.store, |changes| {
            if !content.is_empty() {
                changes.put(&storage::module(&sha256), content)?;
            }
            manifest.put(changes, None)?;
            put_json(changes, &storage::progress(id), &progress)?;
            changes.put_cursor(id, progress.place);
            if let Some(project) = &manifest.events {
                let needs = Needs { transactions: project.has_storage, ..Needs::EVENTS };
                changes.put_needs(id, needs);
            }
            if let Some(replaced) = &manifest.replaces {
                changes.delete(&storage::replacement_failure(replaced.program))?;
            }
            changes.put(&storage::progress(LAST_ID_ROW), id.0.to_be_bytes())
        });
        // A write that failed may still have reached the store. The program is then found at the
        // next start, so it is registered now as well.
        if written.is_ok() || self.store.shared_row(&storage::manifest(id))?.is_some() {
            self.insert(manifest.clone(), progress, module, written.is_ok());
        }
        written?;
        Ok(manifest)
    }

    /// Adds a deployed program. The outcome of its write is unknown unless `is_written`.
    fn insert(
        &self,
        manifest: Manifest,
        progress: Progress,
        module: Option<Module>,
        is_written: bool,
    ) {
        let (id, owner) = (manifest.id, manifest.owner.clone());
        let replaces = manifest.replaces.clone();
        let mut entries = self.entries.write();
        let bytes = Arc::clone(self.owner_bytes.lock().entry(owner).or_default());
        let cell = Cell::new(manifest, progress);
        let module = module.map_or_else(OnceLock::new, OnceLock::from);
        let mut entry = Entry::new(id, module, cell, bytes);
        if let Some(replaced) = replaces.and_then(|it| entries.get(&it.program)) {
            entry = entry.replacing(replaced);
        }
        entries.insert(id, Arc::new(entry));
        self.members.set(id, named_members(&entries[&id].snapshot().manifest));
        let consumer = storage::consumer(id);
        if is_written || self.store.cursor(&consumer).is_ok() {
            self.store.set_active(&consumer, true);
        }
    }

    /// Registers further contracts, or none when one is already registered.
    pub(super) fn append(
        &self,
        owner: &Owner,
        id: ProgramId,
        contracts: Vec<ContractId>,
    ) -> Result<Manifest, ProgramError> {
        let contracts = names::distinct(contracts)?;
        let entry = self.owned(id, owner)?;
        let _one_at_a_time = self.block_replacing(&entry)?;
        let mut cell = entry.lock();
        cell.reload_if_in_doubt(&self.store)?;
        if let Some(known) = contracts.iter().find(|id| cell.manifest.contracts.contains(id)) {
            return Err(ProgramError::Registered(*known));
        }
        names::check_count(cell.manifest.contracts.len() + contracts.len())?;
        self.check_indexed(&contracts)?;
        let manifest =
            self.change_manifest(&mut cell, |manifest| manifest.contracts.extend(contracts))?;
        let named = named_members(&manifest);
        let named = named
            .into_iter()
            .map(|(contract, flags)| (contract, self.members.flags(id, &contract).and(flags)));
        self.members.set(id, named.collect::<Vec<_>>());
        Ok(manifest)
    }

    /// Sets whether a program is run on new ledgers.
    pub(super) fn set_running(
        &self,
        owner: &Owner,
        id: ProgramId,
        running: bool,
    ) -> Result<Manifest, ProgramError> {
        let entry = self.owned(id, owner)?;
        let mut cell = entry.lock();
        self.change(&mut cell, |manifest, progress| {
            manifest.running = running;
            manifest.stopped_because = None;
            if running {
                progress.errors_in_a_row = 0;
            }
        })
    }

    /// Writes a changed manifest, then applies it in memory.
    pub(super) fn change_manifest(
        &self,
        cell: &mut Cell,
        change: impl FnOnce(&mut Manifest),
    ) -> Result<Manifest, ProgramError> {
        self.change(cell, |manifest, _| change(manifest))
    }

    /// Writes a changed manifest and progress, then applies them in memory.
    fn change(
        &self,
        cell: &mut Cell,
        change: impl FnOnce(&mut Manifest, &mut Progress),
    ) -> Result<Manifest, ProgramError> {
        cell.reload_if_in_doubt(&self.store)?;
        if cell.deleted {
            return Err(ProgramError::Unknown(cell.manifest.id));
        }
        let (mut manifest, mut progress) = (Manifest::clone(&cell.manifest), cell.progress);
        change(&mut manifest, &mut progress);
        let stored = Arc::clone(&cell.manifest);
        cell.write(&self.store, |changes| {
            manifest.put(changes, Some(&stored))?;
            put_json(changes, &storage::progress(manifest.id), &progress)
        })?;
        self.store.set_active(&storage::consumer(manifest.id), manifest.running);
        cell.manifest = Arc::new(manifest.clone());
        cell.progress = progress;
        Ok(manifest)
    }

    /// Deletes a program with all its rows and records, and before it the one that is to replace
    /// it. Returns the ids of the deleted programs.
    pub(super) fn delete(
        &self,
        owner: &Owner,
        id: ProgramId,
    ) -> Result<Vec<ProgramId>, ProgramError> {
        // Prevents a concurrent deploy of the same module.
        let _one_at_a_time = self.deploying.lock();
        let entry = self.owned(id, owner)?;
        let mut deleted = Vec::new();
        if let Some(replacement) = self.replacement_of(id) {
            self.delete_one(&replacement, |_| Ok(()))?;
            deleted.push(replacement.id);
        }
        self.delete_one(&entry, |_| Ok(()))?;
        deleted.push(id);
        Ok(deleted)
    }

    /// Deletes a program, and writes what `more` adds with the deletion. Must be called under the
    /// lock of deploys.
    fn delete_one(
        &self,
        entry: &Entry,
        more: impl FnOnce(&mut KindChanges<'_>) -> Result<(), StoreError>,
    ) -> Result<(), ProgramError> {
        let id = entry.id;
        let mut cell = entry.lock();
        cell.reload_if_in_doubt(&self.store)?;
        if cell.deleted {
            // An earlier delete was reported as failed, but reached the store.
            self.remove(id);
            return Err(ProgramError::Unknown(id));
        }
        let module = cell.manifest.module;
        let unshared = self.is_unshared(&module, id);
        cell.write(&self.store, |changes| {
            delete_with_module(changes, id, unshared.then_some(&module))?;
            more(changes)
        })?;
        cell.deleted = true;
        if unshared {
            self.remove_compiled(id, module);
        }
        self.remove(id);
        Ok(())
    }

    /// Returns whether no other program has the module of this one.
    fn is_unshared(&self, module: &Hash32, id: ProgramId) -> bool {
        let others = self.all();
        let mut others = others.iter().filter(|other| other.id != id);
        !others.any(|other| other.snapshot().manifest.module == *module)
    }

    fn remove_compiled(&self, id: ProgramId, module: Hash32) {
        if let Err(error) = self.engine.remove_cached(module) {
            tracing::warn!(program = %id, "its compiled module could not be deleted: {error}");
        }
    }

    /// Loads a program's module, unless it is loaded. If the module can no longer be run, stops the
    /// program, so that others are not delayed, and returns the reason.
    pub(super) fn load_module(&self, entry: &Entry) -> Result<Option<String>, ProgramError> {
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

    /// Whether the service stores the contracts of a list alone.
    pub(super) fn lists_contracts(&self) -> bool {
        !self.index.contracts.is_empty()
    }

    /// Checks that all these contracts are indexed: a program for a contract that is not would never
    /// run.
    fn check_indexed(&self, contracts: &[ContractId]) -> Result<(), ProgramError> {
        match contracts.iter().find(|contract| !self.index.includes(contract)) {
            Some(contract) => Err(ProgramError::NotIndexed(*contract)),
            None => Ok(()),
        }
    }

    fn check_count(&self, owner: &Owner) -> Result<(), ProgramError> {
        let most = self.settings.owner_programs.get() as usize;
        // A program and the one that is to replace it count once.
        let is_own = |(_, snapshot): &&(Arc<Entry>, EntrySnapshot)| {
            snapshot.manifest.owner == *owner && snapshot.manifest.replaces.is_none()
        };
        if self.snapshots().iter().filter(is_own).count() < most {
            Ok(())
        } else {
            Err(ProgramError::TooManyPrograms(most))
        }
    }

    /// Returns the program with this project name.
    pub(super) fn named(&self, name: &str) -> Option<Arc<Entry>> {
        // Views are named after projects, and SQL names ignore case.
        let all = self.snapshots().into_iter();
        let mut named = all.filter(|(_, it)| it.manifest.project_name.eq_ignore_ascii_case(name));
        named.next().map(|(entry, _)| entry)
    }

    fn next_id(&self) -> Result<ProgramId, ProgramError> {
        const DAMAGED: ProgramError = ProgramError::Damaged("the number of the last program");
        let last = match self.store.shared_row(&storage::progress(LAST_ID_ROW))? {
            Some(row) => u32::from_be_bytes(row.as_slice().try_into().map_err(|_| DAMAGED)?),
            None => 0,
        };
        last.checked_add(1).map(ProgramId).ok_or(DAMAGED)
    }
}

/// Deletes a program with its rows and records, and its module, if given.
fn delete_with_module(
    changes: &mut KindChanges<'_>,
    id: ProgramId,
    module: Option<&Hash32>,
) -> Result<(), StoreError> {
    storage::delete_program(changes, id)?;
    module.map_or(Ok(()), |module| changes.delete(&storage::module(module)))
}
