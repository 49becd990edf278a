//! Reports on the follower's sources to health, metrics and log.

use std::time::Duration;

use orrery_ledger::domain::{LedgerRange, LedgerSeq};
use tokio::time::Instant;

use super::{Fault, Follower};
use crate::follow::WINDOW;
use crate::follow::member::{Kind, Member, ORDINARY_LAG, Trouble};
use crate::follow::window::Alarm;

impl Follower {
    /// Records the failure of a source: delays its next request, and reports the trouble when all
    /// sources are down.
    pub(super) fn record_fault(&mut self, index: usize, fault: Fault, asked: Instant) {
        let member = &mut self.members[index];
        let before = member.reason().map(str::to_owned);
        let (trouble, wait) = match fault {
            Fault::Trouble(trouble, wait) => (trouble, wait),
            Fault::TimedOut(reason) => {
                member.record_timeout();
                (Trouble::new(Kind::Fails, reason), Duration::ZERO)
            }
            Fault::Fatal(reason) => {
                tracing::error!("a source is no longer used: {reason}");
                member.set_fatal(reason);
                self.report_trouble();
                return;
            }
        };
        let delay = member.record_failure(trouble, asked, wait, &self.timing, &mut self.rng);
        member.update_out_of_range(self.next.unwrap_or_default());
        let (failures, retry_in_ms) = (member.failures(), delay.as_millis() as u64);
        let reason = member.reason().unwrap_or_default();
        // A long failure is logged ever more rarely.
        if before.as_deref() != Some(reason) || failures.is_power_of_two() {
            tracing::warn!(failures, retry_in_ms, "the source failed: {reason}");
        } else {
            tracing::debug!(failures, retry_in_ms, "the source failed: {reason}");
        }
        self.report_trouble();
    }

    /// Records a correct answer of a source.
    pub(super) fn record_success(&mut self, index: usize) {
        self.members[index].record_success();
        if self.members[index].is_troubled() {
            // It is not yet known whether the ledgers that it sent can be stored.
            return;
        }
        self.announce(index);
        let name = self.members[index].source.name();
        let instead = self.members[..index].iter().find_map(Member::reason);
        let detail = match instead {
            Some(reason) => format!("{name}, because {reason}"),
            None => name,
        };
        self.reports.health.up_with(self.reports.component, detail);
    }

    fn report_trouble(&self) {
        if self.members.iter().all(Member::is_down) {
            self.reports.health.down(self.reports.component, self.reasons());
        }
    }

    /// Returns why none of the sources can be used.
    pub(super) fn reasons(&self) -> String {
        if let Some(divergence) = self.divergence() {
            return divergence;
        }
        let mut reasons: Vec<&str> = self.members.iter().filter_map(Member::reason).collect();
        reasons.dedup();
        if reasons.is_empty() { "there is no source".to_owned() } else { reasons.join("; ") }
    }

    /// Returns the message about sources whose chain differs from the stored one; `None` when there
    /// is no such source.
    fn divergence(&self) -> Option<String> {
        let disputes = |member: &&Member| matches!(member.kind(), Some(Kind::Disputes(_)));
        let (first, names): (Vec<_>, Vec<_>) = self
            .members
            .iter()
            .filter(disputes)
            .map(|member| (member.kind(), member.source.name()))
            .unzip();
        let Some(Some(Kind::Disputes(ledger))) = first.first() else { return None };
        Some(format!(
            "{} has another ledger {ledger} than the one that is stored: {} was reset, or this \
             data directory holds wrong ledgers; ingestion has stopped: start again with a new, \
             empty data directory; this one keeps its ledgers",
            names.join(" and "),
            self.network,
        ))
    }

    /// Records that a source is in use from now on.
    pub(super) fn activate(&mut self, index: usize) {
        let before = self.active.replace(index);
        if before == Some(index) {
            return;
        }
        self.window.clear();
        // A bounded task runs beside the unbounded one, which the metrics describe.
        let members = self.members.iter().enumerate().filter(|_| self.task.last.is_none());
        for (other, member) in members {
            self.reports.metrics.set_source_active(&member.label, other == index);
        }
    }

    /// Logs that a source has answered, unless it was the last one that did. Sources that are tried in
    /// turn and do not work are not named as ones that ledgers come from.
    fn announce(&mut self, index: usize) {
        let before = self.announced.replace(index);
        if before == Some(index) {
            return;
        }
        let name = self.members[index].source.name();
        match before.map(|before| &self.members[before]) {
            None => tracing::info!("ledgers come from {name}"),
            Some(other) => match other.reason() {
                Some(reason) => tracing::warn!("ledgers come from {name} now: {reason}"),
                None => tracing::info!("ledgers come from {name} again"),
            },
        }
    }

    /// Logs once that all ledgers before `next`, which the network has not closed yet, were received.
    pub(super) fn announce_caught_up(&mut self, next: LedgerSeq) {
        let is_first = !std::mem::replace(&mut self.has_caught_up, true);
        if is_first
            && self.task.last.is_none()
            && let Some(ledger) = next.previous()
        {
            tracing::info!(ledger = ledger.0, "caught up: waiting for the network's next ledger");
        }
    }

    /// Raises the network's tip to `ledger`. The tip never falls: a source that lags, or ends far
    /// before the stored ledgers, says nothing about the network.
    pub(super) fn raise_tip(&self, index: usize, ledger: LedgerSeq) {
        let member = &self.members[index];
        let doubtful = matches!(
            member.kind(),
            Some(Kind::Refused(_) | Kind::Disputes(_) | Kind::OtherNetwork)
        );
        let behind = self.next.is_some_and(|next| ledger.0.saturating_add(ORDINARY_LAG) < next.0);
        let known = self.reports.health.network_latest();
        if !doubtful && !behind && known.is_none_or(|known| known < ledger) {
            self.reports.health.set_network_latest(ledger);
            self.reports.metrics.set_network_latest(ledger);
        }
    }

    /// Raises an alarm before the next ledger is gone, when no other source may have it.
    pub(super) fn watch_window(&mut self, index: usize, range: LedgerRange) {
        let Some(next) = self.next.filter(|_| self.active == Some(index)) else { return };
        if self.task.last.is_some() {
            return;
        }
        self.reports.metrics.set_source_window_left(next.0.saturating_sub(range.first.0));
        let alone = self.members.iter().filter(|member| !member.is_fatal()).count() == 1;
        let alarm = self.window.observe(Instant::now(), range, next);
        match alarm.filter(|_| alone) {
            None if self.reports.health.is_down(WINDOW) => {
                tracing::info!("the next ledger is no longer about to be dropped by the source");
                self.reports.health.up(WINDOW);
            }
            None => {}
            Some(Alarm { left, time }) => {
                let name = self.members[index].source.name();
                let hours = time.map(|time| time.as_secs() / 3600);
                let hours = hours.map(|hours| format!(", in about {hours} h")).unwrap_or_default();
                let text = format!(
                    "ledger {next}, the next one needed, is only {left} ledgers above the oldest that \
                     {name} still has, and will be gone{hours}: find out why storing is slow, or add a \
                     source to source.gaps that keeps older ledgers"
                );
                if !self.reports.health.is_down(WINDOW) {
                    tracing::error!("{text}");
                }
                self.reports.health.down(WINDOW, text);
            }
        }
        self.reports.metrics.set_source_window_alarm(self.reports.health.is_down(WINDOW));
    }
}
