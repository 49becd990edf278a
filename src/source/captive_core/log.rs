//! The console output of a stellar-core: forwarded to the log, with the last lines kept for the
//! error message that says why it ended.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Number of last lines that are kept.
const LINES_KEPT: usize = 6;
/// Maximum length of a kept line in bytes.
const LONGEST_KEPT: usize = 240;
/// Maximum length in bytes of a forwarded line, from which a line is split.
const LONGEST_LINE: usize = 8 << 10;

/// The last lines of a process's output.
#[derive(Clone, Default)]
pub(super) struct LastLines(Arc<Mutex<VecDeque<String>>>);

impl LastLines {
    /// Forwards a line to the log and keeps it.
    pub fn take(&self, line: &str) {
        let line = line.trim();
        if line.is_empty() {
            return;
        }
        if is_serious(line) {
            tracing::warn!("stellar-core: {line}");
        } else {
            tracing::debug!("stellar-core: {line}");
        }
        let end = line.floor_char_boundary(LONGEST_KEPT);
        let mut lines = self.0.lock();
        if lines.len() == LINES_KEPT {
            lines.pop_front();
        }
        lines.push_back(line[..end].to_owned());
    }

    /// Returns the last lines in one sentence, which follows an exit status.
    pub fn summary(&self) -> String {
        let lines = self.0.lock();
        if lines.is_empty() {
            return "it wrote nothing".to_owned();
        }
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        format!("its last lines: {}", lines.join(" | "))
    }
}

/// Returns whether core marks a line as a warning or worse: `TIME NODE [CATEGORY LEVEL] TEXT`.
fn is_serious(line: &str) -> bool {
    let mark = line.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    let level = mark.and_then(|(mark, _)| mark.rsplit(' ').next());
    matches!(level, Some("WARNING" | "ERROR" | "FATAL"))
}

/// Takes all lines of an output until it ends.
pub(super) async fn take_lines(mut from: impl AsyncRead + Unpin, lines: LastLines) {
    let mut pending = Vec::new();
    // A read error ends the output.
    while from.read_buf(&mut pending).await.is_ok_and(|count| count > 0) {
        let mut rest = 0;
        while let Some(length) = pending[rest..].iter().position(|byte| *byte == b'\n') {
            lines.take(&String::from_utf8_lossy(&pending[rest..rest + length]));
            rest += length + 1;
        }
        if pending.len() - rest >= LONGEST_LINE {
            lines.take(&String::from_utf8_lossy(&pending[rest..]));
            rest = pending.len();
        }
        pending.drain(..rest);
    }
    lines.take(&String::from_utf8_lossy(&pending));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_lines_are_kept_within_a_limit() {
        let lines = LastLines::default();
        assert_eq!(lines.summary(), "it wrote nothing");
        let mut text: String = (1..10).map(|number| format!("line {number}\n\n")).collect();
        text.push_str(&"é".repeat(20_000));
        take_lines(text.as_bytes(), lines.clone()).await;
        let summary = lines.summary();
        assert!(summary.starts_with("its last lines: line "), "{summary}");
        assert!(summary.len() < LINES_KEPT * (LONGEST_KEPT + 10), "{}", summary.len());
    }

    #[test]
    fn warnings_are_recognised() {
        for (line, serious) in [
            ("2026-08-01T10:00:00.000 GABCD [Ledger INFO] Closed ledger", false),
            ("2026-08-01T10:00:00.000 GABCD [Overlay WARNING] slow", true),
            ("2026-08-01T10:00:00.000 GABCD [default FATAL] Got an exception", true),
            ("Warning: no bracket", false),
            ("[WARNING] short", true),
        ] {
            assert_eq!(is_serious(line), serious, "{line}");
        }
    }
}
