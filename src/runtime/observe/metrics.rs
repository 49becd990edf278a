//! Metrics of the process in the text format of Prometheus. Other parts report values; the table in
//! [`table`] defines names, labels and help texts.

mod process;
mod table;

use std::time::Duration;

use orrery_ledger::domain::LedgerSeq;
use orrery_ledger::verify::{Invocations, Verified};
use prometheus::{Encoder, HistogramTimer, Registry, TextEncoder};

pub use self::table::Metrics;
use crate::budget::Usage;

/// Steps of ingestion, in their order. Logs and benchmarks use the same names.
pub const STEPS: [&str; 6] = ["fetch", "decode", "verify", "prepare", "commit", "prune"];

/// Values of the label `binding` of invocations.
const BOUND: &str = "bound";
const REWRITTEN: &str = "rewritten";
const UNPROVEN: &str = "unproven";

/// Values of the label `result` of webhook delivery attempts.
const WEBHOOK_RESULTS: [&str; 6] =
    ["delivered", "refused", "unreachable", "gone", "given_up", "limited"];

/// Values of the label `reason` of refused budget requests.
const ALL_TAKEN: &str = "all_taken";
const OWN_LIMIT: &str = "own_limit";

/// Values of the label `outcome` of lookups of cached lists.
const FOUND: &str = "hit";
const NOT_FOUND: &str = "miss";

