//! The contract of an asset: its interface, which is the same on every network, and how its events
//! tell that they are of one.

use std::sync::LazyLock;

use orrery_ledger::domain::{ContractId, NetworkId, asset_contract_id, parse_asset};
use stellar_xdr::{ScSpecEntry, ScVal};

use super::interface::Interface;
use super::read;

/// The declarations of events, from the crate stellar-asset-spec and the contract host. Each form of an
/// event has the name of its first topic. Forms with an administrator among the topics are those of
/// protocol 22 and before. The functions are those that the contract host exports (`contract.rs` of its
/// stellar_asset_contract), with the names that SEP-41 and CAP-46-6 give to their parameters.
const DECLARATIONS: &str = include_str!("../../schema/interfaces/asset.json");

static ENTRIES: LazyLock<Vec<ScSpecEntry>> = LazyLock::new(|| {
    read::json(DECLARATIONS.as_bytes()).expect("the built-in declarations are read")
});

static INTERFACE: LazyLock<Interface> = LazyLock::new(|| {
    Interface::from_entries(ENTRIES.clone()).expect("the built-in declarations are within limits")
});

/// Returns the entries of that interface, in the order of their declaration.
pub fn asset_entries() -> &'static [ScSpecEntry] {
    &ENTRIES
}

/// Returns the interface of the contract that every asset has.
pub fn asset_contract() -> &'static Interface {
    &INTERFACE
}

/// Whether the emitter of an event is the contract of the asset that the event's last topic names.
pub fn is_asset_contract(topics: &[ScVal], network: &NetworkId, emitter: &ContractId) -> bool {
    let Some(ScVal::String(text)) = topics.last() else { return false };
    let asset = str::from_utf8(text.as_slice()).ok().and_then(parse_asset);
    asset.is_some_and(|asset| asset_contract_id(network, &asset) == *emitter)
}
