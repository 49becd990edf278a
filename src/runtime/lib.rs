//! What every part of a running process needs: shares of limited resources ([`budget`]), priorities
//! of threads ([`priority`]), confinement of child processes ([`confinement`]), durable files
//! ([`durable`]), frames between processes ([`frames`]), the account of a process ([`account`]), work beside other work ([`beside`]), health, metrics and logs ([`observe`]),
//! settings of the process ([`process`]), writes that make no progress ([`stall`]), a clock for deadlines
//! ([`steady`]), and restarts of threads and tasks that panic ([`supervision`]).
//! Does not depend on the parts that use it.

pub mod account;
pub mod beside;
pub mod budget;
pub mod confinement;
pub mod durable;
pub mod frames;
pub mod observe;
pub mod priority;
pub mod process;
pub mod stall;
pub mod steady;
pub mod supervision;
