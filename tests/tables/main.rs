//! Tables of programs and SQL queries, with real workers: queries return what was emitted, through
//! kills, damage and attacks.

mod support;

mod attacks;
mod broken_workers;
mod capability;
mod chain;
mod conditions;
mod confinement;
mod corpus_attacks;
mod corpus_capability;
mod corpus_frames;
mod damage;
mod event_tables;
mod evolution;
mod exactness;
mod histories;
mod in_order;
mod kills;
mod limits;
mod owners;
mod relayout;
mod speed;
mod types;
