//! Text of server-sent events (html.spec.whatwg.org, section 9.2.5). Every message ends with an
//! empty line.

use crate::json;
use orrery_ledger::domain::EventId;
use orrery_store::{EventRecord, LostEvents};
use orrery_webhooks::followed::LateMember;
use orrery_webhooks::unmet::Unmet;

/// Delay in milliseconds before a client whose connection ended reconnects.
const RETRY: u32 = 1000;

/// Returns the first message of a stream. Its id lets a client that is cut off before the first
/// event continue from here.
pub(super) fn beginning(position: u64) -> String {
    format!("retry: {RETRY}\nid: {position}\n\n")
}

/// Appends an event, with the record that the event routes return.
pub(super) fn event(list: &mut json::List<'_>, event: &EventRecord<'_>) {
    list.text(format_args!("id: {}\ndata: ", event.id));
    list.event_without_separator(event);
    list.text(format_args!("\n\n"));
}

/// Returns the message about events that retention has removed.
pub(super) fn gap(lost: &LostEvents) -> String {
    let LostEvents { first, last, ledgers } = lost;
    let count = last.0 - first.0 + 1;
    format!(
        "event: gap\nid: {last}\ndata: {{\"from\":{},\"to\":{},\"events\":{count}}}\n\n",
        ledgers.first, ledgers.last
    )
}

/// Appends the message about events that the condition of the stream could not be asked of, if there are
/// any.
pub(super) fn unmet(unmet: &Unmet, reached: EventId, text: &mut Vec<u8>) {
    if *unmet == Unmet::default() {
        return;
    }
    // Numbers and texts serialise.
    let data = serde_json::to_string(unmet).unwrap_or_default();
    text.extend_from_slice(format!("event: unmet\nid: {reached}\ndata: {data}\n\n").as_bytes());
}

/// Returns the message about a member of the stream's project that became known late.
pub(super) fn member(late: &LateMember, reached: EventId) -> String {
    // Numbers and texts serialise.
    let data = serde_json::to_string(late).unwrap_or_default();
    format!("event: member\nid: {reached}\ndata: {data}\n\n")
}

/// Returns the message about further members that became known, of which nothing else is remembered.
pub(super) fn more_members(count: u64, reached: EventId) -> String {
    format!("event: member\nid: {reached}\ndata: {{\"more\":{count}}}\n\n")
}

/// Returns the message that is sent when there is nothing new. Clients do not dispatch a message
/// without data but store its id, so after a break they continue from there, however old the last
/// event is that they received.
pub(super) fn heartbeat(position: Option<u64>) -> String {
    position.map_or_else(|| ":\n\n".to_owned(), |position| format!(":\nid: {position}\n\n"))
}

/// Returns a comment with the reason why a stream ends, for people who inspect the stream.
pub(super) fn end(reason: &str) -> String {
    format!(": {reason}\n\n")
}
