//! Why a source cannot be used.

use crate::net::http::HttpError;
use crate::sandbox::source::SandboxNetworkError;
use crate::settings::SourceError;
use crate::source::captive_core::CoreError;
use crate::source::lake::LakeError;
use crate::source::rpc::RpcError;
use crate::store::StoreError;

/// Why a source cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SourcesError {
    /// The settings name no usable source.
    #[error(transparent)]
    Settings(#[from] SourceError),
    /// A lake cannot be opened.
    #[error(transparent)]
    Lake(#[from] LakeError),
    /// Another data directory cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An RPC server cannot be used.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// Stellar-core cannot be used.
    #[error(transparent)]
    Core(#[from] CoreError),
    /// The HTTP client cannot be set up.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The sandbox cannot be opened.
    #[error(transparent)]
    Sandbox(#[from] SandboxNetworkError),
}
