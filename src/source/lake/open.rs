//! Opens a lake: finds its manifest or takes the layout from the settings, selects among the
//! directories of a network that is reset from time to time, and determines the file extension.

use std::sync::Arc;

use orrery_ledger::domain::{LedgerSeq, Network};
use time::Date;
use time::macros::format_description;

use super::batches::{Lake, LayoutOf, ResetDirectory};
use super::error::LakeError;
use super::files::LakeFiles;
use super::layout::{self, EXTENSIONS, GivenLayout, Layout, Manifest};

/// Number of keys listed to find the extension: some may belong to files that are still being
/// written.
const KEYS_FOR_EXTENSION: usize = 16;
/// Maximum number of reset directories searched for a manifest, the newest first.
const MAX_RESETS: usize = 8;

impl Lake {
    /// Opens the lake in `store`: reads the manifest and rejects a lake of another network.
    pub async fn open(store: Arc<dyn LakeFiles>, network: &Network) -> Result<Self, LakeError> {
        Self::open_as(store, network, &GivenLayout::default(), None).await
    }

    /// Opens a lake with the layout in `given`, which must not contradict its manifest. Where the
    /// store cannot list, the file extension is detected by probing near ledger `near`.
    pub async fn open_as(
        store: Arc<dyn LakeFiles>,
        network: &Network,
        given: &GivenLayout,
        near: Option<LedgerSeq>,
    ) -> Result<Self, LakeError> {
        let Found { store, manifest, layout_of, reset_directory } =
            find_manifest(store, given).await?;
        let place = store.place(Manifest::FILE_NAME);
        manifest.check_network(&place, network)?;
        let layout = Layout::new(&manifest);
        let extension = match &given.extension {
            Some(extension) => Some(extension.clone()),
            None => find_extension(&*store, &layout, near).await?,
        };
        let layout = layout.with_extension(extension);
        let passphrase = manifest.network_passphrase;
        Ok(Self { store, layout, layout_of, passphrase, reset_directory })
    }

    /// Returns the layout that the manifest names now, if it is another than when the lake was opened.
    pub(super) async fn other_manifest(&self) -> Result<Option<Layout>, LakeError> {
        let key = Manifest::FILE_NAME;
        let Some(text) = self.store.get(key).await? else { return Ok(None) };
        let layout = Layout::new(&Manifest::parse(&self.store.place(key), &text)?);
        let differs = !layout.has_sizes_of(&self.layout);
        Ok(differs.then(|| layout.with_extension(Some(self.layout.extension().to_owned()))))
    }

    /// Fails when a newer reset directory has a manifest: the network was reset.
    pub(super) async fn check_for_reset(&self) -> Result<(), LakeError> {
        let Some(ResetDirectory { parent, name }) = &self.reset_directory else { return Ok(()) };
        match youngest_reset(&**parent).await? {
            Some((younger, _)) if younger > *name => {
                let (place, newer) = (self.place(), parent.place(&younger));
                Err(LakeError::Fatal(format!(
                    "the network of the lake {place} was reset: its ledgers now come from {newer}; \
                     start again with an empty data directory"
                )))
            }
            _ => Ok(()),
        }
    }
}

/// A lake whose manifest is known.
struct Found {
    store: Arc<dyn LakeFiles>,
    manifest: Manifest,
    layout_of: LayoutOf,
    reset_directory: Option<ResetDirectory>,
}

impl Found {
    fn at(store: Arc<dyn LakeFiles>, manifest: Manifest, layout_of: LayoutOf) -> Self {
        Self { store, manifest, layout_of, reset_directory: None }
    }
}

