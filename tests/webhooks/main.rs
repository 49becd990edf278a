//! Webhooks and streams: which events are sent, when and how often, through faults of receivers,
//! readers and crashes; safe target addresses; signatures that other implementations verify; the
//! receivers in the documentation.

mod addresses;
mod chats;
mod clocks;
mod combinations;
mod conditions;
mod deletion;
mod hostile;
mod kills;
mod markup;
mod matching;
mod messages;
mod naming;
mod neighbours;
mod places;
mod projects;
mod receiver;
mod receivers;
mod replayed_parts;
mod replays_ahead;
mod replays_named;
mod restarts;
mod resumed;
mod rotation;
mod said;
mod schedule;
mod service;
mod sockets;
mod streams;
mod templates;
mod triggers;
mod wire;
mod world;
