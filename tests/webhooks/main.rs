//! Events that go out by themselves: addresses that are safe to send to, signatures that others check, the
//! receivers of the documentation, and streams that lose nothing whoever is killed.

#[path = "../common"]
mod common {
    // Only started and watched here.
    #[allow(dead_code)]
    pub mod binary;
    pub mod client;
    #[allow(dead_code)]
    pub mod http;
    #[allow(dead_code)]
    pub mod lake_files;
    // Its rows are compared whole only where the store is asked directly.
    #[allow(dead_code)]
    pub mod model;
    #[allow(dead_code)]
    pub mod server;
    pub mod size;
}

mod addresses;
mod messages;
mod receivers;
mod resumed;
mod streams;
