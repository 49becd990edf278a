//! Removing what no snapshot needs, in two steps: an object is listed first, and removed a day later if still no
//! snapshot names it. A restoration from a snapshot that is removed meanwhile has a day to end.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::description::is_object;
use super::place::Place;
use crate::backup::BackupError;
use crate::steady::unix_now;

/// Key of the list.
pub const DOOMED: &str = "doomed.json";
/// Seconds for which an object stays after it was listed.
const LISTED_SECONDS: u64 = 24 * 3600;

/// Objects that no snapshot needs, each with the UNIX time in seconds at which it was listed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Doomed {
    objects: BTreeMap<String, u64>,
}

/// What a step has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Number of objects that were listed by this step.
    pub listed: u64,
    /// Number of objects that were removed.
    pub removed: u64,
}

impl Doomed {
    /// Reads the list; it is empty when there is none.
    ///
    /// # Errors
    /// When it is damaged.
    pub async fn of(place: &Place) -> Result<Self, BackupError> {
        let Some(text) = place.get(DOOMED).await? else { return Ok(Self::default()) };
        serde_json::from_slice(&text).map_err(|error| {
            BackupError::Other(format!(
                "{} is damaged ({error}): remove it, and what it lists is listed again",
                place.name(DOOMED)
            ))
        })
    }

    /// Writes the list.
    pub async fn write(&self, place: &Place) -> Result<(), BackupError> {
        let text = serde_json::to_vec_pretty(self);
        let mut text = text.map_err(|error| BackupError::Other(error.to_string()))?;
        text.push(b'\n');
        place.put(DOOMED, text.into()).await
    }

    /// Whether an object is listed: it may be removed at any time, so that a snapshot that needs it writes it again.
    pub fn contains(&self, object: &str) -> bool {
        self.objects.contains_key(object)
    }

    /// Takes objects that were written again off the list, and writes it if that changes it.
    pub async fn spare(
        &mut self,
        place: &Place,
        written: &BTreeSet<String>,
    ) -> Result<(), BackupError> {
        let before = self.objects.len();
        self.objects.retain(|object, _| !written.contains(object));
        if self.objects.len() == before { Ok(()) } else { self.write(place).await }
    }

    /// Lists those of the objects that are not `needed`. Returns how many are new on the list, which is written, and
    /// those that were listed a day ago.
    pub async fn list(
        &mut self,
        place: &Place,
        objects: impl Iterator<Item = String>,
        needed: &BTreeSet<String>,
    ) -> Result<(u64, Vec<String>), BackupError> {
        let now = unix_now();
        let mut listed = 0;
        let before = self.clone();
        let existing: BTreeSet<String> = objects.filter(|object| is_object(object)).collect();
        self.objects.retain(|object, _| existing.contains(object) && !needed.contains(object));
        for object in existing {
            if !needed.contains(&object) && !self.contains(&object) {
                self.objects.insert(object, now);
                listed += 1;
            }
        }
        let is_due = |listed: u64| listed.saturating_add(LISTED_SECONDS) <= now;
        let due = self.objects.iter().filter(|(_, at)| is_due(**at)).map(|(o, _)| o.clone());
        let due = due.collect();
        if *self != before {
            // On the list before anything is removed.
            self.write(place).await?;
        }
        Ok((listed, due))
    }

    /// Removes an object of the list, which is not written.
    pub async fn remove(&mut self, place: &Place, object: &str) -> Result<(), BackupError> {
        place.remove(object).await?;
        self.objects.remove(object);
        Ok(())
    }
}
