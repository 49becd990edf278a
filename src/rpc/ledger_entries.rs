//! `getLedgerEntries`. What contracts hold is answered from the store, at the end of the newest ledger
//! or of any stored one, if all that a call asks for is known. The present state of other entries is
//! the network's to tell: the one that runs in this process, or that to which the call is forwarded.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use stellar_xdr::LedgerKey;

use super::live::{format_of, put, read};
use super::params::XdrFormat;
use super::{CallLimits, Json, Outcome, Params, Rpc, RpcError, at_ledger, result, xdr};
use orrery_contract_data::{CONSUMER, Held, Lookup};
use orrery_ledger::domain::{LedgerSeq, LiveEntries, LiveEntry, excerpt};
use orrery_store::RowBounds;

/// Name of the method.
pub(super) const METHOD: &str = "getLedgerEntries";

/// Maximum number of keys per call.
const MAX_KEYS: usize = 200;
/// Size in bytes of an entry in an answer, besides its own data.
const ENTRY_OVERHEAD: usize = 512;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EntriesParams {
    keys: Option<Vec<String>>,
    ledger: Option<u32>,
    xdr_format: Option<String>,
}

/// The entries that a call requests.
pub(super) struct EntriesQuery {
    /// Keys of the entries. None of them is a TTL key, unless a ledger is given.
    pub keys: Vec<LedgerKey>,
    /// The ledger at whose end the entries are requested; `None` for the newest.
    ledger: Option<LedgerSeq>,
    format: XdrFormat,
}

/// What is known of the entries under the keys of a call.
enum Known<'k> {
    /// All that the call asks for, in the order of the keys.
    All(Vec<Option<LiveEntry>>),
    /// Not all. Contains the first key under which the entry or its time to live is not known.
    Unknown(&'k LedgerKey),
}

/// What a key holds.
enum Found {
    /// An XDR `LedgerEntry`, and the last ledger in which it is live; 0 when it is archived.
    Entry(Vec<u8>, LedgerSeq),
    /// No entry.
    Absent,
    /// It is not known, or its time to live is not.
    Unknown,
}

impl EntriesQuery {
    pub(super) fn read(params: Params<'_>) -> Result<Self, RpcError> {
        let given: EntriesParams = params.read()?;
        let format = format_of(given.xdr_format.as_deref())?;
        let ledger = given.ledger.map(LedgerSeq);
        let given = given.keys.unwrap_or_default();
        if given.len() > MAX_KEYS {
            let count = given.len();
            return Err(RpcError::invalid_params(format!(
                "key count ({count}) exceeds maximum supported ({MAX_KEYS})"
            )));
        }
        let mut keys = Vec::new();
        for (index, text) in given.iter().enumerate() {
            let key: LedgerKey = read(text).ok_or_else(|| {
                let text = excerpt(text);
                RpcError::invalid_params(format!(
                    "cannot unmarshal key value {text} at index {index}"
                ))
            })?;
            // At the end of a ledger, the key is one that is not known, like others.
            if matches!(key, LedgerKey::Ttl(_)) && ledger.is_none() {
                let message = "ledger ttl entries cannot be queried directly";
                return Err(RpcError::invalid_params(message));
            }
            keys.push(key);
        }
        Ok(Self { keys, ledger, format })
    }

    /// Whether entries under all keys may be stored.
    fn may_be_stored(&self) -> bool {
        !self.keys.is_empty()
            && self.keys.iter().all(|key| matches!(key, LedgerKey::ContractData(_)))
    }

    /// Builds the answer from the entries found. `newest` is the newest ledger, for a call that gives
    /// a ledger.
    pub(super) fn response(
        &self,
        LiveEntries { as_of, entries: found }: LiveEntries,
        newest: Option<LedgerSeq>,
    ) -> Outcome {
        let mut entries = Vec::new();
        for (key, LiveEntry { entry, live_until }) in
            self.keys.iter().zip(found).filter_map(|(key, found)| Some((key, found?)))
        {
            let mut object = Map::new();
            put(&mut object, ("key", "keyJson"), key, self.format)?;
            put(&mut object, ("xdr", "dataJson"), &entry.data, self.format)?;
            object.insert("lastModifiedLedgerSeq".into(), entry.last_modified_ledger_seq.into());
            if let Some(ledger) = live_until {
                object.insert("liveUntilLedgerSeq".into(), ledger.into());
            }
            put(&mut object, ("extXdr", "extJson"), &entry.ext, self.format)?;
            entries.push(Value::Object(object));
        }
        let mut answer = json!({ "entries": entries, "latestLedger": as_of.0 });
        if let Some(newest) = newest {
            answer["newestLedger"] = newest.0.into();
        }
        result(&answer)
    }
}

/// Whether the store may answer a call that gives no ledger: it requests contract data alone.
pub(super) fn may_be_stored(params: Params<'_>) -> bool {
    EntriesQuery::read(params).is_ok_and(|query| query.may_be_stored())
}

