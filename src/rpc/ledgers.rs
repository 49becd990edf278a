//! `getLedgers` and `getLatestLedger`.

use std::ops::ControlFlow;

use serde::Serialize;
use serde_json::value::RawValue;
use stellar_xdr::{LedgerCloseMeta, LedgerHeaderHistoryEntry};

use super::json::Writer;
use super::params::{FromLedger, XdrFormat};
use super::range::{Needed, Range};
use super::{
    CallLimits, MAX_PAGE_BYTES, Outcome, Params, Rpc, RpcError, not_readable, result, xdr,
};
use orrery_ledger::decode::{HeaderView, LedgerView, decode, header};
use orrery_ledger::domain::LedgerSeq;

/// Default number of ledgers, or transactions, per page.
const DEFAULT_LIMIT: u64 = 50;
/// Maximum number of ledgers, or transactions, per page.
const MAX_LIMIT: u64 = 200;

/// Size of a ledger in an answer beside its metadata, in bytes: at most, in base64.
const BESIDE_METADATA: usize = 4 << 10;

/// The members of the answer other than the ledgers.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    latest_ledger: u32,
    latest_ledger_close_time: u64,
    oldest_ledger: u32,
    oldest_ledger_close_time: u64,
    cursor: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Latest {
    id: String,
    protocol_version: u32,
    sequence: u32,
    close_time: String,
    /// `LedgerHeader` in base64.
    header_xdr: String,
    /// `LedgerCloseMeta` in base64.
    metadata_xdr: String,
}

/// The requested page of ledgers or transactions.
#[derive(Debug)]
pub(super) struct PageRequest<'a> {
    pub start: u32,
    pub cursor: Option<&'a str>,
    pub limit: usize,
    pub format: XdrFormat,
}

impl<'a> PageRequest<'a> {
    /// Reads and validates a request. Errors have the wording of the reference.
    pub(super) fn read(request: &'a FromLedger, range: &Range) -> Result<Self, RpcError> {
        let (start, cursor) = (request.start_ledger.unwrap_or(0), request.cursor());
        let Range { oldest, latest, .. } = *range;
        let limit = request.limit().filter(|limit| *limit > 0).unwrap_or(DEFAULT_LIMIT);
        let problem = match cursor {
            Some(cursor) if start != 0 => Some(format!(
                "startLedger ({start}) and cursor ({}) cannot both be set",
                orrery_ledger::domain::excerpt(cursor)
            )),
            None if !range.contains(start.into()) => Some(format!(
                "start ledger ({start}) must be between the oldest ledger: {oldest} and the latest ledger: \
                 {latest} for this rpc instance"
            )),
            _ if limit > MAX_LIMIT => Some(format!("limit must not exceed {MAX_LIMIT}")),
            _ => None,
        };
        match (problem, XdrFormat::parse(request.xdr_format.as_deref())) {
            // At most 200, checked above.
            (None, Ok(format)) => Ok(Self { start, cursor, limit: limit as usize, format }),
            (of_page, of_format) => {
                let problems: Vec<_> = of_page.into_iter().chain(of_format.err()).collect();
                Err(RpcError::invalid_request(problems.join("\n")))
            }
        }
    }
}

impl Rpc {
    pub(super) fn get_ledgers(&self, params: Params<'_>, limits: CallLimits<'_>) -> Outcome {
        let request: FromLedger = params.read()?;
        let range = self.range(Needed::RawLedger)?;
        let PageRequest { start, cursor, limit, format } = PageRequest::read(&request, &range)?;
        let first = match cursor {
            None => LedgerSeq(start),
            Some(cursor) => first_after(cursor, &range)?,
        };
        let mut page = Writer::default();
        page.open('{');
        page.name("ledgers");
        page.open('[');
        let mut last = None;
        for sequence in (first.0..=range.latest.0).take(limit) {
            let raw = self.raw(LedgerSeq(sequence))?;
            let so_far = page.len();
            // At least one ledger is returned, or clients that follow the cursor would make no
            // progress.
            let reserved = match (last, format) {
                (None, XdrFormat::Base64) => (limits.reserve_one)(expected_size(&raw, format)),
                _ => (limits.reserve)(so_far + expected_size(&raw, format)),
            };
            match reserved {
                Err(_) if last.is_some() => break,
                reserved => reserved?,
            }
            write_ledger(LedgerSeq(sequence), &raw, format, &mut page)?;
            let is_over = page.len() > MAX_PAGE_BYTES
                || (limits.may_grow_to)(page.len()) == ControlFlow::Break(())
                || (limits.bounds.interrupted)();
            if is_over && last.is_some() {
                page.take_back_to(so_far);
                break;
            }
            last = Some(sequence);
        }
        page.close(']');
        page.members_of(&Page {
            latest_ledger: range.latest.0,
            latest_ledger_close_time: range.latest_closed_at,
            oldest_ledger: range.oldest.0,
            oldest_ledger_close_time: range.oldest_closed_at,
            cursor: last.unwrap_or(first.0.saturating_sub(1)).to_string(),
        })?;
        page.close('}');
        Ok(page.finish())
    }

