//! Server-sent events as text (html.spec.whatwg.org, section 9.2.5). Every message ends with an empty line.

use crate::api::json;
use crate::store::{EventRecord, LostEvents};

/// Milliseconds after which a client whose connection ended is to come back.
const RETRY: u32 = 1000;

/// What a stream begins with: a client that is cut off before the first event goes on from here.
pub(super) fn beginning(position: u64) -> String {
    format!("retry: {RETRY}\nid: {position}\n\n")
}

/// An event, with the record that the event routes write.
pub(super) fn event(list: &mut json::List, event: &EventRecord<'_>) {
    list.text(format_args!("id: {}\ndata: ", event.id));
    list.loose_event(event);
    list.text(format_args!("\n\n"));
}

/// Events that cannot be sent any more.
pub(super) fn gap(lost: &LostEvents) -> String {
    let LostEvents { first, last, ledgers } = lost;
    let count = last.0 - first.0 + 1;
    format!(
        "event: gap\nid: {last}\ndata: {{\"from\":{},\"to\":{},\"events\":{count}}}\n\n",
        ledgers.first, ledgers.last
    )
}

/// Nothing new. A message without data is none, and yet a client takes over its id: after a break it goes on
/// from there, however long ago the last event was that it got.
pub(super) fn heartbeat(position: Option<u64>) -> String {
    position.map_or_else(|| ":\n\n".to_owned(), |position| format!(":\nid: {position}\n\n"))
}

/// Why a stream ends, for those who look at what was sent.
pub(super) fn end(reason: &str) -> String {
    format!(": {reason}\n\n")
}
