//! Copies the standard error of SQL workers into the service's log, at a limited rate.

use std::io::{BufRead, BufReader, Read};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum length of a line in bytes; longer lines are split.
const LONGEST_LINE: u64 = 4096;
/// Maximum number of lines logged per second.
const MAX_LINES_PER_SECOND: u32 = 20;
/// Maximum number of lines logged in the lifetime of a worker.
const MAX_LINES_PER_WORKER: u32 = 200;

/// Counts lines against both limits.
struct Allowance {
    since: Instant,
    in_second: u32,
    in_all: u32,
}

/// Whether a line is logged.
#[derive(Debug, PartialEq, Eq)]
enum LogDecision {
    Yes,
    /// The line is logged, and it is the last of the lifetime limit.
    Last,
    No,
}

impl Allowance {
    fn new(now: Instant) -> Self {
        Self { since: now, in_second: 0, in_all: 0 }
    }

    fn take(&mut self, now: Instant) -> LogDecision {
        if now.duration_since(self.since) >= Duration::from_secs(1) {
            (self.since, self.in_second) = (now, 0);
        }
        if self.in_all >= MAX_LINES_PER_WORKER || self.in_second >= MAX_LINES_PER_SECOND {
            return LogDecision::No;
        }
        (self.in_all, self.in_second) = (self.in_all + 1, self.in_second + 1);
        if self.in_all == MAX_LINES_PER_WORKER { LogDecision::Last } else { LogDecision::Yes }
    }
}

/// Spawns a thread that reads `stderr` to its end, so that the worker never blocks on the pipe, and
/// logs as many lines as the limits allow. The thread returns the last line.
pub(super) fn spawn_stderr_logger(
    stderr: impl Read + Send + 'static,
) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        log_lines(stderr, Instant::now, |line, noted| match noted {
            LogDecision::Yes => tracing::warn!(words = line, "output of a SQL worker"),
            LogDecision::Last => tracing::warn!(
                words = line,
                "output of a SQL worker; its further lines are not logged"
            ),
            LogDecision::No => {}
        })
    })
}

fn log_lines(
    stderr: impl Read,
    clock: impl Fn() -> Instant,
    mut note: impl FnMut(&str, LogDecision),
) -> String {
    let mut lines = BufReader::new(stderr);
    let mut last = String::new();
    let mut allowance = Allowance::new(clock());
    loop {
        let mut line = Vec::new();
        match lines.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(read) if read > 0 => {
                last = String::from_utf8_lossy(&line).trim_end().to_owned();
                note(&last, allowance.take(clock()));
            }
            _ => return last,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn at_most_20_lines_per_second_and_200_in_total_are_logged() {
        let begin = Instant::now();
        let heard = Cell::new(0u32);
        // Fifty lines in each second.
        let clock = || begin + Duration::from_millis(u64::from(heard.get()) * 20);
        let words = (0..1_000).map(|line| format!("line {line}\n")).collect::<String>();
        let mut noted = Vec::new();
        let last = log_lines(words.as_bytes(), clock, |line, how| {
            heard.set(heard.get() + 1);
            if how != LogDecision::No {
                noted.push((line.to_owned(), how));
            }
        });
        assert_eq!((last.as_str(), heard.get()), ("line 999", 1_000));
        assert_eq!(noted.len(), 200);
        assert_eq!(noted[19].0, "line 19");
        assert_eq!(noted[20].0, "line 50");
        assert_eq!(noted[199].1, LogDecision::Last);
        assert!(noted[..199].iter().all(|(_, how)| *how == LogDecision::Yes));
    }

    #[test]
    fn an_endless_line_is_split() {
        let words = vec![b'x'; 10_000];
        let mut lengths = Vec::new();
        log_lines(&words[..], Instant::now, |line, _| lengths.push(line.len()));
        assert_eq!(lengths, [4096, 4096, 1808]);
    }
}
