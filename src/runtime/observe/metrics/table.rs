//! The table of metrics. A metric is one line: the field that reports its values, its kind and
//! name, its labels and buckets if it has some, and the help text.

use prometheus::core::Collector;
use prometheus::{
    HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry, Result,
};

/// Upper bounds in seconds: from ten microseconds, in which an empty ledger is decoded, to the
/// longest waits.
const STEP_BUCKETS: [f64; 12] =
    [1e-5, 1e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.5, 2.5];
const HTTP_BUCKETS: [f64; 11] =
    [1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 0.1, 0.5, 2.5];

/// A kind of metric.
trait Kind: Collector + Clone + 'static {
    fn create(options: HistogramOpts, labels: &[&str]) -> Result<Self>;
}

impl Kind for IntCounter {
    fn create(options: HistogramOpts, _: &[&str]) -> Result<Self> {
        Self::with_opts(options.common_opts)
    }
}

impl Kind for IntCounterVec {
    fn create(options: HistogramOpts, labels: &[&str]) -> Result<Self> {
        Self::new(options.common_opts, labels)
    }
}

impl Kind for IntGauge {
    fn create(options: HistogramOpts, _: &[&str]) -> Result<Self> {
        Self::with_opts(options.common_opts)
    }
}

impl Kind for IntGaugeVec {
    fn create(options: HistogramOpts, labels: &[&str]) -> Result<Self> {
        Self::new(options.common_opts, labels)
    }
}

impl Kind for HistogramVec {
    fn create(options: HistogramOpts, labels: &[&str]) -> Result<Self> {
        Self::new(options, labels)
    }
}

