//! Triggers beside events: what subscriptions are told, beside a model that computes it from whole ledgers.

mod deep;
mod exchange;
mod histories;
mod killed;
mod members;
mod model;
mod networks;
mod refused;
mod retention;
mod scene;
mod unjudged;
