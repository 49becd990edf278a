//! What a stellar-core writes to its console: passed on to the log, and the last lines kept for the
//! sentence that says why it ended.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Lines that are told when it ended.
const LINES_KEPT: usize = 6;
/// Bytes of a line that are told.
const LONGEST_KEPT: usize = 240;
/// Bytes of a line that are passed on; the rest of a longer line comes as the next.
const LONGEST_LINE: usize = 8 << 10;

/// The last lines of a process.
#[derive(Clone, Default)]
pub(super) struct LastLines(Arc<Mutex<VecDeque<String>>>);

impl LastLines {
    /// Passes a line on and keeps it.
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

    /// All of them in one sentence, to be read after an exit status.
    pub fn told(&self) -> String {
        let lines = self.0.lock();
        if lines.is_empty() {
            return "it wrote nothing".to_owned();
        }
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        format!("its last lines: {}", lines.join(" | "))
    }
}

/// Whether core marks a line as a warning or worse: `TIME NODE [CATEGORY LEVEL] TEXT`.
fn is_serious(line: &str) -> bool {
    let mark = line.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    let level = mark.and_then(|(mark, _)| mark.rsplit(' ').next());
    matches!(level, Some("WARNING" | "ERROR" | "FATAL"))
}

/// Takes all lines of an output until it ends.
pub(super) async fn take_lines(mut from: impl AsyncRead + Unpin, lines: LastLines) {
    let mut pending = Vec::new();
    // An output that cannot be read any more has ended.
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
    async fn keeps_the_last_lines_and_bounds_them() {
        let lines = LastLines::default();
        assert_eq!(lines.told(), "it wrote nothing");
        let mut text: String = (1..10).map(|number| format!("line {number}\n\n")).collect();
        text.push_str(&"é".repeat(20_000));
        take_lines(text.as_bytes(), lines.clone()).await;
        let told = lines.told();
        assert!(told.starts_with("its last lines: line "), "{told}");
        assert!(told.len() < LINES_KEPT * (LONGEST_KEPT + 10), "{}", told.len());
    }

    #[test]
    fn knows_warnings() {
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
