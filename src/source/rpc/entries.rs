//! Reads the current state of ledger entries from an RPC server (`getLedgerEntries`). Does not
//! depend on how callers derive earlier states from it.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use orrery_ledger::domain::{LedgerSeq, LiveEntries, LiveEntry, LiveState, SourceError};
use serde::{Deserialize, Serialize};
use stellar_xdr::{LedgerEntry, LedgerEntryData, LedgerEntryExt, LedgerKey, Limits, WriteXdr};

use super::call::{Answer, CallError, Server};
use super::settings::{LEAST_ANSWER_BYTES, RpcError, RpcSettings};
use crate::xdr::from_base64;

/// Maximum number of keys in one request that stellar-rpc accepts.
pub const MAX_KEYS: usize = 200;

/// Client that reads ledger entries from an RPC server.
pub struct RpcEntries {
    server: Server,
    most_bytes: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EntriesParams {
    keys: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EntriesAnswer {
    entries: Option<Vec<EntryItem>>,
    latest_ledger: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EntryItem {
    key: String,
    xdr: String,
    last_modified_ledger_seq: u32,
    live_until_ledger_seq: Option<u32>,
    ext_xdr: Option<String>,
}

impl RpcEntries {
    /// Creates a client for the server of `settings`, without contacting it.
    ///
    /// # Errors
    /// When address or headers are malformed, or no HTTP client can be set up.
    pub fn new(settings: &RpcSettings) -> Result<Self, RpcError> {
        let most_bytes = settings.most_bytes.max(LEAST_ANSWER_BYTES);
        Ok(Self { server: Server::new(settings)?, most_bytes })
    }

    /// Returns the server's current entries for at most [`MAX_KEYS`] keys, none of which may be a
    /// TTL key.
    ///
    /// # Errors
    /// When a key cannot be encoded, the request fails, the server rejects it, or the response is
    /// not understood.
    pub async fn look_up(&self, keys: &[LedgerKey]) -> Result<LiveEntries, SourceError> {
        let encoded = keys.iter().map(|key| key.to_xdr_base64(Limits::none()));
        let keys: Vec<String> = encoded.collect::<Result<_, _>>().map_err(|error| {
            SourceError::Fatal(format!("a ledger key cannot be written as XDR ({error})"))
        })?;
        let params = EntriesParams { keys: keys.clone() };
        let answer = self.server.send("getLedgerEntries", Some(params), self.most_bytes).await?;
        Ok(read(&answer, &keys)?)
    }
}

impl LiveState for RpcEntries {
    fn look_up<'a>(&'a self, keys: &'a [LedgerKey]) -> BoxFuture<'a, Result<LiveEntries, String>> {
        async move { self.look_up(keys).await.map_err(|error| error.to_string()) }.boxed()
    }
}

fn read(answer: &Answer, keys: &[String]) -> Result<LiveEntries, CallError> {
    let EntriesAnswer { entries, latest_ledger } = answer.read()?;
    let mut found = vec![None; keys.len()];
    for item in entries.unwrap_or_default() {
        let not_understood = |what: &str| CallError::NotUnderstood {
            call: answer.call().clone(),
            found: format!("a ledger entry {what}"),
        };
        let at = keys.iter().position(|key| *key == item.key);
        let at = at.ok_or_else(|| not_understood("that was not asked for"))?;
        let entry = entry(&item).ok_or_else(|| not_understood("that is not XDR"))?;
        let names = entry.to_key().to_xdr_base64(Limits::none());
        if names.as_ref().ok() != Some(&item.key) {
            return Err(not_understood("under another entry's key"));
        }
        found[at] = Some(LiveEntry { entry, live_until: item.live_until_ledger_seq });
    }
    Ok(LiveEntries { as_of: LedgerSeq(latest_ledger), entries: found })
}

/// Assembles the ledger entry of an item, whose parts arrive separately; `None` when one is not
/// valid XDR.
fn entry(item: &EntryItem) -> Option<LedgerEntry> {
    let data: LedgerEntryData = from_base64(&item.xdr)?;
    let ext = match item.ext_xdr.as_deref() {
        Some(ext) if !ext.is_empty() => from_base64(ext)?,
        _ => LedgerEntryExt::V0,
    };
    Some(LedgerEntry { last_modified_ledger_seq: item.last_modified_ledger_seq, data, ext })
}
