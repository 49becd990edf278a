//! Gives a project the tables of all events that its contracts declare, also before the first of them.
//! Which those are follows from what is stored of the contracts' code: what they run now and what they
//! have run. The project looks whenever it has nothing else to do; what a look costs follows from
//! its own contracts, so its looks take a small part of the time only.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use stellar_xdr::Asset;

use super::declared_by::DeclaredBy;
use super::interfaces::{EventInterfaces, OfProject};
use super::looks::Looks;
use super::pause::pause_after;
use crate::manifest::Manifest;
use crate::registry::{Entry, Registry};
use crate::runner::Runner;
use crate::{ProgramError, storage};
use orrery_executables::{InterfaceReader, Tried};
use orrery_ledger::domain::{ContractId, Hash32, NetworkId, ProgramId, asset_contract_id};
use orrery_tables::event_tables::Shapes;

/// Number of interfaces that a project remembers as consulted. Above it, all are consulted again.
const MOST_CONSULTED: usize = 4_096;
/// Time after which a look is made again that has found something unknown of which more may be known
/// soon. Doubled with each such look, up to [`LOOK_LATER`].
const LOOK_AGAIN: Duration = Duration::from_millis(250);
const LOOK_LATER: Duration = Duration::from_secs(60);

/// Outcome of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeclaredTables {
    /// Whether the project has other tables now.
    pub changed: bool,
    /// When to look again, also without news; `None` when all is known.
    pub again: Option<Duration>,
}

impl DeclaredTables {
    const SAME: Self = Self { changed: false, again: None };
}

impl EventInterfaces {
    /// Adds what a contract declares to a summary, except what was `consulted` before. Returns whether
    /// all is known.
    fn add_declared(
        &self,
        names: &InterfaceReader<'_>,
        contract: &ContractId,
        network: &NetworkId,
        (consulted, shapes): (&mut HashSet<Hash32>, &mut Shapes),
    ) -> Result<bool, ProgramError> {
        let (had, is_known) = names.had(contract, |code| !consulted.contains(code));
        // What it declares is known also where nothing of it is stored.
        let is_native = *contract == asset_contract_id(network, &Asset::Native);
        for tried in had.into_iter().chain(is_native.then_some(Tried::Asset)) {
            let known = match tried {
                Tried::Asset => self.of_assets(),
                Tried::Code(hash, interface) => self.of(&hash, &interface),
            };
            if consulted.insert(known.hash) {
                shapes.consult(&known.declarations);
            }
        }
        Ok(is_known || is_native)
    }
}

impl Runner {
    /// Looks what the contracts of a project declare, for about `time`, and changes its tables if there
    /// is more than before.
    pub(crate) fn declare_tables(
        &self,
        entry: &Entry,
        registry: &Registry,
        looks: &mut Looks,
        time: Duration,
    ) -> Result<DeclaredTables, ProgramError> {
        let manifest = entry.snapshot().manifest;
        // What it declares is among the tables that are made anew.
        let Some(project) = manifest.events.as_ref().filter(|it| !it.must_derive()) else {
            return Ok(DeclaredTables::SAME);
        };
        let begun = Instant::now();
        let pause = pause_after(looks.declared.last, begun);
        if !pause.is_zero() {
            return Ok(DeclaredTables { changed: false, again: Some(pause) });
        }
        let look = &mut looks.declared;
        // After a failure all are consulted again: it is not known what has been added.
        let mut consulted = std::mem::take(&mut look.consulted);
        if consulted.len() >= MOST_CONSULTED {
            consulted.clear();
        }
        let mut shapes = Shapes::default();
        look.lacks &= look.is_under_way;
        let names = self.events.interfaces.loading_reader()?;
        let network = *self.store.network().id();
        let of = OfProject::of(&manifest);
        self.consult_codes((&of, &project.selectors.wasm), &mut consulted, &mut shapes)?;
        let left = manifest.contracts.iter().skip(look.passed);
        let (mut passed, mut after) = (look.passed, look.member);
        for contract in left {
            let into = (&mut consulted, &mut shapes);
            look.lacks |= !self.events.add_declared(&names, contract, &network, into)?;
            passed += 1;
            if begun.elapsed() >= time {
                break;
            }
        }
        let mut has_more = project.selectors.have_members();
        while has_more && passed >= manifest.contracts.len() && begun.elapsed() < time {
            after = self.next_member(entry.id, after)?;
            let Some(member) = after else {
                has_more = false;
                break;
            };
            let into = (&mut consulted, &mut shapes);
            look.lacks |= !self.events.add_declared(&names, &member, &network, into)?;
        }
        let is_over = passed >= manifest.contracts.len() && !has_more;
        names.finish()?;
        let changed =
            project.summary.may_change_by(&shapes) && self.add_tables(entry, registry, &shapes)?;
        look.consulted = consulted;
        (look.passed, look.member) = if is_over { (0, None) } else { (passed, after) };
        look.is_under_way = !is_over;
        look.last = Some((Instant::now(), begun.elapsed()));
        let again = if look.is_under_way {
            Some(Duration::ZERO)
        } else {
            look.unknown = if look.lacks { look.unknown.saturating_add(1) } else { 0 };
            let wait = LOOK_AGAIN * 2u32.pow(look.unknown.min(8));
            (look.lacks && self.may_soon_know_more()).then_some(wait.min(LOOK_LATER))
        };
        let pause = pause_after(look.last, Instant::now());
        Ok(DeclaredTables { changed, again: again.map(|wait| wait.max(pause)) })
    }

