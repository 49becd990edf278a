//! `orrery rebuild`: rebuilds the rows of a ledger consumer, or the recorded signatures, either directly
//! or through the running service.

use std::thread;
use std::time::Duration;

use clap::Args;
use orrery::control::{REBUILD, RebuildReport, RebuildRequest};
use orrery::service::lost_ranges;

use super::open::{self, Opened};
use super::{Common, Failure, output};

/// Rebuild the data of a consumer of ledgers from the stored ledgers
///
/// The present data is served until the new data is complete, and is then replaced in one step. While a
/// service runs on the data directory, the service does the work, and continues when this command ends.
/// `orrery status` lists the consumers. The tables of indexing programs are not rebuilt but completed:
/// `orrery backfill PROGRAM`. The name `signatures` stands for what trusted validators have signed: after a
/// change of `[trust] validators`, it is read again from the stored raw ledgers.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery status --data-dir d --json | jq .consumers
  orrery rebuild --data-dir d smart_accounts
  orrery rebuild --data-dir d passkey_wallets
  orrery rebuild --data-dir d signatures")]
pub struct Rebuild {
    /// Name of the consumer, or signatures
    name: String,
    /// Rebuild although ledgers that the present data includes are no longer stored in full
    #[arg(long)]
    allow_loss: bool,
    /// Print JSON, also on a terminal
    #[arg(long)]
    json: bool,
}

/// Interval between requests for the progress.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

impl Rebuild {
    pub fn run(self, common: &Common) -> Result<(), Failure> {
        let settings = common.settings(Vec::new())?;
        let bar = output::progress_bar(Some(0), "{bar:30} {pos}/{len} ledgers {eta} left");
        let show = |report: &RebuildReport| {
            bar.set_length(report.of);
            bar.set_position(report.done);
        };
        let name = self.name.clone();
        let begin = RebuildRequest { name, begin: true, allow_loss: self.allow_loss };
        let progress = RebuildRequest { begin: false, ..begin.clone() };
        let report = match open::open_existing(&settings)? {
            Opened::Running(mut client) => {
                let mut report = client.ask(REBUILD, &begin)?;
                while report.running {
                    show(&report);
                    thread::sleep(POLL_INTERVAL);
                    report = client.ask(REBUILD, &progress)?;
                }
                report
            }
            Opened::Local(ledgers) => {
                show(&ledgers.rebuild(&begin)?);
                while ledgers.rebuild_step(&self.name)? {
                    show(&ledgers.rebuild(&progress)?);
                }
                ledgers.rebuild(&progress)?
            }
        };
        bar.finish_and_clear();
        if self.json || !output::is_terminal() {
            return output::print_json(&report);
        }
        let mut text = format!("rebuilt from {} ledgers\n", output::count(report.of));
        if let Some(digest) = &report.digest {
            text.push_str(&format!("digest {digest}\n"));
        }
        if !report.lost.is_empty() {
            text.push_str(&format!("without ledgers {}\n", lost_ranges(report.lost.ranges())));
        }
        output::print(&text)
    }
}
