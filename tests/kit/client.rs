//! A blocking HTTP client for requests to the processes under test.

use std::sync::LazyLock;
use std::time::Duration;

/// Opens a new connection for every request, because services start and stop.
pub static HTTP: LazyLock<reqwest::blocking::Client> = LazyLock::new(|| {
    // The library is built for TLS without a default crypto provider and fails without one. Another
    // test of this process may have installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::blocking::Client::builder().pool_max_idle_per_host(0);
    // Longer than the time limit for compiling a module.
    client.timeout(Duration::from_secs(120)).build().unwrap()
});
