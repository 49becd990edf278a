//! Tests of interfaces: generated and hostile ones, and recorded events of real contracts.

mod assets;
mod client;
mod forms;
mod generated;
mod hostile;
mod made;
mod matching;
mod reading;
mod recorded;
