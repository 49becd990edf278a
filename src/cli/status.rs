//! `orrery status`: what a data directory holds and whether a service runs on it.

use std::fmt::Write;

use clap::Args;
use orrery::control::{
    AttestationReport, ConsumerReport, CoveredRange, MarkedLedgers, STATUS, StatusReport,
};
use orrery::domain::{CoveredLedgers, LedgerRange};
use orrery::service::lost_ranges;
use orrery::steady::unix_now;

use super::open::{self, Opened};
use super::program_name::ProgramName;
use super::remote::Remote;
use super::{Common, Failure, output, programs};

/// Show what is stored and whether a service runs
///
/// Asks the running service, or reads the data directory when none runs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery status --data-dir d
  orrery status --data-dir d --json | jq .latest_ledger
  orrery status --data-dir d --json | jq .covered")]
pub struct Status {
    /// Show the state of an indexing program instead: its project's name, or its id
    program: Option<ProgramName>,
    /// Print JSON, also on a terminal
    #[arg(long)]
    json: bool,
}

/// Maximum number of ranges shown on a terminal.
const MAX_RANGES: usize = 10;

impl Status {
    pub fn run(self, common: &Common, remote: &Remote) -> Result<(), Failure> {
        if let Some(program) = &self.program {
            return programs::status(remote, program, self.json);
        }
        let settings = common.or_of_service(Vec::new())?.settings(Vec::new())?;
        let report = match open::look(&settings)? {
            Opened::Local(ledgers) => ledgers.report()?,
            Opened::Running(mut client) => client.ask(STATUS, &())?,
        };
        if self.json || !output::is_terminal() {
            return output::print_json(&report);
        }
        output::print(&table(&report, unix_now()))
    }
}

fn table(report: &StatusReport, now: u64) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<14} {value}");
    };
    row(
        "network",
        match report.network.as_str() {
            "custom" => format!("\"{}\"", report.network_passphrase),
            name => name.to_owned(),
        },
    );
    row(
        "service",
        match (&report.running, &report.listen) {
            (true, Some(address)) => format!("runs, http://{address}/rest"),
            (true, None) => "runs".to_owned(),
            (false, _) => "does not run".to_owned(),
        },
    );
    if let Some(words) = &report.reader {
        row("reader", words.clone());
    }
    if let Some(reason) = &report.down {
        row("down", reason.clone());
    }
    add_ranges(report, &mut row);
    if let Some(ledger) = report.latest_ledger {
        let closed = report.latest_close_time.map(|closed| {
            let age = output::duration(now.saturating_sub(closed));
            format!(", closed {} ({age} ago)", output::iso_time(closed))
        });
        row("latest", format!("{ledger}{}", closed.unwrap_or_default()));
    }
    if let Some(attestation) = &report.attestation {
        row("attested", attested(attestation, report.latest_ledger));
        for LedgerRange { first, last } in &attestation.waiting {
            row("waiting", format!("{first} to {last}, until validators attest them"));
        }
    }
    if let Some(ledger) = report.network_latest_ledger {
        row("network tip", ledger.to_string());
    }
    row("events", output::count(report.events));
    row("transactions", output::count(report.transactions));
    for (number, consumer) in report.consumers.iter().enumerate() {
        let name = if number == 0 { "consumers" } else { "" };
        row(name, describe(consumer));
    }
    row("version", format!("{}, store format {}", report.version, report.format_version));
    text
}

/// Adds rows about the stored ledgers.
fn add_ranges(report: &StatusReport, mut row: impl FnMut(&str, String)) {
    if report.covered.is_empty() {
        row("ledgers", "none".to_owned());
    }
    for (number, range) in report.covered.iter().take(MAX_RANGES).enumerate() {
        let name = if number == 0 { "ledgers" } else { "" };
        let CoveredLedgers { ledgers, events, digest, .. } = &range.covered;
        let events = output::count(*events);
        row(name, format!("{ledgers}, {events} events, digest {digest}"));
    }
    if let Some(more @ 1..) = report.covered.len().checked_sub(MAX_RANGES) {
        row("", format!("and {more} more ranges, which --json shows"));
    }
    for (name, marked, what) in marked(report) {
        row(name, format!("{} ledgers {what}: {}", output::count(marked.ledgers), listed(marked)));
    }
}

/// Returns the marked ledgers of each range, each with a name and what is not known of them.
fn marked(
    report: &StatusReport,
) -> impl Iterator<Item = (&'static str, &MarkedLedgers, &'static str)> {
    fn of_range(range: &CoveredRange) -> [(&'static str, &MarkedLedgers, &'static str); 3] {
        [
            ("reported", &range.reported, "are not as their headers say"),
            ("unproven", &range.unproven, "have rewritten events that are not proven"),
            ("from backup", &range.from_backup, "are known only from a backup"),
        ]
    }
    let all = report.covered.iter().flat_map(of_range);
    all.filter(|(_, marked, _)| !marked.is_empty())
}

/// Lists marked ledgers, and says if there are more.
fn listed(marked: &MarkedLedgers) -> String {
    let shown = marked.ranges.get(..MAX_RANGES).unwrap_or(&marked.ranges);
    let more = marked.ledgers.saturating_sub(shown.iter().map(LedgerRange::len).sum());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", lost_ranges(shown))
}

