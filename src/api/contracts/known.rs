//! What a contract runs as of the newest ledger, and the entries of its interface; or why they are not
//! known.

use std::ops::Deref;
use std::sync::Arc;

use serde::Serialize;
use stellar_xdr::ScSpecEntry;

use super::super::call::CurrentCall;
use super::super::{ApiError, Deps};
use super::asset::asset;
use orrery_executables::{Instance, Lacking, lookup::Ran};
use orrery_interfaces::asset_entries;
use orrery_ledger::domain::{ContractId, Hash32, LedgerSeq};
use orrery_store::{Needs, RowBounds, TransactionPosition};

/// What a contract runs.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Executable {
    /// The module with this SHA-256.
    Wasm(String),
    /// The contract of an asset, which is built into the network.
    StellarAsset(bool),
}

/// Entries of an interface.
pub(super) enum Entries {
    /// Those of the contract of an asset.
    Asset,
    /// Those of a module.
    Code(Arc<[ScSpecEntry]>),
}

impl Deref for Entries {
    type Target = [ScSpecEntry];

    fn deref(&self) -> &[ScSpecEntry] {
        match self {
            Self::Asset => asset_entries(),
            Self::Code(entries) => entries,
        }
    }
}

/// What is known of a contract.
pub(super) struct Known {
    /// `None` when it is not known, or nothing that has an interface.
    pub executable: Option<Executable>,
    /// The entries of its interface, or why there are none.
    pub entries: Result<Entries, String>,
    /// What lacks although it is stored.
    pub lacking: Lacking,
    /// Whether the answer stays the same as long as the store does.
    pub is_final: bool,
}

impl Known {
    /// Looks a contract up. What is missing is asked for.
    pub(super) fn of(
        deps: &Deps,
        call: &CurrentCall<'_>,
        contract: &ContractId,
    ) -> Result<Self, ApiError> {
        let Some(ledger) = call.as_of else {
            return Ok(Self::nothing("no ledger is stored yet".to_owned()));
        };
        let bounds =
            RowBounds { interrupted: Box::new(|| call.allowance.is_over()), ..RowBounds::none() };
        let names = deps.interfaces.reader(bounds)?;
        let at = TransactionPosition { ledger, application_order: u32::MAX };
        let ran = names.ran_after(contract, at)?;
        let is_final = names.finish()?;
        let known = match ran {
            None => Self::nothing(format!(
                "what the contracts of ledger {ledger} run is being read: ask again in a second"
            )),
            Some(Ran::Asset) => Self::of_asset(),
            Some(Ran::Code(hash)) => Self::of_code(deps, &hash)?,
            Some(Ran::Nothing) => Self::nothing(format!(
                "as of ledger {ledger} the contract does not exist, or runs nothing that has an \
                 interface"
            )),
            // The id of an asset's contract is a hash of the asset, which its events name.
            Some(Ran::Unknown(_)) if asset(&deps.store, contract)?.is_some() => Self::of_asset(),
            Some(Ran::Unknown(_)) => Self::nothing(unknown(deps, contract, ledger)?),
        };
        Ok(Self { is_final: known.is_final && is_final, ..known })
    }

    fn of_asset() -> Self {
        let executable = Some(Executable::StellarAsset(true));
        let lacking = Lacking::default();
        Self { executable, entries: Ok(Entries::Asset), lacking, is_final: true }
    }

    fn of_code(deps: &Deps, hash: &Hash32) -> Result<Self, ApiError> {
        let executable = Some(Executable::Wasm(hash.to_string()));
        let (listing, lacking) = deps.interfaces.listing(hash)?;
        let is_final = listing.is_some();
        let entries = match listing {
            Some(listing) => {
                listing.entries.map(Entries::Code).map_err(|reason| reason.to_string())
            }
            None if lacking.is_empty() => {
                Err(lookup(deps, &format!("the code {hash} is not stored")))
            }
            None => Err(format!(
                "the interface of the code {hash} is being read: ask again in a second"
            )),
        };
        Ok(Self { executable, entries, lacking, is_final })
    }

    fn nothing(because: String) -> Self {
        let lacking = Lacking::default();
        Self { executable: None, entries: Err(because), lacking, is_final: true }
    }
}

/// Returns why it is not known what a contract runs.
fn unknown(deps: &Deps, contract: &ContractId, ledger: LedgerSeq) -> Result<String, ApiError> {
    Ok(match deps.interfaces.instance(contract, ledger)? {
        Instance::Absent(ledger) => {
            format!("there is no such contract as of ledger {ledger}")
        }
        _ => {
            let missing = "what the contract runs is not in the stored ledgers";
            // That a contract is one of an asset may be known from its events alone.
            let removed = deps.store.removed(Needs::EVENTS)?;
            match removed.ranges().last() {
                None => lookup(deps, missing),
                Some(range) => lookup(
                    deps,
                    &format!(
                        "{missing}, or was, and retention has removed events up to ledger {}",
                        range.last
                    ),
                ),
            }
        }
    })
}

/// Completes the sentence about something that is not stored.
fn lookup(deps: &Deps, missing: &str) -> String {
    match deps.interfaces.has_source() {
        true => format!("{missing}; it is being looked up, so ask again in a few seconds"),
        false => format!(
            "{missing}, and no server is followed that could tell: add an RPC server or a \
             stellar-core to the sources"
        ),
    }
}
