//! Finds how far a history archive reaches, with the commands with which core itself fetches files.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use orrery_ledger::domain::LedgerSeq;
use serde::Deserialize;
use tokio::process::Command;
use tokio::time::timeout;

/// File with the newest state of an archive.
const STATE_FILE: &str = ".well-known/stellar-history.json";
/// Number of archives that are tried, because one may be out of order or slow.
const ARCHIVES_TRIED: usize = 3;
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a state file in bytes; it usually has some kilobytes.
const LONGEST_STATE: u64 = 1 << 20;

/// The fields of an archive's state that are used.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct ArchiveState {
    #[serde(rename = "currentLedger")]
    newest: u32,
    /// Absent in archives that were created long ago.
    #[serde(rename = "networkPassphrase")]
    pub passphrase: Option<String>,
}

impl ArchiveState {
    /// Returns the newest checkpoint.
    pub fn newest(&self) -> LedgerSeq {
        LedgerSeq(self.newest)
    }
}

/// Returns the state of the first archive that answers, or `None`. Each of the first
/// [`ARCHIVES_TRIED`] of `commands` writes it to a temporary file in `directory`.
pub(super) async fn state(commands: &[String], directory: &Path) -> Option<ArchiveState> {
    for command in commands.iter().take(ARCHIVES_TRIED) {
        match fetch(command, directory).await {
            Ok(state) => return Some(state),
            Err(reason) => {
                tracing::warn!("the history archive of '{command}' is skipped: {reason}")
            }
        }
    }
    None
}

async fn fetch(command: &str, directory: &Path) -> Result<ArchiveState, String> {
    let file = tempfile::NamedTempFile::new_in(directory).map_err(|error| error.to_string())?;
    let path = file.path().to_string_lossy().into_owned();
    // Core runs the command without a shell as well.
    let words = command.split_whitespace();
    let mut words = words.map(|word| word.replace("{0}", STATE_FILE).replace("{1}", &path));
    let program = words.next().ok_or("the command is empty")?;
    let mut call = Command::new(program);
    call.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let ended = timeout(RESPONSE_TIMEOUT, call.kill_on_drop(true).status()).await;
    let ended = ended.map_err(|_| format!("no answer within {RESPONSE_TIMEOUT:?}"))?;
    let status = ended.map_err(|error| error.to_string())?;
    if !status.success() {
        return Err(status.to_string());
    }
    let length = file.as_file().metadata().map_err(|error| error.to_string())?.len();
    if length > LONGEST_STATE {
        return Err(format!("its state has {length} bytes"));
    }
    let text = std::fs::read(&path).map_err(|error| error.to_string())?;
    serde_json::from_slice(&text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn archives_are_tried_in_order() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join(".well-known")).unwrap();
        let text =
            r#"{"version": 1, "currentLedger": 191, "networkPassphrase": "p", "buckets": []}"#;
        std::fs::write(directory.path().join(STATE_FILE), text).unwrap();
        let good = format!("cp {}/{{0}} {{1}}", directory.path().display());
        let all = |commands: &[&str]| commands.iter().map(|c| (*c).to_owned()).collect::<Vec<_>>();
        let found = state(&all(&["false", "no-such-program {0}", &good]), directory.path()).await;
        let found = found.unwrap();
        assert_eq!(found.newest(), LedgerSeq(191));
        assert_eq!(found.passphrase.as_deref(), Some("p"));
        assert_eq!(state(&all(&["true", "", "false", &good]), directory.path()).await, None);
        let files = std::fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(files, 1, "nothing is left behind");
    }
}
