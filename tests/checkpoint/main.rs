//! The state at checkpoints of history archives: read as a second, naive reader does, refused when it
//! is not what the header names, resumed after kills, and within a bound on memory.

mod agreement;
mod hostile;
mod kills;
mod memory;
mod real;
mod records;
mod refusals;
mod server;
mod world;
