//! What contracts hold, and what they held at each stored ledger.
//!
//! Every change is in the metadata of the stored transactions, and an index of the store says which
//! transactions changed an entry. A feed consumer ([`ContractData`]) adds what these cannot answer: which
//! keys each contract has (`rows`), where it was created, what was evicted; and when retention removes
//! transactions, it keeps what the newest of them said of each key (`keeper`). [`Lookup`] answers from
//! this what a key held at the end of a ledger: exactly, or not at all. What contracts held before the
//! stored ledgers comes from the state at a checkpoint ([`Recording`]).

mod by_key;
mod by_ledger;
mod changes;
mod checked;
mod consumer;
mod disputed;
mod entry;
mod filling;
mod found;
mod history;
mod keeper;
mod life;
mod listing;
mod lookup;
mod mentioned;
mod names;
mod recording;
mod removal;
mod rows;
mod scope;
mod seen;
#[cfg(test)]
mod tests;
mod transactions;

pub use by_ledger::{
    AllChanged, all_changed_in, changed_in, contracts_changed_in, ledgers_that_changed,
};
pub use changes::{
    Before, DataChange, Kind, Ttl, Unreadable, Written, data_changes, hash_of, hash_of_data_key,
};
pub use checked::{Checkpoint, checkpoints};
pub use consumer::ContractData;
pub use entry::{DataKey, Durability, held, live_until, modified, name, value};
pub use filling::{Filling, fill_some};
pub use found::Difference;
pub use history::{Event, Past, PastPage};
pub use life::{CodeLives, hash_of_code, key_of_data};
pub use listing::{Filter, ListError, Listed, MOST_ORDERED, Order, Page, Place, Wanted};
pub use lookup::{Entry, Held, Lookup, Updated};
pub use names::MOST_NAMES;
pub use recording::{RecordError, Recorded, Recording};
pub use removal::remove_some;
pub use rows::{CONSUMER, Given, Key, KeyTag, LAST_ORDER};
pub use scope::{Scope, are_recorded, scope, set_scope, set_watched, watched};
pub use transactions::{Change, Found, Transaction, WrittenEntry};
