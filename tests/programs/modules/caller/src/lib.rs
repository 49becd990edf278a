//! Calls other contracts and goes on when they fail. As a program it emits before and after each call.
#![no_std]
use soroban_sdk::{
    Address, Env, Error, Symbol, Vec, contract, contractclient, contractevent, contractimpl,
    symbol_short,
};

#[contractclient(name = "InnerClient")]
pub trait Inner {
    fn work(env: Env, units: u32, fail: u32) -> Result<u32, Error>;
}

#[contractevent(topics = ["reached"])]
pub struct Reached {
    pub stage: Symbol,
    pub left: u32,
}

#[cfg(feature = "program")]
mod emitted {
    use retroshade_sdk::Retroshade;
    use soroban_sdk::{Address, Symbol, contracttype};

    #[derive(Retroshade)]
    #[contracttype]
    pub struct CallStage {
        pub me: Address,
        pub stage: Symbol,
        pub left: u32,
        pub ok: bool,
    }
}

#[contract]
pub struct Caller;

#[contractimpl]
impl Caller {
    /// Has `inner` work and survives its failure. Returns whether it succeeded.
    pub fn attempt(env: Env, inner: Address, units: u32, fail: u32) -> bool {
        stage(&env, symbol_short!("before"), 0, true);
        let ok = matches!(InnerClient::new(&env, &inner).try_work(&units, &fail), Ok(Ok(_)));
        stage(&env, symbol_short!("after"), 0, ok);
        ok
    }

    /// Has `inner` work and fails with it.
    pub fn insist(env: Env, inner: Address, units: u32, fail: u32) -> u32 {
        stage(&env, symbol_short!("before"), 0, true);
        let calls = InnerClient::new(&env, &inner).work(&units, &fail);
        stage(&env, symbol_short!("after"), 0, true);
        calls
    }

    /// Calls `descend` of the first contract of `path` with the rest of it, and survives its failure. Traps
    /// at the end when `fail_with_left` other contracts were left on its path. Returns how many calls below
    /// it succeeded, one within the other.
    pub fn descend(env: Env, path: Vec<Address>, fail_with_left: Option<u32>) -> u32 {
        let left = path.len();
        stage(&env, symbol_short!("before"), left, true);
        let mut below = 0;
        let mut ok = true;
        let mut rest = path;
        if let Some(next) = rest.pop_front() {
            match CallerClient::new(&env, &next).try_descend(&rest, &fail_with_left) {
                Ok(Ok(deeper)) => below = deeper + 1,
                _ => ok = false,
            }
        }
        stage(&env, symbol_short!("after"), left, ok);
        if fail_with_left == Some(left) {
            panic!("asked to");
        }
        below
    }
}

fn stage(env: &Env, stage: Symbol, left: u32, ok: bool) {
    Reached { stage: stage.clone(), left }.publish(env);
    #[cfg(feature = "program")]
    emitted::CallStage { me: env.current_contract_address(), stage, left, ok }.emit(env);
    let _ = ok;
}
