//! The HTTP interface, asked over real sockets: what it answers (against a model of real ledgers),
//! what it refuses, how it behaves as an HTTP server, and whether its description is true.

mod common {
    // Only started and watched here.
    #[allow(dead_code)]
    pub mod binary;
    pub mod client;
    pub mod digest;
    pub mod full;
    pub mod http;
    // Its rows are compared whole only where the store is asked directly.
    #[allow(dead_code)]
    pub mod model;
    pub mod pubnet;
    pub mod server;
    pub mod size;
}

mod rest {
    mod answers;
    mod completeness;
    mod connections;
    mod contract_sizes;
    mod costs;
    mod description;
    mod health;
    mod kept;
    mod neighbours;
    mod parameters;
    mod protocol;
    mod status;
    mod tokens;
}
