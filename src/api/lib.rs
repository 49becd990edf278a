//! HTTP interface: events, transactions, health and the other areas as REST, and JSON-RPC. Queries
//! [`orrery_store`], but does not depend on how it stores data.
//!
//! A request passes through these modules in order: [`server`] (connections and their limits);
//! [`gate`] (route, rate limit and token by [`identity`], its body by [`request_body`], its shares of
//! the [`budgets`]); a handler of its area, unless the response is cached ([`response_cache`]); and [`gate`]
//! again (compression, headers, log). Each area has a table of its routes ([`route`]); [`areas`] lists the
//! tables, in which [`router`] finds the route for a request. A handler is a function from what its kind of
//! route guarantees ([`call`]) to a response.

mod accounts;
mod allowance;
mod answer;
mod areas;
mod blocking;
mod body_parameters;
mod bounded;
mod budgets;
mod call;
mod catalogue;
mod changed_entry;
mod changes;
mod client;
mod completeness;
mod compression;
mod consumer_wait;
mod contracts;
mod cors;
mod deps;
mod description;
mod error;
mod events;
mod exported;
mod friendbot;
mod gate;
mod head;
mod health;
mod host;
mod identity;
mod json;
mod labels;
mod ledgers;
mod limits;
mod mcp;
mod members;
mod metrics;
mod names_wait;
mod page;
mod params;
mod reach;
mod reading;
mod relay;
mod replies;
mod request_body;
mod request_log;
mod response_cache;
mod retroshade;
mod route;
mod router;
mod rpc;
mod server;
mod settings;
mod shared_limit;
mod site;
mod status;
mod storage;
mod stored;
mod streamed_body;
mod streams;
mod tickets;
mod transactions;
mod webhooks;
mod wire;

pub use areas::routes;
pub use deps::{Deps, Friendbot, MetricsText, RequestObserver, RequestSummary};
pub use error::ApiError;
pub use exported::{ExportedNow, ExportedTables};
pub use head::LONGEST_URI;
pub use identity::Access;
pub use json::List as EventList;
pub use labels::AddressNames;
pub use request_body::LARGEST_BODY;
#[doc(hidden)]
pub use retroshade::{read_deploy, read_trial};
pub use route::Route;
pub use server::serve;
pub use settings::{ApiSettings, Tunables};
pub use storage::StorageError;
