//! The member `decoded` of an event: its name and parameters where its declaration is known, and its
//! topics and data as JSON.

use serde::Serialize;
use stellar_xdr::{Limits, ReadXdr, ScVal};

use crate::decode::EventType;
use crate::domain::{ContractId, NetworkId};
use crate::interfaces::{
    Matched, Params, PlainRest, TypedXdr, asset_contract, declaration, is_asset_contract,
};
use crate::store::EventRecord;

/// The beginning of the XDR of every `ScVal::String`, as which an asset's events name the asset.
const STRING: [u8; 4] = [0, 0, 0, 14];
/// Maximum length and depth of a value of an asset's event, which is an amount, or a map with an
/// amount and a memo.
const LIMITS: Limits = Limits { depth: 20, len: 1000 };

#[derive(Serialize)]
struct Decoded<'a> {
    name: Option<String>,
    params: Option<Params<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rest: Option<PlainRest<'a>>,
    topics: Vec<TypedXdr<'a>>,
    data: TypedXdr<'a>,
}

/// Appends the object of an event on this network.
pub(super) fn write(event: &EventRecord<'_>, network: &NetworkId, out: &mut Vec<u8>) {
    let values = values_of_asset(event, network);
    let interfaces = [asset_contract()];
    let matched =
        values.as_ref().and_then(|(topics, data)| declaration(interfaces.as_slice(), topics, data));
    let decoded = Decoded {
        name: matched.as_ref().map(Matched::name),
        params: matched.as_ref().map(Params),
        rest: matched
            .as_ref()
            .filter(|it| !it.rest.is_empty())
            .map(|it| PlainRest { rest: &it.rest, types: it.interface.types() }),
        topics: event.topics.iter().map(|topic| TypedXdr(topic)).collect(),
        data: TypedXdr(event.data),
    };
    // Writing texts and numbers to memory cannot fail.
    let _ = serde_json::to_writer(out, &decoded);
}

/// Returns the topics and the data of an event that the contract of an asset has emitted, which is
/// known from the event alone.
fn values_of_asset(event: &EventRecord<'_>, network: &NetworkId) -> Option<(Vec<ScVal>, ScVal)> {
    let contract = ContractId(*event.contract?);
    let is_candidate = event.event_type == EventType::Contract
        && event.topics.last().is_some_and(|topic| topic.starts_with(&STRING));
    if !is_candidate {
        return None;
    }
    let value = |xdr: &&[u8]| ScVal::from_xdr(xdr, LIMITS).ok();
    let topics = event.topics.iter().map(value).collect::<Option<Vec<_>>>()?;
    let is_of_asset = is_asset_contract(&topics, network, &contract);
    is_of_asset.then(|| value(&event.data)).flatten().map(|data| (topics, data))
}
