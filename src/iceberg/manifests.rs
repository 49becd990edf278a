//! Which manifest has which files. A commit writes one with the files that it adds, and again those with
//! files that it removes; small neighbours are merged, so that there are few, and little is written.

use crate::file::DataFile;
use crate::groups::groups;
use crate::manifest_file::Entry;
use crate::state::{Amount, ManifestFile, RemovedFile, TableState};

/// Number of files at which a manifest is full.
pub(crate) const MOST_FILES: u64 = 1000;
/// Manifests that a snapshot may have beyond two for each full one.
pub(crate) const SPARE: usize = 16;

/// Returns the files of the snapshot of this commit, and those that it has removed, by their numbers.
pub(crate) fn entries<'a>(
    files: &'a [DataFile],
    removed: &'a [RemovedFile],
    commit: u64,
) -> Vec<Entry<'a>> {
    let entry = |file: &'a DataFile, is_removed: bool| {
        file.place.map(|place| Entry { file, place, is_removed })
    };
    let there = files.iter().filter_map(|file| entry(file, false));
    let removed = removed.iter().filter(|removed| removed.until == Some(commit));
    let removed = removed.filter_map(|removed| entry(&removed.file, true));
    let mut entries: Vec<_> = there.chain(removed).collect();
    entries.sort_unstable_by_key(|entry| entry.place.number);
    entries
}

/// Returns those of all entries that belong to the manifest, and records how many they are.
pub(crate) fn fill<'a, 'e>(manifest: &mut ManifestFile, all: &'a [Entry<'e>]) -> &'a [Entry<'e>] {
    let own = within(all, manifest.first, manifest.last);
    (manifest.added, manifest.existing, manifest.deleted) = Default::default();
    manifest.oldest = manifest.commit;
    for entry in own {
        let amount = match (entry.is_removed, entry.place.commit == manifest.commit) {
            (true, _) => &mut manifest.deleted,
            (false, true) => &mut manifest.added,
            (false, false) => &mut manifest.existing,
        };
        *amount = amount.and(entry.file);
        if !entry.is_removed {
            manifest.oldest = manifest.oldest.min(entry.place.commit);
        }
    }
    own
}

fn within<'a, 'e>(all: &'a [Entry<'e>], first: u64, last: u64) -> &'a [Entry<'e>] {
    let begin = all.partition_point(|entry| entry.place.number < first);
    let end = all.partition_point(|entry| entry.place.number <= last);
    all.get(begin..end).unwrap_or_default()
}

/// A manifest of the new snapshot.
struct Slot {
    first: u64,
    last: u64,
    /// Number of its files that are not removed.
    live: u64,
    /// Whether it has to be written.
    is_new: bool,
}

/// Arranges the manifests of the snapshot of the newest commit, of which the files have their places.
/// Content and names of those that it writes follow when they are rendered.
pub(crate) fn arrange(state: &mut TableState, files: &[DataFile]) {
    let commit = state.commit;
    let all = entries(files, &state.removed, commit);
    let mut slots = Vec::new();
    for manifest in state.manifests.iter_mut().filter(|it| it.is_current()) {
        let own = within(&all, manifest.first, manifest.last);
        let live = own.iter().filter(|entry| !entry.is_removed).count();
        let (first, last) = (manifest.first, manifest.last);
        // One of which the files were removed before is not part of the snapshot.
        match own.is_empty() {
            true => manifest.until = Some(commit),
            false => {
                let is_new = live < own.len();
                slots.push(Slot { first, last, live: live as u64, is_new });
            }
        }
    }
    // New files have greater numbers than all others.
    let placed = slots.last().map(|slot| slot.last);
    let rest = all.partition_point(|entry| placed.is_some_and(|last| entry.place.number <= last));
    for chunk in all[rest..].chunks(MOST_FILES as usize) {
        if let [first, .., last] | [first @ last] = chunk {
            let (first, last) = (first.place.number, last.place.number);
            slots.push(Slot { first, last, live: chunk.len() as u64, is_new: true });
        }
    }
    let new = merged(slots);
    for slot in &new {
        let covered = |it: &&mut ManifestFile| {
            it.is_current() && it.first <= slot.last && it.last >= slot.first
        };
        state.manifests.iter_mut().filter(covered).for_each(|it| it.until = Some(commit));
    }
    state.manifests.extend(new.into_iter().map(|slot| begun(&slot, commit)));
    state.manifests.sort_by_key(|it| (it.first, it.commit));
}

/// Merges neighbours, and returns what has to be written.
fn merged(slots: Vec<Slot>) -> Vec<Slot> {
    let sizes: Vec<u64> = slots.iter().map(|slot| slot.live).collect();
    let mut groups = groups(&sizes, MOST_FILES, SPARE).into_iter().peekable();
    let mut new = Vec::<Slot>::new();
    for (at, slot) in slots.into_iter().enumerate() {
        while groups.next_if(|group| group.end <= at).is_some() {}
        match groups.peek() {
            Some(group) if group.start == at => new.push(Slot { is_new: true, ..slot }),
            Some(group) if group.contains(&at) => {
                if let Some(merged) = new.last_mut() {
                    merged.last = slot.last;
                    merged.live += slot.live;
                }
            }
            _ if slot.is_new => new.push(slot),
            _ => {}
        }
    }
    new
}

fn begun(slot: &Slot, commit: u64) -> ManifestFile {
    let none = Amount::default();
    ManifestFile {
        path: String::new(),
        bytes: 0,
        first: slot.first,
        last: slot.last,
        commit,
        until: None,
        oldest: commit,
        added: none,
        existing: none,
        deleted: none,
    }
}
