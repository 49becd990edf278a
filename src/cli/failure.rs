//! Errors of the command line, with their exit codes.

use std::fmt;
use std::process::ExitCode;

use orrery::account::{AccountError, ForeignFile};
use orrery::auth::AuthError;
use orrery::backup::BackupError;
use orrery::config::ConfigError;
use orrery::control::ControlError;
use orrery::export::ExportError;
use orrery::observe::logs::LogsError;
use orrery::programs::engine::compiler::CompileFailure;
use orrery::sandbox::source::SandboxNetworkError;
use orrery::service::sources::SourcesError;
use orrery::service::{BackfillError, ServiceError};
use orrery::source::files::FilesError;
use orrery::store::StoreError;
use orrery::tables::worker::WorkerError;

/// Reason why a command failed: a sentence for the user, and the exit code.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    sentence: String,
}

impl Failure {
    /// Creates the failure of an operation that was refused or failed; exit code 1.
    pub fn failed(sentence: impl Into<String>) -> Self {
        Self { code: 1, sentence: sentence.into() }
    }

    /// Creates the failure for invalid arguments; exit code 2.
    pub fn usage(sentence: impl Into<String>) -> Self {
        Self { code: 2, sentence: sentence.into() }
    }

    /// Creates the failure for a data directory that another process uses; exit code 75
    /// (`EX_TEMPFAIL` of sysexits.h).
    pub fn in_use(sentence: impl Into<String>) -> Self {
        Self { code: 75, sentence: sentence.into() }
    }

    /// Appends `more` to the sentence.
    pub fn and(self, more: impl fmt::Display) -> Self {
        Self { sentence: format!("{}; {more}", self.sentence), ..self }
    }

    /// Says `to` instead of `from`, where the sentence begins with it.
    pub fn beginning(self, from: &str, to: &str) -> Self {
        match self.sentence.strip_prefix(from) {
            Some(rest) if rest.starts_with([' ', ':']) => {
                Self { sentence: format!("{to}{rest}"), ..self }
            }
            _ => self,
        }
    }

    /// Returns the exit code of the process.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

/// Implements `From` for errors whose message is the sentence, with exit code 1.
macro_rules! failed {
    ($($error:ty),+ $(,)?) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::failed(error.to_string())
            }
        })+
    };
}

failed!(
    AccountError,
    AuthError,
    BackfillError,
    CompileFailure,
    ControlError,
    ExportError,
    FilesError,
    ForeignFile,
    LogsError,
    SandboxNetworkError,
    SourcesError,
    WorkerError,
);

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        match error {
            ConfigError::Flag(sentence) => Self::usage(sentence),
            ConfigError::Other(sentence) => Self::failed(sentence),
        }
    }
}

impl From<BackupError> for Failure {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::Store(error) => error.into(),
            BackupError::InUse(_) | BackupError::Claimed { .. } => Self::in_use(error.to_string()),
            error => Self::failed(error.to_string()),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        ServiceError::from(error).into()
    }
}

impl From<ServiceError> for Failure {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Store(StoreError::InUse(_)) => Self::in_use(error.to_string()),
            ServiceError::Store(StoreError::Empty(_)) => Self::failed(format!(
                "{error}, for example with --network testnet, or import a lake, whose manifest names it"
            )),
            _ => Self::failed(error.to_string()),
        }
    }
}
