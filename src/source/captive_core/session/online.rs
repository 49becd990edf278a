//! A session of a core that follows its network, from the needed ledger on.

use orrery_ledger::domain::LedgerSeq;
use tokio::net::unix::pipe;
use toml::Table;

use super::{End, Runner, config};
use crate::captive_core::error::CoreError;
use crate::captive_core::frames::{Frames, Input};
use crate::captive_core::http;
use crate::captive_core::process::{Launcher, Process, STREAM_ARGUMENTS};
use crate::captive_core::settings::OnlineStart;
use crate::captive_core::storage::failed;

/// Maximum distance in ledgers of the needed ledger from the archive's newest checkpoint: two
/// checkpoints.
const MAX_CHECKPOINT_DISTANCE: u32 = 128;

impl Runner {
    pub(super) async fn online(&mut self) -> Result<End, CoreError> {
        let followed = self.follow().await;
        if matches!(followed, Err(CoreError::StorageInDoubt(_))) {
            tracing::info!("the storage of stellar-core is wiped");
            self.plan.storage.wipe()?;
        }
        followed
    }

    async fn follow(&mut self) -> Result<End, CoreError> {
        let from = self.plan.from;
        self.plan.storage.take_over(self.plan.settings.limits.stop).await?;
        let protocol = self.version().await?.protocol;
        let (work, start) = (self.plan.storage.work(), OnlineStart::at(from));
        let (mut launcher, mut table) = self.configure(&work, protocol, start)?;
        self.check_distance(&table).await?;
        if !self.can_resume(&launcher).await? {
            self.plan.storage.wipe()?;
            (launcher, _) = self.configure(&work, protocol, start)?;
            self.command(&launcher, &["new-db"]).await?;
            if start == OnlineStart::Checkpoint {
                // Without this, core would begin at the newest checkpoint.
                let before = from.previous().unwrap_or(from);
                self.command(&launcher, &["catchup", &format!("{before}/0")]).await?;
            }
        }
        let _published = self.open_ports(&launcher, &mut table, protocol)?;
        let (process, frames) = start_streaming(&launcher, &["run"])?;
        tracing::info!(%from, "stellar-core runs");
        let (port, network) = (config::http_port(&table), self.plan.settings.network.clone());
        let checks =
            async move { if port == 0 { Ok(()) } else { http::check(port, &network, None).await } };
        self.stream(process, frames, checks).await
    }

    /// Fails if the archive's newest checkpoint is too far below the needed ledger. If no archive
    /// answers, core runs all the same.
    async fn check_distance(&mut self, table: &Table) -> Result<(), CoreError> {
        let Some(state) = self.archive(table).await? else { return Ok(()) };
        let (needed, newest) = (self.plan.from, state.newest());
        if needed.0 > newest.0.saturating_add(MAX_CHECKPOINT_DISTANCE) {
            return Err(CoreError::Other(format!(
                "stellar-core cannot begin at ledger {needed}: the newest checkpoint of the history \
                 archive is {newest}, more than two checkpoints before it; source.start is wrong, \
                 the archive is old, or the network was reset and needs an empty data directory"
            )));
        }
        self.queue.announce(newest);
        Ok(())
    }

    /// Returns whether core can reach the needed ledger from the state in its storage.
    async fn can_resume(&mut self, launcher: &Launcher) -> Result<bool, CoreError> {
        match self.closed(launcher).await {
            Ok(closed) => Ok(closed > LedgerSeq(1) && closed < self.plan.from),
            Err(CoreError::StorageInDoubt(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Starts a core that streams into a pipe.
pub(super) fn start_streaming(
    launcher: &Launcher,
    arguments: &[&str],
) -> Result<(Process, Frames), CoreError> {
    let failed = failed(&launcher.directory);
    let (reader, writer) = std::io::pipe().map_err(&failed)?;
    let receiver = pipe::Receiver::from_owned_fd(reader.into()).map_err(&failed)?;
    let arguments = [arguments, &STREAM_ARGUMENTS].concat();
    let process = launcher.start(&arguments, Some(writer.into()))?;
    Ok((process, Frames::new(Input::Pipe(receiver), 0)))
}
