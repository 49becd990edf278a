//! Which files belong to a backup. Making one and restoring one follow the same list, so that a
//! backup that somebody else could write puts no other file into a data directory.

use crate::sandbox::source::{DIRECTORY as SANDBOX, FILES as SANDBOX_FILES};
use crate::service::{ORDER_FILE, PROMOTED_FILE, READER_FILE, SECRETS};
use crate::store::{ACKNOWLEDGED_FILE, RAW_DIRECTORY};

/// The keys and tokens. The key of compiled code is not among them: whoever can write a backup could
/// otherwise add compiled code and its proof. A restored directory gets a new one.
const SECRET_FILES: [&str; 4] =
    ["token-signing-key", "tokens.jsonl", "webhook-secrets-key", "directory-key"];

/// What is done with a file that a manifest names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Treatment {
    /// It belongs to a backup.
    Kept,
    /// It lies beside the secrets. Earlier versions added everything there to a backup.
    LeftOut,
    /// No version adds it to a backup.
    Refused,
}

/// Returns how a file is treated. `path` is relative to the data directory.
pub(super) fn treatment(path: &str) -> Treatment {
    let belongs = match path.split_once('/') {
        None => [ACKNOWLEDGED_FILE, ORDER_FILE, READER_FILE, PROMOTED_FILE].contains(&path),
        Some((RAW_DIRECTORY, name)) => is_of_database(name),
        Some((SANDBOX, name)) => SANDBOX_FILES.contains(&name),
        Some((SECRETS, name)) if !SECRET_FILES.contains(&name) => {
            let is_file = !name.is_empty() && !name.contains('/');
            return if is_file { Treatment::LeftOut } else { Treatment::Refused };
        }
        Some((SECRETS, _)) => true,
        Some(_) => false,
    };
    if belongs { Treatment::Kept } else { Treatment::Refused }
}

/// Whether a checkpoint of RocksDB has files of this name.
fn is_of_database(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name == "CURRENT"
        || ["MANIFEST-", "OPTIONS-"]
            .iter()
            .any(|kind| name.strip_prefix(kind).is_some_and(is_number))
        || [".sst", ".log", ".blob"]
            .iter()
            .any(|kind| name.strip_suffix(kind).is_some_and(is_number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_a_backup_are_kept() {
        for path in [
            "acknowledged",
            "backfill.json",
            "reader.json",
            "promoted.json",
            "raw/CURRENT",
            "raw/MANIFEST-000005",
            "raw/OPTIONS-000007",
            "raw/000012.sst",
            "raw/000012.log",
            "sandbox/journal",
            "secrets/tokens.jsonl",
            "secrets/token-signing-key",
            "secrets/webhook-secrets-key",
            "secrets/directory-key",
        ] {
            assert_eq!(treatment(path), Treatment::Kept, "{path}");
        }
        for path in ["secrets/compiled-code-key", "secrets/draft.0123", "secrets/partner.pem"] {
            assert_eq!(treatment(path), Treatment::LeftOut, "{path}");
        }
        for path in [
            "",
            "orrery.lock",
            "control.sock",
            "compiled/abab.compiled",
            "tables/x/db/tables.duckdb",
            "core/stellar-core.cfg",
            "checkpoints/1/raw/CURRENT",
            "raw",
            "raw/",
            "raw/x",
            "raw/.sst",
            "raw/12a.sst",
            "raw/MANIFEST-",
            "raw/deep/000001.sst",
            "raw/LOCK",
            "sandbox/x",
            "secrets",
            "secrets/",
            "secrets/deep/token-signing-key",
            "Secrets/token-signing-key",
            "acknowledged/x",
        ] {
            assert_eq!(treatment(path), Treatment::Refused, "{path}");
        }
    }
}
