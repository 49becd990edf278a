//! A program on an older SDK, for the target `wasm32-unknown-unknown`. Calls through a table; with the feature
//! `proposals` it also uses functions with two results and a table of references.
#![no_std]
#![cfg_attr(feature = "proposals", feature(asm_experimental_arch))]
use retroshade_sdk::Retroshade;
use soroban_sdk::{Address, Env, contract, contractimpl, contracttype};

#[derive(Retroshade)]
#[contracttype]
pub struct LegacyResult {
    pub who: Address,
    pub operation: u32,
    pub left: i64,
    pub right: i64,
    pub result: i64,
    pub ledger: u32,
}

#[contract]
pub struct Legacy;

#[contractimpl]
impl Legacy {
    /// Operation 0 adds, 1 subtracts, 2 multiplies, 3 divides by the right one and adds the remainder; emits
    /// and returns the result. Traps when there is no such operation, or no such result.
    pub fn compute(env: Env, who: Address, operation: u32, left: i64, right: i64) -> i64 {
        const OPERATIONS: [fn(i64, i64) -> i64; 4] = [add, subtract, multiply, divide];
        let operations = core::hint::black_box(&OPERATIONS);
        let result = operations[operation as usize](left, right);
        let ledger = env.ledger().sequence();
        LegacyResult { who, operation, left, right, result, ledger }.emit(&env);
        result
    }
}

fn add(left: i64, right: i64) -> i64 {
    left + right
}

fn subtract(left: i64, right: i64) -> i64 {
    left - right
}

fn multiply(left: i64, right: i64) -> i64 {
    left * right
}

#[cfg(not(feature = "proposals"))]
fn divide(left: i64, right: i64) -> i64 {
    left / right + left % right
}

#[cfg(feature = "proposals")]
fn divide(left: i64, right: i64) -> i64 {
    // The instruction traps on what cannot be divided, as the plain version does.
    unsafe { assembled::divide_and_add(left, right) }
}

#[cfg(feature = "proposals")]
mod assembled {
    core::arch::global_asm!(
        ".tabletype kept, externref",
        "kept:",
        ".functype divide_both (i64, i64) -> (i64, i64)",
        ".type divide_both,@function",
        "divide_both:",
        ".functype divide_both (i64, i64) -> (i64, i64)",
        "local.get 0",
        "local.get 1",
        "i64.div_s",
        "local.get 0",
        "local.get 1",
        "i64.rem_s",
        "end_function",
        ".globl divide_and_add",
        ".type divide_and_add,@function",
        "divide_and_add:",
        ".functype divide_and_add (i64, i64) -> (i64)",
        // Keep a reference to nothing; the remainder counts only if it is one.
        "ref.null_extern",
        "i32.const 1",
        "table.grow kept",
        "drop",
        "local.get 0",
        "local.get 1",
        "call divide_both",
        "i32.const 0",
        "table.get kept",
        "ref.is_null",
        "i64.extend_i32_u",
        "i64.mul",
        "i64.add",
        "end_function",
    );

    extern "C" {
        pub fn divide_and_add(left: i64, right: i64) -> i64;
    }
}
