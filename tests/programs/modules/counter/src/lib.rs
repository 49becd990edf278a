//! A deployed contract whose author never heard of indexing programs. `counter_program` is written for it
//! by somebody else.
#![no_std]
use soroban_sdk::{Env, Symbol, contract, contractimpl, symbol_short};

const COUNTER: Symbol = symbol_short!("COUNTER");

#[contract]
pub struct Counter;

#[contractimpl]
impl Counter {
    pub fn __constructor(env: Env, start: u32) {
        env.storage().instance().set(&COUNTER, &start);
    }

    /// Adds `by` and returns the new count.
    pub fn increment(env: Env, by: u32) -> u32 {
        let mut count: u32 = env.storage().instance().get(&COUNTER).unwrap_or(0);
        count += by;
        env.storage().instance().set(&COUNTER, &count);
        env.storage().instance().extend_ttl(50, 100);
        #[allow(deprecated)]
        env.events().publish((COUNTER, symbol_short!("increment")), count);
        count
    }

    /// Sets the count to zero and returns what it was.
    pub fn reset(env: Env) -> u32 {
        let count = Self::count(env.clone());
        env.storage().instance().remove(&COUNTER);
        count
    }

    pub fn count(env: Env) -> u32 {
        env.storage().instance().get(&COUNTER).unwrap_or(0)
    }

    /// Not part of `counter_program`.
    pub fn forgotten(env: Env) -> u32 {
        Self::increment(env, 1)
    }
}
