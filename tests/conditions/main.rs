//! Tests of conditions: their language, generated ones against a second implementation, and events.

mod decimal;
mod events;
mod generated;
mod language;
mod model;
