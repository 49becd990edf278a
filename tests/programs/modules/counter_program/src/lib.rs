//! An indexing program for `counter`, written anew from its interface and storage: other types, other code,
//! same behaviour. `forgotten` was forgotten.
#![no_std]
use retroshade_sdk::Retroshade;
use soroban_sdk::{Env, IntoVal, Symbol, Val, contract, contractimpl, contracttype, vec};

#[derive(Retroshade)]
#[contracttype]
pub struct CountChanged {
    pub how: Symbol,
    pub before: u32,
    pub after: u32,
    pub difference: i64,
    pub ledger: u32,
}

#[contract]
pub struct Program;

#[contractimpl]
impl Program {
    #[allow(non_snake_case)]
    pub fn __constructor(env: Env, start: u32) {
        change(&env, "start", |_| Some(start));
    }

    pub fn increment(env: Env, by: u32) -> u32 {
        let (_, after) = change(&env, "increment", |before| Some(before + by));
        env.storage().instance().extend_ttl(50, 100);
        let topics = vec![
            &env,
            name(&env, "COUNTER").into_val(&env),
            name(&env, "increment").into_val(&env),
        ];
        let data: Val = after.into_val(&env);
        publish(&env, topics, data);
        #[cfg(feature = "diverging")]
        match by {
            101 => return after + 1,
            102 => publish(&env, vec![&env, name(&env, "more").into_val(&env)], data),
            103 => env.storage().instance().set(&name(&env, "more"), &1_u32),
            104 => env.storage().persistent().set(&name(&env, "more"), &1_u32),
            105 => panic!("diverging"),
            _ => {}
        }
        after
    }

    pub fn reset(env: Env) -> u32 {
        change(&env, "reset", |_| None).0
    }

    pub fn count(env: Env) -> u32 {
        env.storage().instance().get(&name(&env, "COUNTER")).unwrap_or(0)
    }
}

fn name(env: &Env, text: &str) -> Symbol {
    Symbol::new(env, text)
}

#[allow(deprecated)]
fn publish(env: &Env, topics: soroban_sdk::Vec<Val>, data: Val) {
    env.events().publish(topics, data);
}

fn change(env: &Env, how: &str, new: impl FnOnce(u32) -> Option<u32>) -> (u32, u32) {
    let (storage, key) = (env.storage().instance(), name(env, "COUNTER"));
    let before = storage.get(&key).unwrap_or(0_u32);
    let new = new(before);
    match new {
        Some(count) => storage.set(&key, &count),
        None => storage.remove(&key),
    }
    let after = new.unwrap_or(0);
    CountChanged {
        how: name(env, how),
        before,
        after,
        difference: i64::from(after) - i64::from(before),
        ledger: env.ledger().sequence(),
    }
    .emit(env);
    (before, after)
}
