//! An RPC server, or the stellar-core that this process runs, as one who knows the present state of the
//! ledger, for programs that look into the past.
//!
//! Strangers' programs choose what is asked. A question that fails is followed by one about an entry that
//! every network has: when that one is answered, the first is refused, and whoever asked it goes on without
//! an answer. Else the server is out of reach: nobody waits for it in vain, until it answers again.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stellar_xdr::{ConfigSettingId, LedgerKey, LedgerKeyConfigSetting};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::stopped;
use crate::programs::state::{Upstream, UpstreamAnswer, UpstreamEntry, UpstreamError};
use crate::source::core::CoreEntries;
use crate::source::entries::{HeldEntries, HeldEntry};
use crate::source::rpc::RpcEntries;

/// How long the server has to answer a question about one entry. A stellar-core that is behind what it has
/// streamed takes two seconds of it to catch up.
const PROBED_WITHIN: Duration = Duration::from_secs(5);
/// A server that is out of reach is asked again after this long.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// How long any question waits for its answer.
const LONGEST: Duration = Duration::from_secs(60);

/// Who is asked.
pub enum EntriesServer {
    /// An RPC server.
    Rpc(Box<RpcEntries>),
    /// The stellar-core that this process runs.
    Core(CoreEntries),
}

impl EntriesServer {
    /// Says in a sentence why it did not answer.
    async fn look_up(&self, keys: &[LedgerKey]) -> Result<HeldEntries, String> {
        match self {
            Self::Rpc(server) => server.look_up(keys).await.map_err(|error| error.to_string()),
            Self::Core(core) => core.look_up(keys).await.map_err(|error| error.to_string()),
        }
    }
}

/// Asks questions, and waits for their answers.
pub struct AskedEntries {
    server: EntriesServer,
    /// That nobody answers, while that is so.
    silence: Mutex<Option<Silence>>,
    runtime: Handle,
    stop: watch::Receiver<bool>,
}

struct Silence {
    why: String,
    until: Instant,
    /// Somebody is finding out whether it is over.
    is_probed: bool,
}

impl AskedEntries {
    /// Will ask `server` on a runtime, until `stop` turns true. Asks it nothing yet.
    pub fn new(server: EntriesServer, runtime: Handle, stop: watch::Receiver<bool>) -> Self {
        Self { server, silence: Mutex::default(), runtime, stop }
    }

    fn ask(&self, keys: &[LedgerKey], within: Duration) -> Result<HeldEntries, String> {
        let within = within.min(LONGEST);
        self.runtime.block_on(async {
            tokio::select! {
                held = tokio::time::timeout(within, self.server.look_up(keys)) => held
                    .unwrap_or_else(|_| Err(format!("no answer came in {} s", within.as_secs_f32()))),
                () = stopped(self.stop.clone()) => Err("the service stops".to_owned()),
            }
        })
    }

    /// Whether the server answers about an entry that every network has.
    fn answers(&self) -> bool {
        let config_setting_id = ConfigSettingId::StateArchival;
        let key = LedgerKey::ConfigSetting(LedgerKeyConfigSetting { config_setting_id });
        self.ask(&[key], PROBED_WITHIN).is_ok()
    }

    /// Notes that the server answers nobody.
    fn is_silent(&self, why: String) -> UpstreamError {
        let until = Instant::now() + ASKED_AGAIN_AFTER;
        *self.silence.lock() = Some(Silence { why: why.clone(), until, is_probed: false });
        UpstreamError::OutOfReach(why)
    }

    /// Lets a question pass unless it would wait in vain.
    fn pass(&self) -> Result<(), UpstreamError> {
        let why = match &mut *self.silence.lock() {
            None => return Ok(()),
            Some(silence) if silence.is_probed || Instant::now() < silence.until => {
                return Err(UpstreamError::OutOfReach(silence.why.clone()));
            }
            Some(silence) => {
                silence.is_probed = true;
                silence.why.clone()
            }
        };
        if !self.answers() {
            return Err(self.is_silent(why));
        }
        *self.silence.lock() = None;
        Ok(())
    }
}

impl Upstream for AskedEntries {
    /// Blocks: to be called from a thread that the runtime does not need.
    fn look_up(
        &self,
        keys: &[LedgerKey],
        within: Duration,
    ) -> Result<UpstreamAnswer, UpstreamError> {
        self.pass()?;
        let begun = Instant::now();
        let held = self.ask(keys, within).or_else(|why| match self.answers() {
            false => Err(self.is_silent(why)),
            // It may have been unlucky once.
            true => self
                .ask(keys, within.saturating_sub(begun.elapsed()))
                .map_err(UpstreamError::Refused),
        })?;
        let entry =
            |held: HeldEntry| UpstreamEntry { entry: held.entry, live_until: held.live_until };
        let entries = held.entries.into_iter().map(|held| held.map(entry)).collect();
        Ok(UpstreamAnswer { as_of: held.as_of, entries })
    }
}
