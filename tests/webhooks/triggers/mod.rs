//! Triggers beside events: what subscriptions are told, beside a model that computes it from whole ledgers.

mod histories;
mod killed;
mod model;
mod networks;
mod refused;
mod scene;
