//! Indexes of smart accounts and passkey wallets: which signers may sign for which account, derived
//! from the events that the accounts emit. The two indexes, [`smart`] and [`passkey`], have the
//! same structure ([`AccountIndex`]) and share no event.
//!
//! An event is recognised by its complete shape (`event`), because there is no list of account
//! contracts and their code differs between teams. The state of an account is a pure function of
//! its events (`fold`). A consumer of the store's feed ([`AccountConsumer`]) stores the recognised
//! events and the derived rows (`rows`) in one write batch with its cursor; the result does not
//! depend on the order in which ledgers arrive. Queries read those rows ([`with_signer`],
//! `lookup`). Evictions, for which no event is emitted, are kept separately ([`evictions`]).

mod consumer;
pub mod evictions;
mod index;
pub mod passkey;
mod position;
pub mod smart;
mod stats;
mod value;

pub use consumer::AccountConsumer;
pub use index::{AccountIndex, Emitted, Tag, with_signer};
pub use position::{NotAPosition, Position};
pub use stats::Stats;
