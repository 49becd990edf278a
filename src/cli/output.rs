//! Writes to standard output, with the options for it, draws progress bars, and formats numbers and times
//! for people.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use orrery::domain::without_seeds;

use super::{Failure, escape};

/// How results look.
#[derive(Debug, Args)]
pub struct Json {
    /// Print JSON, also on a terminal
    #[arg(long)]
    pub json: bool,
}

/// How 64-bit and wider integers are written in a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Numbers {
    /// As numbers if they are exact in every client, else as texts
    Exact,
    /// The same; with --format arrow, integers of 128 bits are decimals, and NAME_exact has their digits, as in Parquet
    Decimal,
    /// As texts
    String,
}

/// Writes to standard output, on a terminal without what it would obey. A closed pipe, as behind
/// `head`, is not an error.
pub fn print(text: &str) -> Result<(), Failure> {
    if is_terminal() {
        print_bytes(escape::output(text).as_bytes())
    } else {
        print_bytes(text.as_bytes())
    }
}

/// Writes one line, or several, to standard error, on a terminal without what it would obey, and
/// nowhere with the secret seeds of accounts, which may be among what the user gave. Failures are
/// ignored: what a verb does and answers does not depend on who reads beside it.
pub fn tell(lines: impl Display) {
    let lines = lines.to_string();
    let shown = without_seeds(&lines);
    let mut error = io::stderr().lock();
    let written = match error.is_terminal() {
        true => writeln!(error, "{}", escape::control_lines(&shown)),
        false => writeln!(error, "{shown}"),
    };
    drop(written);
}

/// As [`tell`], with the name of the program before the line.
pub fn note(line: impl Display) {
    tell(format_args!("orrery: {line}"));
}

/// Writes bytes to standard output, as [`print`] does.
pub fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a value as one line of JSON. Hidden characters are escaped everywhere, because a log that
/// is read later on a terminal may hold the line.
pub fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    match serde_json::to_string(value) {
        Ok(text) => print(&format!("{}\n", escape::json(&text))),
        Err(error) => Err(Failure::failed(format!("cannot write JSON: {error}"))),
    }
}

/// Prints texts, each as a line, for shells.
pub fn print_each(texts: impl IntoIterator<Item = impl AsRef<str>>) -> Result<(), Failure> {
    let lines = texts.into_iter().map(|text| format!("{}\n", text.as_ref()));
    print(&lines.collect::<String>())
}

/// Whether standard output is a terminal.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Formats UNIX seconds as ISO 8601 in UTC.
pub fn iso_time(seconds: u64) -> String {
    use time::format_description::well_known::Rfc3339;
    i64::try_from(seconds)
        .ok()
        .and_then(|seconds| time::OffsetDateTime::from_unix_timestamp(seconds).ok())
        .and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_else(|| format!("{seconds} s after 1970"))
}

/// Formats a number of seconds in a unit that suits its size.
pub fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Formats a size in a unit that suits it.
pub fn bytes(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{} bytes", count(bytes)),
        10_000..10_000_000 => format!("{} kB", count(bytes / 1000)),
        _ => format!("{} MB", count(bytes / 1_000_000)),
    }
}

/// Formats a count with commas between thousands.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a line about ledgers that were asked for and are stored without their records; empty when
/// there are none.
pub fn without_records(ledgers: u64) -> String {
    if ledgers == 0 {
        return String::new();
    }
    format!(
        "{} ledgers are stored without events or transactions, which retention has removed; this data \
         directory does not store them again: to have them, store the ledgers in a new one\n",
        count(ledgers)
    )
}

/// Returns a progress bar of this template on standard error, without a length if that is unknown. It is
/// drawn only on a terminal.
pub fn progress_bar(length: Option<u64>, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
    // All templates are constants; if one were invalid, the default style would be used.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_numbers_as_people_read_them() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (63_092_993, "63,092,993")]
        {
            assert_eq!(count(number), text);
        }
        assert_eq!(bytes(74), "74 bytes");
        assert_eq!(bytes(1_234_567), "1,234 kB");
        assert_eq!(bytes(1_234_567_890), "1,234 MB");
        assert_eq!(iso_time(0), "1970-01-01T00:00:00Z");
        assert_eq!(duration(90), "90 s");
        assert_eq!(duration(7200), "2 h");
    }
}
