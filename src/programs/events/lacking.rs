//! Which contracts of a project have no interface, and why: for its status.

use serde::Serialize;

use super::EventInterfaces;
use crate::ProgramError;
use crate::manifest::Manifest;
use orrery_executables::lookup::{Lookup, Ran, Side};
use orrery_ledger::domain::ContractId;
use orrery_store::{RowBounds, TransactionPosition};

/// Reason why events of a contract have no declaration.
const UNKNOWN: &str = "its code at the time of some of its events is not known yet";

/// A contract of a project of events that has no interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WithoutInterface {
    /// The contract.
    pub contract: ContractId,
    /// Why it has none.
    pub reason: String,
}

impl EventInterfaces {
    /// Returns the contracts of a project that have no interface now, or had none that is known, each
    /// with the reason; without those whose events the supplied interface declares.
    pub(crate) fn lacking(
        &self,
        manifest: &Manifest,
    ) -> Result<Vec<WithoutInterface>, ProgramError> {
        let (Some(project), Some(ledger)) =
            (&manifest.events, self.interfaces.store().ends().latest)
        else {
            return Ok(Vec::new());
        };
        let lookup = Lookup::new(self.interfaces.store(), RowBounds::none())?;
        let at = TransactionPosition { ledger, application_order: u32::MAX };
        let mut lacking = Vec::new();
        let without = manifest.contracts.iter().filter(|it| !project.declares_all_of(it));
        for contract in without {
            let reason = match lookup.ran(contract, at, Side::After)? {
                Ran::Code(hash) => self.interfaces.reason(&hash),
                Ran::Asset | Ran::Nothing | Ran::Unknown(_) => None,
            };
            let is_unsure = project.unsure.has(contract);
            let reason = reason.or_else(|| is_unsure.then(|| UNKNOWN.to_owned()));
            lacking.extend(reason.map(|reason| WithoutInterface { contract: *contract, reason }));
        }
        Ok(lacking)
    }
}
