//! The sink of rows against a real PostgreSQL, which the tests start: Debian's package `postgresql`. They are skipped
//! where there is none.

mod broken;
mod bulk;
mod grown;
mod names;
mod refused;
mod swapped;
mod values;
mod ways;
mod world;
mod writers;
