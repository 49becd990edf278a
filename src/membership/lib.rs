//! What decides which contracts are members of a project beside those that it names: who created each
//! contract, and which contracts have ever run a code.
//!
//! A feed consumer ([`Membership`]) keeps these facts from ingestion on, for ever (`rows`). They follow
//! from single transactions (`creation`, `mentions`), so they do not depend on the order in which ledgers
//! arrive. When a contract ran a code is told by the index of executables; this crate knows of whom
//! to ask ([`Facts`]). Those who tell users of a project's events ask [`Projects`]. What cannot be read is counted ([`Unread`]), not guessed.

mod consumer;
mod creation;
mod facts;
mod learnt;
mod mentions;
mod named;
mod projects;
mod rows;
#[cfg(test)]
mod tests;
mod updates;

pub use consumer::{Membership, keep_answers};
pub use creation::{Creator, creators};
pub use facts::Facts;
pub use learnt::Learnt;
pub use named::Named;
pub use projects::{
    AT_THE_END, Belongs, KnownMember, KnownMembers, MemberMark, MembersInLedger, Projects, Selected,
};
pub use rows::{CONSUMER, Creation, Unread};
pub use updates::{is_update, updated_codes};
