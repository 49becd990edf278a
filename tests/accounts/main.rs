//! The indexes of smart accounts and passkey wallets: every layout of their events; random
//! histories in any order, compared with a second implementation that was written from the
//! reference alone; and HTTP responses.

mod answers;
mod cached;
mod clients;
mod damaged;
mod evicted;
mod histories;
mod hostile;
mod ingestion_order;
mod kills;
mod lists;
mod memory;
mod older;
mod passkey_naive;
mod passkey_tables;
mod shared_verifier;
mod smart_naive;
mod smart_tables;
mod stops;
mod world;
