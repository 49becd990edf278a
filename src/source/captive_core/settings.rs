//! Settings of a captive core.

use std::path::PathBuf;
use std::time::Duration;

use orrery_ledger::domain::{LedgerSeq, Network};

use super::query::QueryPort;

/// Settings of a captive core.
#[derive(Debug, Clone)]
pub struct CoreSettings {
    /// The executable: a path, or a name that is looked up in `PATH`.
    pub binary: PathBuf,
    /// Directory for core alone. It is created if it is missing, and may be wiped.
    pub storage: PathBuf,
    /// The network of the core.
    pub network: Network,
    /// What core does.
    pub mode: Mode,
    /// The operator's configuration file of core, which overrides the built-in configuration of the
    /// network: other validators, archives or ports.
    pub own_config: Option<PathBuf>,
    /// Port of core's HTTP interface. 0 takes the port that the operator's file or the mode sets;
    /// where neither does, a free port if `query` is set, else the interface is off.
    pub http_port: u16,
    /// Set to core's ports while it runs, for clients that request ledger entries or submit
    /// transactions; `None` when there are none.
    pub query: Option<QueryPort>,
    /// The first ledger that is needed. `None` begins after the archive's newest checkpoint when
    /// core follows its network, else at the oldest ledger.
    pub first: Option<LedgerSeq>,
    /// Queue sizes and timeouts.
    pub limits: Limits,
}

/// What core does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// Follows its network without an end.
    Online,
    /// Replays archived ledgers, and ends.
    Bounded {
        /// Last ledger of the replay.
        to: LedgerSeq,
    },
    /// Runs a network with a single node.
    Standalone,
}

/// Queue sizes and timeouts of a captive core.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Maximum number of ledgers that wait in memory.
    pub ledgers_in_memory: usize,
    /// Bytes of ledgers that wait in memory, from which further ledgers go to disk or core has to
    /// wait; one ledger may exceed the limit.
    pub bytes_in_memory: usize,
    /// Bytes of ledgers that wait on disk, from which core is stopped until they are fetched. For a
    /// standalone network: size of its ledger file, from which core is stopped briefly to shorten
    /// it.
    pub bytes_on_disk: u64,
    /// Time from SIGINT to SIGKILL.
    pub stop: Duration,
    /// Time after which a fetch returns that there is nothing yet.
    pub answer: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ledgers_in_memory: 20,
            bytes_in_memory: 64 << 20,
            bytes_on_disk: 1 << 30,
            stop: Duration::from_secs(10),
            // Less than the timeout of a follower's call.
            answer: Duration::from_secs(30),
        }
    }
}

/// How a core that follows its network reaches its first ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnlineStart {
    /// By replaying all ledgers: ledger 2 can be streamed in no other way.
    Genesis,
    /// From the checkpoint before the first ledger.
    Checkpoint,
}

impl OnlineStart {
    pub(super) fn at(first: LedgerSeq) -> Self {
        if first <= LedgerSeq::FIRST { Self::Genesis } else { Self::Checkpoint }
    }
}
