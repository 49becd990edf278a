//! Converts the configuration to the settings of the HTTP interface.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::api::{ApiSettings, MetricsFor, RateLimit, ScanLimits, UnknownParameters};
use crate::config::Config;
use crate::settings::{self, MetricsReaders};

/// Returns the HTTP interface's settings that `config` describes.
pub(super) fn of(config: &Config) -> ApiSettings {
    let (http, limits) = (&config.http, &config.limits);
    let mib = |number: NonZeroU32| u64::from(number.get()) << 20;
    ApiSettings {
        rate_limit: RateLimit::from_setting(limits.requests_per_second, limits.burst),
        forwarding_limit: RateLimit::from_setting(
            config.rpc.upstream_requests_per_second,
            config.rpc.upstream_requests_per_second.saturating_mul(4),
        ),
        cors_origins: http.cors_origins.iter().cloned().map(String::from).collect(),
        trusted_proxies: http.trusted_proxies.iter().map(|proxies| proxies.0).collect(),
        unknown_parameters: match http.unknown_parameters {
            settings::UnknownParameters::Refuse => UnknownParameters::Refuse,
            settings::UnknownParameters::Ignore => UnknownParameters::Ignore,
        },
        metrics_for: match http.metrics {
            MetricsReaders::Loopback => MetricsFor::Loopback,
            MetricsReaders::All => MetricsFor::All,
            MetricsReaders::Off => MetricsFor::Off,
        },
        connections: usize::try_from(http.connections.get()).unwrap_or(usize::MAX),
        connections_per_address: limits.connections_per_address.get().into(),
        requests_in_flight: limits.requests_in_flight.get().into(),
        bytes_in_flight: mib(limits.bytes_in_flight_mib),
        bytes_in_flight_per_client: mib(limits.bytes_in_flight_per_token_mib),
        streams: limits.streams.get().into(),
        streams_per_owner: limits.streams_per_token.get().into(),
        largest_answer: mib(config.queries.answer_mib),
        scan: ScanLimits {
            records: limits.scan_records.get().into(),
            index_rows: limits.scan_index_rows.get().into(),
            time: Duration::from_millis(limits.scan_ms.get().into()),
            page_bytes: mib(limits.page_mib),
            offset: limits.offset.into(),
        },
        answer_timeout: Duration::from_secs(limits.answer_seconds.get().into()),
        answer_bytes_per_second: u64::from(limits.answer_kib_per_second.get()) << 10,
        rpc_needs_token: config.rpc.require_token,
        most_accounts: config.indexers.most_accounts.get(),
        fixed_clock: Some(config.indexers.fixed_clock).filter(|seconds| *seconds > 0),
        fixed_network_ledger: Some(config.indexers.fixed_network_ledger).filter(|it| *it > 0),
        ..ApiSettings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_settings_equal_those_of_the_http_interface() {
        let (configured, own) = (of(&Config::default()), ApiSettings::default());
        assert_eq!(format!("{configured:?}"), format!("{own:?}"));
    }
}
