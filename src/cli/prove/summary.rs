//! What a certificate proves, as it is shown.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use orrery::certificate::{Certificate, CertifiedEvent};
use orrery::domain::Network;
use serde::Serialize;

/// Returns the summary.
pub fn text(certificate: &Certificate<'_>, network: &Network) -> String {
    let Certificate { claim, events, invocations, attested_by, digest } = certificate;
    let signed: Vec<String> = attested_by
        .iter()
        .map(|signed| format!("{} ({})", signed.organisation, signed.ledger))
        .collect();
    let rows = [
        ("contract", claim.contract.to_string()),
        ("network", network.passphrase().to_owned()),
        ("ledgers", format!("{} to {}", claim.range.first, claim.range.last)),
        ("events", events.len().to_string()),
        ("invocations", invocations.to_string()),
        ("attested by", signed.join(", ")),
        ("digest", digest.to_string()),
    ];
    rows.iter().map(|(name, value)| format!("{name:<12} {value}\n")).collect()
}

/// An event, as a line of JSON.
#[derive(Serialize)]
pub struct Line {
    /// As Stellar RPC returns it.
    id: String,
    ledger: u32,
    transaction_hash: String,
    /// Base64 XDR `ScVal`s.
    topics: Vec<String>,
    data: String,
}

/// Returns the line of an event.
pub fn line(event: &CertifiedEvent<'_>) -> Line {
    Line {
        id: event.rpc_id.to_string(),
        ledger: event.ledger.0,
        transaction_hash: event.transaction.to_string(),
        topics: event.topics.iter().map(|topic| STANDARD.encode(topic)).collect(),
        data: STANDARD.encode(event.data),
    }
}
