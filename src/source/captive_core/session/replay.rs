//! A session of a core that replays a bounded range from the archive.

use orrery_ledger::domain::LedgerSeq;

use super::online::start_streaming;
use super::{End, Runner};
use crate::captive_core::error::CoreError;
use crate::captive_core::settings::OnlineStart;

impl Runner {
    pub(super) async fn replay(&mut self, to: LedgerSeq) -> Result<End, CoreError> {
        let from = self.plan.from;
        if from > to {
            return Ok(End::Complete);
        }
        self.plan.storage.take_over(self.plan.settings.limits.stop).await?;
        let protocol = self.version().await?.protocol;
        let directory = self.plan.storage.replay_directory()?;
        let (launcher, table) =
            self.configure(directory.path(), protocol, OnlineStart::Checkpoint)?;
        if let Some(state) = self.archive(&table).await?
            && to > state.newest()
        {
            let newest = state.newest();
            return Err(CoreError::Other(format!(
                "stellar-core cannot replay to ledger {to}: the newest checkpoint of the history \
                 archive is {newest}; choose an earlier last ledger, or wait for the next checkpoint"
            )));
        }
        self.command(&launcher, &["new-db"]).await?;
        let range = format!("{to}/{}", to.0 - from.0 + 1);
        let (process, frames) = start_streaming(&launcher, &["catchup", &range])?;
        tracing::info!(%from, %to, "stellar-core replays");
        self.stream(process, frames, std::future::ready(Ok(()))).await
    }
}
