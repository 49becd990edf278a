//! What the operator is told of data files that cannot be read: the user's sentence names no file and no cause.

use std::collections::HashSet;
use std::io::{self, Write};

use parking_lot::Mutex;

/// Maximum number of files that a worker tells of.
const MAX_TOLD: usize = 50;

/// What was told, so that a query that is asked again does not tell it again.
#[derive(Default)]
pub struct Reports(Mutex<HashSet<String>>);

impl Reports {
    /// Tells what is wrong with a file, once for each file. The service logs what the worker writes to standard error.
    pub fn tell(&self, file: &str, cause: &str) {
        if let Some(line) = self.line(file, cause) {
            // Nobody reads it when the service is gone.
            drop(writeln!(io::stderr().lock(), "{line}"));
        }
    }

    /// Returns the line that tells it, unless it was told before.
    fn line(&self, file: &str, cause: &str) -> Option<String> {
        let mut told = self.0.lock();
        if told.len() >= MAX_TOLD || !told.insert(file.to_owned()) {
            return None;
        }
        let cause: Vec<&str> = cause.lines().collect();
        Some(format!("the tables of the chain cannot be read: {file}: {}", cause.join(" ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_told_of_once_and_not_too_many() {
        let reports = Reports::default();
        let line = reports.line("a.parquet", "EOF: the file\nends early");
        let expected =
            "the tables of the chain cannot be read: a.parquet: EOF: the file ends early";
        assert_eq!(line.as_deref(), Some(expected));
        assert_eq!(reports.line("a.parquet", "again"), None);
        let told = (0..100).filter_map(|file| reports.line(&file.to_string(), "x")).count();
        assert_eq!(told, MAX_TOLD - 1);
    }
}
