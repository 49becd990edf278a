//! Pushing events to those who want to hear of them: which events ([`filter`]), where to and how safely
//! ([`target`]), and how a receiver knows who sent them ([`signature`]). Knows no route.

pub mod filter;
pub mod signature;
pub mod target;
