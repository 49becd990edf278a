//! A session of a core that is the only node of its network. Its storage is the only copy of that
//! network and is never wiped.

use orrery_ledger::decode::MAX_PROTOCOL;
use orrery_ledger::domain::LedgerSeq;

use super::{End, Runner, config};
use crate::captive_core::error::CoreError;
use crate::captive_core::frames::{Frames, Input};
use crate::captive_core::process::STREAM_ARGUMENTS;
use crate::captive_core::settings::OnlineStart;
use crate::captive_core::{http, standalone};

/// Name of the database file.
const DATABASE: &str = "stellar.db";
/// The ledger that `new-db` closes.
const GENESIS: LedgerSeq = LedgerSeq(1);

impl Runner {
    pub(super) async fn standalone(&mut self) -> Result<End, CoreError> {
        let (from, storage) = (self.plan.from, self.plan.storage.clone());
        storage.take_over(self.plan.settings.limits.stop).await?;
        let protocol = self.version().await?.protocol;
        let work = storage.work();
        let (launcher, mut table) = self.configure(&work, protocol, OnlineStart::Checkpoint)?;
        let closed = if work.join(DATABASE).exists() {
            self.closed(&launcher).await?
        } else {
            if from > LedgerSeq::FIRST {
                return Err(CoreError::standalone_lost(storage.root(), "has not begun", from));
            }
            self.command(&launcher, &["new-db"]).await?;
            GENESIS
        };
        let longest = self.plan.settings.limits.bytes_on_disk / 2;
        let ledgers = standalone::open(&storage, closed, from, longest)?;
        let _published = self.open_ports(&launcher, &mut table, protocol)?;
        let arguments = [&["run"][..], &STREAM_ARGUMENTS].concat();
        let process = launcher.start(&arguments, Some(ledgers.writer.into()))?;
        tracing::info!(%from, "stellar-core runs a network of its own");
        let frames = Frames::new(Input::File(ledgers.reader), ledgers.offset);
        let (port, network) = (config::http_port(&table), self.plan.settings.network.clone());
        let known = protocol.min(MAX_PROTOCOL);
        let checks = async move {
            if port == 0 { Ok(()) } else { http::check(port, &network, Some(known)).await }
        };
        self.stream(process, frames, checks).await
    }
}