    /// Returns the next member of a project after one of them of which all that it declares counts: of one that may
    /// run a code, that code does.
    fn next_member(
        &self,
        program: ProgramId,
        after: Option<ContractId>,
    ) -> Result<Option<ContractId>, ProgramError> {
        let mut found = None;
        storage::members_after(&self.store, program, after, |contract, _| {
            let flags = self.events.members().flags(program, &contract);
            if !flags.are_whole() {
                return Ok(ControlFlow::Continue(()));
            }
            found = Some(contract);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }

    /// Adds what these modules declare to a summary, except what was `consulted` before.
    fn consult_codes(
        &self,
        (of, codes): (&OfProject<'_>, &[Hash32]),
        consulted: &mut HashSet<Hash32>,
        shapes: &mut Shapes,
    ) -> Result<(), ProgramError> {
        for code in codes.iter().filter(|code| !consulted.contains(*code)).collect::<Vec<_>>() {
            if let Some(known) = self.events.get(DeclaredBy::Code(*code), of)? {
                consulted.insert(known.hash);
                shapes.consult(&known.declarations);
            }
        }
        Ok(())
    }

    /// Whether more may become known of the code of contracts although no further ledger is stored.
    fn may_soon_know_more(&self) -> bool {
        let interfaces = &self.events.interfaces;
        interfaces.has_source() || !interfaces.has_indexed(self.store.last_place())
    }

    /// Adds what is known of declarations to a project. Returns whether that changes it.
    fn add_tables(
        &self,
        entry: &Entry,
        registry: &Registry,
        shapes: &Shapes,
    ) -> Result<bool, ProgramError> {
        let now = (self.clock)();
        let mut changed = false;
        let mut cell = entry.lock();
        let undeclared = cell.progress.events.undeclared;
        registry.change_manifest(&mut cell, |manifest| {
            let Some(project) = &mut manifest.events else { return };
            changed = project.add(shapes, undeclared, now);
            if changed {
                manifest.schema = project.schema();
            }
        })?;
        Ok(changed)
    }

    /// Adds what the contracts of a project declare, and the interface that was supplied with it, to a
    /// summary.
    pub(super) fn consult_all(
        &self,
        manifest: &Manifest,
        shapes: &mut Shapes,
    ) -> Result<(), ProgramError> {
        let has_supplied = manifest.events.as_ref().is_some_and(|project| project.has_supplied);
        if has_supplied {
            let by = DeclaredBy::Supplied(manifest.module);
            if let Some(supplied) = self.events.get(by, &OfProject::of(manifest))? {
                shapes.consult(&supplied.declarations);
            }
        }
        let names = self.events.interfaces.loading_reader()?;
        let (mut consulted, network) = (HashSet::new(), *self.store.network().id());
        if let Some(project) = &manifest.events {
            let of = OfProject::of(manifest);
            self.consult_codes((&of, &project.selectors.wasm), &mut consulted, shapes)?;
        }
        for contract in &manifest.contracts {
            let into = (&mut consulted, &mut *shapes);
            self.events.add_declared(&names, contract, &network, into)?;
        }
        names.finish()?;
        Ok(())
    }
}
