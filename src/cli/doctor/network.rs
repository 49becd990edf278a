//! Checks of the ledger source, and of this machine's clock against the source's newest ledger.

use std::time::Duration;

use orrery::config::Config;
use orrery::control::StatusReport;
use orrery::decode::decode;
use orrery::domain::{Fetched, LedgerSource};
use orrery::service::{Node, sources};
use orrery::steady::unix_now;

use super::super::serve::runtime;
use super::{Failure, Finding, State};

/// Time after which a source that has not answered counts as unreachable.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum number of seconds by which a close time may be ahead of this machine's clock; networks
/// tolerate such differences.
const MAX_CLOCK_SKEW: u64 = 10;
/// Age of the newest ledger, in seconds, from which on it counts as old. A network closes a ledger
/// about every five seconds.
const MAX_LEDGER_AGE: u64 = 120;
/// Maximum number of ledgers by which a following service may lag without being reported.
const MAX_LAG: u32 = 24;
/// Beginning of the report about a service whose source does not work: the name of that component.
const SOURCE_DOWN: &str = "source: ";

/// Reports the service, its source and the clock from the status of a running service; `unit` is its
/// systemd unit.
pub(super) fn of_service(report: &StatusReport, unit: Option<&str>) -> Vec<Finding> {
    let mut findings = vec![match &report.down {
        None => Finding::new("service", State::Ok, "it runs, and all of its components work"),
        Some(down) => {
            let text = match unit {
                Some(unit) => format!("{down}: see its log (`journalctl -u {unit}`)"),
                None => format!("{down}: see its log, which it writes to standard error"),
            };
            Finding::new("service", State::Broken, text)
        }
    }];
    let (Some(newest), Some(stored)) = (report.network_latest_ledger, report.latest_ledger) else {
        let (state, text) = match &report.down {
            None => (State::Ok, "the service follows no source, or has received no ledger yet"),
            Some(_) => (State::Look, "the service has received no ledger from a source"),
        };
        findings.push(Finding::new("source", state, text));
        return findings;
    };
    let behind = newest.saturating_sub(stored);
    let is_silent = report.down.as_ref().is_some_and(|down| down.starts_with(SOURCE_DOWN));
    findings.push(match behind {
        _ if is_silent => {
            let text = format!(
                "it does not work, as `service` says; its newest ledger was {newest}: check [source] and \
                 the network connection to it, or name others in source.gaps"
            );
            Finding::new("source", State::Broken, text)
        }
        0..=MAX_LAG => Finding::new("source", State::Ok, format!("its newest ledger is {newest}")),
        _ => {
            let text = format!(
                "{behind} ledgers are not stored yet: wait, and if that number grows use a faster \
                 source or disk"
            );
            Finding::new("source", State::Look, text)
        }
    });
    // Only a recent ledger allows conclusions about the clock.
    if let Some(closed) = report.latest_close_time.filter(|_| behind <= MAX_LAG) {
        findings.push(clock(closed, unix_now()));
    }
    findings
}

/// Asks the configured source for its newest ledger, as a service started now would.
pub(super) fn of_source(config: &Config, node: &Node) -> Result<Vec<Finding>, Failure> {
    let broken = |error: String| {
        let text = format!("{error}: check [source] and the network connection to it");
        Ok(vec![Finding::new("source", State::Broken, text)])
    };
    let live = match config.source.plan(node.store().network()) {
        Ok(plan) => plan.live,
        Err(error) => return broken(error.to_string()),
    };
    let Some(live) = live else {
        return Ok(vec![Finding::new("source", State::Ok, "no source is followed")]);
    };
    if live.kind().is_part_of_service() {
        let text = format!("{} runs as part of the service and was not checked", live.kind());
        return Ok(vec![Finding::new("source", State::Ok, text)]);
    }
    runtime()?.block_on(async {
        let asked = async {
            let following = sources::following(config, node).await;
            let following = following.map_err(|error| error.to_string())?;
            let Some(mut first) = following.and_then(|all| all.sources.into_iter().next()) else {
                return Err("there is no source".to_owned());
            };
            let newest = newest(first.source.as_mut(), node).await;
            newest.map_err(|error| format!("{}: {error}", first.source.name()))
        };
        match tokio::time::timeout(ANSWER_TIMEOUT, asked).await {
            Ok(Ok((ledger, closed))) => Ok(vec![
                Finding::new("source", State::Ok, format!("its newest ledger is {ledger}")),
                clock(closed, unix_now()),
            ]),
            Ok(Err(error)) => broken(error),
            Err(_) => broken(format!("no answer in {} s", ANSWER_TIMEOUT.as_secs())),
        }
    })
}

