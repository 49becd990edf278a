//! Fifth floor: how ledgers come into the store. Knows how a ledger is prepared and committed. May use
//! `encoding`, `indexes`, `db` and `state`.

pub(crate) mod commit;
pub(crate) mod contradiction;
pub(crate) mod index_rows;
pub(crate) mod ledger_batch;
pub(crate) mod live_position;
pub(crate) mod prepare;
