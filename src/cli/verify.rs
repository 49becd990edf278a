//! `orrery verify`: reads back everything that is stored and recomputes it.

use std::path::Path;

use clap::Args;
use indicatif::ProgressBar;
use orrery::auth;
use orrery::domain::{LedgerRange, LedgerSet, SummedLedgers};
use orrery::programs::storage::extensions;
use orrery::service::{self, lost_ranges};
use orrery::store::{Audit, AuditProgress, Marks, StoreError, audit_with};

use super::{Common, Failure, open, output};

/// Check that everything is stored as it was written
///
/// Reads the whole data directory back from disk, without any cache: every record, every index in both
/// directions, every link between ledgers. Recomputes every digest from the stored events, and decodes the
/// stored raw ledgers again and checks that their headers bind what is in them. Changes nothing. No service may
/// run on the directory at the same time: stop it, or verify a snapshot of the file system. Prints one line for
/// each range of ledgers, with the same digest as `orrery status`; or prints what is wrong, and exits with code 1.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery verify --data-dir d
  orrery verify --data-dir d --from 63092982 --to 63092993")]
pub struct Verify {
    /// First ledger to check
    #[arg(long, value_name = "LEDGER")]
    from: Option<u32>,
    /// Last ledger to check
    #[arg(long, value_name = "LEDGER")]
    to: Option<u32>,
}

/// Maximum number of problems that are printed.
const MAX_SENTENCES: usize = 20;

impl Verify {
    pub fn run(self, common: &Common) -> Result<(), Failure> {
        let settings = common.settings(Vec::new())?;
        let directory = &settings.config.data_dir;
        let (first, last) = (self.from.unwrap_or(0), self.to.unwrap_or(u32::MAX));
        if first > last {
            return Err(Failure::usage(format!("--from {first} is after --to {last}")));
        }
        let some = self.from.is_some() || self.to.is_some();
        let wanted = some.then(|| LedgerRange::new(first, last));
        let bar = output::progress_bar(Some(0), "{bar:30} {percent:>3} %  {msg}  {eta} left");
        let show = |at| show(&bar, at);
        let audited =
            audit_with(directory, &extensions(), wanted, settings.config.trust.policy(), &show);
        bar.finish_and_clear();
        let audit = audited.map_err(|error| match error {
            StoreError::Empty(directory) => open::nothing_in(&directory),
            error => open::explained(error, directory),
        })?;
        let tokens = auth::problems(&service::secrets(directory))
            .map_err(|error| open::explained(error, directory))?;
        let sentences: Vec<String> =
            audit.problems.iter().map(ToString::to_string).chain(tokens).collect();
        if sentences.is_empty() {
            return output::print(&summary(&audit));
        }
        for sentence in sentences.iter().take(MAX_SENTENCES) {
            output::tell(sentence);
        }
        Err(Failure::failed(verdict(directory, sentences.len(), audit.more_problems)))
    }
}

fn verdict(directory: &Path, problems: usize, more: bool) -> String {
    let count = match (problems, more) {
        (_, true) => format!("more than {} problems were found", output::count(problems as u64)),
        (1, _) => "1 problem was found".to_owned(),
        _ => format!("{} problems were found", output::count(problems as u64)),
    };
    let shown = if problems > MAX_SENTENCES {
        format!(", of which the first {MAX_SENTENCES} are shown")
    } else {
        String::new()
    };
    format!(
        "{count} in {}{shown}: restore a backup of the data directory, or import the ledgers into a \
         new one",
        directory.display()
    )
}

fn summary(audit: &Audit) -> String {
    let mut text = String::new();
    for SummedLedgers { ledgers, events, digest } in &audit.ranges {
        let (count, events) = (output::count(ledgers.len()), output::count(*events));
        text += &format!("ledgers {ledgers} ({count}), {events} events, digest {digest}\n");
    }
    if audit.ranges.is_empty() {
        text += "no ledgers\n";
    }
    text += &format!("{} raw ledgers were decoded again\n", output::count(audit.raw_ledgers));
    for (count, what) in
        [(audit.without_events, "events"), (audit.without_transactions, "transactions")]
    {
        if count > 0 {
            let count = output::count(count);
            text += &format!(
                "the {what} of {count} ledgers, or some of them, have been removed by retention and \
                 could not be checked\n"
            );
        }
    }
    let Marks { reported, unproven, from_backup } = &audit.marks;
    for (set, what) in [
        (reported, "are not as their headers say, and are stored as trust.events says"),
        (unproven, "have rewritten events that are not proven"),
        (
            from_backup,
            "were restored from a backup without their raw form: only the backup vouches \
                       for them",
        ),
    ] {
        if !set.is_empty() {
            let count = output::count(set.ledgers());
            text += &format!("{count} ledgers {what}: {}\n", listed(set));
        }
    }
    text
}

/// Lists the first ranges of a set of ledgers.
fn listed(set: &LedgerSet) -> String {
    let ranges = set.ranges();
    let shown = ranges.get(..MAX_SENTENCES).unwrap_or(ranges);
    let more = ranges.len().saturating_sub(MAX_SENTENCES);
    let more = if more > 0 { format!(" and {more} more ranges") } else { String::new() };
    format!("{}{more}", lost_ranges(shown))
}

fn show(bar: &ProgressBar, progress: AuditProgress) {
    bar.set_length(progress.ledgers);
    bar.set_position(progress.done);
    bar.set_message(format!("{} ledgers", output::count(progress.done)));
}

#[cfg(test)]
mod tests {
    use orrery::domain::{Digest, Network};

    use super::*;

    #[test]
    fn a_sound_directory_is_reported_with_one_line_per_range() {
        let range = |first, last| SummedLedgers {
            ledgers: LedgerRange::new(first, last),
            events: 1234,
            digest: Digest::default(),
        };
        let audit = Audit {
            network: Network::from_name_or_passphrase("testnet"),
            ranges: vec![range(2, 1001), range(5000, 5000)],
            problems: Vec::new(),
            more_problems: false,
            raw_ledgers: 7,
            without_events: 3,
            without_transactions: 0,
            marks: Marks { reported: LedgerRange::new(3, 5).into(), ..Marks::default() },
        };
        let text = summary(&audit);
        let zeros = "0".repeat(64);
        for line in [
            &format!("ledgers 2–1001 (1,000), 1,234 events, digest {zeros}"),
            &format!("ledgers 5000–5000 (1), 1,234 events, digest {zeros}"),
            "7 raw ledgers were decoded again",
            "the events of 3 ledgers, or some of them, have been removed by retention and could not \
             be checked",
            "3 ledgers are not as their headers say, and are stored as trust.events says: 3–5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert_eq!(text.lines().count(), 5);
    }

    #[test]
    fn the_verdict_counts_problems() {
        let at = Path::new("d");
        assert!(verdict(at, 1, false).starts_with("1 problem was found in d: restore"));
        let many = verdict(at, 1000, true);
        assert!(many.contains("more than 1,000 problems") && many.contains("first 20"), "{many}");
    }
}
