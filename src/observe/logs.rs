//! Log lines on standard error: for people on a terminal, JSON elsewhere.

use std::io::{self, IsTerminal};

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt;

use crate::config::{LogFormat, LogLevel};

/// Logging was set up before in this process.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up logging: {0}")]
pub struct LogsError(Box<dyn std::error::Error + Send + Sync>);

/// Sends log lines of `level` and above to standard error from now on.
pub fn init(format: LogFormat, level: LogLevel) -> Result<(), LogsError> {
    let terminal = io::stderr().is_terminal();
    let human = match format {
        LogFormat::Human => true,
        LogFormat::Json => false,
        LogFormat::Auto => terminal,
    };
    let lines = fmt().with_max_level(LevelFilter::from(level)).with_writer(io::stderr);
    if human {
        lines.with_ansi(terminal).with_target(false).try_init().map_err(LogsError)
    } else {
        lines.json().flatten_event(true).with_current_span(false).try_init().map_err(LogsError)
    }
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
