//! Frames on the control socket: one byte for the kind, four bytes for the length (big-endian), the
//! payload. The client sends the first greeting; both sides must use the same protocol version.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::ControlError;
use crate::domain::LONGEST_LEDGER;

/// Version of the protocol, which increases when one side would misunderstand the other: since 2, ledgers
/// may wait after `Stored`.
pub(super) const VERSION: u32 = 2;

/// Maximum number of ledgers that a client may send before it requests to store them.
pub(super) const MAX_LEDGERS: usize = 256;
/// Maximum total size of such ledgers, in bytes.
pub(super) const MAX_BYTES: u64 = 2 * LONGEST_LEDGER;

/// Maximum size of a response in bytes: enough for the status of tens of thousands of ranges.
pub(super) const LONGEST_ANSWER: u64 = 16 << 20;
/// Maximum size of a request that is not a ledger, in bytes: enough for a backfill order with
/// hundreds of sources.
pub(super) const LONGEST_REQUEST: u64 = 64 << 10;

/// Size of a frame's header, in bytes.
pub(super) const HEADER: usize = 5;

/// Kind of a frame. The payload is JSON unless stated otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// Client, as its first frame, and service in response: [`Greeting`].
    Greeting = b'G',
    /// Client: one `LedgerCloseMeta`, XDR. Has no response. Service: the response to [`Kind::Raw`].
    Ledger = b'L',
    /// Client: store the ledgers sent since the last `Store`; no payload. The response is `Stored`
    /// or `NotStored`.
    Store = b'S',
    /// Client: as `Store`, and nothing follows that would attest ledgers which wait. The response is
    /// `Stored` or `NotStored`.
    StoreLast = b'F',
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
    /// Client: the sequence number of a ledger. Service: [`Kind::Ledger`], empty when its raw form is not
    /// stored.
    Raw = b'W',
    /// Client: no payload. Service: [`super::CheckpointReport`]. The checkpoint is removed when the
    /// connection ends or the client requests another one.
    Checkpoint = b'C',
    /// Service: a sentence, UTF-8; the service then closes the connection.
    Refused = b'E',
}

impl Kind {
    /// Whether a client sends it, and only after its greeting.
    pub(super) fn follows_greeting(self) -> bool {
        match self {
            Self::Ledger
            | Self::Store
            | Self::StoreLast
            | Self::Status
            | Self::Backfill
            | Self::Rebuild
            | Self::Raw
            | Self::Checkpoint => true,
            Self::Greeting | Self::Stored | Self::NotStored | Self::Refused => false,
        }
    }
}

const KINDS: [Kind; 12] = [
    Kind::Greeting,
    Kind::Ledger,
    Kind::Store,
    Kind::StoreLast,
    Kind::Stored,
    Kind::NotStored,
    Kind::Status,
    Kind::Backfill,
    Kind::Rebuild,
    Kind::Raw,
    Kind::Checkpoint,
    Kind::Refused,
];

/// Greeting that client and service exchange first.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Greeting {
    /// [`VERSION`] of the sender.
    pub protocol: u32,
    /// Release of the sender.
    pub release: String,
}

impl Greeting {
    /// Returns the greeting of this program.
    pub fn own() -> Self {
        Self { protocol: VERSION, release: env!("CARGO_PKG_VERSION").to_owned() }
    }

    /// Checks that the sender uses the same protocol version.
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

/// Parses the header of a frame into its kind and its length. Checks the length against the limit:
/// that of a ledger, or `longest_message` bytes for any other kind.
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

/// Returns the header of a frame.
pub(super) fn header(kind: Kind, payload: &[u8]) -> Result<[u8; HEADER], ControlError> {
    let length = u32::try_from(payload.len()).map_err(|_| {
        ControlError::Protocol(format!("{} bytes do not fit into a frame", payload.len()))
    })?;
    let [a, b, c, d] = length.to_be_bytes();
    Ok([kind as u8, a, b, c, d])
}

/// Serialises a payload as JSON.
pub(super) fn encode(message: &impl Serialize) -> Result<Vec<u8>, ControlError> {
    serde_json::to_vec(message).map_err(|error| ControlError::Protocol(error.to_string()))
}

/// Parses a payload from JSON.
pub(super) fn decode<T: DeserializeOwned>(payload: &[u8]) -> Result<T, ControlError> {
    serde_json::from_slice(payload).map_err(|error| ControlError::Protocol(error.to_string()))
}
