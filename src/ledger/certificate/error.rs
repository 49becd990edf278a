//! Why a certificate is refused, or cannot be written.

use crate::decode::XdrError;
use crate::domain::LedgerRange;
use crate::verify::VerifyError;

/// Why a certificate is refused, or cannot be written: a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CertificateError(pub(super) String);

impl CertificateError {
    /// Creates the error of an empty range.
    pub(super) fn no_range(LedgerRange { first, last }: LedgerRange) -> Self {
        Self(format!("ledgers {first} to {last} are no range: the first is not above the last"))
    }
}

impl From<VerifyError> for CertificateError {
    fn from(error: VerifyError) -> Self {
        Self(error.to_string())
    }
}

/// Returns what is wrong with a ledger of which a part cannot be read.
pub(super) fn unreadable(what: &str) -> impl Fn(XdrError) -> String {
    move |reason| format!("its {what} cannot be read ({reason})")
}
