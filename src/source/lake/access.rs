//! What a 403 means. A store whose caller may not list answers 403 for a key that is missing, just
//! as for one that may not be read (S3 does). A key that can be read tells the two apart: while there
//! is one, another key's 403 means that it is missing.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Manifest;

/// For so long a key that was read vouches for the right to read. Right and wrong change seldom, and
/// at the tip of a lake a key is missing several times a second.
const VOUCHES_FOR: Duration = Duration::from_secs(5);

/// What is known of the right to read one lake.
#[derive(Default)]
pub(super) struct Access {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Whether the manifest could ever be read. It is never removed, as old files may be.
    manifest: bool,
    /// The key that was read last, and when.
    last: Option<(String, Instant)>,
}

/// What a 403 for a key means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The key is missing.
    Missing,
    /// The right is missing.
    Refused,
    /// If this key can be read, the key is missing, else the right.
    Ask(String),
}

impl Access {
    /// Takes note that `key` can be read.
    pub fn readable(&self, key: &str) {
        let mut known = self.known.lock();
        known.manifest |= key == Manifest::FILE_NAME;
        known.last = Some((key.to_owned(), Instant::now()));
    }

    /// What a 403 for `key` means, an empty one for the listing. What was read a moment ago vouches
    /// for keys, but not for the listing, whose refusal is remembered for longer.
    pub fn meaning_for(&self, key: &str) -> Meaning {
        let known = self.known.lock();
        let last = known.last.as_ref().filter(|(last, _)| last != key);
        if !key.is_empty() && last.is_some_and(|(_, at)| at.elapsed() < VOUCHES_FOR) {
            return Meaning::Missing;
        }
        let witness = match last {
            Some((last, _)) if !known.manifest => last,
            _ => Manifest::FILE_NAME,
        };
        if witness == key { Meaning::Refused } else { Meaning::Ask(witness.to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_that_was_read_vouches_for_a_while() {
        let access = Access::default();
        let manifest = Manifest::FILE_NAME;
        assert_eq!(access.meaning_for(manifest), Meaning::Refused);
        assert_eq!(access.meaning_for("a"), Meaning::Ask(manifest.to_owned()));
        access.readable("b");
        assert_eq!(access.meaning_for("a"), Meaning::Missing);
        assert_eq!(access.meaning_for(""), Meaning::Ask("b".to_owned()), "it is the listing");
        tokio::time::advance(VOUCHES_FOR).await;
        assert_eq!(access.meaning_for("a"), Meaning::Ask("b".to_owned()));
        assert_eq!(access.meaning_for("b"), Meaning::Ask(manifest.to_owned()), "not for itself");
        access.readable(manifest);
        access.readable("b");
        tokio::time::advance(VOUCHES_FOR).await;
        assert_eq!(access.meaning_for("a"), Meaning::Ask(manifest.to_owned()));
        assert_eq!(access.meaning_for(manifest), Meaning::Refused, "it could be read before");
    }
}
