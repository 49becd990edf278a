//! Registers projects of events.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::{Deploy, New, Registry, Replace};
use crate::events::{EventProject, KnownInterface};
use crate::manifest::Manifest;
use crate::{ProgramError, names};
use orrery_ledger::domain::{ContractId, Hash32, LedgerSeq, Owner};

/// Request to watch the events of contracts.
#[derive(Debug, Clone)]
pub struct Watch {
    /// Project name.
    pub project_name: String,
    /// Contracts whose events become rows. When there is none, a project that is to replace another
    /// gets those of the other.
    pub contracts: Vec<ContractId>,
    /// Interface by which events are declared first: a module, or JSON.
    pub supplied: Option<Vec<u8>>,
    /// First ledger whose events become rows; all that are stored by default.
    pub from: Option<LedgerSeq>,
    /// Whether other owners may subscribe to the tables. By default they may not, or as before when
    /// a program is replaced.
    pub public: Option<bool>,
    /// Whether the project is to replace the program that has the project name.
    pub replace: Replace,
}

impl Registry {
    /// Registers a project of events.
    pub(crate) fn watch(
        &self,
        owner: &Owner,
        watch: Watch,
        now: u64,
    ) -> Result<Manifest, ProgramError> {
        let Watch { project_name, contracts, supplied, from, public, replace } = watch;
        names::check_project(&project_name)?;
        let content = supplied.as_deref().unwrap_or_default();
        // Here and not when its first event is read: what it costs is the owner's.
        let interface = supplied.as_deref().map(KnownInterface::supplied).transpose()?;
        let events = EventProject::new(supplied.is_some(), from);
        let sha256 = if supplied.is_some() {
            Hash32(Sha256::digest(content).into())
        } else {
            Hash32::default()
        };
        let schema = events.schema();
        let deploy = Deploy { code: Vec::new(), project_name, contracts, public, replace };
        let _one_at_a_time = self.deploying.lock();
        let plan = self.plan(owner, &deploy)?;
        let new = New { plan, sha256, content, schema, events: Some(events), now };
        let manifest = self.register(owner, new, None)?;
        if let Some(interface) = interface {
            let kept = self.supplied.keep(&self.store, (manifest.id, owner), Arc::new(interface));
            // The project is there; its interface is read again when it is needed.
            kept.unwrap_or_else(|error| tracing::debug!("an interface is not kept: {error}"));
        }
        Ok(manifest)
    }
}
