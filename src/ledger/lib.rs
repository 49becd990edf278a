//! Closed ledgers of a Stellar network: the types that everything else is built on ([`domain`]),
//! decoding of `LedgerCloseMeta` into one borrowed view ([`decode`]), verification of what consensus
//! binds ([`verify`]), the validators whose signatures attest it ([`validators`]), and certificates of
//! a contract's events ([`certificate`]). Does no I/O, and links no native code.

pub mod certificate;
pub mod decode;
pub mod domain;
pub mod validators;
pub mod verify;

/// The example of the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct Readme;