impl Rpc {
    pub(super) fn get_ledger_entries(&self, params: Params<'_>, limits: CallLimits<'_>) -> Outcome {
        let query = EntriesQuery::read(params)?;
        if let Some(ledger) = query.ledger {
            return self.entries_at(&query, ledger, limits);
        }
        if let Some(answer) = self.stored_at_newest(&query, limits)? {
            return Ok(answer);
        }
        let Some(live) = &self.live else { return Err(RpcError::needs_network(METHOD)) };
        query.response(live.entries(&query.keys).map_err(RpcError::internal)?, None)
    }

    /// Answers from the store what is known at the newest ledger; `None` when it is not all that the
    /// call asks for.
    fn stored_at_newest(
        &self,
        query: &EntriesQuery,
        limits: CallLimits<'_>,
    ) -> Result<Option<Json>, RpcError> {
        let newest = self.store.ends().latest.filter(|_| query.may_be_stored());
        let Some(newest) = newest else { return Ok(None) };
        // A network in this process closes ledgers before they are stored, and clients learn of them
        // from its other answers.
        if let Some(live) = &self.live
            && live.entries(&[]).map_err(RpcError::internal)?.as_of != newest
        {
            return Ok(None);
        }
        match self.store.lacks(CONSUMER, newest) {
            Some(false) => {}
            Some(true) if !self.has_network() => return Err(self.not_indexed()),
            Some(true) | None => return Ok(None),
        }
        let is_behind = self.is_behind();
        match self.stored_entries(&query.keys, newest, limits)? {
            // Both as in `entries_at`.
            Known::Unknown(_) if is_behind && !self.has_network() => Err(self.not_indexed()),
            Known::All(entries) if !self.is_removed(newest)? => {
                query.response(LiveEntries { as_of: newest, entries }, None).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Answers from the store at the end of a ledger.
    ///
    /// # Errors
    /// −32602 when the ledger is not stored, or something is not known.
    fn entries_at(
        &self,
        query: &EntriesQuery,
        ledger: LedgerSeq,
        limits: CallLimits<'_>,
    ) -> Outcome {
        let newest = self.newest_beside(ledger)?;
        let is_behind = self.is_behind();
        let stored = self.stored_entries(&query.keys, ledger, limits)?;
        // Asked after what was read: of a ledger that is not removed now, it was complete.
        if self.is_removed(ledger)? {
            return Err(self.not_stored(ledger)?);
        }
        match stored {
            Known::All(entries) => {
                query.response(LiveEntries { as_of: ledger, entries }, Some(newest))
            }
            // What is not known may be known once all that is stored has been processed.
            Known::Unknown(_) if is_behind => Err(self.not_indexed()),
            Known::Unknown(key) => Err(at_ledger::unknown(ledger, key)?),
        }
    }

    /// Looks up what contracts hold at the end of a ledger.
    fn stored_entries<'k>(
        &self,
        keys: &'k [LedgerKey],
        ledger: LedgerSeq,
        limits: CallLimits<'_>,
    ) -> Result<Known<'k>, RpcError> {
        if self.store.consumer(CONSUMER).is_none() {
            return Ok(keys.first().map_or(Known::All(Vec::new()), Known::Unknown));
        }
        let is_over = || (limits.bounds.interrupted)();
        let bounds = RowBounds { interrupted: Box::new(is_over), ..RowBounds::none() };
        let lookup = Lookup::new(&self.store, ledger, bounds)?.without_updated();
        let (mut entries, mut bytes) = (Vec::with_capacity(keys.len()), 0);
        for key in keys {
            let found = find(&lookup, key)?;
            // Where it was cut off, rows may have been missed.
            if lookup.is_cut() || is_over() {
                return Err(RpcError::too_expensive());
            }
            entries.push(match found {
                Found::Entry(xdr, LedgerSeq(live_until)) => {
                    bytes += xdr.len() * 4 / 3 + ENTRY_OVERHEAD;
                    (limits.reserve)(bytes)?;
                    Some(LiveEntry { entry: xdr::decode(&xdr)?, live_until: Some(live_until) })
                }
                Found::Absent => None,
                Found::Unknown => return Ok(Known::Unknown(key)),
            });
        }
        Ok(Known::All(entries))
    }

    /// Whether a network tells what the store does not.
    fn has_network(&self) -> bool {
        self.live.is_some() || self.node.is_some() || self.upstream.is_some()
    }
}

/// Looks up what a key holds, unless its time to live is not known.
fn find(lookup: &Lookup<'_>, key: &LedgerKey) -> Result<Found, RpcError> {
    Ok(match lookup.held_under(&at_ledger::encode(key)?)? {
        Held::Absent => Found::Absent,
        Held::Unknown { .. } => Found::Unknown,
        Held::Present(held) => match (held.archived, held.live_until) {
            (Some(true), _) => Found::Entry(held.entry, LedgerSeq(0)),
            (Some(false), Some(live_until)) => Found::Entry(held.entry, live_until),
            _ => Found::Unknown,
        },
    })
}
