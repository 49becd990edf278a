//! A program without structs: it emits what it is told to, right or wrong. What comes from here has no
//! specification.
#![no_std]
use retroshade_sdk::zephyr_emit;
use soroban_sdk::{Env, Val, Vec, contract, contractimpl};

#[contract]
pub struct Raw;

#[contractimpl]
impl Raw {
    /// Emits `fields` into `target`.
    pub fn emit(_env: Env, target: Val, fields: Val) {
        send(target.get_payload(), fields.get_payload());
    }

    /// Emits pairs of target and fields, one after the other.
    pub fn emit_all(_env: Env, rows: Vec<(Val, Val)>) {
        for (target, fields) in rows.iter() {
            send(target.get_payload(), fields.get_payload());
        }
    }

    /// Hands over two words as they are, whether they are values or not.
    pub fn emit_words(_env: Env, target: u64, fields: u64) {
        send(target, fields);
    }

    /// Emits and traps.
    pub fn emit_and_fail(_env: Env, target: Val, fields: Val) {
        send(target.get_payload(), fields.get_payload());
        panic!("asked to");
    }

    /// What the import returned, as a word.
    pub fn answer(_env: Env, target: Val, fields: Val) -> u64 {
        send(target.get_payload(), fields.get_payload())
    }
}

fn send(target: u64, fields: u64) -> u64 {
    // The one import that the derive uses, with nothing between.
    unsafe { zephyr_emit(target as i64, fields as i64) as u64 }
}
