//! Log lines on standard error: human-readable on a terminal, JSON elsewhere.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};

use orrery_ledger::domain::without_seeds;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt;

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Human-readable on a terminal, JSON elsewhere.
    Auto,
    /// Human-readable.
    Human,
    /// One JSON object per line.
    Json,
}

/// Lowest level of the log lines that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Something failed and needs attention.
    Error,
    /// Something failed and is being retried, or will need attention soon.
    Warn,
    /// Information for operators.
    Info,
    /// Information for developers.
    Debug,
    /// Everything.
    Trace,
}

/// Logging has already been set up in this process.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up logging: {0}")]
pub struct LogsError(Box<dyn std::error::Error + Send + Sync>);

/// Standard error, without its failures: a log that nobody reads any more, or whose disk is full,
/// must not end the service.
struct LogOutput;

/// The line that is shown below the log lines on a terminal.
static LIVE_LINE: Mutex<Option<String>> = Mutex::new(None);

/// Control sequences (ECMA-48, and the private mode 7 of the VT100): begin of the line and erase it;
/// do not wrap at the right margin, which cuts a long line; wrap again.
const ERASE: &str = "\r\x1b[K";
const CUT: &str = "\x1b[?7l";
const WRAP: &str = "\x1b[?7h";

impl Write for LogOutput {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        // What was given in place of a public key is quoted in sentences about it.
        let shown = without_seeds(&String::from_utf8_lossy(lines)).into_owned();
        let live = LIVE_LINE.lock();
        let text = match &*live {
            None => shown.into_bytes(),
            Some(live) => [
                ERASE.as_bytes(),
                shown.as_bytes(),
                CUT.as_bytes(),
                live.as_bytes(),
                WRAP.as_bytes(),
            ]
            .concat(),
        };
        drop(io::stderr().write_all(&text));
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Shows a line below the log lines on standard error, which must be a terminal, in place of the one
/// that was shown before; `None` removes it.
pub fn show_live_line(line: Option<&str>) {
    let mut live = LIVE_LINE.lock();
    if live.is_none() && line.is_none() {
        return;
    }
    let text = line.map(|line| format!("{CUT}{line}{WRAP}")).unwrap_or_default();
    drop(io::stderr().write_all(format!("{ERASE}{text}").as_bytes()));
    *live = line.map(str::to_owned);
}

/// Forgets the line and leaves the terminal as it is, because it has come to be another process's.
pub fn forget_live_line() {
    *LIVE_LINE.lock() = None;
}

/// Sends log lines of `level` and above to standard error from now on.
pub fn init(format: LogFormat, level: LogLevel) -> Result<(), LogsError> {
    let terminal = io::stderr().is_terminal();
    let human = match format {
        LogFormat::Human => true,
        LogFormat::Json => false,
        LogFormat::Auto => terminal,
    };
    let lines = fmt()
        .with_max_level(LevelFilter::from(level))
        .with_writer(|| LogOutput)
        // These would be written to standard error with a macro that panics when it fails.
        .log_internal_errors(false);
    if human {
        lines
            .with_ansi(terminal && colours_wanted(std::env::var_os("NO_COLOR").as_deref()))
            .with_target(false)
            .try_init()
            .map_err(LogsError)
    } else {
        lines.json().flatten_event(true).with_current_span(false).try_init().map_err(LogsError)
    }
}

/// Whether log lines on a terminal have colours. Any value of `NO_COLOR` but an empty one forbids them
/// (no-color.org).
fn colours_wanted(no_color: Option<&OsStr>) -> bool {
    no_color.is_none_or(OsStr::is_empty)
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_whose_user_does_not_forbid_them() {
        for (no_color, wanted) in [(None, true), (Some(""), true), (Some("1"), false)] {
            assert_eq!(colours_wanted(no_color.map(OsStr::new)), wanted, "{no_color:?}");
        }
    }
}
