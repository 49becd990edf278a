//! Why a service cannot start or continue.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::sources::SourcesError;
use crate::api::ApiError;
use crate::auth::AuthError;
use crate::control::ControlError;
use crate::export::ExportError;
use crate::net::http::HttpError;
use crate::notify::TargetError;
use crate::observe::metrics::MetricsError;
use crate::programs::ProgramError;
use crate::sandbox::source::SandboxNetworkError;
use crate::settings::TrustError;
use crate::store::StoreError;
use crate::validators::ValidatorsError;
use crate::webhooks::WebhookError;

/// Why a service could not start or continue.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The data directory cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The validators in the settings cannot be used for the network.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The validators in the settings cannot be trusted.
    #[error(transparent)]
    Validators(#[from] ValidatorsError),
    /// The sandbox network of the data directory cannot be opened.
    #[error(transparent)]
    Sandbox(#[from] SandboxNetworkError),
    /// Keys or tokens cannot be used.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// The file of a public key cannot be read.
    #[error("cannot read the public key {}: {source}", path.display())]
    PublicKey {
        /// Path of the PEM file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The control socket failed.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The HTTP interface failed.
    #[error("the HTTP interface failed: {0}")]
    Api(#[from] ApiError),
    /// The metrics cannot be created.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// Indexing programs cannot be run.
    #[error("indexing programs cannot be run: {0}")]
    Programs(#[from] ProgramError),
    /// Webhooks cannot be delivered.
    #[error("webhooks cannot be delivered: {0}")]
    Webhooks(#[from] WebhookError),
    /// The export cannot be opened.
    #[error("the export cannot start: {0}")]
    Export(#[from] ExportError),
    /// A task that starts a part of the service panicked or was cancelled.
    #[error("a task failed while the service was starting: {0}")]
    Start(tokio::task::JoinError),
    /// A thread cannot be started.
    #[error("a thread cannot be started: {0}")]
    Thread(std::io::Error),
    /// The server that is asked for ledger entries cannot be set up.
    #[error("ledger entries cannot be requested: {0}")]
    Entries(SourcesError),
    /// The client for the stellar-core that this process runs cannot be set up.
    #[error("requests to stellar-core cannot be sent: {0}")]
    Core(HttpError),
    /// The upstream of JSON-RPC calls is invalid or of another network.
    #[error("rpc.upstream cannot be used: {0}")]
    RpcUpstream(String),
    /// The destination of status messages is invalid.
    #[error("status messages: {0}")]
    Status(#[from] TargetError),
    /// The address of the HTTP interface cannot be bound.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not, and what to do.
        reason: String,
    },
}