/// Error while metrics are set up or rendered.
#[derive(Debug, thiserror::Error)]
#[error("cannot prepare the metrics: {0}")]
pub struct MetricsError(#[from] prometheus::Error);

impl Metrics {
    /// Creates the metrics, all zero.
    pub fn new() -> Result<Self, MetricsError> {
        let metrics = Self::register(Registry::new())?;
        metrics.set_start_of_process();
        // Labels with known values are present from the start.
        for step in STEPS {
            metrics.steps.with_label_values(&[step]);
        }
        for result in WEBHOOK_RESULTS {
            metrics.webhook_attempts.with_label_values(&[result]);
        }
        for binding in [BOUND, REWRITTEN, UNPROVEN] {
            metrics.invocations.with_label_values(&[binding]);
        }
        for outcome in [FOUND, NOT_FOUND] {
            metrics.cached_answers.with_label_values(&[outcome]);
        }
        Ok(metrics)
    }

    /// Measures a step of [`STEPS`] from now until the timer is dropped.
    pub fn step(&self, name: &str) -> HistogramTimer {
        self.steps.with_label_values(&[name]).start_timer()
    }

    /// Reports a step of [`STEPS`] that was measured already.
    pub fn observe_step(&self, name: &str, duration: Duration) {
        self.steps.with_label_values(&[name]).observe(duration.as_secs_f64());
    }

    /// Reports a stored ledger and the number of events and transactions that were stored of it.
    pub fn ledger_stored(&self, ledger: LedgerSeq, events: u64, transactions: u64) {
        self.ledgers.inc();
        self.events.inc_by(events);
        self.transactions.inc_by(transactions);
        self.set_latest_ledger(ledger.max(LedgerSeq(self.latest_ledger.get() as u32)));
    }

    /// Reports the newest stored ledger.
    pub fn set_latest_ledger(&self, ledger: LedgerSeq) {
        self.latest_ledger.set(i64::from(ledger.0));
        self.update_lag();
    }

    /// Reports the newest attested ledger; `None` when none is.
    pub fn set_attested_ledger(&self, ledger: Option<LedgerSeq>) {
        self.attested_ledger.set(ledger.map_or(0, |ledger| i64::from(ledger.0)));
    }

    /// Reports the number of stored ledgers with each mark.
    pub fn set_marked_ledgers(&self, marked: impl IntoIterator<Item = (&'static str, u64)>) {
        for (mark, ledgers) in marked {
            let ledgers = i64::try_from(ledgers).unwrap_or(i64::MAX);
            self.marked_ledgers.with_label_values(&[mark]).set(ledgers);
        }
    }

    /// Reports what the checks of a ledger have found.
    pub fn ledger_verified(&self, verified: &Verified) {
        let Invocations { bound, rewritten, unproven } = verified.invocations;
        for (binding, count) in [(BOUND, bound), (REWRITTEN, rewritten), (UNPROVEN, unproven)] {
            self.invocations.with_label_values(&[binding]).inc_by(count);
        }
        self.faults_reported.inc_by(u64::from(verified.reported.is_some()));
    }

    /// Reports the newest ledger of the network, as far as the source has announced it.
    pub fn set_network_latest(&self, ledger: LedgerSeq) {
        self.network_latest.set(i64::from(ledger.0));
        self.update_lag();
    }

    /// Reports whether ledgers currently come from this source.
    pub fn set_source_active(&self, source: &str, active: bool) {
        self.source_active.with_label_values(&[source]).set(i64::from(active));
    }

    /// Reports the number of ledgers between the oldest one that the source still has and the next
    /// one needed.
    pub fn set_source_window_left(&self, ledgers: u32) {
        self.source_window_left.set(i64::from(ledgers));
    }

    /// Reports whether the source may soon remove the next ledger needed.
    pub fn set_source_window_alarm(&self, alarm: bool) {
        self.source_window_alarm.set(i64::from(alarm));
    }

    /// Reports a ledger that was not stored, because it does not link to the chain or cannot be
    /// decoded.
    pub fn ledger_refused(&self) {
        self.refused.inc();
    }

    fn update_lag(&self) {
        let lag = self.network_latest.get() - self.latest_ledger.get();
        self.source_lag.set(lag.max(0));
    }

    /// Reports the consumers of ledgers: for each kind its name, how many ledgers it is behind, and
    /// how many it has lost.
    pub fn set_consumers<'a>(&self, kinds: impl Iterator<Item = (&'a str, u64, u64)>) {
        // Removes kinds that are no longer reported.
        self.consumer_lag.reset();
        self.consumer_lost.reset();
        for (kind, lag, lost) in kinds {
            self.consumer_lag.with_label_values(&[kind]).set(number(lag));
            self.consumer_lost.with_label_values(&[kind]).set(number(lost));
        }
    }

    /// Reports for each component whether it works.
    pub fn set_components<'a>(&self, components: impl Iterator<Item = (&'a str, bool)>) {
        // Removes components that are no longer reported.
        self.component_up.reset();
        for (name, works) in components {
            self.component_up.with_label_values(&[name]).set(i64::from(works));
        }
    }

    /// Reports the close time of the newest stored ledger, UNIX seconds.
    pub fn set_latest_closed_at(&self, seconds: u64) {
        self.latest_closed.set(number(seconds));
    }

    /// Reports the free space on the disk of the data directory, in bytes.
    pub fn set_disk_free_bytes(&self, bytes: u64) {
        self.disk_free.set(number(bytes));
    }

    /// Reports the size of the store on disk, in bytes.
    pub fn set_store_bytes(&self, bytes: u64) {
        self.store_bytes.set(number(bytes));
    }

    /// Reports the memory used by the store's caches, in bytes.
    pub fn set_cache_bytes(&self, bytes: usize) {
        self.cache_bytes.set(number(bytes));
    }

    /// Reports an answered request. `route` is the route's pattern, never the path of the request.
    pub fn http_answered(&self, route: &str, status: u16, duration: Duration) {
        self.http_requests.with_label_values(&[route, &status.to_string()]).inc();
        self.http_seconds.with_label_values(&[route]).observe(duration.as_secs_f64());
    }

    /// Reports an answered list, and whether it came from the cache of earlier answers.
    pub fn list_answered(&self, from_cache: bool) {
        let outcome = if from_cache { FOUND } else { NOT_FOUND };
        self.cached_answers.with_label_values(&[outcome]).inc();
    }

    /// Reports the usage of a budget. The limit is left out when the budget has no common one.
    pub fn set_budget(&self, usage: &Usage) {
        let budget = &[usage.name];
        if usage.most < u64::MAX {
            self.budget_most.with_label_values(budget).set(number(usage.most));
        }
        self.budget_taken.with_label_values(budget).set(number(usage.taken));
        self.budget_waiting.with_label_values(budget).set(number(usage.waiting));
        for (reason, total) in [(ALL_TAKEN, usage.refused_all), (OWN_LIMIT, usage.refused_one)] {
            let counter = self.budget_refused.with_label_values(&[usage.name, reason]);
            counter.inc_by(total.saturating_sub(counter.get()));
        }
    }

    /// Reports the number of webhook subscriptions, and of deliveries that are waiting to be sent.
    pub fn set_webhooks(&self, subscriptions: usize, waiting: u64) {
        self.webhook_subscriptions.set(number(subscriptions));
        self.webhook_waiting.set(number(waiting));
    }

    /// Reports the number of delivery attempts in flight.
    pub fn set_webhooks_in_flight(&self, attempts: usize) {
        self.webhook_in_flight.set(number(attempts));
    }

    /// Reports a delivery attempt, with one of these results: delivered, refused (a status other
    /// than success), unreachable (no response), gone (status 410), given_up (the last attempt
    /// failed).
    pub fn webhook_attempted(&self, result: &str) {
        self.webhook_attempts.with_label_values(&[result]).inc();
    }

    /// Reports the number of ledgers in the export.
    pub fn set_exported_ledgers(&self, ledgers: u64) {
        self.export_ledgers.set(number(ledgers));
    }

    /// Reports a failed attempt to export.
    pub fn export_failed(&self) {
        self.export_failures.inc();
    }

    /// Reports how a sink is: whether it has a connection to its database, how many ledgers it lacks rows of, and for
    /// how many seconds.
    pub fn set_sink(&self, sink: &str, connected: bool, lag_ledgers: u32, lag_seconds: u64) {
        self.sink_connected.with_label_values(&[sink]).set(i64::from(connected));
        self.sink_lag_ledgers.with_label_values(&[sink]).set(i64::from(lag_ledgers));
        self.sink_lag_seconds.with_label_values(&[sink]).set(number(lag_seconds));
    }

    /// Reports rows that were sent to the database of a sink.
    pub fn sink_wrote(&self, sink: &str, rows: u64) {
        self.sink_rows.with_label_values(&[sink]).inc_by(rows);
    }

    /// Reports that a sink lost its connection, or stopped adding the rows of a project.
    pub fn sink_failed(&self, sink: &str) {
        self.sink_failures.with_label_values(&[sink]).inc();
    }

    /// Renders all metrics in the text format of Prometheus.
    pub fn render(&self) -> Result<String, MetricsError> {
        self.set_process();
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// Returns a count as the value of a gauge.
fn number(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn the_documentation_lists_all_metrics() {
        let documented: BTreeMap<_, _> = include_str!("../../../docs/metrics.md")
            .lines()
            .filter_map(|line| {
                let (name, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
                let is_metric = name.starts_with("orrery_") || name.starts_with("process_");
                is_metric.then_some((name, rest.split(" | ").next()?.to_owned()))
            })
            .collect();
        let described = table::METRICS.iter().map(|(name, kind, labels)| {
            let kind = kind.trim_start_matches("Int").trim_end_matches("Vec").to_lowercase();
            let labels = labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>();
            let by = if labels.is_empty() { "" } else { ", by " };
            (*name, format!("{kind}{by}{}", labels.join(", ")))
        });
        assert_eq!(documented, described.collect());
    }

    #[test]
    fn renders_what_was_reported() {
        let metrics = Metrics::new().unwrap();
        metrics.set_network_latest(LedgerSeq(110));
        metrics.ledger_stored(LedgerSeq(100), 7, 3);
        metrics.ledger_stored(LedgerSeq(99), 1, 1);
        drop(metrics.step("commit"));
        metrics.http_answered("/rest/health", 200, Duration::from_micros(300));
        metrics.list_answered(true);
        metrics.set_store_bytes(4096);
        metrics.set_cache_bytes(1024);
        metrics.set_components([("gone", true)].into_iter());
        metrics.set_components([("source", false), ("feed", true)].into_iter());
        metrics.set_latest_closed_at(1_700_000_000);
        metrics.set_attested_ledger(Some(LedgerSeq(93)));
        let invocations = Invocations { bound: 5, rewritten: 1, unproven: 0 };
        metrics.ledger_verified(&Verified { invocations, ..Verified::default() });
        metrics.ledger_verified(&Verified { invocations, ..Verified::default() });
        metrics.set_disk_free_bytes(512);
        let usage = Usage {
            name: "readers",
            most: 8,
            taken: 3,
            waiting: 2,
            refused_all: 5,
            refused_one: 4,
        };
        metrics.set_budget(&usage);
        metrics.set_budget(&Usage { refused_all: 6, ..usage });
        metrics.set_budget(&Usage { name: "requests", most: u64::MAX, ..usage });

        let text = metrics.render().unwrap();
        for line in [
            "orrery_ledgers_total 2",
            "orrery_events_total 8",
            "orrery_transactions_total 4",
            "orrery_latest_ledger 100",
            "orrery_source_lag_ledgers 10",
            "orrery_store_bytes 4096",
            "orrery_store_cache_bytes 1024",
            "orrery_component_up{component=\"source\"} 0",
            "orrery_component_up{component=\"feed\"} 1",
            "orrery_latest_ledger_closed_seconds 1700000000",
            "orrery_disk_free_bytes 512",
            "orrery_attested_ledger 93",
            "orrery_invocations_total{binding=\"bound\"} 10",
            "orrery_invocations_total{binding=\"rewritten\"} 2",
            "orrery_invocations_total{binding=\"unproven\"} 0",
            "orrery_ledger_faults_reported_total 0",
            "orrery_step_seconds_count{step=\"commit\"} 1",
            "orrery_step_seconds_count{step=\"prune\"} 0",
            "orrery_http_requests_total{route=\"/rest/health\",status=\"200\"} 1",
            "orrery_http_kept_answers_total{outcome=\"hit\"} 1",
            "orrery_http_kept_answers_total{outcome=\"miss\"} 0",
            "orrery_budget_limit{budget=\"readers\"} 8",
            "orrery_budget_taken{budget=\"readers\"} 3",
            "orrery_budget_waiting{budget=\"readers\"} 2",
            "orrery_budget_refused_total{budget=\"readers\",reason=\"all_taken\"} 6",
            "orrery_budget_refused_total{budget=\"readers\",reason=\"own_limit\"} 4",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("orrery_budget_limit{budget=\"requests\"}"));
        assert!(!text.contains("gone\"} 1"));
    }

    #[test]
    fn renders_what_the_process_uses() {
        let text = Metrics::new().unwrap().render().unwrap();
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("{name} is not in\n{text}")).parse::<u64>().unwrap()
        };
        let (resident, whole) =
            (value("process_resident_memory_bytes"), value("process_virtual_memory_bytes"));
        assert!((1 << 20..whole).contains(&resident), "{resident} of {whole}");
        assert!((3..value("process_max_fds")).contains(&value("process_open_fds")));
        assert!(value("process_threads") >= 1);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let age = now.abs_diff(value("process_start_time_seconds"));
        assert!(age < 86_400, "{age} s");
        assert!(value("process_cpu_seconds_total") < 86_400);
    }
}
