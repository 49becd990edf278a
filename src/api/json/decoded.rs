//! The member `decoded` of an event: its name and parameters where its declaration is known, and its
//! topics and data as JSON.

use serde::Serialize;

use orrery_executables::{DeclaredEvent, InterfaceReader};
use orrery_interfaces::{Matched, Params, PlainRest, TypedXdr};
use orrery_ledger::domain::NetworkId;
use orrery_store::EventRecord;

#[derive(Serialize)]
struct Decoded<'a> {
    name: Option<&'a str>,
    params: Option<Params<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rest: Option<PlainRest<'a>>,
    topics: Vec<TypedXdr<'a>>,
    data: TypedXdr<'a>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    names_pending: bool,
}

/// Appends the object of an event on this network.
pub(super) fn write(
    event: &EventRecord<'_>,
    network: &NetworkId,
    names: &InterfaceReader<'_>,
    out: &mut Vec<u8>,
) {
    let lacked = names.lacked();
    let declared = DeclaredEvent::of(event, network, names);
    let matched = declared.as_ref().and_then(DeclaredEvent::matched);
    let decoded = Decoded {
        name: matched.as_ref().map(Matched::name),
        params: matched.as_ref().map(Params),
        rest: matched
            .as_ref()
            .filter(|it| !it.rest.is_empty())
            .map(|it| PlainRest { rest: &it.rest, types: it.interface.types() }),
        topics: event.topics.iter().map(|topic| TypedXdr(topic)).collect(),
        data: TypedXdr(event.data),
        names_pending: names.lacked() > lacked,
    };
    // Writing texts and numbers to memory cannot fail.
    let _ = serde_json::to_writer(out, &decoded);
}
