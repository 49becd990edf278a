//! The layout of an export: names of its directories and files, and the size of its files.

use orrery_ledger::domain::LedgerRange;

/// Name of the directory with event files.
pub const EVENTS: &str = "events";
/// Name of the directory with transaction files.
pub const TRANSACTIONS: &str = "transactions";
/// Name of the directory that contains one directory per program.
pub const PROGRAMS: &str = "programs";
/// Directories whose files belong to portions of ledgers.
pub const TABLES: [&str; 2] = [EVENTS, TRANSACTIONS];

/// Size in bytes at which a file in a directory is finished and the next one begins.
pub const MAX_BYTES: usize = 128 << 20;
/// Size in bytes at which a file that is held in memory until it is complete (in a bucket) is
/// finished.
pub const MAX_BYTES_IN_MEMORY: usize = 32 << 20;

const SUFFIX: &str = ".parquet";
/// Number of hexadecimal digits in the mark that distinguishes the objects of one opening of an
/// export from those of others.
const MARK: usize = 8;

/// Returns the name of file `number` of the portion `ledgers`.
pub fn name_of(ledgers: LedgerRange, number: usize, mark: Option<&str>) -> String {
    let LedgerRange { first, last } = ledgers;
    format!("{:010}-{:010}-{number}{}", first.0, last.0, ending(mark))
}

/// Returns the name of file `number` of a table whose files are not split by portion.
pub fn numbered(number: u64, mark: Option<&str>) -> String {
    format!("{number:010}{}", ending(mark))
}

fn ending(mark: Option<&str>) -> String {
    let mark = mark.map(|mark| format!("-{mark}")).unwrap_or_default();
    format!("{mark}{SUFFIX}")
}

/// Returns whether an export could have given a file this name: one of [`name_of`] with
/// `of_portions`, else one of [`numbered`].
pub fn is_ours(name: &str, of_portions: bool) -> bool {
    let Some(stem) = name.strip_suffix(SUFFIX) else { return false };
    let digits = |part: &&str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
    let mark = |part: &str| part.len() == MARK && part.bytes().all(|c| c.is_ascii_hexdigit());
    let parts: Vec<_> = stem.split('-').collect();
    let numbers = if of_portions { 3 } else { 1 };
    let Some((given, rest)) = parts.split_at_checked(numbers) else { return false };
    given.iter().all(digits)
        && match rest {
            [] => true,
            [last] => mark(last),
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_its_names() {
        let ledgers = LedgerRange::new(1000, 1999);
        let of_portions = [name_of(ledgers, 0, None), name_of(ledgers, 12, Some("00ab9f3c"))];
        let others = [numbered(0, None), numbered(u64::MAX, Some("00ab9f3c"))];
        assert!(of_portions.iter().all(|name| is_ours(name, true) && !is_ours(name, false)));
        assert!(others.iter().all(|name| is_ours(name, false) && !is_ours(name, true)));
        assert_eq!(of_portions[0], "0000001000-0000001999-0.parquet");
        assert_eq!(others[0], "0000000000.parquet");
        for other in [
            "letter.txt",
            "x.parquet",
            ".parquet",
            "1-zzzzzzzz.parquet",
            "1-2.parquet",
            "1-2-x.parquet",
            "1-2-3-4.parquet",
            "1-2-3-zzzzzzzz.parquet",
        ] {
            assert!(!is_ours(other, true) && !is_ours(other, false), "{other}");
        }
    }
}
