//! Paths of a table's metadata below the destination of an export. Names say what a file contains, so that
//! none is ever written with another content; only the pointer to the current metadata is replaced.

use sha2::{Digest, Sha256};

/// Directory of all metadata. A table has the directory of its UUID in it, which engines that know no
/// catalogue take for the table's.
pub const DIRECTORY: &str = "iceberg";
/// Name of the file that names the current metadata, as engines without a catalogue know it.
pub const POINTER: &str = "version-hint.text";

const METADATA_END: &str = ".metadata.json";
const AVRO_END: &str = ".avro";
/// Bytes of the hash in a name.
const HASH: usize = 16;
/// Hexadecimal digits of a writer's mark.
const MARK: usize = 8;

/// Kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Manifest.
    Manifest,
    /// Manifest list.
    List,
    /// Table metadata.
    Metadata,
}

/// Returns the directory of a table's metadata files.
pub fn directory(uuid: &str) -> String {
    format!("{DIRECTORY}/{uuid}/metadata")
}

/// Returns the path of the file that names the table's current metadata.
pub fn pointer(uuid: &str) -> String {
    format!("{}/{POINTER}", directory(uuid))
}

/// Returns the path of a file of this commit with this content. `mark` distinguishes the files of one writer
/// from those of others.
pub fn path(kind: Kind, uuid: &str, commit: u64, content: &[u8], mark: Option<&str>) -> String {
    let mark = mark.map(|mark| format!("-{mark}")).unwrap_or_default();
    let end = match kind {
        Kind::Manifest | Kind::List => AVRO_END,
        Kind::Metadata => METADATA_END,
    };
    format!("{}{mark}{end}", stem(kind, uuid, commit, content))
}

/// Returns the path of a file of this commit with this content up to its mark.
pub(crate) fn stem(kind: Kind, uuid: &str, commit: u64, content: &[u8]) -> String {
    let hash = Sha256::digest(content);
    let begin = match kind {
        Kind::Manifest => "m",
        Kind::List => "snap-",
        Kind::Metadata => "",
    };
    format!("{}/{begin}{commit:05}-{}", directory(uuid), hex::encode(&hash[..HASH]))
}

/// Returns the content of the pointer to metadata with this path.
pub fn pointed(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.strip_suffix(METADATA_END).unwrap_or(name).to_owned()
}

/// Returns whether [`path`] could have given a file this name.
pub fn is_ours(name: &str) -> bool {
    let stem = match (name.strip_suffix(METADATA_END), name.strip_suffix(AVRO_END)) {
        (Some(stem), _) => stem,
        (None, Some(stem)) => match stem.strip_prefix("snap-").or(stem.strip_prefix('m')) {
            Some(stem) => stem,
            None => return false,
        },
        (None, None) => return false,
    };
    let digits = |text: &str| text.len() >= 5 && text.bytes().all(|c| c.is_ascii_digit());
    let hexadecimal =
        |text: &str, bytes| text.len() == bytes && text.bytes().all(|c| c.is_ascii_hexdigit());
    match stem.split('-').collect::<Vec<_>>()[..] {
        [commit, hash] => digits(commit) && hexadecimal(hash, 2 * HASH),
        [commit, hash, mark] => {
            digits(commit) && hexadecimal(hash, 2 * HASH) && hexadecimal(mark, MARK)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_its_names() {
        for kind in [Kind::Manifest, Kind::List, Kind::Metadata] {
            for mark in [None, Some("00ab9f3c")] {
                let path = path(kind, "u", 123_456, b"x", mark);
                let name = path.strip_prefix("iceberg/u/metadata/").unwrap();
                assert!(is_ours(name), "{name}");
            }
        }
        let name = path(Kind::Metadata, "u", 7, b"", Some("00ab9f3c"));
        assert_eq!(pointed(&name), "00007-e3b0c44298fc1c149afbf4c8996fb924-00ab9f3c");
        let hash = "e3b0c44298fc1c149afbf4c8996fb924";
        for other in [
            POINTER.to_owned(),
            format!("00007-{hash}.avro"),
            format!("m7-{hash}.avro"),
            format!("m00007-{hash}.json"),
            format!("m00007-{hash}0.avro"),
            format!("00007-{hash}-zzzzzzzz.metadata.json"),
            "metadata.json".to_owned(),
        ] {
            assert!(!is_ours(&other), "{other}");
        }
    }
}
