//! Interprets a 403. A store whose caller may not list answers 403 for a missing key as well as for
//! a forbidden one (S3 does). A readable key distinguishes the two: while one can be read, a 403
//! for another key means that it is missing.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::layout::Manifest;

/// Time for which a key that was read proves the permission to read. Permissions change rarely, and
/// at the tip of a lake a missing key is requested several times a second.
const PROOF_LIFETIME: Duration = Duration::from_secs(5);

/// Evidence of the permission to read one lake.
#[derive(Default)]
pub(super) struct Access {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Whether the manifest was ever read. Unlike old files, it is never removed.
    manifest: bool,
    /// The key that was read last, and when.
    last: Option<(String, Instant)>,
}

/// Meaning of a 403 for a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The key is missing.
    Missing,
    /// The permission is missing.
    Refused,
    /// The key is missing if this other key can be read, otherwise the permission is.
    Probe(String),
}

impl Access {
    /// Records that `key` can be read.
    pub fn readable(&self, key: &str) {
        let mut known = self.known.lock();
        known.manifest |= key == Manifest::FILE_NAME;
        known.last = Some((key.to_owned(), Instant::now()));
    }

    /// Returns the meaning of a 403 for `key`, or for the listing if `key` is empty. A key that was
    /// read recently proves the permission for other keys, but not for the listing, whose refusal
    /// is remembered for longer.
    pub fn meaning_for(&self, key: &str) -> Meaning {
        let known = self.known.lock();
        let last = known.last.as_ref().filter(|(last, _)| last != key);
        if !key.is_empty() && last.is_some_and(|(_, at)| at.elapsed() < PROOF_LIFETIME) {
            return Meaning::Missing;
        }
        let witness = match last {
            Some((last, _)) if !known.manifest => last,
            _ => Manifest::FILE_NAME,
        };
        if witness == key { Meaning::Refused } else { Meaning::Probe(witness.to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_readable_key_proves_access_for_a_limited_time() {
        let access = Access::default();
        let manifest = Manifest::FILE_NAME;
        assert_eq!(access.meaning_for(manifest), Meaning::Refused);
        assert_eq!(access.meaning_for("a"), Meaning::Probe(manifest.to_owned()));
        access.readable("b");
        assert_eq!(access.meaning_for("a"), Meaning::Missing);
        assert_eq!(access.meaning_for(""), Meaning::Probe("b".to_owned()), "it is the listing");
        tokio::time::advance(PROOF_LIFETIME).await;
        assert_eq!(access.meaning_for("a"), Meaning::Probe("b".to_owned()));
        assert_eq!(access.meaning_for("b"), Meaning::Probe(manifest.to_owned()), "not for itself");
        access.readable(manifest);
        access.readable("b");
        tokio::time::advance(PROOF_LIFETIME).await;
        assert_eq!(access.meaning_for("a"), Meaning::Probe(manifest.to_owned()));
        assert_eq!(access.meaning_for(manifest), Meaning::Refused, "it could be read before");
    }
}