/// Describes in one line what is attested, where `latest` is the newest stored ledger.
fn attested(report: &AttestationReport, latest: Option<u32>) -> String {
    let AttestationReport { organisations, of, needed, .. } = report;
    let Some(ledger) = report.attested_ledger else {
        let reason = report.unattested_because.as_deref().unwrap_or("the reason is not known");
        return format!("nothing: {reason}");
    };
    let behind = match latest.map_or(0, |latest| latest.saturating_sub(ledger)) {
        0 => "the latest".to_owned(),
        1 => "1 ledger before the latest".to_owned(),
        behind => format!("{} ledgers before the latest", output::count(behind.into())),
    };
    match report.attested_by.as_deref() {
        Some("core") => format!("{ledger}, {behind}, by the stellar-core that is followed"),
        Some("backup") => format!("{ledger}, {behind}, as the backup says that was restored"),
        _ => format!(
            "{ledger}, {behind}, by {organisations} of {of} organisations ({needed} needed)"
        ),
    }
}

/// Describes the state of a consumer in one line.
fn describe(consumer: &ConsumerReport) -> String {
    let ConsumerReport { name, active, lag, lost, rebuild } = consumer;
    let behind = match lag {
        1 => "1 ledger behind".to_owned(),
        lag => format!("{} ledgers behind", output::count(*lag)),
    };
    let mut text = match (active, lag) {
        (_, 0) => format!("{name} has processed all ledgers"),
        (true, _) => format!("{name} is {behind}"),
        (false, _) => format!("{name} is not active, {behind}"),
    };
    if !lost.is_empty() {
        text.push_str(&format!(", missed {}", lost_ranges(lost.ranges())));
    }
    if let Some((done, of)) = rebuild {
        let (done, of) = (output::count(*done), output::count(*of));
        text.push_str(&format!(", is being rebuilt: {done} of {of} ledgers"));
    }
    text
}

#[cfg(test)]
mod tests {
    use orrery::domain::{Digest, LedgerHash};

    use super::*;

    fn covered(first_ledger: u32, last_ledger: u32) -> CoveredRange {
        CoveredRange {
            covered: CoveredLedgers {
                ledgers: LedgerRange::new(first_ledger, last_ledger),
                first_hash: LedgerHash::default(),
                last_hash: LedgerHash::default(),
                previous_hash: LedgerHash::default(),
                events: 1200,
                digest: Digest::from([0x1e; 32]),
            },
            attested_ledger: None,
            unattested_because: None,
            reported: MarkedLedgers::default(),
            unproven: MarkedLedgers::default(),
            from_backup: MarkedLedgers::default(),
        }
    }

    #[test]
    fn the_status_table_lists_ledgers_and_consumers() {
        let report = StatusReport {
            version: "0.1.0".to_owned(),
            format_version: "1.0.0".to_owned(),
            running: true,
            listen: Some("127.0.0.1:8484".to_owned()),
            network: "testnet".to_owned(),
            covered: vec![covered(10, 11), covered(997, 999)],
            latest_ledger: Some(999),
            latest_close_time: Some(1_000),
            attestation: Some(AttestationReport {
                attested_ledger: Some(992),
                organisations: 6,
                of: 7,
                needed: 5,
                ..AttestationReport::default()
            }),
            network_latest_ledger: Some(1_001),
            events: 1_234,
            consumers: vec![
                ConsumerReport { name: "export".to_owned(), active: true, ..Default::default() },
                ConsumerReport {
                    name: "webhooks".to_owned(),
                    active: true,
                    lag: 1,
                    ..ConsumerReport::default()
                },
                ConsumerReport {
                    name: "programs/7".to_owned(),
                    lag: 1_200,
                    lost: [LedgerRange::new(10, 10), LedgerRange::new(12, 40)]
                        .into_iter()
                        .collect(),
                    ..ConsumerReport::default()
                },
            ],
            ..StatusReport::default()
        };
        let table = table(&report, 1_060);
        let digest = "1e".repeat(32);
        for line in [
            "network        testnet",
            "service        runs, http://127.0.0.1:8484/rest",
            &format!("ledgers        10–11, 1,200 events, digest {digest}"),
            &format!("               997–999, 1,200 events, digest {digest}"),
            "latest         999, closed 1970-01-01T00:16:40Z (60 s ago)",
            "attested       992, 7 ledgers before the latest, by 6 of 7 organisations (5 needed)",
            "network tip    1001",
            "events         1,234",
            "transactions   0",
            "consumers      export has processed all ledgers",
            "               webhooks is 1 ledger behind",
            "               programs/7 is not active, 1,200 ledgers behind, missed 10, 12–40",
            "version        0.1.0, store format 1.0.0",
        ] {
            assert!(table.lines().any(|found| found == line), "{line} is not in\n{table}");
        }
        let many = (0..12).map(|number| covered(10 * number, 10 * number + 1)).collect();
        let many = super::table(&StatusReport { covered: many, ..StatusReport::default() }, 0);
        assert!(many.contains("90–91") && many.contains("and 2 more ranges"), "{many}");
        let core = AttestationReport {
            attested_ledger: Some(999),
            attested_by: Some("core".to_owned()),
            ..AttestationReport::default()
        };
        let line = attested(&core, Some(999));
        assert_eq!(line, "999, the latest, by the stellar-core that is followed");
        assert!(attested(&core, Some(1_000)).contains("999, 1 ledger before the latest, "));
        let because = Some("nobody signs".to_owned());
        let none = AttestationReport { unattested_because: because, ..Default::default() };
        assert_eq!(attested(&none, Some(999)), "nothing: nobody signs");
        let empty = super::table(&StatusReport::default(), 0);
        assert!(empty.contains("ledgers        none"), "{empty}");
    }
}