    pub(super) fn get_latest_ledger(&self, params: Params<'_>, _: CallLimits<'_>) -> Outcome {
        params.none()?;
        let latest = self.range(Needed::RawLedger)?.latest;
        let raw = self.raw(latest)?;
        let header = header(&raw).map_err(|error| not_readable(latest, &error))?;
        result(&Latest {
            id: header.hash.to_string(),
            protocol_version: header.protocol,
            sequence: latest.0,
            close_time: header.close_time.to_string(),
            header_xdr: xdr::base64(header.xdr),
            metadata_xdr: xdr::base64(&raw),
        })
    }

    /// Returns the `LedgerCloseMeta` of a ledger.
    fn raw(&self, sequence: LedgerSeq) -> Result<Vec<u8>, RpcError> {
        self.store.raw_ledger(sequence)?.ok_or_else(|| no_metadata(sequence))
    }

    /// Decodes a ledger and passes it to `read`; fails when its raw form is not stored.
    pub(super) fn with_ledger<T>(
        &self,
        sequence: LedgerSeq,
        read: impl FnOnce(&LedgerView<'_>) -> Result<T, RpcError>,
    ) -> Result<T, RpcError> {
        self.with_ledger_if_stored(sequence, read)?.ok_or_else(|| no_metadata(sequence))
    }

    /// Decodes a ledger and passes it to `read`, or returns `None` when its raw form is not stored.
    pub(super) fn with_ledger_if_stored<T>(
        &self,
        sequence: LedgerSeq,
        read: impl FnOnce(&LedgerView<'_>) -> Result<T, RpcError>,
    ) -> Result<Option<T>, RpcError> {
        let Some(raw) = self.store.raw_ledger(sequence)? else { return Ok(None) };
        let ledger = decode(&raw, self.store.network().id())
            .map_err(|error| not_readable(sequence, &error))?;
        read(&ledger).map(Some)
    }
}

/// Returns the error for a ledger that is not stored, in the wording of the reference.
pub(super) fn no_metadata(sequence: LedgerSeq) -> RpcError {
    RpcError::invalid_params(format!("database does not contain metadata for ledger: {sequence}"))
}

/// Returns the first ledger of the page after a cursor.
fn first_after(cursor: &str, range: &Range) -> Result<LedgerSeq, RpcError> {
    let passed: u32 = cursor.parse().map_err(|_| {
        let cursor = orrery_ledger::domain::excerpt(cursor);
        RpcError::invalid_params(format!("cursor ('{cursor}') is not the number of a ledger"))
    })?;
    let first = u64::from(passed) + 1;
    if !range.contains(first) {
        return Err(RpcError::invalid_params(format!(
            "cursor ('{passed}') must be between the oldest ledger: {} and the latest ledger: {} for this rpc \
             instance",
            range.oldest, range.latest
        )));
    }
    // The cast is lossless, since the value is in the range.
    Ok(LedgerSeq(first as u32))
}

/// Returns how large a ledger is in an answer at most, in bytes. Its JSON is several times as long as
/// the ledger.
fn expected_size(raw: &[u8], format: XdrFormat) -> usize {
    match format {
        XdrFormat::Base64 => raw.len().div_ceil(3) * 4 + BESIDE_METADATA,
        XdrFormat::Json => raw.len() * 8,
    }
}

/// Writes a stored ledger. With JSON, the members in base64 are empty.
fn write_ledger(
    sequence: LedgerSeq,
    raw: &[u8],
    format: XdrFormat,
    to: &mut Writer,
) -> Result<(), RpcError> {
    let header = header(raw).map_err(|error| not_readable(sequence, &error))?;
    let entry = header_entry(&header);
    let (header_json, metadata_json) = match format {
        XdrFormat::Base64 => (None, None),
        XdrFormat::Json => (
            Some(xdr::json::<LedgerHeaderHistoryEntry>(&entry)?),
            Some(xdr::json::<LedgerCloseMeta>(raw)?),
        ),
    };
    to.open('{');
    to.name("hash");
    to.plain(header.hash);
    to.name("sequence");
    to.bare(sequence);
    to.name("ledgerCloseTime");
    to.plain(header.close_time);
    write_xdr("header", &entry, header_json.as_deref(), to);
    write_xdr("metadata", raw, metadata_json.as_deref(), to);
    to.close('}');
    Ok(())
}

/// Writes XDR in base64, or its JSON and an empty text.
fn write_xdr(name: &str, xdr: &[u8], json: Option<&RawValue>, to: &mut Writer) {
    to.name(&format!("{name}Xdr"));
    let Some(json) = json else { return to.base64(xdr) };
    to.plain("");
    to.name(&format!("{name}Json"));
    to.written(json.get());
}

/// Builds the XDR `LedgerHeaderHistoryEntry`: hash, header, and an extension, which is empty in all
/// existing ledgers.
fn header_entry(header: &HeaderView<'_>) -> Vec<u8> {
    [header.hash.as_bytes().as_slice(), header.xdr, &[0; 4]].concat()
}
