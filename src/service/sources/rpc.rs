//! RPC servers as sources.

use super::SourcesError;
use crate::domain::{LedgerSource, LiveState};
use crate::settings::Header;
use crate::source::rpc::{RpcEntries, RpcSettings, RpcSource};

/// Opens a server as a source. Sends no request yet.
pub(super) fn open(url: &str, headers: &[Header]) -> Result<Box<dyn LedgerSource>, SourcesError> {
    Ok(Box::new(RpcSource::new(&rpc_settings(url, headers))?))
}

/// Opens a server for ledger entries. Sends no request yet.
pub(super) fn entries(url: &str, headers: &[Header]) -> Result<Box<dyn LiveState>, SourcesError> {
    Ok(Box::new(RpcEntries::new(&rpc_settings(url, headers))?))
}

/// Returns the settings of a client for a server.
pub(in crate::service) fn rpc_settings(url: &str, headers: &[Header]) -> RpcSettings {
    let headers = headers.iter();
    let headers = headers.map(|header| (header.name.clone(), header.value.reveal().into()));
    RpcSettings { headers: headers.collect(), ..RpcSettings::new(url) }
}
