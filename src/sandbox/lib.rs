//! A Stellar network of its own, for the demo and for tests: [`network`] makes its ledgers, [`source`]
//! yields them as a ledger source, at the pace of [`paced`]. Does not depend on who reads them. [`past`]
//! runs calls in the same host on states of other networks.

pub mod network;
pub mod paced;
pub mod past;
pub mod source;

/// The example of the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct Readme;
