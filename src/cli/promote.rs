//! `orrery promote`: makes a reader, which was restored from a snapshot, a writer.

use clap::Args;
use orrery::domain::LedgerSeq;
use orrery::service::{self, Promoted, lost_ranges};
use orrery::store::StoreError;
use serde::Serialize;

use super::open::{self, Opened};
use super::{Common, Failure, output};

/// Make a reader, which was restored from a snapshot, a writer
///
/// A data directory from a snapshot is a reader: its webhooks, export, sinks and status messages are off, because
/// those of its writer go on. Promote it when the writer is gone for good, and never while the writer runs. Stop
/// the service first, and start it again afterwards. Webhooks then deliver the events of ledgers that are stored
/// from now on, and what waited when the snapshot was made. Events between the last ledger whose deliveries the
/// snapshot knew and this promotion are delivered when they are replayed (POST /rest/webhooks/{id}/replay).
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery promote --data-dir restored
  orrery promote --data-dir restored --webhooks-from 62000123")]
pub struct Promote {
    /// First ledger whose events webhooks deliver: one after those whose deliveries the snapshot knew. Without it
    /// the one behind the newest stored ledger
    #[arg(long, value_name = "LEDGER")]
    webhooks_from: Option<u32>,
    /// Print JSON, also on a terminal
    #[arg(long)]
    json: bool,
}

/// JSON report of a promotion.
#[derive(Serialize)]
struct Report<'a> {
    from: &'a str,
    snapshot: &'a str,
    webhooks_from: u32,
    /// Newest ledger whose deliveries the snapshot knew.
    webhooks_known: Option<u32>,
    /// Number of stored ledgers of which webhooks deliver nothing by themselves.
    passed_over: u64,
}

impl Promote {
    pub fn run(self, common: &Common) -> Result<(), Failure> {
        let settings = common.settings(Vec::new())?;
        let node = match open::open_existing(&settings)? {
            Opened::Local(node) => node,
            Opened::Running(_) => {
                let in_use = StoreError::InUse(settings.config.data_dir.clone());
                return Err(Failure::in_use(in_use.to_string())
                    .and("stop the service, promote, and start it again"));
            }
        };
        let promoted = service::promote(&node, self.webhooks_from.map(LedgerSeq))?;
        let Promoted { reader, webhooks_from, webhooks_known, passed_over } = &promoted;
        if self.json || !output::is_terminal() {
            return output::print_json(&Report {
                from: &reader.from,
                snapshot: &reader.snapshot,
                webhooks_from: webhooks_from.0,
                webhooks_known: webhooks_known.map(|ledger| ledger.0),
                passed_over: passed_over.ledgers(),
            });
        }
        let known = match webhooks_known {
            Some(known) => format!("the last one whose deliveries the snapshot knew is {known}"),
            None => "the snapshot knew no deliveries".to_owned(),
        };
        let between = match passed_over.is_empty() {
            true => String::new(),
            false => format!(
                "; a replay sends what lies between: ledgers {}",
                lost_ranges(passed_over.ranges())
            ),
        };
        output::print(&format!(
            "promoted: this was {}\nwebhooks deliver from ledger {webhooks_from} on; {known}{between}\n",
            reader.words()
        ))
    }
}
