//! The layout of an export: names of its directories and files, and the size of its files. Knows the
//! names of earlier exports, too, whose files stay until they are written anew.

/// Directory of the files that have the rows. Their names say what they contain.
pub const DATA: &str = "data";
/// Name of the directory with event files: below [`DATA`], and in earlier exports at the top.
pub const EVENTS: &str = "events";
/// Name of the directory with transaction files, likewise.
pub const TRANSACTIONS: &str = "transactions";
/// Name of the directory with the files of programs. In earlier exports it had a directory for each
/// program, with one for each table.
pub const PROGRAMS: &str = "programs";
/// Directories of earlier exports whose files belong to portions of ledgers.
pub const TABLES: [&str; 2] = [EVENTS, TRANSACTIONS];
/// Directories below [`DATA`].
pub const KINDS: [&str; 3] = [EVENTS, TRANSACTIONS, PROGRAMS];

/// Size in bytes at which a file is finished and the next one begins, and above which none is merged with
/// others.
pub const MAX_BYTES: usize = 128 << 20;

const SUFFIX: &str = ".parquet";
/// Number of hexadecimal digits of a SHA-256.
const HASH: usize = 64;
/// Number of hexadecimal digits in the mark that distinguishes the objects of one opening of an
/// export from those of others.
const MARK: usize = 8;

/// Returns the path of a file of this kind with this content. Of the same content, two openings of an
/// export with a mark make two files.
pub fn path_of(kind: &str, sha256: &str, mark: Option<&str>) -> String {
    let mark = mark.map(|mark| format!("-{mark}")).unwrap_or_default();
    format!("{DATA}/{kind}/{sha256}{mark}{SUFFIX}")
}

/// Returns whether [`path_of`] could have given a file this name.
pub fn is_by_content(name: &str) -> bool {
    let Some(stem) = name.strip_suffix(SUFFIX) else { return false };
    let (hash, rest) = stem.split_once('-').map_or((stem, None), |(hash, mark)| (hash, Some(mark)));
    is_hexadecimal(hash, HASH) && rest.is_none_or(|mark| is_hexadecimal(mark, MARK))
}

fn is_hexadecimal(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|c| c.is_ascii_hexdigit())
}

/// Returns whether an earlier export could have given a file this name: ledgers of a portion and a
/// number with `of_portions`, else a number.
pub fn is_older(name: &str, of_portions: bool) -> bool {
    let Some(stem) = name.strip_suffix(SUFFIX) else { return false };
    let digits = |part: &&str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
    let parts: Vec<_> = stem.split('-').collect();
    let numbers = if of_portions { 3 } else { 1 };
    let Some((given, rest)) = parts.split_at_checked(numbers) else { return false };
    given.iter().all(digits)
        && match rest {
            [] => true,
            [last] => is_hexadecimal(last, MARK),
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_its_names() {
        let hash = "0123456789abcdef".repeat(4);
        let names = [path_of(EVENTS, &hash, None), path_of(PROGRAMS, &hash, Some("00ab9f3c"))];
        assert_eq!(names[0], format!("data/events/{hash}.parquet"));
        let names = names.map(|path| path.rsplit('/').next().unwrap().to_owned());
        assert!(names.iter().all(|name| is_by_content(name) && !is_older(name, true)));
        let of_portions = ["0000001000-0000001999-0.parquet", "1-2-12-00ab9f3c.parquet"];
        let others = ["0000000000.parquet", "18446744073709551615-00ab9f3c.parquet"];
        assert!(of_portions.iter().all(|name| is_older(name, true) && !is_older(name, false)));
        assert!(others.iter().all(|name| is_older(name, false) && !is_older(name, true)));
        assert!(!of_portions.iter().chain(&others).any(|name| is_by_content(name)));
        for other in [
            "letter.txt",
            "x.parquet",
            ".parquet",
            "1-zzzzzzzz.parquet",
            "1-2.parquet",
            "1-2-x.parquet",
            "1-2-3-4.parquet",
            "1-2-3-zzzzzzzz.parquet",
            &format!("{hash}0.parquet"),
            &format!("{hash}-1.parquet"),
            &format!("{hash}-00ab9f3c-00ab9f3c.parquet"),
        ] {
            let known = is_older(other, true) || is_older(other, false) || is_by_content(other);
            assert!(!known, "{other}");
        }
    }
}
