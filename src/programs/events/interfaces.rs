//! The interfaces by which events of projects are declared, with what their tables need of them.

use std::cell::OnceCell;
use std::sync::Arc;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use stellar_xdr::ScVal;

use super::MemberIndex;
use super::declared_by::DeclaredBy;
use super::known::KnownInterface;
use super::supplied::SuppliedInterfaces;
use crate::manifest::Manifest;
use crate::{ProgramError, storage};
use orrery_executables::Interfaces;
use orrery_interfaces::{Interface, Matched, Origin};
use orrery_ledger::domain::{Hash32, Owner, ProgramId};

/// Memory of the interfaces of contracts that are kept, in bytes, with their declarations.
const CAPACITY: u64 = 64 << 20;
/// Number of parts of the cache. An interface has to fit into one.
const SHARDS: usize = 4;
/// Typical memory of an interface, in bytes; only used to size the table.
const TYPICAL_BYTES: u64 = 32 << 10;
/// Interfaces of contracts, and those that users supply.
pub struct EventInterfaces {
    pub(super) interfaces: Arc<Interfaces>,
    known: Cache<DeclaredBy, Arc<KnownInterface>, Weight>,
    supplied: Arc<SuppliedInterfaces>,
    members: Arc<MemberIndex>,
}

#[derive(Clone)]
struct Weight;

impl Weighter<DeclaredBy, Arc<KnownInterface>> for Weight {
    fn weight(&self, _: &DeclaredBy, known: &Arc<KnownInterface>) -> u64 {
        known.bytes() as u64
    }
}

/// The project for which interfaces are looked up in one piece of work.
pub struct OfProject<'a> {
    /// Its id.
    pub program: ProgramId,
    owner: &'a Owner,
    /// The interface that was supplied with it, once it has been needed. Held here because others of its
    /// owner may take its place in memory meanwhile, and it would be read again for each event.
    supplied: OnceCell<Arc<KnownInterface>>,
}

impl<'a> OfProject<'a> {
    /// The project with this manifest.
    pub fn of(manifest: &'a Manifest) -> Self {
        Self::new(manifest.id, &manifest.owner)
    }

    /// The project with this id, of this owner.
    pub fn new(program: ProgramId, owner: &'a Owner) -> Self {
        Self { program, owner, supplied: OnceCell::new() }
    }
}

impl EventInterfaces {
    /// Creates the cache.
    pub fn new(interfaces: Arc<Interfaces>) -> Self {
        Self::sharing(interfaces, Arc::default(), Arc::default())
    }

    /// Creates the cache, with a place for supplied interfaces from which whoever deletes a project
    /// takes its interface, and the members of projects.
    pub fn sharing(
        interfaces: Arc<Interfaces>,
        supplied: Arc<SuppliedInterfaces>,
        members: Arc<MemberIndex>,
    ) -> Self {
        let options = OptionsBuilder::new()
            .estimated_items_capacity((CAPACITY / TYPICAL_BYTES) as usize)
            .weight_capacity(CAPACITY)
            .shards(SHARDS)
            .build();
        let options = options.expect("the capacities are set");
        let known = Cache::with_options(
            options,
            Weight,
            DefaultHashBuilder::default(),
            DefaultLifecycle::default(),
        );
        Self { interfaces, known, supplied, members }
    }

    /// Returns the members of projects.
    pub(crate) fn members(&self) -> &MemberIndex {
        &self.members
    }

    /// Returns the interfaces of contracts.
    pub fn interfaces(&self) -> &Interfaces {
        &self.interfaces
    }

    /// Returns an interface; `None` when it is not stored any more, or cannot be read. One that was
    /// supplied belongs to the project.
    pub(crate) fn get(
        &self,
        by: DeclaredBy,
        project: &OfProject<'_>,
    ) -> Result<Option<Arc<KnownInterface>>, ProgramError> {
        if let DeclaredBy::Supplied(hash) = by {
            return self.supplied(hash, project);
        }
        if let Some(known) = self.known.get(&by) {
            return Ok(Some(known));
        }
        let known = match by {
            DeclaredBy::Code(hash) => match self.interfaces.read_now(&hash)? {
                Some(interface) => KnownInterface::new(hash, Origin::Chain, interface),
                None => return Ok(None),
            },
            DeclaredBy::Asset | DeclaredBy::Supplied(_) => KnownInterface::of_assets(),
        };
        Ok(Some(self.keep(by, known)))
    }

    /// Returns the interface of the contract of an asset.
    pub(super) fn of_assets(&self) -> Arc<KnownInterface> {
        let by = DeclaredBy::Asset;
        self.known.get(&by).unwrap_or_else(|| self.keep(by, KnownInterface::of_assets()))
    }

    /// Returns an interface that was just read, with its declarations.
    pub(super) fn of(&self, hash: &Hash32, interface: &Arc<Interface>) -> Arc<KnownInterface> {
        let by = DeclaredBy::Code(*hash);
        let new = || KnownInterface::new(*hash, Origin::Chain, Arc::clone(interface));
        self.known.get(&by).unwrap_or_else(|| self.keep(by, new()))
    }

    /// Returns the declaration of an event of the store, looked for in these interfaces in their order.
    pub(super) fn declaration<'a>(
        &self,
        event: u64,
        interfaces: impl IntoIterator<Item = &'a KnownInterface>,
        (topics, data): (&'a [ScVal], &'a ScVal),
    ) -> Option<Matched<'a>> {
        let findings = self.interfaces.findings();
        interfaces.into_iter().enumerate().find_map(|(at, known)| {
            let interface = known.interface();
            let found = findings.find((known.hash, interface), event, topics, data)?;
            Matched::of(at, interface, found, topics, data)
        })
    }

    fn supplied(
        &self,
        hash: Hash32,
        project: &OfProject<'_>,
    ) -> Result<Option<Arc<KnownInterface>>, ProgramError> {
        if let Some(known) = project.supplied.get().filter(|it| it.hash == hash) {
            return Ok(Some(Arc::clone(known)));
        }
        let known = self.read_supplied(hash, project)?;
        if let Some(known) = &known {
            project.supplied.get_or_init(|| Arc::clone(known));
        }
        Ok(known)
    }

    fn read_supplied(
        &self,
        hash: Hash32,
        project: &OfProject<'_>,
    ) -> Result<Option<Arc<KnownInterface>>, ProgramError> {
        if let Some(known) = self.supplied.get(project.program).filter(|it| it.hash == hash) {
            return Ok(Some(known));
        }
        let store = self.interfaces.store();
        let Some(content) = store.shared_row(&storage::module(&hash))? else {
            return Ok(None);
        };
        let Ok(known) = KnownInterface::supplied(&content) else { return Ok(None) };
        let known = Arc::new(known);
        self.supplied.keep(store, (project.program, project.owner), Arc::clone(&known))?;
        Ok(Some(known))
    }

    fn keep(&self, by: DeclaredBy, known: KnownInterface) -> Arc<KnownInterface> {
        let known = Arc::new(known);
        self.known.insert(by, Arc::clone(&known));
        known
    }
}
