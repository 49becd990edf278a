//! Runs a program's module under wasmtime inside the contract host.
//!
//! A run builds an unmodified contract host for one transaction on the state before it. The host
//! calls the registered contracts in the way it calls natively compiled ones. Each such call is a
//! fresh instance of the program's module (`frame`), whose imports lead back into the host
//! (`interface`, `guest_memory`, `emitting`). All other contracts run in the host's own
//! interpreter, as does a contract that replaces its own code, for the rest of that transaction.
//!
//! | File | Content |
//! |---|---|
//! | `engine` | the engine: loading modules |
//! | `run`, `invocation` | input and output of a run, and what it requires of the calling thread |
//! | `execute` | building the host and invoking it |
//! | `frame`, `creation` | a call of a replaced contract; a contract that is created during the run |
//! | `interface`, `word`, `guest`, `guest_memory`, `emitting` | the boundary between guest and host |
//! | `state`, `lookups`, `snapshot` | state before the transaction; the same with code replaced |
//! | `keys`, `describe` | keys of ledger entries, and their human-readable names |
//! | `fidelity` | comparison with what the network recorded |
//! | `check`, `refused`, `cost`, `compiler`, `compiled`, `load`, `module`, `targets` | the steps from a module's bytes to something that can be run |
//! | `limits`, `settings` | limits of a run, and the configuration of wasmtime |
//! | `run_slots`, `watch`, `thread_clock` | how many runs may execute at a time, and stopping those that exceed their time |

mod check;
mod compiled;
pub mod compiler;
mod cost;
mod creation;
mod describe;
mod emitting;
mod engine;
mod error;
mod execute;
mod fidelity;
mod frame;
mod guest;
mod guest_memory;
mod interface;
mod invocation;
mod keys;
mod limits;
mod load;
mod lookups;
mod module;
mod refused;
mod run;
mod run_slots;
mod settings;
mod snapshot;
mod state;
mod targets;
mod thread_clock;
mod watch;
mod word;

pub use check::{CheckRules, ModuleFacts, contract_spec};
pub use engine::Engine;
pub use error::EngineError;
pub use fidelity::Fidelity;
pub use interface::{EMIT, EnvFunction, env_functions};
pub use invocation::{Invocation, Program, Recorded};
pub use limits::Limits;
pub use module::Module;
pub use refused::Refused;
pub use run::{GuestFault, Outcome, RunError};
pub use settings::{BACKGROUND_RUNS, CacheSettings, EngineSettings, THREAD_STACK};
pub use state::{EntryState, LookupFault, PreState, StateError, UpstreamError};
pub use targets::Targets;
pub use thread_clock::ThreadClock;
