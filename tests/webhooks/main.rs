//! Webhooks and streams: which events are sent, when and how often, through faults of receivers,
//! readers and crashes; safe target addresses; signatures that other implementations verify; the
//! receivers in the documentation.

mod addresses;
mod clocks;
mod combinations;
mod deletion;
mod hostile;
mod kills;
mod matching;
mod messages;
mod naming;
mod neighbours;
mod places;
mod receiver;
mod receivers;
mod replays_ahead;
mod replays_named;
mod restarts;
mod resumed;
mod rotation;
mod schedule;
mod service;
mod sockets;
mod streams;
mod wire;
mod world;