fn registered<K: Kind>(registry: &Registry, options: HistogramOpts, labels: &[&str]) -> Result<K> {
    let metric = K::create(options, labels)?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

macro_rules! metrics {
    ($($field:ident: $Kind:ident, $name:literal, $([$($label:literal),+],)? $($buckets:ident,)? $help:literal;)*) => {
        /// All metrics of the process.
        pub struct Metrics {
            pub(super) registry: Registry,
            $(pub(super) $field: $Kind,)*
        }

        impl Metrics {
            /// Creates the metrics of the table, and registers them.
            pub(super) fn register(registry: Registry) -> Result<Self> {
                Ok(Self {
                    $($field: registered(
                        &registry,
                        HistogramOpts::new($name, $help)$(.buckets($buckets.to_vec()))?,
                        &[$($($label),+)?],
                    )?,)*
                    registry,
                })
            }
        }

        /// Name, kind (a type of the library) and labels of each metric.
        #[cfg(test)]
        pub(super) const METRICS: &[(&str, &str, &[&str])] =
            &[$(($name, stringify!($Kind), &[$($($label),+)?]),)*];
    };
}

metrics! {
    steps: HistogramVec, "orrery_step_seconds", ["step"], STEP_BUCKETS, "Duration of one step of ingestion, by step";
    ledgers: IntCounter, "orrery_ledgers_total", "Ledgers stored since the start";
    events: IntCounter, "orrery_events_total", "Events stored since the start";
    transactions: IntCounter, "orrery_transactions_total", "Smart-contract transactions stored since the start";
    refused: IntCounter, "orrery_ledgers_refused_total", "Ledgers of a source that were refused, because they are invalid or cannot be decoded";
    invocations: IntCounterVec, "orrery_invocations_total", ["binding"], "Successful invocations in checked ledgers, by how their events are bound to the header";
    faults_reported: IntCounter, "orrery_ledger_faults_reported_total", "Ledgers that differ from their header and were not refused, as trust.events says";
    attested_ledger: IntGauge, "orrery_attested_ledger", "Newest attested ledger of the newest stored range, 0 when none is";
    marked_ledgers: IntGaugeVec, "orrery_marked_ledgers", ["mark"], "Stored ledgers of which less is known than of others, whatever process stored them";
    latest_ledger: IntGauge, "orrery_latest_ledger", "Newest ledger stored";
    latest_closed: IntGauge, "orrery_latest_ledger_closed_seconds", "Close time of the newest stored ledger in UNIX seconds, 0 without one";
    component_up: IntGaugeVec, "orrery_component_up", ["component"], "1 for a component that works, 0 for one that does not";
    disk_free: IntGauge, "orrery_disk_free_bytes", "Free space on the disk of the data directory";
    network_latest: IntGauge, "orrery_network_latest_ledger", "Newest ledger that the source knows of, 0 while unknown";
    source_lag: IntGauge, "orrery_source_lag_ledgers", "Ledgers between the source's newest and the newest stored";
    source_active: IntGaugeVec, "orrery_source_active", ["source"], "1 for the source that ledgers come from";
    source_window_left: IntGauge, "orrery_source_window_left_ledgers", "Ledgers between the oldest that the source still has and the next one needed";
    source_window_alarm: IntGauge, "orrery_source_window_alarm", "1 while the next ledger may soon be gone from the source";
    consumer_lag: IntGaugeVec, "orrery_consumer_lag_ledgers", ["consumer"], "Stored ledgers that a consumer has not processed yet; for programs, of the slowest that runs";
    consumer_lost: IntGaugeVec, "orrery_consumer_lost_ledgers", ["consumer"], "Ledgers that a consumer did not receive in full; for programs, the sum over all";
    export_ledgers: IntGauge, "orrery_export_ledgers", "Ledgers in the export";
    export_failures: IntCounter, "orrery_export_failures_total", "Export attempts that failed and are retried";
    sink_connected: IntGaugeVec, "orrery_sink_connected", ["sink"], "1 for a sink with a connection to its database, 0 for one without";
    sink_lag_ledgers: IntGaugeVec, "orrery_sink_lag_ledgers", ["sink"], "Stored ledgers whose rows are not all in the database of a sink yet";
    sink_lag_seconds: IntGaugeVec, "orrery_sink_lag_seconds", ["sink"], "Seconds for which rows wait that are not in the database of a sink, 0 when none do";
    sink_rows: IntCounterVec, "orrery_sink_rows_total", ["sink"], "Rows sent to the database of a sink since the start";
    sink_failures: IntCounterVec, "orrery_sink_failures_total", ["sink"], "Times that a sink lost its connection, or stopped adding the rows of a project";
    store_bytes: IntGauge, "orrery_store_bytes", "Size of the store on the disk";
    cache_bytes: IntGauge, "orrery_store_cache_bytes", "Memory used by the store's caches";
    http_requests: IntCounterVec, "orrery_http_requests_total", ["route", "status"], "Answered requests, by route and status";
    http_seconds: HistogramVec, "orrery_http_request_seconds", ["route"], HTTP_BUCKETS, "Duration of requests, by route";
    cached_answers: IntCounterVec, "orrery_http_kept_answers_total", ["outcome"], "Lists that were answered from the cache (hit) or computed (miss)";
    budget_most: IntGaugeVec, "orrery_budget_limit", ["budget"], "Maximum amount that requests and connections share at a time, by budget";
    budget_taken: IntGaugeVec, "orrery_budget_taken", ["budget"], "Amount of a budget in use";
    budget_waiting: IntGaugeVec, "orrery_budget_waiting", ["budget"], "Requests that wait for a budget";
    budget_refused: IntCounterVec, "orrery_budget_refused_total", ["budget", "reason"], "Refused shares of a budget: all of it was in use, or the client had reached its own limit";
    webhook_subscriptions: IntGauge, "orrery_webhook_subscriptions", "Webhook subscriptions";
    webhook_waiting: IntGauge, "orrery_webhook_deliveries_waiting", "Webhook deliveries that wait for an attempt";
    webhook_in_flight: IntGauge, "orrery_webhook_attempts_in_flight", "Delivery attempts in progress";
    webhook_attempts: IntCounterVec, "orrery_webhook_attempts_total", ["result"], "Delivery attempts, by result";
    cpu_seconds: IntCounter, "process_cpu_seconds_total", "Total user and system CPU time spent in seconds.";
    resident_memory: IntGauge, "process_resident_memory_bytes", "Resident memory size in bytes.";
    virtual_memory: IntGauge, "process_virtual_memory_bytes", "Virtual memory size in bytes.";
    open_files: IntGauge, "process_open_fds", "Number of open file descriptors.";
    most_files: IntGauge, "process_max_fds", "Maximum number of open file descriptors.";
    threads: IntGauge, "process_threads", "Number of OS threads in the process.";
    started_at: IntGauge, "process_start_time_seconds", "Start time of the process since unix epoch in seconds.";
}
