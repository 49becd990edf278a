//! Sixth floor: the feed, which passes committed ledgers, in the order of ingestion, to consumers that
//! process each of them. May use all floors below: `encoding`, `indexes`, `db`, `state` and `ingest`.
//!
//! A place is the 1-based position of a ledger in that order, and the list of runs maps places to
//! ledgers; there is no queue. A *consumer* has a name, column families of its own and a cursor:
//! the place up to which it has processed every ledger. The cursor is written in the same batch as
//! the changes that the consumer makes ([`consume`]), so that each ledger takes effect exactly once
//! despite crashes. Consumers are registered when the store is opened; the store depends on none of
//! them.
//!
//! Consumers of a *kind* are created and deleted while the store is open, and share column families
//! ([`kinds`]).
//!
//! Retention waits for consumers up to a limit ([`retention_floor`]). Ledgers that it removes before
//! a consumer has processed them are *lost* to that consumer; this is written before anything is
//! removed. So a ledger is either processed or lost, never both, and lost ledgers can be reported.
//!
//! A consumer's rows can also be changed outside of its steps ([`change`]): by requests of its
//! users, and by later results of its work. Steps and such changes exclude each other.
//!
//! A consumer that does not work in the order of ingestion reports which ledgers it has processed
//! ([`out_of_order`]).
//!
//! Data that a consumer needs from a whole ledger, and that no record contains, is gathered when
//! the ledger is prepared ([`consumers`]).
//!
//! Rows of a consumer belong to a *build*. A second build can be made next to the one that is
//! served, and replaces it with one write ([`rebuild`]).

pub(crate) mod change;
pub(crate) mod completeness;
pub(crate) mod consume;
pub(crate) mod consumers;
pub(crate) mod fingerprint;
pub(crate) mod kinds;
pub(crate) mod out_of_order;
pub(crate) mod rebuild;
pub(crate) mod retention_floor;
pub(crate) mod worker;
