//! Why a service cannot start or continue.

use crate::api::ApiError;
use crate::auth::AuthError;
use crate::control::ControlError;
use crate::export::ExportError;
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
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl ServiceError {
    /// Creates the error of a task that starts a part of the service and panicked or was cancelled.
    pub(super) fn start(error: tokio::task::JoinError) -> Self {
        Self::Other(format!("a task failed while the service was starting: {error}"))
    }

    /// Creates the error of a thread that cannot be started.
    pub(super) fn thread(error: std::io::Error) -> Self {
        Self::Other(format!("a thread cannot be started: {error}"))
    }
}

/// Implements `From` for errors of parts of the service, whose sentences begin with what is given.
macro_rules! sentences {
    ($($error:ty: $begin:literal,)+) => {
        $(impl From<$error> for ServiceError {
            fn from(error: $error) -> Self {
                Self::Other(format!(concat!($begin, "{}"), error))
            }
        })+
    };
}

sentences! {
    ApiError: "the HTTP interface failed: ",
    AuthError: "",
    ControlError: "",
    ExportError: "the export cannot start: ",
    MetricsError: "",
    ProgramError: "indexing programs cannot be run: ",
    SandboxNetworkError: "",
    TargetError: "status messages: ",
    TrustError: "",
    ValidatorsError: "",
    WebhookError: "webhooks cannot be delivered: ",
}
