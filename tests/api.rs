//! The HTTP API over real sockets: its responses (compared with a model of real ledgers), its
//! errors, its behaviour as an HTTP server, and whether its description is true.

mod common {
    // This test only starts and watches the binary.
    #[allow(dead_code)]
    pub mod binary;
    pub mod client;
    pub mod digest;
    pub mod full;
    pub mod http;
    // Only the store's tests compare whole rows.
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
