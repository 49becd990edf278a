//! Index of passkey wallets: contracts of passkey-kit, in both generations. A wallet has *signers*,
//! each with limits and an expiration, in persistent or in temporary storage.

pub mod event;
pub mod fold;
pub mod lookup;
mod rows;
mod tables;

pub use rows::{PasskeyWallets, Summary};
