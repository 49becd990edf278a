//! What workers write to their standard error: into the service's log, with a bound on how much.

use std::io::{BufRead, BufReader, Read};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a line; what is longer is cut into several.
const LONGEST_LINE: u64 = 4096;
/// Lines that are noted in a second.
const A_SECOND: u32 = 20;
/// Lines that are noted in the life of a worker.
const IN_ALL: u32 = 200;

/// Which lines are noted.
struct Allowance {
    since: Instant,
    in_second: u32,
    in_all: u32,
}

/// Whether a line is noted.
#[derive(Debug, PartialEq, Eq)]
enum Noted {
    Yes,
    /// It is the last one before nothing more is noted.
    Last,
    No,
}

impl Allowance {
    fn new(now: Instant) -> Self {
        Self { since: now, in_second: 0, in_all: 0 }
    }

    fn take(&mut self, now: Instant) -> Noted {
        if now.duration_since(self.since) >= Duration::from_secs(1) {
            (self.since, self.in_second) = (now, 0);
        }
        if self.in_all >= IN_ALL || self.in_second >= A_SECOND {
            return Noted::No;
        }
        (self.in_all, self.in_second) = (self.in_all + 1, self.in_second + 1);
        if self.in_all == IN_ALL { Noted::Last } else { Noted::Yes }
    }
}

/// Reads everything, so that the worker never waits for it, notes what there is room for, and returns the
/// last of it.
pub(super) fn listen(words: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        hear(words, Instant::now, |line, noted| match noted {
            Noted::Yes => tracing::warn!(words = line, "a SQL worker says"),
            Noted::Last => tracing::warn!(
                words = line,
                "a SQL worker says, and more of its lines are not noted"
            ),
            Noted::No => {}
        })
    })
}

fn hear(
    words: impl Read,
    clock: impl Fn() -> Instant,
    mut note: impl FnMut(&str, Noted),
) -> String {
    let mut lines = BufReader::new(words);
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
    fn twenty_lines_a_second_and_two_hundred_in_all_are_noted() {
        let begin = Instant::now();
        let heard = Cell::new(0u32);
        // Fifty lines in each second.
        let clock = || begin + Duration::from_millis(u64::from(heard.get()) * 20);
        let words = (0..1_000).map(|line| format!("line {line}\n")).collect::<String>();
        let mut noted = Vec::new();
        let last = hear(words.as_bytes(), clock, |line, how| {
            heard.set(heard.get() + 1);
            if how != Noted::No {
                noted.push((line.to_owned(), how));
            }
        });
        assert_eq!((last.as_str(), heard.get()), ("line 999", 1_000));
        assert_eq!(noted.len(), 200);
        assert_eq!(noted[19].0, "line 19");
        assert_eq!(noted[20].0, "line 50");
        assert_eq!(noted[199].1, Noted::Last);
        assert!(noted[..199].iter().all(|(_, how)| *how == Noted::Yes));
    }

    #[test]
    fn a_line_without_an_end_is_cut() {
        let words = vec![b'x'; 10_000];
        let mut lengths = Vec::new();
        hear(&words[..], Instant::now, |line, _| lengths.push(line.len()));
        assert_eq!(lengths, [4096, 4096, 1808]);
    }
}
