//! Settings of the HTTP interface: where it listens, the limits on clients' requests, the web site, and
//! the lookups of accounts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;

use crate::units::{Kib, Mib, Millis, Seconds};
use crate::values::{CorsOrigin, MetricsReaders, Proxies, PublicUrl, UnknownParameters};
use crate::{nonzero, section};

section! {
    /// `[http]`
    pub struct Http {
        /// Address and port to listen on.
        pub listen: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8484);
        /// Origins whose web pages may use routes that need a token (CORS).
        pub cors_origins: Vec<CorsOrigin> = Vec::new();
        /// Proxies whose `X-Forwarded-For` is trusted for the client's address.
        pub trusted_proxies: Vec<Proxies> = Vec::new();
        /// Maximum number of concurrent connections.
        pub connections: NonZeroU32 = nonzero!(1024);
        /// Clients that may read `/metrics`.
        pub metrics: MetricsReaders = MetricsReaders::default();
        /// What becomes of a request with a parameter that its route does not have.
        pub unknown_parameters: UnknownParameters = UnknownParameters::default();
        /// Whether events, transactions, contracts, what they hold, and ledgers can be read without a token.
        pub public_read: bool = false;
        /// Address at which others reach the service, to which messages link.
        pub public_url: PublicUrl = PublicUrl::default();
    }
}

impl Http {
    /// Whether an address, in its canonical form, belongs to a trusted proxy.
    pub fn is_trusted_proxy(&self, address: IpAddr) -> bool {
        // The operator may have written an IPv4 address as an IPv6 socket shows it.
        let mapped = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().into(),
            address => address,
        };
        let has = |Proxies(subnet): &Proxies| subnet.contains(&address) || subnet.contains(&mapped);
        self.trusted_proxies.iter().any(has)
    }
}

section! {
    /// `[limits]`: limits for one client, and for all clients together. A client is an owner with all
    /// its tokens, or an address without a token.
    pub struct Limits {
        /// Requests per second of an owner, or of an address on public routes; 0 for no limit.
        pub requests_per_second: u32 = 50, "a whole number from 0 (no limit) to 4294967295";
        /// Number of requests that may come at once after a pause; 0 for no limit.
        pub burst: u32 = 200, "a whole number from 0 (no limit) to 4294967295";
        /// Maximum number of concurrent requests of one client.
        pub requests_in_flight: NonZeroU32 = nonzero!(32);
        /// Maximum number of concurrent connections of one address (of one /64 network for IPv6).
        pub connections_per_address: NonZeroU32 = nonzero!(64);
        /// Maximum size of request and response bodies in memory, of all requests, in MiB.
        pub bytes_in_flight_mib: Mib = Mib::new(nonzero!(256));
        /// Maximum size of request and response bodies in memory, of one client, in MiB. All tokens of
        /// an owner have this together, whatever the name of the setting says.
        pub bytes_in_flight_per_token_mib: Mib = Mib::new(nonzero!(64));
        /// Seconds within which a client must have read a response, in addition to those for its
        /// length.
        pub answer_seconds: Seconds = Seconds::new(nonzero!(10));
        /// Length of a response in KiB that gives the client one more second.
        pub answer_kib_per_second: Kib = Kib::new(nonzero!(64));
        /// Maximum number of concurrent event streams of all clients. Each occupies a connection.
        pub streams: NonZeroU32 = nonzero!(512);
        /// Maximum number of concurrent event streams of one owner. All tokens of an owner have this
        /// together, whatever the name of the setting says.
        pub streams_per_token: NonZeroU32 = nonzero!(64);
        /// Maximum number of rows that `offset` may skip.
        pub offset: u32 = 10_000;
        /// Maximum number of event blocks or transactions that one request may read.
        pub scan_records: NonZeroU32 = nonzero!(20_000);
        /// Maximum number of index rows that one request may examine.
        pub scan_index_rows: NonZeroU32 = nonzero!(200_000);
        /// Maximum time that one request may search for rows, in milliseconds.
        pub scan_ms: Millis = Millis::new(nonzero!(2000));
        /// Size in MiB at which a page ends, even if it has fewer rows than requested.
        pub page_mib: Mib = Mib::new(nonzero!(8));
    }
}

impl Limits {
    /// Returns an error message when limits contradict each other. A response of `answer_mib` must
    /// fit into one client's memory limit together with its request.
    pub fn validation_error(&self, answer_mib: Mib) -> Option<String> {
        let (all, one) = (self.bytes_in_flight_mib, self.bytes_in_flight_per_token_mib);
        if one > all {
            return Some(format!(
                "limits.bytes_in_flight_per_token_mib is {one} and limits.bytes_in_flight_mib {all}: one \
                 client cannot have more than all"
            ));
        }
        (answer_mib >= one).then(|| {
            format!(
                "queries.answer_mib is {answer_mib} and limits.bytes_in_flight_per_token_mib {one}: no \
                 query would be answered"
            )
        })
    }
}

section! {
    /// `[site]`: the web site.
    pub struct Site {
        /// File with names of addresses, which the site shows beside them; empty for none.
        pub labels: PathBuf = PathBuf::new(), "a file, such as \"/etc/orrery/labels\"";
    }
}

section! {
    /// `[indexers]`
    pub struct Indexers {
        /// Maximum number of accounts in the response of a lookup.
        // Clients accept responses of at most 1 MiB, which more than 3000 accounts may exceed.
        pub most_accounts: NonZeroU32 = nonzero!(3000);
        /// UNIX time in seconds against which expirations of signers are compared; 0 uses the
        /// clock.
        pub fixed_clock: u64 = 0, "UNIX seconds, or 0 for the clock";
        /// Ledger sequence against which expirations of signers are compared; 0 uses the newest
        /// known ledger.
        pub fixed_network_ledger: u32 = 0, "a ledger up to 4294967295, or 0 for the network's";
    }
}

impl Indexers {
    /// Returns the fixed UNIX time in seconds against which expirations of signers are compared;
    /// `None` for the current time.
    pub fn clock(&self) -> Option<u64> {
        Some(self.fixed_clock).filter(|seconds| *seconds > 0)
    }

    /// Returns the fixed ledger sequence against which expirations of signers are compared; `None`
    /// for the newest known ledger.
    pub fn network_ledger(&self) -> Option<u32> {
        Some(self.fixed_network_ledger).filter(|ledger| *ledger > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_response_limit_must_fit_into_the_limit_per_token() {
        let limits = Limits::default();
        let mib = |number: u32| Mib::new(number.try_into().unwrap());
        assert_eq!(limits.validation_error(mib(16)), None);
        assert_eq!(limits.validation_error(mib(63)), None);
        // The request takes some bytes as well.
        assert!(limits.validation_error(mib(64)).unwrap().contains("queries.answer_mib is 64"));
        let upside_down = Limits { bytes_in_flight_mib: mib(63), ..limits };
        assert!(upside_down.validation_error(mib(16)).unwrap().contains("more than all"));
    }
}
