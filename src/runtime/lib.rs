//! What every part of a running process needs: shares of limited resources ([`budget`]), priorities
//! of threads ([`priority`]), confinement of child processes ([`confinement`]), durable files
//! ([`durable`]), health, metrics and logs ([`observe`]), and settings of the process ([`process`]).
//! Does not depend on the parts that use it.
#![warn(missing_docs)]

pub mod budget;
pub mod confinement;
pub mod durable;
pub mod observe;
pub mod priority;
pub mod process;
