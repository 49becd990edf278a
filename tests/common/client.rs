//! A client for plain questions to a process of ours.

use std::sync::LazyLock;
use std::time::Duration;

/// Every question on a connection of its own: services come and go.
pub static HTTP: LazyLock<reqwest::blocking::Client> = LazyLock::new(|| {
    // The library is built for TLS without saying whose; it refuses to start without any. Another
    // test of this process may have chosen before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::blocking::Client::builder().pool_max_idle_per_host(0);
    // Longer than a module may be compiled.
    client.timeout(Duration::from_secs(120)).build().unwrap()
});
