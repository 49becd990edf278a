//! The HTTP API over real sockets: its responses (compared with a model of real ledgers), its
//! errors, its behaviour as an HTTP server, and whether its description is true.

mod rest {
    mod answers;
    mod changes;
    mod completeness;
    mod connections;
    mod contract_sizes;
    mod contracts;
    mod costs;
    mod decoded;
    mod description;
    mod health;
    mod ledgers;
    mod mcp;
    mod names;
    mod noisy_neighbours;
    mod one_event;
    mod origins;
    mod owners;
    mod parameters;
    mod projects;
    mod protocol;
    mod pruned;
    mod pruned_histories;
    mod public_read;
    mod response_cache;
    mod saturated;
    mod site;
    mod status;
    mod storage;
    mod storage_changes;
    mod storage_lab;
    mod tokens;
}
