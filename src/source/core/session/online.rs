//! A core that follows its network, from the ledger that is needed.

use tokio::net::unix::pipe;
use toml::Table;

use super::{End, Runner, config};
use crate::domain::LedgerSeq;
use crate::source::core::error::CoreError;
use crate::source::core::frames::{Frames, Input};
use crate::source::core::process::{Caller, Process, STREAM_ARGUMENTS};
use crate::source::core::storage::failed;
use crate::source::core::{OnlineStart, http};

/// Ledgers that the one to begin with may lie beyond the newest checkpoint: two checkpoints.
const FARTHEST: u32 = 128;

impl Runner {
    pub(super) async fn online(&mut self) -> Result<End, CoreError> {
        let followed = self.follow().await;
        if followed.as_ref().is_err_and(CoreError::leaves_doubt) {
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
        let (mut caller, mut table) = self.configure(&work, protocol, start)?;
        self.check_distance(&table).await?;
        if !self.can_go_on(&caller).await? {
            self.plan.storage.wipe()?;
            (caller, _) = self.configure(&work, protocol, start)?;
            self.command(&caller, &["new-db"]).await?;
            if start == OnlineStart::Checkpoint {
                // Without this, core would begin at the newest checkpoint.
                let before = from.previous().unwrap_or(from);
                self.command(&caller, &["catchup", &format!("{before}/0")]).await?;
            }
        }
        let _asked = self.open_ports(&caller, &mut table, protocol)?;
        let (process, frames) = start_streaming(&caller, &["run"])?;
        tracing::info!(%from, "stellar-core runs");
        let (port, network) = (config::http_port(&table), self.plan.settings.network.clone());
        let checks =
            async move { if port == 0 { Ok(()) } else { http::check(port, &network, None).await } };
        self.stream(process, frames, checks).await
    }

    /// Whether the archive comes near enough to the ledger that is needed. One that does not answer
    /// is left to core.
    async fn check_distance(&mut self, table: &Table) -> Result<(), CoreError> {
        let Some(state) = self.archive(table).await? else { return Ok(()) };
        let (needed, newest) = (self.plan.from, state.newest());
        if needed.0 > newest.0.saturating_add(FARTHEST) {
            return Err(CoreError::TooFarAhead { needed, newest });
        }
        self.queue.announce(newest);
        Ok(())
    }

    /// Whether what core has in its storage leads to the ledger that is needed.
    async fn can_go_on(&mut self, caller: &Caller) -> Result<bool, CoreError> {
        match self.closed(caller).await {
            Ok(closed) => Ok(closed > LedgerSeq(1) && closed < self.plan.from),
            Err(CoreError::Command { .. } | CoreError::Answer { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Starts a core that streams into a pipe.
pub(super) fn start_streaming(
    caller: &Caller,
    arguments: &[&str],
) -> Result<(Process, Frames), CoreError> {
    let failed = failed(&caller.directory);
    let (reader, writer) = std::io::pipe().map_err(&failed)?;
    let receiver = pipe::Receiver::from_owned_fd(reader.into()).map_err(&failed)?;
    let arguments = [arguments, &STREAM_ARGUMENTS].concat();
    let process = caller.start(&arguments, Some(writer.into()))?;
    Ok((process, Frames::new(Input::Pipe(receiver), 0)))
}