/// Returns the manifest at the root, the one from the settings, or that of the newest reset
/// directory.
async fn find_manifest(store: Arc<dyn LakeFiles>, given: &GivenLayout) -> Result<Found, LakeError> {
    let place = store.place(Manifest::FILE_NAME);
    // A lake without a manifest looks forbidden in a store that answers 403 for a missing key.
    let (found, refusal) = match store.get(Manifest::FILE_NAME).await {
        Ok(text) => (text, None),
        Err(refusal @ LakeError::Refused(_)) => (None, Some(refusal)),
        Err(error) => return Err(error),
    };
    if let Some(text) = found {
        let manifest = Manifest::parse(&place, &text)?;
        manifest.check_layout(&place, given)?;
        return Ok(Found::at(store, manifest, LayoutOf::Manifest));
    }
    if let Some(manifest) = Manifest::given(&store.place(""), given)? {
        return Ok(Found::at(store, manifest, LayoutOf::Settings));
    }
    let no_manifest = |hint| {
        let (place, file) = (store.place(""), Manifest::FILE_NAME);
        LakeError::Other(format!("{place} is not a ledger lake: it has no {file}{hint}"))
    };
    match store.directories().await {
        Err(LakeError::Refused(_)) if refusal.is_some() => {}
        Err(error) => return Err(error),
        Ok(None) => {
            let hint = "; if there is one directory for each reset of the network, give the \
                        address of the newest, because this server cannot list them";
            return Err(refusal.unwrap_or_else(|| no_manifest(hint)));
        }
        Ok(Some(_)) => {
            if let Some((name, manifest)) = youngest_reset(&*store).await? {
                let below = store.below(&name);
                let reset_directory = Some(ResetDirectory { parent: store, name });
                return Ok(Found {
                    reset_directory,
                    ..Found::at(below, manifest, LayoutOf::Manifest)
                });
            }
        }
    }
    let hint = ", nor a directory named as a date that has one; if it is a lake without a \
                manifest, give lake_ledgers_per_batch and lake_batches_per_partition";
    Err(refusal.unwrap_or_else(|| no_manifest(hint)))
}

/// Returns the newest directory that is named as a date and has a manifest; `None` when there is
/// none.
async fn youngest_reset(store: &dyn LakeFiles) -> Result<Option<(String, Manifest)>, LakeError> {
    let Some(mut names) = store.directories().await? else { return Ok(None) };
    names.retain(|name| is_date(name));
    names.sort_unstable();
    for name in names.into_iter().rev().take(MAX_RESETS) {
        let key = format!("{name}/{}", Manifest::FILE_NAME);
        if let Some(text) = store.get(&key).await? {
            return Ok(Some((name, Manifest::parse(&store.place(&key), &text)?)));
        }
    }
    Ok(None)
}

/// Returns whether the name is a date, `YYYY-MM-DD`, which sorts by age.
fn is_date(name: &str) -> bool {
    Date::parse(name, format_description!("[year]-[month]-[day]")).is_ok()
}

/// Returns the file extension after `.xdr.`: that of a listed key, otherwise that of the first key
/// found by probing. Returns `None` when no file is found.
async fn find_extension(
    store: &dyn LakeFiles,
    layout: &Layout,
    near: Option<LedgerSeq>,
) -> Result<Option<String>, LakeError> {
    if let Some(keys) = store.keys_after("", KEYS_FOR_EXTENSION).await? {
        let extensions = keys.iter().filter_map(|key| layout::extension_of(key));
        // A file that is still being written may have another extension for a while.
        let known = extensions.clone().find(|extension| EXTENSIONS.contains(extension));
        return Ok(known.or(extensions.clone().next()).map(str::to_owned));
    }
    let before = near.and_then(LedgerSeq::previous);
    let mut refusal = None;
    for ledger in [near, before, Some(LedgerSeq::FIRST)].into_iter().flatten() {
        for extension in EXTENSIONS {
            let key = layout.clone().with_extension(Some(extension.to_owned())).key_of(ledger);
            match store.exists(&key).await {
                Ok(true) => return Ok(Some(extension.to_owned())),
                Ok(false) => {}
                Err(error @ LakeError::Refused(_)) => refusal = Some(error),
                Err(error) => return Err(error),
            }
        }
    }
    refusal.map_or(Ok(None), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_dates_are_recognised() {
        assert!(is_date("2025-08-14"));
        for name in
            ["2025-8-14", "2025-08-144", "latest", "FC3E15FF--", "2025/08/14", "2025-13-01", ""]
        {
            assert!(!is_date(name), "{name}");
        }
    }
}
