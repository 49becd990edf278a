//! Who may call a route.

use orrery_auth::Right;

/// Who may call a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everyone, within the rate limit of the client address.
    Public,
    /// Everyone, without a rate limit, because probes must always succeed.
    Probe,
    /// Clients that may read the metrics, without a rate limit; not open to web pages of any
    /// origin.
    Operator,
    /// Owners of a token with this right, within the rate limit of the owner.
    Token(Right),
}
