//! What decides which contracts are members of a project beside those that it names: who created each
//! contract, and which contracts have ever run a code.
//!
//! A feed consumer ([`Membership`]) keeps these facts from ingestion on, for ever (`rows`). They follow
//! from single transactions (`creation`, `of_transaction`), and from events ([`code_events`]), so they do not depend on
//! the order in which ledgers arrive, nor on which of both is removed first. When a contract ran a code is told by the
//! index of executables; this crate knows of whom to ask ([`Facts`]). Those who tell users of a project's events ask
//! [`Projects`]. What cannot be read is counted ([`Unread`]), not guessed.

mod adding;
mod answers;
mod consumer;
mod creation;
mod events;
mod facts;
mod learnt;
mod named;
mod of_transaction;
mod progress;
mod projects;
mod rows;
#[cfg(test)]
mod tests;

pub use answers::keep_answers;
pub use consumer::Membership;
pub use creation::{Creator, creators};
pub use events::code_events;
pub use facts::Facts;
pub use learnt::Learnt;
pub use named::Named;
pub use progress::{has_passed, lag};
pub use projects::{
    AT_THE_END, Belongs, KnownMember, KnownMembers, MemberMark, MembersInLedger, Projects, Selected,
};
pub use rows::{CONSUMER, Creation, Unread};
