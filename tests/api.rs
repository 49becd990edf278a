//! The HTTP interface, asked over real sockets: what it answers (against a model of real ledgers),
//! what it refuses, how it behaves as an HTTP server, and whether its description is true.

mod common {
    pub mod digest;
    pub mod http;
    pub mod pubnet;
    pub mod server;
    pub mod size;
}

mod rest {
    mod answers;
    mod completeness;
    mod description;
    mod health;
    mod parameters;
    mod protocol;
    mod tokens;
}
