//! The asset of which a contract is the Stellar asset contract.

use stellar_xdr::{Asset, Limits, ReadXdr, ScVal};

use super::super::ApiError;
use orrery_ledger::domain::{ContractId, NetworkId, Page, asset_contract_id, parse_asset};
use orrery_store::{EventQuery, Store, TopicFilter};

/// Limits for decoding a topic that names an asset.
const LIMITS: Limits = Limits { depth: 10, len: 1 << 10 };

/// Returns the asset of an asset's contract: the native one, or that which its newest event names. `None`
/// for other contracts, and when no event is stored.
pub(super) fn asset(store: &Store, contract: &ContractId) -> Result<Option<Asset>, ApiError> {
    let network = store.network().id();
    if asset_contract_id(network, &Asset::Native) == *contract {
        return Ok(Some(Asset::Native));
    }
    let query = EventQuery {
        ledgers: None,
        contracts: vec![*contract],
        topics: TopicFilter::default(),
        page: Page::first(1),
    };
    let mut found = None;
    store.events(&query, |event| found = named(event.topics, network, contract))?;
    Ok(found)
}

/// Returns the asset that the last topic of an event names, if the contract is that of this asset.
fn named(topics: &[&[u8]], network: &NetworkId, contract: &ContractId) -> Option<Asset> {
    let Ok(ScVal::String(name)) = ScVal::from_xdr(topics.last()?, LIMITS) else { return None };
    let asset = parse_asset(str::from_utf8(name.as_slice()).ok()?)?;
    (asset_contract_id(network, &asset) == *contract).then_some(asset)
}
