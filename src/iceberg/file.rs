//! A file with rows, as the export knows it and as Iceberg does.

use serde::{Deserialize, Serialize};

/// One Parquet file. Its content never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataFile {
    /// Path below the destination of the export.
    pub path: String,
    /// First ledger of the portion; for a program's table, the first ledger that has rows in the file.
    pub first_ledger: u32,
    /// Last ledger of the portion; for a program's table, the last ledger that has rows in the file.
    pub last_ledger: u32,
    /// Number of rows.
    pub rows: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 of the file in hexadecimal.
    pub sha256: String,
    /// Number of its columns; `None` if an earlier version has written it, without ids of columns. Files of
    /// a table with as many columns have the same ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<u32>,
    /// Ledgers and close times of its rows; `None` if it was not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bounds: Option<Bounds>,
    /// Whether its rows are in the order of their ledgers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sorted: bool,
    /// Sum of the digests of its rows in hexadecimal, which does not depend on their order; `None` if it was
    /// not recorded. Iceberg does not have it: the export compares rows with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Its place in the table; `None` until a commit has added it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
}

/// The least and the greatest value of two columns. They are those of rows, not wider: engines answer
/// `max(ledger)` with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Ledgers.
    pub ledgers: (u32, u32),
    /// Close times of ledgers, in microseconds since the UNIX epoch.
    pub times: (i64, i64),
}

impl Bounds {
    /// Returns the bounds of the rows of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let wider = |a: (u32, u32), b: (u32, u32)| (a.0.min(b.0), a.1.max(b.1));
        let times = (self.times.0.min(other.times.0), self.times.1.max(other.times.1));
        Self { ledgers: wider(self.ledgers, other.ledgers), times }
    }
}

/// Place of a file in its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Number of the file, which no other one of the table had or has. A manifest has the files of a range
    /// of numbers.
    pub number: u64,
    /// Number of the commit that added it.
    pub commit: u64,
}

/// Returns the files that are merged into one each, by their places in `files`, in the order of ledgers, so
/// that at most `2 + 2 × bytes / file_bytes` files are left. No one merged is larger than `file_bytes` as
/// long as the rows need no more space than before. Call it again when they are merged: they may need less.
pub fn merges(files: &[DataFile], file_bytes: u64) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_by_key(|at| (files[*at].first_ledger, files[*at].last_ledger, *at));
    let sizes: Vec<u64> = order.iter().map(|at| files[*at].bytes).collect();
    let groups = crate::groups::groups(&sizes, file_bytes, SPARE);
    groups.into_iter().map(|group| order[group].to_vec()).collect()
}

/// Files that a table may have beyond two for each full one.
const SPARE: usize = 2;

#[cfg(test)]
pub(crate) fn sample(number: u32, bytes: u64) -> DataFile {
    let time = i64::from(number) * 5_000_000;
    DataFile {
        path: format!("data/events/{number:064x}.parquet"),
        first_ledger: number,
        last_ledger: number,
        rows: 10,
        bytes,
        sha256: format!("{number:064x}"),
        columns: Some(3),
        bounds: Some(Bounds { ledgers: (number, number), times: (time, time) }),
        sorted: true,
        digest: None,
        place: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_by_ledger_are_merged() {
        let files: Vec<_> = [(7, 10), (1, 70), (9, 10), (8, 10)].map(|(n, b)| sample(n, b)).into();
        assert_eq!(merges(&files, 200), [vec![0, 3]]);
        assert_eq!(merges(&files[..2], 200), [] as [Vec<usize>; 0]);
        assert_eq!(merges(&[], 100), [] as [Vec<usize>; 0]);
    }

    #[test]
    fn an_entry_of_an_earlier_manifest_is_one() {
        let text =
            r#"{"path":"p","first_ledger":1,"last_ledger":2,"rows":3,"bytes":4,"sha256":"s"}"#;
        let file: DataFile = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&file).unwrap(), text);
    }
}
