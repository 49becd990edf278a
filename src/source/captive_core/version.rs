//! Determines the version of the installed stellar-core and rejects one that is too old.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use orrery_ledger::decode::MAX_PROTOCOL;
use tokio::process::Command;
use tokio::time::timeout;

use super::error::CoreError;

/// Oldest supported protocol version: the first with smart contracts.
const OLDEST_PROTOCOL: u32 = 20;
/// Timeout for `stellar-core version`, which only prints a few lines.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);
/// Prefix of the output line that states the protocol version.
const PROTOCOL_LINE: &str = "ledger protocol version:";

/// Version that a stellar-core binary reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    /// Release, from the first line of the output.
    pub build: String,
    /// Newest protocol version that the binary supports.
    pub protocol: u32,
}

/// Runs `stellar-core version` and rejects a binary whose protocol version is too old.
pub(super) async fn probe(binary: &Path) -> Result<Version, CoreError> {
    let mut command = Command::new(binary);
    command.arg("version").stdin(Stdio::null()).kill_on_drop(true);
    let answer = match timeout(RESPONSE_TIMEOUT, command.output()).await {
        Ok(Ok(output)) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(CoreError::not_found(binary));
        }
        Ok(Err(error)) => {
            let command = format_args!("{} version", binary.display());
            return Err(CoreError::not_started(command, error));
        }
        Err(_) => String::new(),
    };
    let version = parse(&answer).ok_or_else(|| {
        let found = answer.lines().next().unwrap_or("it says nothing").chars().take(80);
        CoreError::Other(format!(
            "{} does not say its ledger protocol version ({}): is it stellar-core?",
            binary.display(),
            found.collect::<String>()
        ))
    })?;
    if version.protocol < OLDEST_PROTOCOL {
        let Version { build, protocol } = version;
        return Err(CoreError::Other(format!(
            "stellar-core {build} knows protocols up to {protocol} only, but smart contracts began \
             with 20: install a newer stellar-core"
        )));
    }
    Ok(version)
}

impl Version {
    /// Returns a warning when the binary supports a newer protocol than this version of Orrery.
    pub fn warning(&self) -> Option<String> {
        (self.protocol > MAX_PROTOCOL).then(|| {
            format!(
                "stellar-core {} supports protocol {}, but this version of Orrery only protocols \
                 up to {MAX_PROTOCOL}: upgrade Orrery before the network does",
                self.build, self.protocol
            )
        })
    }
}

fn parse(answer: &str) -> Option<Version> {
    let build = answer.lines().next()?.trim().to_owned();
    let line = answer.lines().find_map(|line| line.trim().strip_prefix(PROTOCOL_LINE))?;
    Some(Version { build, protocol: line.trim().parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_output_of_core_is_parsed() {
        let answer = "v26.1.0\nrust version: rustc 1.90.0\nsoroban-env-host versions:\n    host[0]:\n\
                      \x20   package version: 26.0.0\nledger protocol version: 26\n";
        let version = parse(answer).unwrap();
        assert_eq!(version, Version { build: "v26.1.0".to_owned(), protocol: 26 });
        assert_eq!(version.warning(), None);
        let newer = Version { protocol: MAX_PROTOCOL + 1, ..version };
        assert!(newer.warning().unwrap().contains("upgrade Orrery before the network does"));
        assert_eq!(parse("orrery 0.1.0\n"), None);
        assert_eq!(parse(""), None);
    }

    #[tokio::test]
    async fn other_programs_are_refused() {
        let error = probe(Path::new("/bin/echo")).await.unwrap_err().to_string();
        assert_eq!(
            error,
            "/bin/echo does not say its ledger protocol version (version): is it stellar-core?"
        );
        let error = probe(Path::new("no-such-stellar-core")).await.unwrap_err().to_string();
        assert!(error.contains("install the package stellar-core"), "{error}");
    }
}
