//! Carries out the steps in which a commit is written ([`orrery_iceberg::order`]) at a destination.

use std::collections::HashSet;

use orrery_iceberg::order::{self, Step, Writer};
use orrery_iceberg::{Commit, layout};

use super::destination::LockedDestination;
use super::error::{ExportError, Result};
use super::lake;
use super::manifest::Manifest;

/// A destination, and the manifest that is written to it.
struct Steps<'a> {
    destination: &'a mut LockedDestination,
    manifest: &'a mut Manifest,
    /// Whether the views are those of the manifest.
    has_views: bool,
}

impl Writer for Steps<'_> {
    type Error = ExportError;

    fn carry_out(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Manifest => self.destination.write_manifest(self.manifest),
            Step::Write(file) => self.destination.write_new(&file.path, &file.bytes),
            Step::Point(file) => self.destination.point(self.manifest, &file.path, &file.bytes),
            Step::Remove(path) => {
                // A view must not name a file that is not there.
                if !self.has_views && !path.starts_with(layout::DIRECTORY) {
                    self.destination.write_views(self.manifest)?;
                    self.has_views = true;
                }
                self.destination.remove(path)
            }
        }
    }
}

impl LockedDestination {
    /// Writes the manifest and then what these commits of its tables write, and removes what it does not name
    /// any more: what the commits do not need, and the files `retired`, which were never part of a snapshot.
    pub fn write(
        &mut self,
        manifest: &mut Manifest,
        commits: Vec<Commit>,
        retired: Vec<String>,
    ) -> Result<()> {
        let named: HashSet<String> = manifest.paths().map(str::to_owned).collect();
        let steps = order::plan(commits, retired, |path| named.contains(path));
        order::execute(&steps, &mut Steps { destination: self, manifest, has_views: false })
    }

    /// Writes what a writer that was killed has not written any more, and removes what it has left.
    pub fn restore(&mut self, manifest: &mut Manifest) -> Result<()> {
        let root = self.root();
        let mark = self.mark().map(str::to_owned);
        let place = lake::Place { root: &root, mark: mark.as_deref() };
        let commits = lake::restored(manifest, place, |path| self.read(path))?;
        if !commits.is_empty() {
            self.write(manifest, commits, Vec::new())?;
        }
        // Views of a killed export may name files that are removed next.
        self.write_views(manifest)?;
        self.remove_strays(manifest)
    }
}
