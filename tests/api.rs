//! The HTTP interface, asked over real sockets: what it answers (against a model of real ledgers),
//! what it refuses, how it behaves as an HTTP server, and whether its description is true.

mod common {
    pub mod digest;
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
    mod description;
    mod health;
    mod kept;
    mod parameters;
    mod protocol;
    mod tokens;
}
