//! Indexes of smart accounts and passkey wallets: who may sign for which account, by what the accounts
//! themselves have emitted. Two indexes, [`smart`] and [`passkey`], with the same plan; they share no event.
//!
//! An event is recognised by its complete shape (`event`): no list of contracts exists, and their code differs
//! from team to team. What follows from the events of one account is a pure function (`fold`). A consumer of
//! the store's feed keeps what was recognised and what follows from it (`rows`, `consumer`), in one batch with
//! its cursor, and whatever the order is in which ledgers come; a reader answers from that (`lookup`). What
//! no event tells, because none is emitted when an entry is evicted, is kept apart ([`evictions`]).

mod emitted;
pub mod evictions;
pub mod passkey;
mod position;
mod rows;
pub mod smart;
mod value;

pub use emitted::Emitted;
pub use position::Position;
pub use rows::{Rows, RowsMut, Tag};