/// Returns the sequence and close time (UNIX seconds) of a source's newest ledger.
async fn newest(source: &mut dyn LedgerSource, node: &Node) -> Result<(u32, u64), String> {
    let network = node.store().network();
    let passphrase = source.passphrase().await.map_err(|error| error.to_string())?;
    if let Some(other) = passphrase.filter(|other| other != network.passphrase()) {
        return Err(format!("it serves the network \"{other}\", not {network}"));
    }
    let range = source.range().await.map_err(|error| error.to_string())?;
    let last = range.ok_or("it has no ledgers")?.last;
    match source.fetch(last).await.map_err(|error| error.to_string())? {
        Fetched::Ledgers(found) => {
            let newest = found.iter().max_by_key(|ledger| ledger.sequence);
            let newest =
                newest.ok_or("it does not return the ledger that it reports as its newest")?;
            let view = decode(&newest.xdr, network.id())
                .map_err(|error| format!("ledger {last}: {error}"))?;
            Ok((newest.sequence.0, view.header.close_time))
        }
        Fetched::NotYet | Fetched::Ended => {
            Err(format!("it does not have its newest ledger {last}"))
        }
    }
}

/// Compares this machine's clock with the close time of the network's newest ledger.
fn clock(closed: u64, now: u64) -> Finding {
    if closed > now.saturating_add(MAX_CLOCK_SKEW) {
        let text = format!(
            "this clock is {} s behind the newest ledger: set it (`timedatectl set-ntp true`)",
            closed - now
        );
        return Finding::new("clock", State::Broken, text);
    }
    match now.saturating_sub(closed) {
        age if age > MAX_LEDGER_AGE => {
            let text = format!(
                "the newest ledger is {age} s old: either the source or the network has stopped, or this \
                 clock is ahead (`timedatectl status`)"
            );
            Finding::new("clock", State::Look, text)
        }
        age => Finding::new("clock", State::Ok, format!("the newest ledger is {age} s old")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_compared_with_the_newest_ledger() {
        let state = |closed, now| clock(closed, now).state;
        assert_eq!(state(1000, 1005), State::Ok);
        assert_eq!(state(1010, 1000), State::Ok);
        assert_eq!(state(1011, 1000), State::Broken);
        assert_eq!(state(1000, 1120), State::Ok);
        assert_eq!(state(1000, 1121), State::Look);
    }

    #[test]
    fn problems_reported_by_a_service_are_included() {
        let report = StatusReport {
            latest_ledger: Some(100),
            network_latest_ledger: Some(200),
            down: Some("ingestion: no room".to_owned()),
            ..StatusReport::default()
        };
        let states: Vec<_> =
            of_service(&report, None).iter().map(|finding| (finding.what, finding.state)).collect();
        assert_eq!(states, [("service", State::Broken), ("source", State::Look)]);
        let sentence = |unit| of_service(&report, unit)[0].sentence.clone();
        assert!(
            sentence(Some("orrery@testnet.service")).contains("journalctl -u orrery@testnet.s")
        );
        assert!(!sentence(None).contains("journalctl"), "{}", sentence(None));
        let nothing = StatusReport { network_latest_ledger: None, ..report };
        assert_eq!(of_service(&nothing, None)[1].state, State::Look);
        assert_eq!(of_service(&StatusReport::default(), None)[1].state, State::Ok);
        let gone = StatusReport {
            latest_ledger: Some(200),
            network_latest_ledger: Some(200),
            down: Some("source: no connection".to_owned()),
            ..StatusReport::default()
        };
        let source = &of_service(&gone, None)[1];
        assert_eq!(source.state, State::Broken);
        assert!(source.sentence.contains("its newest ledger was 200"), "{}", source.sentence);
    }
}
