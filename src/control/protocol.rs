//! Frames on the control socket: one byte for the kind, four for the length (big-endian), the
//! payload. The client greets first; both sides must speak the same version.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::ControlError;
use crate::source::records::LONGEST_LEDGER;

/// Version of the protocol.
pub(super) const VERSION: u32 = 1;

/// Most ledgers that a client may hand over before it asks to store them.
pub(super) const MOST_LEDGERS: usize = 256;
/// Most bytes of such ledgers.
pub(super) const MOST_BYTES: u64 = 2 * LONGEST_LEDGER;

/// Longest answer: room for the status of tens of thousands of ranges.
pub(super) const LONGEST_ANSWER: u64 = 16 << 20;
/// Longest question that is not a ledger: room for hundreds of sources in an order.
pub(super) const LONGEST_QUESTION: u64 = 64 << 10;

/// Bytes before the payload.
pub(super) const HEADER: usize = 5;

/// What a frame is. The payload is JSON unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// Both ways, first: [`Greeting`].
    Greeting = b'G',
    /// Client: one `LedgerCloseMeta`, XDR. Not answered.
    Ledger = b'L',
    /// Client: store the ledgers sent since; no payload. Answered by `Stored` or `NotStored`.
    Store = b'S',
    /// Service: [`super::Stored`].
    Stored = b'A',
    /// Service: [`super::NotStored`].
    NotStored = b'N',
    /// Client: no payload. Service: [`super::StatusReport`].
    Status = b'?',
    /// Client: [`super::BackfillRequest`]. Service: [`super::BackfillReport`].
    Backfill = b'B',
    /// Client: [`super::RebuildRequest`]. Service: [`super::RebuildReport`].
    Rebuild = b'R',
    /// Client: no payload. Service: [`super::CheckpointReport`]; the checkpoint goes with the connection, or
    /// with the next that is asked for on it.
    Checkpoint = b'C',
    /// Service: a sentence, UTF-8; it then ends the connection.
    Refused = b'E',
}

const KINDS: [Kind; 10] = [
    Kind::Greeting,
    Kind::Ledger,
    Kind::Store,
    Kind::Stored,
    Kind::NotStored,
    Kind::Status,
    Kind::Backfill,
    Kind::Rebuild,
    Kind::Checkpoint,
    Kind::Refused,
];

/// Who speaks.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Greeting {
    /// [`VERSION`] of the speaker.
    pub protocol: u32,
    /// Its release.
    pub release: String,
}

impl Greeting {
    /// Of this program.
    pub fn own() -> Self {
        Self { protocol: VERSION, release: env!("CARGO_PKG_VERSION").to_owned() }
    }

    /// Refuses another protocol version.
    pub fn check(&self) -> Result<(), ControlError> {
        if self.protocol == VERSION {
            return Ok(());
        }
        Err(ControlError::Refused(format!(
            "release {} and release {} of Orrery cannot talk to each other: use the release of the \
             running service",
            self.release,
            env!("CARGO_PKG_VERSION")
        )))
    }
}

/// Takes the header of a frame apart and holds the length to the kind's limit: of a ledger, or of any
/// other message, `longest_message` in bytes.
pub(super) fn parse_header(
    header: [u8; HEADER],
    longest_message: u64,
) -> Result<(Kind, u64), ControlError> {
    let [kind, length @ ..] = header;
    let Some(kind) = KINDS.into_iter().find(|known| *known as u8 == kind) else {
        return Err(ControlError::Protocol(format!("there is no frame of kind {kind:#04x}")));
    };
    let length = u64::from(u32::from_be_bytes(length));
    let longest = if kind == Kind::Ledger { LONGEST_LEDGER } else { longest_message };
    if length > longest {
        let text = format!("a frame of {length} bytes is longer than {longest}");
        return Err(ControlError::Protocol(text));
    }
    Ok((kind, length))
}

/// The header of a frame.
pub(super) fn header(kind: Kind, payload: &[u8]) -> Result<[u8; HEADER], ControlError> {
    let length = u32::try_from(payload.len())
        .map_err(|_| ControlError::Protocol(format!("{} bytes do not fit", payload.len())))?;
    let [a, b, c, d] = length.to_be_bytes();
    Ok([kind as u8, a, b, c, d])
}

/// A payload as JSON.
pub(super) fn encode(message: &impl Serialize) -> Result<Vec<u8>, ControlError> {
    serde_json::to_vec(message).map_err(|error| ControlError::Protocol(error.to_string()))
}

/// A payload from JSON.
pub(super) fn decode<T: DeserializeOwned>(payload: &[u8]) -> Result<T, ControlError> {
    serde_json::from_slice(payload).map_err(|error| ControlError::Protocol(error.to_string()))
}
