//! A Stellar network of its own, for the demo and for tests: [`network`] makes its ledgers, [`source`]
//! yields them as a ledger source, at the pace of [`paced`]. Does not depend on who reads them.

pub mod network;
pub mod paced;
pub mod source;

/// The example of the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct Readme;
