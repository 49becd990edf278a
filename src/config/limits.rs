//! Settings of what clients may ask for.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

/// `[limits]`: how much one client, and all of them, may ask for. A token counts for the client that has
/// one, else its address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Requests a second for a token, or for an address on public routes; 0 for no limit.
    pub requests_per_second: u32,
    /// Requests that may come at once after a pause; 0 for no limit.
    pub burst: u32,
    /// Requests of one client at a time.
    pub requests_in_flight: NonZeroU32,
    /// Connections of one address at a time.
    pub connections_per_address: NonZeroU32,
    /// MiB of bodies and answers in memory, of all requests.
    pub bytes_in_flight_mib: NonZeroU32,
    /// MiB of bodies and answers in memory, of one client.
    pub bytes_in_flight_per_token_mib: NonZeroU32,
    /// Seconds in which a client must have read an answer, beside those for its length.
    pub answer_seconds: NonZeroU32,
    /// KiB of an answer for which a client has another second.
    pub answer_kib_per_second: NonZeroU32,
    /// Streams of events at a time, of all clients. Each takes a connection.
    pub streams: NonZeroU32,
    /// Streams of events of one token at a time.
    pub streams_per_token: NonZeroU32,
    /// Rows that `offset` may pass over.
    pub offset: u32,
    /// Event blocks or transactions that one request may read.
    pub scan_records: NonZeroU32,
    /// Rows of indexes that one request may look at.
    pub scan_index_rows: NonZeroU32,
    /// Milliseconds that one request may look for rows.
    pub scan_ms: NonZeroU32,
    /// MiB after which a page ends, however few rows it has.
    pub page_mib: NonZeroU32,
}

const fn count(number: u32) -> NonZeroU32 {
    match NonZeroU32::new(number) {
        Some(number) => number,
        None => NonZeroU32::MIN,
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests_per_second: 50,
            burst: 200,
            requests_in_flight: count(32),
            connections_per_address: count(64),
            bytes_in_flight_mib: count(256),
            bytes_in_flight_per_token_mib: count(64),
            answer_seconds: count(10),
            answer_kib_per_second: count(64),
            streams: count(512),
            streams_per_token: count(64),
            offset: 10_000,
            scan_records: count(20_000),
            scan_index_rows: count(200_000),
            scan_ms: count(2000),
            page_mib: count(8),
        }
    }
}

impl Limits {
    /// What cannot be, in a sentence. An answer of `answer_mib` must fit into what a client may have, beside its question.
    pub(super) fn contradiction(&self, answer_mib: NonZeroU32) -> Option<String> {
        let (all, one) = (self.bytes_in_flight_mib, self.bytes_in_flight_per_token_mib);
        if one > all {
            return Some(format!(
                "limits.bytes_in_flight_per_token_mib is {one} and limits.bytes_in_flight_mib {all}: one \
                 client cannot have more than all"
            ));
        }
        (answer_mib >= one).then(|| {
            format!(
                "queries.answer_mib is {answer_mib} and limits.bytes_in_flight_per_token_mib {one}: no \
                 query would be answered"
            )
        })
    }
}

/// What a key takes, to be read after "give".
pub(super) fn expectation(key: &str) -> &'static str {
    match key {
        "limits.requests_per_second" | "limits.burst" => {
            "a whole number from 0 (no limit) to 4294967295"
        }
        "limits.offset" => "a whole number from 0 to 4294967295",
        _ => "a whole number from 1 to 4294967295",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_must_fit_into_what_one_may_have() {
        let limits = Limits::default();
        assert_eq!(limits.contradiction(count(16)), None);
        assert_eq!(limits.contradiction(count(63)), None);
        // The question takes some bytes, too.
        assert!(limits.contradiction(count(64)).unwrap().contains("queries.answer_mib is 64"));
        let upside_down = Limits { bytes_in_flight_mib: count(63), ..limits };
        assert!(upside_down.contradiction(count(16)).unwrap().contains("more than all"));
    }
}
