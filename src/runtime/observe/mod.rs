//! What the process reports about itself: health, metrics, logs.

pub mod health;
pub mod history;
pub mod logs;
pub mod metrics;
