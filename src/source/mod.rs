//! Where ledgers come from.

pub mod verify;
