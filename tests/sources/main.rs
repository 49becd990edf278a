//! Network sources, followed into a real store while they fail: no wrong ledger is stored and none
//! is skipped, health reports the reason, and recovery is noticed.

mod core;
mod lake;
mod lake_in_s3;
mod outage;
mod rpc;
mod scene;
