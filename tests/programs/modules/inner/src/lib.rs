//! Called by `caller`. Counts its calls, emits a row for each unit of work, and fails when asked to,
//! always after it has written and emitted.
#![no_std]
use soroban_sdk::{
    Env, contract, contracterror, contractevent, contractimpl, panic_with_error, symbol_short,
};

#[contracterror]
#[derive(Clone, Copy)]
pub enum Refusal {
    Asked = 7,
    Returned = 8,
}

#[contractevent(topics = ["worked"])]
pub struct Worked {
    pub units: u32,
    pub calls: u32,
}

#[cfg(feature = "program")]
mod emitted {
    use retroshade_sdk::Retroshade;
    use soroban_sdk::{Address, contracttype};

    #[derive(Retroshade)]
    #[contracttype]
    pub struct WorkDone {
        pub worker: Address,
        pub unit: u32,
        pub calls: u32,
    }
}

#[contract]
pub struct Inner;

#[contractimpl]
impl Inner {
    /// Emits `units` rows and returns how often it was called. Then `fail`: 0 is fine, 1 traps, 2 fails with
    /// an error, 3 returns an error.
    pub fn work(env: Env, units: u32, fail: u32) -> Result<u32, Refusal> {
        let storage = env.storage().instance();
        let key = symbol_short!("calls");
        let calls: u32 = storage.get(&key).unwrap_or(0) + 1;
        storage.set(&key, &calls);
        Worked { units, calls }.publish(&env);
        #[cfg(feature = "program")]
        for unit in 0..units {
            emitted::WorkDone { worker: env.current_contract_address(), unit, calls }.emit(&env);
        }
        match fail {
            0 => Ok(calls),
            1 => panic!("asked to"),
            2 => panic_with_error!(&env, Refusal::Asked),
            _ => Err(Refusal::Returned),
        }
    }
}
